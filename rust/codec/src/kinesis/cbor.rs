//! A GetRecords answer in CBOR (RFC 8949): lengths definite or not, data as byte strings.
//!
//! | content type | a time is |
//! |---|---|
//! | application/x-amz-cbor-1.1 | **milliseconds**, whatever RFC 8949 says of tag 1, which may be missing |
//! | application/cbor | seconds, in tag 1 (Smithy RPC v2) |
//!
//! The rules are those of JSON: names in any order, unknown ones skipped, the last of two wins, null and undefined are
//! alike. Bytes are looked at in order, so the first error is the one reported.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use super::hash_key::parse_hash_key;
use super::parts::{ChildShard, Parts};
use super::time::micros_of_double;
use crate::columns::{Columns, Fixed};
use crate::error::{Error, ErrorKind, Result};
use crate::json::MAX_DEPTH;

/// The unit of a number in tag 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeUnit {
    Milliseconds,
    Seconds,
}

/// The first byte of an item, with its argument.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Head {
    Unsigned(u64),
    /// -1 minus the number.
    Negative(u64),
    /// None: pieces up to a break. So for the next three.
    Bytes(Option<u64>),
    Text(Option<u64>),
    Array(Option<u64>),
    Map(Option<u64>),
    Tag(u64),
    Null,
    Float(f64),
    /// True, false and other simple values.
    Simple,
    Break,
}

/// A place in a body.
#[derive(Clone, Copy)]
struct Reader<'a> {
    body: &'a [u8],
    at: usize,
}

