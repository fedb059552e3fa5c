//! The scanner for records as daemons and other writers usually write them, compiled once for each instruction set and
//! each protocol.
//!
//! A daemon's record has a known shape, so there is no search for structure: the literal text between values is
//! compared, the base64 kernel finds the end of `data` itself (a quote is no alphabet character), and keys are
//! searched for their closing quote only. A record with the same members in another order, or with white space, is
//! taken member by member. Anything else is not judged here: the scanner stops, and the general record parser goes on
//! from there with the same columns.

use crate::base64::text::{Progress, canonical};
use crate::columns::{Columns, Fixed, Variable};
use crate::input::Padded;
use crate::kernel::traits::{Kernel, Routine};
use crate::record::Shape;

/// Why the scanner stopped, and at which index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A record must begin here, and is not one of known members, or not all of it is there.
    Element(usize),
    /// Inside of `data`, whole units decoded.
    Data(usize),
    /// After the closing quote of `data`; the rest of the record is not there, or not only of known members.
    Members(usize),
    /// After a record that no comma follows.
    After(usize),
}

/// Scans records from `at`, where one must begin.
pub(crate) struct Records<'a, S> {
    pub(crate) shape: S,
    pub(crate) input: Padded<'a>,
    pub(crate) at: usize,
    pub(crate) columns: &'a mut Columns,
}

/// The result of a scan.
pub(crate) struct Scanned {
    pub(crate) stop: Stop,
    /// Where the record begins in which, or after which, the scanner stopped, or white space before it.
    pub(crate) record: usize,
}

/// At most this much input is scanned before the columns' room is looked at again.
const WINDOW: usize = 256 * 1024;

/// A record that a window cuts is taken again in the next one if no more of it than this has been looked at. A longer
/// one is gone on with where the window ends.
const TAKEN_AGAIN: usize = WINDOW / 16;

impl<S: Shape> Routine for Records<'_, S> {
    type Output = Scanned;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> Scanned {
        let mut record = self.at;
        if !K::SCANS {
            return Scanned { stop: Stop::Element(record), record };
        }
        loop {
            let window = self.input.until(self.input.end().min(record + WINDOW));
            let stop = scan(kernel, self.shape, window, &mut record, self.columns);
            // Only the window's end may be after its last record.
            let cut = window.end() < self.input.end() && !matches!(stop, Stop::After(_));
            if !cut || window.end() - record > TAKEN_AGAIN {
                return Scanned { stop, record };
            }
        }
    }
}

/// Takes everything after `data` of a record of known members, its closing brace included, and commits the record: the
/// index after it.
pub(crate) struct Members<'a, S> {
    pub(crate) shape: S,
    pub(crate) input: Padded<'a>,
    pub(crate) at: usize,
    pub(crate) columns: &'a mut Columns,
}

impl<S: Shape> Routine for Members<'_, S> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> Option<usize> {
        if K::SCANS { members(kernel, self.shape, self.input, self.at, self.columns) } else { None }
    }
}

#[inline(always)]
fn scan<K: Kernel, S: Shape>(
    kernel: K,
    shape: S,
    input: Padded<'_>,
    record: &mut usize,
    columns: &mut Columns,
) -> Stop {
    columns.reopen();
    loop {
        let at = *record;
        let taken = if let Some(data) = input.literal(at, S::OPENING) {
            let here = match canonical(kernel, input, data, input.end(), &mut columns.data.values) {
                Progress::Closed(next) => next,
                Progress::Open(next) => return Stop::Data(next),
            };
            members(kernel, shape, input, here, columns).ok_or(Stop::Members(here))
        } else {
            kernel.run(OtherRecord { shape, input, at, columns }).ok_or(Stop::Element(at))
        };
        let next = match taken {
            Ok(next) => next,
            Err(stop) => return stop,
        };
        let comma = if input.input().get(next) == Some(&b',') { next } else { skip_space(input, next) };
        let Some(after) = input.literal(comma, b",") else { return Stop::After(next) };
        *record = after;
    }
}

