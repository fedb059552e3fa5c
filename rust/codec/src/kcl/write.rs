//! Lines of a child, in both checkpoint dialects; and of a daemon, for replaying and benches.
//!
//! A child's line is compact ASCII JSON with a line feed before it and after it: the daemon ignores blank lines, and
//! the one before ends whatever stray text may stand on the line. A key that the daemon does not know would make it skip
//! the message without an answer, so each dialect has exactly its keys.

use std::fmt;
use std::io::Write as _;

use super::dialect::Dialect;
use crate::base64;
use crate::json::write::{ascii_escape, integer_or_null, string, string_or_null};

/// A message that cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// A daemon would ignore the sub-sequence number and checkpoint the whole batch.
    SubWithoutSequence,
    /// The legacy dialect has no word for it.
    SubInLegacy(i64),
}

impl fmt::Display for WriteError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SubWithoutSequence => out.write_str(
                "a sub-sequence number without a sequence number: the daemon would checkpoint the whole batch; give both, or none",
            ),
            Self::SubInLegacy(sub) => write!(
                out,
                "sub-sequence number {sub} cannot be checkpointed: a KCL up to 1.7.1 knows sequence numbers only; \
                 checkpoint at a whole record",
            ),
        }
    }
}

impl std::error::Error for WriteError {}

/// The status that answers `response_for`.
#[must_use]
pub fn status(response_for: &str) -> Vec<u8> {
    let mut out = b"\n{\"action\":\"status\",\"responseFor\":".to_vec();
    string(response_for, &mut out);
    out.extend_from_slice(b"}\n");
    out
}

/// A checkpoint request: at (`sequence_number`, `sub_sequence_number`), or at the end of all that was delivered.
///
/// # Errors
/// The dialect has no words for it.
pub fn checkpoint(
    sequence_number: Option<&str>,
    sub_sequence_number: Option<i64>,
    dialect: Dialect,
) -> Result<Vec<u8>, WriteError> {
    if sequence_number.is_none() && sub_sequence_number.is_some() {
        return Err(WriteError::SubWithoutSequence);
    }
    let mut out = b"\n{\"action\":\"checkpoint\",".to_vec();
    match (dialect.capabilities().sub_sequence_numbers, sub_sequence_number) {
        (true, sub) => {
            out.extend_from_slice(b"\"sequenceNumber\":");
            string_or_null(sequence_number, &mut out);
            out.extend_from_slice(b",\"subSequenceNumber\":");
            integer_or_null(sub, &mut out);
        }
        (false, Some(sub)) if sub != 0 => return Err(WriteError::SubInLegacy(sub)),
        (false, _) => {
            out.extend_from_slice(b"\"checkpoint\":");
            string_or_null(sequence_number, &mut out);
        }
    }
    out.extend_from_slice(b"}\n");
    Ok(out)
}

/// A record to be written as a daemon does.
#[derive(Clone, Copy, Debug)]
pub struct RecordToWrite<'a> {
    /// The payload.
    pub data: Option<&'a [u8]>,
    /// The partition key.
    pub partition_key: &'a str,
    /// Decimal digits.
    pub sequence_number: &'a str,
    /// Left out by legacy daemons.
    pub sub_sequence_number: Option<i64>,
    /// Arrival time in milliseconds since the epoch.
    pub timestamp_millis: Option<i64>,
}

/// A string as Jackson writes it: only `"`, `\` and control characters are escaped, with upper-case digits.
fn jackson_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' | 0x08..=b'\n' | 0x0c | b'\r' => ascii_escape(byte, out),
            0..=0x1f => {
                // Writing to a Vec cannot fail.
                let _ = write!(out, "\\u{byte:04X}");
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// A `processRecords` line, byte for byte as a daemon of `dialect` writes it, with its LF.
pub fn process_records<'a>(
    records: impl Iterator<Item = RecordToWrite<'a>>,
    millis_behind_latest: Option<i64>,
    dialect: Dialect,
) -> Vec<u8> {
    let has_sub_sequence_numbers = dialect.capabilities().sub_sequence_numbers;
    let mut out = b"{\"action\":\"processRecords\",\"records\":[".to_vec();
    for (index, record) in records.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"data\":");
        match record.data {
            None => out.extend_from_slice(b"null"),
            Some(data) => {
                out.push(b'"');
                base64::encode_to(data, &mut out);
                out.push(b'"');
            }
        }
        out.extend_from_slice(b",\"partitionKey\":");
        jackson_string(record.partition_key, &mut out);
        out.extend_from_slice(b",\"sequenceNumber\":");
        jackson_string(record.sequence_number, &mut out);
        out.extend_from_slice(b",\"approximateArrivalTimestamp\":");
        integer_or_null(record.timestamp_millis, &mut out);
        if has_sub_sequence_numbers {
            out.extend_from_slice(b",\"subSequenceNumber\":");
            integer_or_null(record.sub_sequence_number, &mut out);
            out.extend_from_slice(b",\"action\":\"record\"");
        }
        out.push(b'}');
    }
    out.push(b']');
    if has_sub_sequence_numbers {
        out.extend_from_slice(b",\"millisBehindLatest\":");
        integer_or_null(millis_behind_latest, &mut out);
    }
    out.extend_from_slice(b"}\n");
    out
}