/// Parses `body`; its records are put into `columns`, which are empty.
pub(super) fn parse(body: &[u8], unit: TimeUnit, columns: &mut Columns) -> Result<Parts> {
    let mut reader = Reader { body, at: 0 };
    let mut parts = Parts::default();
    let start = reader;
    let Head::Map(length) = reader.head()? else {
        return Err(Error::new(ErrorKind::NotAnObject, start.at, "an answer is a CBOR map"));
    };
    reader.members(length, 1, |name, reader| {
        match name {
            "Records" => {
                let span = reader.at;
                records(reader, unit, columns).map_err(|error| error.in_field_if_typed("Records"))?;
                parts.records_span = Some(span..reader.at);
            }
            "NextShardIterator" => {
                let text = reader.text_or_null().map_err(|error| error.in_field_if_typed("NextShardIterator"))?;
                parts.next_shard_iterator = text.map(Cow::into_owned);
            }
            "MillisBehindLatest" => {
                let millis = reader.integer().map_err(|error| error.in_field_if_typed("MillisBehindLatest"))?;
                parts.millis_behind_latest = millis;
            }
            "ChildShards" => {
                parts.child_shards = child_shards(reader).map_err(|error| error.in_field_if_typed("ChildShards"))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if parts.records_span.is_none() {
        return Err(missing(reader.at, "Records"));
    }
    if reader.at < body.len() {
        return Err(Error::new(ErrorKind::Cbor, reader.at, "bytes after the answer"));
    }
    Ok(parts)
}

#[cold]
fn missing(offset: usize, field: &'static str) -> Error {
    Error::new(ErrorKind::MissingField, offset, "missing field").in_field(field)
}

fn records(reader: &mut Reader<'_>, unit: TimeUnit, columns: &mut Columns) -> Result<()> {
    // A duplicate replaces the records before it.
    columns.clear();
    let start = *reader;
    let Head::Array(length) = reader.head()? else { return Err(start.wrong_type("an array of records")) };
    reader.elements(length, |reader| {
        let row = columns.rows();
        record(reader, unit, columns).map_err(|error| error.in_record(row))
    })
}

fn record(reader: &mut Reader<'_>, unit: TimeUnit, columns: &mut Columns) -> Result<()> {
    let start = *reader;
    let Head::Map(length) = reader.head()? else { return Err(start.wrong_type("a map").in_field("Records")) };
    columns.reopen();
    let mut fixed = Fixed::default();
    let (mut data, mut key, mut sequence) = (false, false, false);
    reader.members(length, 3, |name, reader| {
        let field = match name {
            "Data" => "Data",
            "PartitionKey" => "PartitionKey",
            "SequenceNumber" => "SequenceNumber",
            "ApproximateArrivalTimestamp" => "ApproximateArrivalTimestamp",
            "EncryptionType" => "EncryptionType",
            _ => return Ok(false),
        };
        let mut take = || -> Result<()> {
            match field {
                "Data" => {
                    columns.data.reopen();
                    let bytes = reader.bytes_or_null()?;
                    fixed.data_is_null = bytes.is_none();
                    columns.data.values.extend_from_slice(&bytes.unwrap_or_default());
                    data = true;
                }
                "PartitionKey" => {
                    columns.keys.reopen();
                    columns.keys.values.extend_from_slice(reader.text()?.as_bytes());
                    key = true;
                }
                "SequenceNumber" => {
                    columns.sequences.reopen();
                    columns.sequences.values.extend_from_slice(reader.text()?.as_bytes());
                    sequence = true;
                }
                "ApproximateArrivalTimestamp" => fixed.timestamp_micros = reader.time(unit)?,
                _ => {
                    let text = reader.text_or_null()?;
                    fixed.has_encryption_type = text.is_some();
                    if let Some(column) = columns.encryption_type() {
                        column.reopen();
                        column.values.extend_from_slice(text.unwrap_or_default().as_bytes());
                    }
                }
            }
            Ok(())
        };
        take().map_err(|error| error.in_field_if_typed(field))?;
        Ok(true)
    })?;
    for (there, field) in [(data, "Data"), (key, "PartitionKey"), (sequence, "SequenceNumber")] {
        if !there {
            return Err(missing(reader.at, field));
        }
    }
    columns.commit(fixed);
    Ok(())
}

fn child_shards(reader: &mut Reader<'_>) -> Result<Vec<ChildShard>> {
    let start = *reader;
    let mut shards = Vec::new();
    match reader.head()? {
        Head::Null => {}
        Head::Array(length) => reader.elements(length, |reader| {
            shards.push(child_shard(reader)?);
            Ok(())
        })?,
        _ => return Err(start.wrong_type("an array of shards, or null")),
    }
    Ok(shards)
}

fn child_shard(reader: &mut Reader<'_>) -> Result<ChildShard> {
    let start = *reader;
    let Head::Map(length) = reader.head()? else { return Err(start.wrong_type("a shard")) };
    let (mut shard_id, mut parents, mut range) = (None, None, None);
    reader.members(length, 3, |name, reader| {
        match name {
            "ShardId" => {
                shard_id = Some(reader.text().map_err(|error| error.in_field_if_typed("ShardId"))?.into_owned());
            }
            "ParentShards" => {
                parents = Some(texts(reader).map_err(|error| error.in_field_if_typed("ParentShards"))?);
            }
            "HashKeyRange" => {
                range = Some(hash_range(reader).map_err(|error| error.in_field_if_typed("HashKeyRange"))?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(ChildShard {
        shard_id: shard_id.ok_or_else(|| missing(reader.at, "ShardId"))?,
        parent_shards: parents.ok_or_else(|| missing(reader.at, "ParentShards"))?,
        hash_range: range.ok_or_else(|| missing(reader.at, "HashKeyRange"))?,
    })
}

fn texts(reader: &mut Reader<'_>) -> Result<Vec<String>> {
    let start = *reader;
    let Head::Array(length) = reader.head()? else { return Err(start.wrong_type("an array of shard ids")) };
    let mut texts = Vec::new();
    reader.elements(length, |reader| {
        texts.push(reader.text()?.into_owned());
        Ok(())
    })?;
    Ok(texts)
}

fn hash_range(reader: &mut Reader<'_>) -> Result<RangeInclusive<u128>> {
    let start = *reader;
    let Head::Map(length) = reader.head()? else { return Err(start.wrong_type("a range of hash keys")) };
    let (mut low, mut high) = (None, None);
    reader.members(length, 4, |name, reader| {
        let (field, bound) = match name {
            "StartingHashKey" => ("StartingHashKey", &mut low),
            "EndingHashKey" => ("EndingHashKey", &mut high),
            _ => return Ok(false),
        };
        let start = *reader;
        let text = reader.text().map_err(|error| error.in_field_if_typed(field))?;
        *bound = Some(parse_hash_key(&text).ok_or_else(|| {
            let what = "a hash key is a decimal number from 0 to 2^128 - 1";
            Error::new(ErrorKind::OutOfRange, start.at, what).in_field(field)
        })?);
        Ok(true)
    })?;
    let low = low.ok_or_else(|| missing(reader.at, "StartingHashKey"))?;
    Ok(low..=high.ok_or_else(|| missing(reader.at, "EndingHashKey"))?)
}

impl<'a> Reader<'a> {
    #[cold]
    fn malformed(&self, what: &'static str) -> Error {
        Error::new(ErrorKind::Cbor, self.at, what)
    }

    #[cold]
    fn wrong_type(&self, wanted: &'static str) -> Error {
        Error::new(ErrorKind::WrongType, self.at, format!("expected {wanted}"))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8]> {
        let taken = usize::try_from(length).ok().and_then(|length| self.body[self.at..].get(..length));
        let taken =
            taken.ok_or_else(|| Error::new(ErrorKind::Cbor, self.body.len(), "the answer ended inside a value"))?;
        self.at += taken.len();
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N as u64)?.try_into().expect("as long as it was asked for"))
    }

    fn head(&mut self) -> Result<Head> {
        let start = *self;
        let [first] = self.number()?;
        let argument = match first & 31 {
            small @ 0..=23 => Some(u64::from(small)),
            24 => Some(u64::from(u8::from_be_bytes(self.number()?))),
            25 => Some(u64::from(u16::from_be_bytes(self.number()?))),
            26 => Some(u64::from(u32::from_be_bytes(self.number()?))),
            27 => Some(u64::from_be_bytes(self.number()?)),
            31 => None,
            _ => return Err(start.malformed("no CBOR: a reserved first byte")),
        };
        Ok(match (first >> 5, argument) {
            (0, Some(value)) => Head::Unsigned(value),
            (1, Some(value)) => Head::Negative(value),
            (2, length) => Head::Bytes(length),
            (3, length) => Head::Text(length),
            (4, length) => Head::Array(length),
            (5, length) => Head::Map(length),
            (6, Some(tag)) => Head::Tag(tag),
            (7, None) => Head::Break,
            (7, Some(bits)) => match first & 31 {
                22 | 23 => Head::Null,
                #[expect(clippy::cast_possible_truncation, reason = "as wide as it was read")]
                25 => Head::Float(half(bits as u16)),
                #[expect(clippy::cast_possible_truncation, reason = "as wide as it was read")]
                26 => Head::Float(f64::from(f32::from_bits(bits as u32))),
                27 => Head::Float(f64::from_bits(bits)),
                _ => Head::Simple,
            },
            _ => return Err(start.malformed("no CBOR: a length without end where none may be")),
        })
    }

    /// Whether the break that ends an item without a length is here; takes it.
    fn ends(&mut self) -> bool {
        let ends = self.body.get(self.at) == Some(&0xff);
        self.at += usize::from(ends);
        ends
    }

    /// Takes the elements of an array.
    fn elements(&mut self, length: Option<u64>, mut take: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        let mut left = length;
        while left != Some(0) {
            if left.is_none() && self.ends() {
                break;
            }
            take(self)?;
            left = left.map(|left| left - 1);
        }
        Ok(())
    }

    /// Takes the members of a map, the values by `take`; a value for which it returns false is skipped. `depth` containers
    /// are open.
    fn members(
        &mut self,
        length: Option<u64>,
        depth: usize,
        mut take: impl FnMut(&str, &mut Self) -> Result<bool>,
    ) -> Result<()> {
        self.elements(length, |reader| {
            let start = *reader;
            let Head::Text(length) = reader.head()? else { return Err(start.malformed("a name that is no text")) };
            let name = reader.content(length, true)?;
            let name = str::from_utf8(&name).map_err(|_| start.malformed("a name that is no UTF-8"))?;
            if take(name, reader)? { Ok(()) } else { reader.skip(depth) }
        })
    }

    /// Takes the bytes of a byte string, or of a text, which must be UTF-8.
    fn content(&mut self, length: Option<u64>, is_text: bool) -> Result<Cow<'a, [u8]>> {
        if let Some(length) = length {
            return self.piece(length, is_text).map(Cow::Borrowed);
        }
        let mut content = Vec::new();
        while !self.ends() {
            let start = *self;
            match self.head()? {
                Head::Text(Some(length)) if is_text => content.extend_from_slice(self.piece(length, true)?),
                Head::Bytes(Some(length)) if !is_text => content.extend_from_slice(self.piece(length, false)?),
                _ => return Err(start.malformed("no CBOR: a piece of a string of another type")),
            }
        }
        Ok(Cow::Owned(content))
    }

    fn piece(&mut self, length: u64, is_text: bool) -> Result<&'a [u8]> {
        let start = self.at;
        let piece = self.take(length)?;
        if is_text && let Err(error) = str::from_utf8(piece) {
            let offset = start + error.valid_up_to();
            return Err(Error::new(ErrorKind::Utf8, offset, "bytes that are no UTF-8"));
        }
        Ok(piece)
    }

    fn text_or_null(&mut self) -> Result<Option<Cow<'a, str>>> {
        let start = *self;
        match self.head()? {
            Head::Text(length) => {
                let text = match self.content(length, true)? {
                    Cow::Borrowed(text) => str::from_utf8(text).map(Cow::Borrowed).ok(),
                    Cow::Owned(text) => String::from_utf8(text).map(Cow::Owned).ok(),
                };
                Ok(Some(text.expect("`content` has looked at each piece")))
            }
            Head::Null => Ok(None),
            _ => Err(start.wrong_type("a text or null")),
        }
    }

    fn text(&mut self) -> Result<Cow<'a, str>> {
        let start = *self;
        self.text_or_null()?.ok_or_else(|| start.wrong_type("a text"))
    }

    fn bytes_or_null(&mut self) -> Result<Option<Cow<'a, [u8]>>> {
        let start = *self;
        match self.head()? {
            Head::Bytes(length) => self.content(length, false).map(Some),
            Head::Null => Ok(None),
            _ => Err(start.wrong_type("a byte string or null")),
        }
    }

    fn integer(&mut self) -> Result<Option<i64>> {
        let start = *self;
        let integer = match self.head()? {
            Head::Null => return Ok(None),
            Head::Unsigned(value) => i64::try_from(value),
            Head::Negative(value) => i64::try_from(value).map(|value| -1 - value),
            _ => return Err(start.wrong_type("an integer or null")),
        };
        integer.map(Some).map_err(|_| start.out_of_range())
    }

    #[cold]
    fn out_of_range(&self) -> Error {
        Error::new(ErrorKind::OutOfRange, self.at, "number out of range")
    }

    /// Takes a time in microseconds.
    fn time(&mut self, unit: TimeUnit) -> Result<Option<i64>> {
        const WANTED: &str = "a time in tag 1, or null";
        let start = *self;
        let mut head = self.head()?;
        if head == Head::Tag(1) {
            head = self.head()?;
        } else if head != Head::Null && unit == TimeUnit::Seconds {
            return Err(start.wrong_type(WANTED));
        }
        let (whole, factor) = match unit {
            TimeUnit::Milliseconds => (1000, 1e-3),
            TimeUnit::Seconds => (1_000_000, 1.0),
        };
        let integer = |value: std::result::Result<i64, _>| value.ok().and_then(|value| value.checked_mul(whole));
        let micros = match head {
            Head::Null => return Ok(None),
            Head::Unsigned(value) => integer(i64::try_from(value)),
            Head::Negative(value) => integer(i64::try_from(value).map(|value| -1 - value)),
            Head::Float(value) => micros_of_double(value * factor),
            _ => return Err(start.wrong_type(WANTED)),
        };
        micros.map(Some).ok_or_else(|| start.out_of_range())
    }

    /// Takes any item, inside `depth` open containers.
    fn skip(&mut self, depth: usize) -> Result<()> {
        let start = *self;
        let head = self.head()?;
        if depth == MAX_DEPTH && matches!(head, Head::Array(_) | Head::Map(_) | Head::Tag(_)) {
            return Err(Error::new(ErrorKind::Depth, start.at, "nested deeper than 128 levels"));
        }
        match head {
            Head::Bytes(length) => self.content(length, false).map(drop),
            Head::Text(length) => self.content(length, true).map(drop),
            Head::Array(length) => self.elements(length, |reader| reader.skip(depth + 1)),
            Head::Map(length) => self.elements(length, |reader| {
                reader.skip(depth + 1)?;
                reader.skip(depth + 1)
            }),
            Head::Tag(_) => self.skip(depth + 1),
            Head::Break => Err(start.malformed("no CBOR: a break where a value must be")),
            _ => Ok(()),
        }
    }
}

/// A number of 16 bits (IEEE 754 binary16).
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let magnitude = match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::half;

    #[test]
    fn numbers_of_16_bits() {
        // RFC 8949, appendix A.
        for (bits, value) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0x3e00, 1.5),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_477_539_063e-8),
            (0xc400, -4.0),
        ] {
            assert!((half(bits) - value).abs() < f64::EPSILON * value.abs().max(1e-8), "{bits:#x}");
        }
        assert!(half(0x7c00).is_infinite() && half(0x7e00).is_nan());
    }
}
