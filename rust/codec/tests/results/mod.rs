//! The results of a decoder for an input, in a form that compares: by the paths that its lines choose, and by the
//! general path alone.

use fastkcl_codec::cpu::Isa;
use fastkcl_codec::kcl::{Decoder, Message};
use fastkcl_codec::{Base64Reason, Error, ErrorKind, RecordBatch};

/// A message or an error.
#[derive(Debug)]
pub(crate) enum Found {
    Records(RecordBatch),
    Other(String),
    Error(Place),
}

/// Kind, field, record, offset and reason.
type Place = (ErrorKind, Option<&'static str>, Option<usize>, Option<usize>, Option<Base64Reason>);

impl PartialEq for Found {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Records(one), Self::Records(other)) => {
                one.as_arrow() == other.as_arrow()
                    && one.millis_behind_latest() == other.millis_behind_latest()
                    && one.shard_id() == other.shard_id()
            }
            (Self::Other(one), Self::Other(other)) => one == other,
            (Self::Error(one), Self::Error(other)) => one == other,
            _ => false,
        }
    }
}

impl From<Result<Message, Error>> for Found {
    fn from(result: Result<Message, Error>) -> Self {
        match result {
            Ok(Message::ProcessRecords(batch)) => {
                assert!(batch.nbytes() <= batch.capacity_bytes(), "{} of {}", batch.nbytes(), batch.capacity_bytes());
                Self::Records(batch)
            }
            Ok(other) => Self::Other(format!("{other:?}")),
            Err(e) => Self::Error((e.kind(), e.field(), e.record(), e.offset(), e.reason())),
        }
    }
}

/// How an input reaches a decoder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How<'a> {
    pub(crate) isa: Isa,
    pub(crate) max_line_bytes: usize,
    /// The lengths of the pieces, in turn.
    pub(crate) pieces: &'a [usize],
    /// Whether messages are taken after each piece, or all of them by `finish`.
    pub(crate) drains: bool,
    /// Whether pieces are read into the decoder's buffer.
    pub(crate) reads: bool,
}

/// What is found in `input`, in order.
#[must_use]
pub(crate) fn found(input: &[u8], how: How<'_>) -> Vec<Found> {
    let mut decoder = Decoder::with_isa(how.isa, how.max_line_bytes);
    let (mut rest, mut results) = (input, Vec::new());
    let mut pieces = how.pieces.iter().cycle();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at((*pieces.next().unwrap_or(&usize::MAX)).clamp(1, rest.len()));
        rest = after;
        if how.reads {
            for part in piece.chunks(1 << 16) {
                decoder.space()[..part.len()].copy_from_slice(part);
                decoder.commit(part.len());
            }
        } else {
            decoder.feed(piece);
        }
        if how.drains {
            results.extend(std::iter::from_fn(|| decoder.next_message()).map(Found::from));
        }
    }
    results.extend(std::iter::from_fn(|| decoder.finish()).map(Found::from));
    assert!(decoder.is_at_line_start() && decoder.next_message().is_none());
    results
}

/// What the general path finds in it: whole lines, nothing scanned, base64 character by character.
#[must_use]
pub(crate) fn generally(input: &[u8], max_line_bytes: usize) -> Vec<Found> {
    found(input, How { isa: Isa::General, max_line_bytes, pieces: &[usize::MAX], drains: true, reads: false })
}

/// The line that has the same result and no LF: white space for one between tokens, and for one inside of a string
/// another character that may not stand there.
#[must_use]
pub(crate) fn without_line_feeds(line: &[u8]) -> Vec<u8> {
    let (mut in_string, mut escaped) = (false, false);
    line.iter()
        .map(|byte| {
            let was_escaped = std::mem::take(&mut escaped);
            match byte {
                b'\n' if in_string => return 1,
                b'\n' => return b' ',
                b'"' if !was_escaped => in_string = !in_string,
                b'\\' if in_string => escaped = !was_escaped,
                _ => {}
            }
            *byte
        })
        .collect()
}
