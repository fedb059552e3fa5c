//! Times in an answer: seconds since the epoch, as microseconds.
//!
//! The service writes times as doubles: `1748736000.123`, or `1.748736000123E9`. A microsecond of this century
//! is more than two units in the last place of such a double, so the digits themselves are exact, and so is the nearest
//! microsecond of the double: both ways give the result of Python's `datetime.fromtimestamp`.

use crate::error::Result;
use crate::json::Cursor;

/// Below this many seconds six decimals survive a double.
const EXACT_SECONDS: i64 = 1 << 32;

const MICROS: f64 = 1e6;

/// The number at the start of `bytes` in microseconds, and its length: one that is not negative, below [`EXACT_SECONDS`], of
/// few digits. Other texts are for [`seconds`].
#[inline(always)]
pub(super) fn usual_micros(bytes: &[u8]) -> Option<(i64, usize)> {
    const POWERS: [u64; 18] = {
        let mut powers = [1; 18];
        let mut at = 1;
        while at < 18 {
            powers[at] = powers[at - 1] * 10;
            at += 1;
        }
        powers
    };
    let (whole, mut at) = digits(bytes, 0, 0)?;
    if bytes[0] == b'0' && at > 1 {
        return None;
    }
    let (mut mantissa, mut scale) = (whole, 6);
    if bytes.get(at) == Some(&b'.') {
        let (value, end) = digits(bytes, at + 1, mantissa)?;
        mantissa = value;
        scale -= i32::try_from(end - at - 1).ok()?;
        at = end;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1;
        let negative = match bytes.get(at) {
            Some(sign @ (b'+' | b'-')) => {
                at += 1;
                *sign == b'-'
            }
            _ => false,
        };
        let (exponent, end) = digits(bytes, at, 0)?;
        let exponent = i32::try_from(exponent).ok().filter(|exponent| *exponent < 100)?;
        scale += if negative { -exponent } else { exponent };
        at = end;
    }
    let power = *POWERS.get(usize::try_from(scale.unsigned_abs()).ok()?)?;
    let micros = if scale >= 0 {
        mantissa.checked_mul(power)?
    } else if mantissa.is_multiple_of(power) {
        mantissa / power
    } else {
        return nearest_micros(str::from_utf8(&bytes[..at]).ok()?, false).map(|micros| (micros, at));
    };
    let micros = micros.cast_signed();
    is_exact(micros).then_some((micros, at))
}

/// Whether the double of these microseconds, in seconds, has them all.
#[inline(always)]
pub(super) fn is_exact(micros: i64) -> bool {
    (0..EXACT_SECONDS * 1_000_000).contains(&micros)
}

/// Goes on with `value` by the digits from `at` on, at least one and 18 altogether: the value, and the index after them.
#[inline(always)]
fn digits(bytes: &[u8], at: usize, mut value: u64) -> Option<(u64, usize)> {
    let mut end = at;
    while let Some(digit) = bytes.get(end).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
        if value >= 100_000_000_000_000_000 {
            return None;
        }
        value = value * 10 + u64::from(digit);
        end += 1;
    }
    (end > at).then_some((value, end))
}

/// Takes a number of seconds, or null.
pub(super) fn seconds(cursor: &mut Cursor<'_>) -> Result<Option<i64>> {
    let start = *cursor;
    match cursor.peek() {
        Some(b'n') => cursor.literal(b"null").map(|()| None),
        Some(b'-' | b'0'..=b'9') => {
            let integral = cursor.number()?;
            let text = &cursor.input.input()[start.at..cursor.at];
            let micros = match usual_micros(text) {
                Some((micros, length)) if length == text.len() => Some(micros),
                _ => str::from_utf8(text).ok().and_then(|text| nearest_micros(text, integral)),
            };
            micros.map(Some).ok_or_else(|| start.out_of_range())
        }
        _ => Err(start.wrong_type("a number of seconds, or null")),
    }
}

/// A JSON number of seconds in microseconds, as Python reads both.
#[cold]
fn nearest_micros(text: &str, integral: bool) -> Option<i64> {
    if integral {
        return text.parse::<i64>().ok()?.checked_mul(1_000_000);
    }
    micros_of_double(text.parse().ok()?)
}

/// The microsecond nearest to a number of seconds; half of one goes to the even, as in Python. None beyond 64 bits.
pub(super) fn micros_of_double(seconds: f64) -> Option<i64> {
    let whole = seconds.trunc();
    let micros = (seconds.fract() * MICROS).round_ties_even();
    #[expect(clippy::cast_possible_truncation, reason = "the bounds are looked at")]
    let (whole, micros) = (whole.abs() < 9.2e18).then_some((whole as i64, micros as i64))?;
    whole.checked_mul(1_000_000)?.checked_add(micros)
}

#[cfg(test)]
mod tests {
    use super::{nearest_micros, usual_micros};

    #[test]
    fn times_as_services_write_them() {
        for (text, micros) in [
            ("1748736000.123", 1_748_736_000_123_000),
            ("1.748736000123E9", 1_748_736_000_123_000),
            ("1748736000123e-3", 1_748_736_000_123_000),
            ("1748736000", 1_748_736_000_000_000),
            ("1748736000.1234567", 1_748_736_000_123_457),
            ("17487360001234560000e-10", 1_748_736_000_123_456),
            ("0.0000005", 0),
            ("0.0000015", 2),
            ("-1.5", -1_500_000),
            ("0", 0),
            ("99999999999.5", 99_999_999_999_500_000),
        ] {
            let usual = usual_micros(text.as_bytes());
            let integral = !text.contains(['.', 'e', 'E']);
            assert_eq!(nearest_micros(text, integral), Some(micros), "{text}");
            assert!(usual.is_none_or(|usual| usual == (micros, text.len())), "{text}: {usual:?}");
        }
        for text in ["", "-", "01", "1.", "1e", "1e+", ".5", "1E400", "1e99"] {
            assert_eq!(usual_micros(text.as_bytes()), None, "{text}");
        }
    }
}