/// Takes and commits the members after `data`. If it returns none, nothing of them is left in the columns.
#[inline(always)]
fn members<K: Kernel, S: Shape>(
    kernel: K,
    shape: S,
    input: Padded<'_>,
    at: usize,
    columns: &mut Columns,
) -> Option<usize> {
    if let Some((next, fixed)) = S::usual_members(kernel, input, at, columns) {
        columns.commit(fixed);
        return Some(next);
    }
    kernel.run(OtherMembers { shape, input, at, columns })
}

/// Which members of a record have been taken.
#[expect(clippy::struct_excessive_bools, reason = "one for each member")]
#[derive(Clone, Copy, Default)]
pub(crate) struct Seen {
    data: bool,
    key: bool,
    sequence: bool,
    timestamp: bool,
    /// A member of [`Shape::own_member`] that may stand once.
    pub(crate) own: bool,
}

/// Notes that a member has been taken; none if it has been before.
#[inline(always)]
pub(crate) fn take_once(seen: &mut bool) -> Option<()> {
    (!std::mem::replace(seen, true)).then_some(())
}

/// Takes and commits a record of known members that does not begin as usual.
struct OtherRecord<'a, S> {
    shape: S,
    input: Padded<'a>,
    at: usize,
    columns: &'a mut Columns,
}

impl<S: Shape> Routine for OtherRecord<'_, S> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> Option<usize> {
        let Self { shape, input, at, columns } = self;
        let first = input.literal(skip_space(input, at), b"{")?;
        let taken = known_members(kernel, shape, input, first, columns, Seen::default());
        if taken.is_none() {
            columns.reopen();
        }
        taken
    }
}

/// Takes and commits the members after `data` where they are not the usual ones.
struct OtherMembers<'a, S> {
    shape: S,
    input: Padded<'a>,
    at: usize,
    columns: &'a mut Columns,
}

impl<S: Shape> Routine for OtherMembers<'_, S> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> Option<usize> {
        let Self { shape, input, at, columns } = self;
        columns.reopen_texts();
        let taken = input.literal(skip_space(input, at), b",").and_then(|first| {
            known_members(kernel, shape, input, first, columns, Seen { data: true, ..Seen::default() })
        });
        if taken.is_none() {
            columns.reopen_texts();
        }
        taken
    }
}

/// Takes the members from `at`, where one must begin, up to the closing brace, and commits the record: any order and
/// white space, but known names only, each of them once. What else may be valid is the general parser's.
#[inline(always)]
fn known_members<K: Kernel, S: Shape>(
    kernel: K,
    _shape: S,
    input: Padded<'_>,
    mut at: usize,
    columns: &mut Columns,
    mut seen: Seen,
) -> Option<usize> {
    let mut fixed = Fixed::default();
    loop {
        at = skip_space(input, at);
        if let Some(value) = named(input, at, S::DATA) {
            take_once(&mut seen.data)?;
            fixed.data_is_null = input.literal(value, b"null").is_some();
            at = if fixed.data_is_null {
                value + 4
            } else {
                let data = input.literal(value, b"\"")?;
                let Progress::Closed(next) = canonical(kernel, input, data, input.end(), &mut columns.data.values)
                else {
                    return None;
                };
                next
            };
        } else if let Some(value) = named(input, at, S::PARTITION_KEY) {
            take_once(&mut seen.key)?;
            at = text(kernel, input, input.literal(value, b"\"")?, &mut columns.keys, b"\"")?;
        } else if let Some(value) = named(input, at, S::SEQUENCE_NUMBER) {
            take_once(&mut seen.sequence)?;
            at = text(kernel, input, input.literal(value, b"\"")?, &mut columns.sequences, b"\"")?;
        } else if let Some(value) = named(input, at, S::TIMESTAMP) {
            take_once(&mut seen.timestamp)?;
            (fixed.timestamp_micros, at) = S::time(input, value)?;
        } else {
            at = S::own_member(kernel, input, at, columns, &mut fixed, &mut seen)?;
        }
        at = skip_space(input, at);
        match input.input().get(at) {
            Some(b',') => at += 1,
            Some(b'}') => break,
            _ => return None,
        }
    }
    (seen.data && seen.key && seen.sequence).then(|| {
        columns.commit(fixed);
        at + 1
    })
}

