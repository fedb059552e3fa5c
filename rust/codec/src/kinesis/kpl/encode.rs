//! Aggregates made: byte for byte those of aws-kinesis-agg from the same user records.
//!
//! Both tables stand in front of the records, keys in the order in which they were first seen, each once; the fields of a
//! record ascend; there are no tags.

use std::collections::HashMap;
use std::fmt;

use md5::Digest;

use super::protobuf::{bytes_field_len, put_bytes, put_varint, varint_len};
use super::{DIGEST, MAGIC, MAX_KEY_CHARACTERS};
use crate::kinesis::hash_key::parse_hash_key;

/// Why a user record cannot be put.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UserRecordError {
    /// Its partition key has no character, or more than 256: how many.
    PartitionKey(usize),
    /// Its explicit hash key, which is no decimal number from 0 to 2^128 - 1.
    ExplicitHashKey(String),
}

impl fmt::Display for UserRecordError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PartitionKey(count) => {
                write!(out, "a partition key has from 1 to {MAX_KEY_CHARACTERS} characters, not {count}")
            }
            Self::ExplicitHashKey(key) => {
                let shown: String = key.chars().take(60).collect();
                write!(out, "an explicit hash key is a decimal number from 0 to 2^128 - 1, not {shown:?}")
            }
        }
    }
}

impl std::error::Error for UserRecordError {}

/// An aggregate that is being filled.
#[derive(Clone, Debug, Default)]
pub struct Aggregate {
    partition_keys: Table,
    explicit_hash_keys: Table,
    records: Vec<u8>,
    count: usize,
    /// Partition key and explicit hash key of the first user record, which are those of the whole.
    first: Option<(String, Option<String>)>,
}

/// Keys by index, encoded.
#[derive(Clone, Debug, Default)]
struct Table {
    indexes: HashMap<String, u64>,
    encoded: Vec<u8>,
}

impl Table {
    /// The index that `key` has, or would have, and the bytes that it would add.
    fn look_up(&self, key: &str) -> (u64, usize) {
        match self.indexes.get(key) {
            Some(index) => (*index, 0),
            None => (self.indexes.len() as u64, bytes_field_len(key.len())),
        }
    }

    fn add(&mut self, field: u8, key: &str) -> u64 {
        let (index, added) = self.look_up(key);
        if added > 0 {
            put_bytes(field, key.as_bytes(), &mut self.encoded);
            self.indexes.insert(key.to_owned(), index);
        }
        index
    }
}

impl Aggregate {
    /// User records in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of its record by the limits of the service: its own, and those of its partition key.
    #[must_use]
    pub fn size(&self) -> usize {
        let key = self.first.as_ref().map_or(0, |(key, _)| key.len());
        MAGIC.len() + self.message_len() + DIGEST + key
    }

    fn message_len(&self) -> usize {
        self.partition_keys.encoded.len() + self.explicit_hash_keys.encoded.len() + self.records.len()
    }

    /// [`Aggregate::size`] with one more user record, of `data_len` bytes.
    #[must_use]
    pub fn size_with(&self, partition_key: &str, data_len: usize, explicit_hash_key: Option<&str>) -> usize {
        let (index, key_added) = self.partition_keys.look_up(partition_key);
        let hash_key = explicit_hash_key.map(|key| self.explicit_hash_keys.look_up(key));
        let record = record_len(index, hash_key.map(|(index, _)| index), data_len);
        let outer = if self.is_empty() { partition_key.len() } else { 0 };
        let keys = outer + key_added + hash_key.map_or(0, |(_, added)| added);
        bytes_field_len(record).saturating_add(self.size() + keys)
    }

    /// Adds a user record.
    ///
    /// # Errors
    /// The service would not take one of its keys. Nothing is added.
    pub fn add(
        &mut self,
        partition_key: &str,
        data: &[u8],
        explicit_hash_key: Option<&str>,
    ) -> Result<(), UserRecordError> {
        let characters = partition_key.chars().count();
        if !(1..=MAX_KEY_CHARACTERS).contains(&characters) {
            return Err(UserRecordError::PartitionKey(characters));
        }
        if let Some(key) = explicit_hash_key.filter(|key| parse_hash_key(key).is_none()) {
            return Err(UserRecordError::ExplicitHashKey(key.to_owned()));
        }
        let index = self.partition_keys.add(1, partition_key);
        let hash_key = explicit_hash_key.map(|key| self.explicit_hash_keys.add(2, key));
        let out = &mut self.records;
        out.push(3 << 3 | 2);
        put_varint(record_len(index, hash_key, data.len()) as u64, out);
        out.push(1 << 3);
        put_varint(index, out);
        if let Some(index) = hash_key {
            out.push(2 << 3);
            put_varint(index, out);
        }
        put_bytes(3, data, out);
        self.first.get_or_insert_with(|| (partition_key.to_owned(), explicit_hash_key.map(str::to_owned)));
        self.count += 1;
        Ok(())
    }

    /// Partition key and explicit hash key of the record: those of the first user record. None if there is none.
    #[must_use]
    pub fn keys(&self) -> Option<(&str, Option<&str>)> {
        self.first.as_ref().map(|(key, hash_key)| (key.as_str(), hash_key.as_deref()))
    }

    /// The data of the record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MAGIC.len() + self.message_len() + DIGEST);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.partition_keys.encoded);
        out.extend_from_slice(&self.explicit_hash_keys.encoded);
        out.extend_from_slice(&self.records);
        let digest = md5::Md5::digest(&out[MAGIC.len()..]);
        out.extend_from_slice(&digest);
        out
    }
}

/// Bytes of a Record message.
fn record_len(partition_key: u64, explicit_hash_key: Option<u64>, data_len: usize) -> usize {
    let keys = 1 + varint_len(partition_key) + explicit_hash_key.map_or(0, |index| 1 + varint_len(index));
    bytes_field_len(data_len).saturating_add(keys)
}
