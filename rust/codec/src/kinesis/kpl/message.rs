//! An aggregate, read and checked: all that must hold before its user records are delivered.

use std::ops::RangeInclusive;

use md5::Digest;

use super::protobuf::{Fields, Malformed, Value};
use super::{DIGEST, MAGIC, MAX_KEY_CHARACTERS};
use crate::kinesis::hash_key::hash_key;

/// Why a record that begins as an aggregate is delivered as a plain one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fallback {
    /// The MD5 at its end is another one.
    Digest,
    /// No protobuf.
    Protobuf,
    /// A user record without partition key index or data, or a tag without key.
    MissingField,
    /// A partition key that is no UTF-8.
    Utf8,
    /// An index beyond its table.
    Index,
    /// An explicit hash key that is no decimal integer.
    ExplicitHashKey,
    /// A key of more than 256 characters: the service takes none, and six bytes could name it again.
    KeyLength,
}

impl Fallback {
    /// All, in the order in which they are looked for.
    pub const ALL: [Self; 7] = [
        Self::Digest,
        Self::Protobuf,
        Self::MissingField,
        Self::Utf8,
        Self::Index,
        Self::ExplicitHashKey,
        Self::KeyLength,
    ];

    /// The name in metrics and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Digest => "digest",
            Self::Protobuf => "protobuf",
            Self::MissingField => "missing_field",
            Self::Utf8 => "utf8",
            Self::Index => "index",
            Self::ExplicitHashKey => "explicit_hash_key",
            Self::KeyLength => "key_length",
        }
    }
}

/// The body of a record that is long enough for an aggregate and begins as one, and the digest after it.
pub(super) fn body(data: &[u8]) -> Option<(&[u8], &[u8; DIGEST])> {
    let (body, digest) = data.strip_prefix(&MAGIC)?.split_last_chunk::<DIGEST>()?;
    (!body.is_empty()).then_some((body, digest))
}

/// The data of the user records of one record, by itself and whatever shard it is from; none if it is a plain one.
#[must_use]
pub fn user_data(data: &[u8]) -> Option<Vec<&[u8]>> {
    let (body, digest) = body(data)?;
    let message = Message::read(body, digest).ok()?;
    Some(message.records.iter().map(|record| record.data).collect())
}

/// A user record; its keys are entries of the tables.
#[derive(Clone, Copy, Debug)]
struct UserRecord<'a> {
    partition_key: usize,
    explicit_hash_key: Option<usize>,
    data: &'a [u8],
}

/// A sound aggregate.
#[derive(Debug)]
pub(super) struct Message<'a> {
    partition_keys: Vec<&'a str>,
    explicit_hash_keys: Vec<&'a [u8]>,
    records: Vec<UserRecord<'a>>,
}

/// A user record as it is written: partition key index, explicit hash key index and data.
type Indexed<'a> = (u64, Option<u64>, &'a [u8]);