/// The index of the value after `name`, if that stands at `at`.
#[inline(always)]
pub(crate) fn named<const N: usize>(input: Padded<'_>, at: usize, name: &[u8; N]) -> Option<usize> {
    let colon = input.literal(skip_space(input, input.literal(at, name)?), b":")?;
    Some(skip_space(input, colon))
}

/// The index after white space that cannot end a line.
#[inline(always)]
fn skip_space(input: Padded<'_>, mut at: usize) -> usize {
    while matches!(input.input().get(at), Some(b' ' | b'\t' | b'\r')) {
        at += 1;
    }
    at
}

#[inline(always)]
pub(crate) fn digits_or_null(input: Padded<'_>, at: usize) -> Option<(Option<i64>, usize)> {
    if let Some(end) = input.literal(at, b"null") {
        return Some((None, end));
    }
    digits(input, at).map(|(value, end)| (Some(value), end))
}

/// Takes a string's content into its column, and `after`, which begins with the closing quote.
#[inline(always)]
pub(crate) fn text<K: Kernel, const N: usize>(
    kernel: K,
    input: Padded<'_>,
    at: usize,
    column: &mut Variable,
    after: &[u8; N],
) -> Option<usize> {
    let block = input.block(at)?;
    let run = kernel.plain_run(block);
    if let Some(next) = input.literal(at + run, after) {
        column.values.extend_from_block(block, run);
        return Some(next);
    }
    let closed = kernel.run(SpecialText { input, at, column })?;
    input.literal(closed - 1, after)
}

/// Takes a string that is long, or has escapes or non-ASCII characters, valid ones only.
struct SpecialText<'a> {
    input: Padded<'a>,
    at: usize,
    column: &'a mut Variable,
}

impl Routine for SpecialText<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> Option<usize> {
        kernel.unescape(self.input, self.at, &mut self.column.values)
    }
}

/// Takes a natural number of up to 15 digits, without leading zeros, that ends before the input does.
///
/// A sub-sequence number nearly always has one digit, a time 13. Where the number ends must be known before anything
/// after it is looked at, so these two are guessed: a branch that is predicted costs no wait, a count does.
#[inline(always)]
pub(crate) fn digits(input: Padded<'_>, at: usize) -> Option<(i64, usize)> {
    let (words, _) = input.block(at)?.first_chunk::<16>()?.as_chunks::<8>();
    let [first, second] = [words[0], words[1]].map(|word| Digits::of(u64::from_le_bytes(word)));
    let (value, end) = if first.ends_at(1) {
        (first.value(1), at + 1)
    } else if first.ends_at(8) && second.ends_at(5) {
        (first.value(8) * 100_000 + second.value(5), at + 13)
    } else {
        const POWERS: [u64; 8] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000];
        match (first.count(), second.count()) {
            (0, _) | (8, 8) => return None,
            (8, count) => (first.value(8) * POWERS[count] + second.value(count), at + 8 + count),
            (count, _) => (first.value(count), at + count),
        }
    };
    let leading_zero = words[0][0] == b'0' && end > at + 1;
    (!leading_zero && end < input.end()).then_some((value.cast_signed(), end))
}

/// The number of seconds at `at`, in microseconds, if it is ten digits, a point and up to four digits: a time of this
/// century in milliseconds, as most writers have it.
#[cfg(any(test, feature = "kinesis"))]
#[inline(always)]
pub(crate) fn seconds_with_millis(input: Padded<'_>, at: usize) -> Option<(i64, usize)> {
    const SCALES: [u64; 5] = [0, 100_000, 10_000, 1_000, 100];
    let (words, _) = input.block(at)?.first_chunk::<16>()?.as_chunks::<8>();
    let tail = u64::from_le_bytes(words[1]);
    let [first, second, fraction] = [u64::from_le_bytes(words[0]), tail, tail >> 24].map(Digits::of);
    if words[0][0] == b'0' || !first.ends_at(8) || !second.ends_at(2) || words[1][2] != b'.' {
        return None;
    }
    let count = if fraction.ends_at(3) { 3 } else { fraction.count() };
    let scale = SCALES.get(count).filter(|scale| **scale > 0)?;
    let end = at + 11 + count;
    let seconds = first.value(8) * 100 + second.value(2);
    let followed = matches!(input.input().get(end), None | Some(b'e' | b'E'));
    (!followed).then_some(((seconds * 1_000_000 + fraction.value(count) * scale).cast_signed(), end))
}

