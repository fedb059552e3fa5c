//! Hash keys: where a record belongs among the shards of a stream, 0 to 2^128 - 1.

use md5::{Digest, Md5};

/// The hash key of a partition key: its MD5 as a big-endian number.
pub(super) fn hash_key(partition_key: &str) -> u128 {
    u128::from_be_bytes(Md5::digest(partition_key.as_bytes()).into())
}

/// A hash key from its decimal digits.
pub(super) fn parse_hash_key(text: &str) -> Option<u128> {
    // `parse` alone would take a plus sign.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
