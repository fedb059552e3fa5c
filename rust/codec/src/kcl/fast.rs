//! The scanner for records as a daemon writes them, compiled once for each instruction set.
//!
//! A daemon's record has a known shape, so there is no search for structure: the literal text between values is compared,
//! the base64 kernel finds the end of `data` itself (a quote is no alphabet character), and keys are searched for their
//! closing quote only. Anything else, in any place, is no error here: the scanner stops where it is, and the general
//! record parser goes on from there with the same columns.

use crate::base64::text::{Progress, canonical};
use crate::base64::{Kernel, Routine, plain_run, string_run};
use crate::columns::{Columns, Fixed, Variable};
use crate::input::Padded;
use crate::json::{escaped_character, simple_escape};

/// How a record begins.
pub(crate) const OPENING: &[u8; 9] = b"{\"data\":\"";

/// Why the scanner stopped, and at which index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A record must begin here, and does not begin as a daemon's, or not all of [`OPENING`] is there.
    Element(usize),
    /// Inside of `data`, whole units decoded.
    Data(usize),
    /// Behind the closing quote of `data`; the rest of the record is not there, or not as a daemon writes it.
    Members(usize),
    /// Behind a record, where no comma is.
    After(usize),
}

/// Scans records from `at`, where one must begin.
pub(crate) struct Records<'a> {
    pub(crate) input: Padded<'a>,
    pub(crate) at: usize,
    pub(crate) columns: &'a mut Columns,
}

impl Routine for Records<'_> {
    type Output = Stop;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> Stop {
        scan(kernel, self.input, self.at, self.columns)
    }
}

/// Takes everything behind `data` of a record in a daemon's shape, its closing brace included: the index behind it, and
/// the values that are not behind their columns.
pub(crate) struct Members<'a> {
    pub(crate) input: Padded<'a>,
    pub(crate) at: usize,
    pub(crate) columns: &'a mut Columns,
}

impl Routine for Members<'_> {
    type Output = Option<(usize, Fixed)>;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> Option<(usize, Fixed)> {
        members(kernel, self.input, self.at, self.columns)
    }
}

#[inline(always)]
fn scan<K: Kernel>(kernel: K, input: Padded<'_>, mut at: usize, columns: &mut Columns) -> Stop {
    loop {
        columns.reopen();
        let Some(data) = literal(input, at, OPENING) else { return Stop::Element(at) };
        let here = match canonical(kernel, input, data, input.end(), &mut columns.data.values) {
            Progress::Closed(next) => next,
            Progress::Open(next) => return Stop::Data(next),
        };
        let Some((next, fixed)) = members(kernel, input, here, columns) else {
            columns.keys.reopen();
            columns.sequences.reopen();
            return Stop::Members(here);
        };
        columns.commit(fixed);
        if input.input().get(next) != Some(&b',') {
            return Stop::After(next);
        }
        at = next + 1;
    }
}

#[inline(always)]
fn members<K: Kernel>(kernel: K, input: Padded<'_>, at: usize, columns: &mut Columns) -> Option<(usize, Fixed)> {
    let at = literal(input, at, b",\"partitionKey\":\"")?;
    let at = text(kernel, input, at, &mut columns.keys)?;
    let at = literal(input, at, b",\"sequenceNumber\":\"")?;
    let at = text(kernel, input, at, &mut columns.sequences)?;
    let at = literal(input, at, b",\"approximateArrivalTimestamp\":")?;
    let (millis, at) = digits(input, at)?;
    let timestamp_micros = Some(millis.checked_mul(1000)?);
    let (sub_sequence_number, at) = match literal(input, at, b",\"subSequenceNumber\":") {
        // Legacy daemons write neither this nor an action.
        None => (None, literal(input, at, b"}")?),
        Some(at) => {
            let (value, at) = digits(input, at)?;
            (Some(value), literal(input, at, b",\"action\":\"record\"}")?)
        }
    };
    Some((at, Fixed { data_is_null: false, sub_sequence_number, timestamp_micros }))
}

/// The index behind `expected`, if it stands at `at`.
#[inline(always)]
fn literal<const N: usize>(input: Padded<'_>, at: usize, expected: &[u8; N]) -> Option<usize> {
    (input.input().get(at..)?.first_chunk::<N>()? == expected).then_some(at + N)
}

/// Takes a string's content into its column, and its closing quote.
#[inline(always)]
fn text<K: Kernel>(kernel: K, input: Padded<'_>, at: usize, column: &mut Variable) -> Option<usize> {
    let end = at + plain_run(kernel, input, at);
    column.values.extend_from_input(input, at, end);
    if input.input().get(end) == Some(&b'"') { Some(end + 1) } else { special_text(kernel, input, end, column) }
}

/// Goes on with a string from its first character that is not plain: escapes and non-ASCII, valid ones only.
#[inline(always)]
fn special_text<K: Kernel>(kernel: K, input: Padded<'_>, mut at: usize, column: &mut Variable) -> Option<usize> {
    loop {
        let end = at + string_run(kernel, input, at);
        let run = &input.input()[at..end];
        str::from_utf8(run).ok()?;
        column.values.extend_from_input(input, at, end);
        let rest = &input.input()[end..];
        if rest.first() == Some(&b'"') {
            return Some(end + 1);
        }
        at = if let Some(character) = rest.get(1).copied().and_then(simple_escape).filter(|_| rest[0] == b'\\') {
            column.values.extend_from_slice(&[character]);
            end + 2
        } else {
            let (character, length) = escaped_character(rest)?;
            column.values.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            end + length
        };
    }
}

/// Takes a natural number of up to 18 digits, without leading zeros, that ends before the input does.
#[inline(always)]
fn digits(input: Padded<'_>, at: usize) -> Option<(i64, usize)> {
    let bytes = input.input().get(at..)?;
    let mut value = 0_i64;
    for (count, byte) in bytes.iter().take(19).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            let sound = count > 0 && (bytes[0] != b'0' || count == 1);
            return sound.then_some((value, at + count));
        }
        if count == 18 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    None
}