/// Eight bytes of which some at the start are digits.
#[derive(Clone, Copy)]
struct Digits {
    /// The first byte is the lowest; a digit's byte is its value.
    values: u64,
    /// The top bit of the first byte that is no digit, and no bit below it.
    others: u64,
}

impl Digits {
    #[inline(always)]
    fn of(text: u64) -> Self {
        const ONES: u64 = u64::from_ne_bytes([1; 8]);
        let values = text ^ (ONES * 0x30);
        // A carry out of a byte can only flag bytes above it.
        Self { values, others: (values | values.wrapping_add(ONES * 0x76)) & (ONES * 0x80) }
    }

    /// Whether there are `count` digits and no more.
    #[inline(always)]
    fn ends_at(self, count: u32) -> bool {
        let through = u64::MAX >> (56 - 8 * count.min(7));
        self.others & through == if count == 8 { 0 } else { 0x80 << (8 * count) }
    }

    #[inline(always)]
    fn count(self) -> usize {
        self.others.trailing_zeros() as usize / 8
    }

    /// The number that the first `count` digits make.
    #[inline(always)]
    fn value(self, count: usize) -> u64 {
        // Leading zeros come in at the low end, other bytes go out at the high end.
        let values = self.values.unbounded_shl(64 - 8 * u32::try_from(count).unwrap_or(8));
        // Neighbours are joined: digits, pairs of digits, fours.
        let pairs = (values.wrapping_mul(10) + (values >> 8)) & 0x00ff_00ff_00ff_00ff;
        let fours = (pairs.wrapping_mul(100) + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
        (fours.wrapping_mul(10_000) + (fours >> 32)) & 0xffff_ffff
    }
}

#[cfg(test)]
mod tests {
    use super::{digits, seconds_with_millis};
    use crate::input::{Padded, pad};

    /// Every length, every byte after it, wherever the input ends; the oracle is the standard library.
    #[test]
    fn numbers_of_every_length() {
        for number in ["0", "9", "00", "01", "123456789012345", "1234567890123456", "1748736000000", "07", "99999999"] {
            for length in 0..=number.len() {
                for after in 0..=u8::MAX {
                    let mut text = number.as_bytes()[..length].to_vec();
                    text.extend([after, b'0', b'}', b'7', 0xff, 0xb0]);
                    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
                    let value: Option<i64> = str::from_utf8(&text[..count]).unwrap().parse().ok();
                    let padded = pad(&text);
                    for end in 0..=text.len() {
                        let sound = count < 16 && count < end && (text[0] != b'0' || count == 1);
                        let expected = value.filter(|_| sound).map(|value| (value, count));
                        let found = digits(Padded::new(&padded, end), 0);
                        assert_eq!(found, expected, "{text:?} up to {end}");
                    }
                }
            }
        }
    }

    /// As many digits as can be on either side, every byte after them, wherever the input ends.
    #[test]
    fn seconds_of_every_length() {
        for (number, after) in ["174873600", "1748736000", "17487360001", "0748736000", "9999999999", "17487x6000"]
            .into_iter()
            .flat_map(|number| (0..=u8::MAX).map(move |after| (number, after)))
        {
            for fraction in ["", "1", "12", "120", "1234", "12345", "123456", "1234567"] {
                let mut text = format!("{number}.{fraction}").into_bytes();
                text.extend([after, b'0', b'}', b'7', 0xff]);
                let count = text[number.len() + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                let (end, padded) = (number.len() + 1 + count, pad(&text));
                let usual = number.len() == 10 && number.bytes().all(|byte| byte.is_ascii_digit());
                let usual = usual && !number.starts_with('0') && (1..=4).contains(&count);
                let digits = str::from_utf8(&text[number.len() + 1..end]).unwrap();
                let micros = || format!("{number}{digits:0<6}").parse::<i64>().unwrap();
                for input_end in 0..=text.len() {
                    let sound = usual && end < input_end && !matches!(text[end], b'e' | b'E');
                    let found = seconds_with_millis(Padded::new(&padded, input_end), 0);
                    assert_eq!(found, sound.then(|| (micros(), end)), "{text:?} up to {input_end}");
                }
            }
        }
    }
}