impl<'a> Message<'a> {
    /// Reads what [`body`] gave.
    pub(super) fn read(body: &'a [u8], digest: &[u8; DIGEST]) -> Result<Self, Fallback> {
        if md5::Md5::digest(body).as_slice() != digest {
            return Err(Fallback::Digest);
        }
        let mut partition_keys = Vec::new();
        let mut explicit_hash_keys = Vec::new();
        let mut indexed = Vec::new();
        let mut complete = true;
        for field in Fields::of(body) {
            match field.map_err(|Malformed| Fallback::Protobuf)? {
                (1, Value::Bytes(key)) => partition_keys.push(key),
                (2, Value::Bytes(key)) => explicit_hash_keys.push(key),
                (3, Value::Bytes(record)) => match read_record(record).map_err(|Malformed| Fallback::Protobuf)? {
                    Some(record) => indexed.push(record),
                    // Not kept: two bytes can say that there is one.
                    None => complete = false,
                },
                _ => {}
            }
        }
        if !complete {
            return Err(Fallback::MissingField);
        }
        let partition_keys: Vec<_> = partition_keys
            .into_iter()
            .map(|key| str::from_utf8(key).map_err(|_| Fallback::Utf8))
            .collect::<Result<_, _>>()?;
        let entry = |index: u64, table: usize| {
            usize::try_from(index).ok().filter(|index| *index < table).ok_or(Fallback::Index)
        };
        let resolved = |(key, hash_key, data): Indexed<'a>| {
            Ok(UserRecord {
                partition_key: entry(key, partition_keys.len())?,
                explicit_hash_key: hash_key.map(|key| entry(key, explicit_hash_keys.len())).transpose()?,
                data,
            })
        };
        let records: Vec<_> = indexed.into_iter().map(resolved).collect::<Result<_, _>>()?;
        let message = Self { partition_keys, explicit_hash_keys, records };
        message.check_keys()?;
        Ok(message)
    }

    fn check_keys(&self) -> Result<(), Fallback> {
        // Each key is looked at once: eight bytes name it again, and it can have any length yet.
        let mut decimal = vec![None; self.explicit_hash_keys.len()];
        let mut hash_keys = self.records.iter().filter_map(|record| record.explicit_hash_key);
        if !hash_keys.all(|key| *decimal[key].get_or_insert_with(|| is_decimal(self.explicit_hash_keys[key]))) {
            return Err(Fallback::ExplicitHashKey);
        }
        let long_key = self.partition_keys.iter().any(|key| key.chars().count() > MAX_KEY_CHARACTERS);
        let long_hash_key = self.explicit_hash_keys.iter().any(|key| key.len() > MAX_KEY_CHARACTERS);
        if long_key || long_hash_key { Err(Fallback::KeyLength) } else { Ok(()) }
    }

    /// Whether the shard that owns `range` owns all of it.
    pub(super) fn belongs_to(&self, range: &RangeInclusive<u128>) -> bool {
        // Each key is hashed once.
        let mut by_partition_key = vec![None; self.partition_keys.len()];
        let mut by_hash_key = vec![None; self.explicit_hash_keys.len()];
        self.records.iter().all(|record| match record.explicit_hash_key {
            // Beyond 128 bits, or below 0: in no range.
            Some(key) => *by_hash_key[key].get_or_insert_with(|| {
                number(self.explicit_hash_keys[key]).is_some_and(|number| range.contains(&number))
            }),
            None => *by_partition_key[record.partition_key]
                .get_or_insert_with(|| range.contains(&hash_key(self.partition_keys[record.partition_key]))),
        })
    }

    /// Partition key, explicit hash key and data of each user record.
    pub(super) fn user_records(&self) -> impl Iterator<Item = (&'a str, Option<&'a str>, &'a [u8])> {
        self.records.iter().map(|record| {
            let hash_key = record.explicit_hash_key.and_then(|key| str::from_utf8(self.explicit_hash_keys[key]).ok());
            (self.partition_keys[record.partition_key], hash_key, record.data)
        })
    }
}

/// Reads a Record message; none if a required field of it, or of a tag, is not there.
fn read_record(record: &[u8]) -> Result<Option<Indexed<'_>>, Malformed> {
    let (mut partition_key, mut explicit_hash_key, mut data, mut tags_have_keys) = (None, None, None, true);
    for field in Fields::of(record) {
        match field? {
            (1, Value::Varint(index)) => partition_key = Some(index),
            (2, Value::Varint(index)) => explicit_hash_key = Some(index),
            (3, Value::Bytes(bytes)) => data = Some(bytes),
            (4, Value::Bytes(tag)) => {
                let mut key = false;
                for field in Fields::of(tag) {
                    key |= matches!(field?, (1, Value::Bytes(_)));
                }
                tags_have_keys &= key;
            }
            _ => {}
        }
    }
    let there = partition_key.zip(data).filter(|_| tags_have_keys);
    Ok(there.map(|(key, data)| (key, explicit_hash_key, data)))
}

/// An integer in decimal digits, with or without a sign.
fn is_decimal(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// The value of a decimal integer, if it is a hash key.
fn number(text: &[u8]) -> Option<u128> {
    // Minus zero is zero.
    let text = str::from_utf8(text).ok()?;
    text.strip_prefix('-').filter(|digits| digits.bytes().all(|digit| digit == b'0')).unwrap_or(text).parse().ok()
}
