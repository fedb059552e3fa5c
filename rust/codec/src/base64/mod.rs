//! Base64 as a JSON string in a KCL line holds it: encoding, and decoding by two paths that agree byte for byte.
//!
//! A daemon writes only canonical text, so almost every character is decoded by a `Kernel`, which decodes the run of
//! alphabet characters, up to the first other byte. It stops at the closing quote, at padding, or at something
//! else, and does not tell these apart. The caller (`text`) looks whether it is the end of a canonical value and hands
//! everything else to the slow path (`slow`), which reads exactly as Jackson's `MIME_NO_LINEFEEDS` does and is the only
//! one to find errors. It takes over at a unit's edge, so no whole unit is looked at again.
//!
//! | module | purpose |
//! |---|---|
//! | `alphabet` | the characters and their values; the kernels use it, too |
//! | `slow` | one character at a time, resumable, all errors |
//! | `text` | a value from its opening quote on: kernel, end of text, slow path |

pub(crate) mod alphabet;
pub(crate) mod slow;
pub(crate) mod text;

use crate::error::Error;
use crate::input::{Padded, pad};
use crate::kernel::Kernels;
use crate::kernel::traits::{Kernel, Routine, decode_run};
use crate::pool::Buf;

/// [`decode_run`] as a routine of its own.
struct DecodeRun<'a> {
    input: Padded<'a>,
    from: usize,
    to: usize,
    out: &'a mut Buf,
}

impl Routine for DecodeRun<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> usize {
        decode_run(kernel, self.input, self.from, self.to, self.out)
    }
}

/// Encodes with padding.
#[must_use]
pub fn encode(data: &[u8]) -> String {
    base64_simd::STANDARD.encode_to_string(data)
}

/// Encodes with padding, appended to `text`.
pub fn encode_to(data: &[u8], text: &mut Vec<u8>) {
    base64_simd::STANDARD.encode_append(data, text);
}

/// Decodes a whole value, as it stands in a JSON string after unescaping: text, without quotes or escapes.
///
/// ```
/// use fastkcl_codec::{Base64Reason, base64};
///
/// assert_eq!(base64::decode(b"aGVsbG8=")?, b"hello");
/// let error = base64::decode(b"aGVs*G8=").unwrap_err();
/// assert_eq!((error.reason(), error.offset()), (Some(Base64Reason::InvalidCharacter), Some(4)));
/// # Ok::<(), fastkcl_codec::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Base64`](crate::ErrorKind::Base64) with the reason, at the offset from the start of `text`.
pub fn decode(text: &[u8]) -> Result<Vec<u8>, Error> {
    let padded = pad(text);
    let input = Padded::new(&padded, text.len());
    let mut out = Buf::new();
    let run = Kernels::active().run(DecodeRun { input, from: 0, to: text.len(), out: &mut out });
    out.truncate(run / 4 * 3);
    let mut state = slow::Slow::default();
    for (at, byte) in text.iter().enumerate().skip(run / 4 * 4) {
        state.push(u32::from(*byte), &mut out).map_err(|reason| Error::base64(reason, at))?;
    }
    state.finish().map_err(|reason| Error::base64(reason, text.len()))?;
    Ok(out.as_slice().to_vec())
}
