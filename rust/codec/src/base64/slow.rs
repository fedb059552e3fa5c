//! The exact path: reads as Jackson's `Base64Variants.MIME_NO_LINEFEEDS` does, one character at a time, resumable
//! anywhere.
//!
//! p is the position in the unit of four:
//!
//! | p | character | result |
//! |---|---|---|
//! | 0 | at most U+0020 | skipped |
//! | 0, 1 | `=` | bad padding |
//! | any | alphabet | next p; after p = 3 three bytes come out |
//! | 2 | `=` | the next must be `=`, else bad padding; one byte comes out, p = 0 |
//! | 3 | `=` | two bytes come out, p = 0 |
//! | 1–3 | at most U+0020 | invalid character |
//! | any | everything else | invalid character |
//! | end at p = 0 | | done |
//! | end elsewhere | | truncated |
//!
//! Unused bits are not checked. Reading continues after padding: `QQ==QQ==` is two bytes.

use super::alphabet::{NONE, VALUES};
use crate::error::Base64Reason;
use crate::pool::Buf;

/// Where in a unit the text stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slow {
    bits: u32,
    position: u8,
    /// `=` was read at p = 2: only another may follow.
    half_padded: bool,
}

impl Slow {
    /// Takes the next character, a Unicode scalar value or a surrogate, after unescaping.
    pub(crate) fn push(&mut self, character: u32, out: &mut Buf) -> Result<(), Base64Reason> {
        if self.half_padded {
            if character != u32::from(b'=') {
                return Err(Base64Reason::BadPadding);
            }
            #[expect(clippy::cast_possible_truncation, reason = "only the low byte is wanted")]
            out.extend_from_slice(&[(self.bits >> 4) as u8]);
            *self = Self::default();
            return Ok(());
        }
        let value = u8::try_from(character).map_or(NONE, |byte| VALUES[usize::from(byte)]);
        if value != NONE {
            self.bits = self.bits << 6 | u32::from(value);
            self.position += 1;
            if self.position == 4 {
                out.extend_from_slice(&self.bits.to_be_bytes()[1..]);
                *self = Self::default();
            }
            return Ok(());
        }
        match (character, self.position) {
            (0x3d, 2) => self.half_padded = true,
            (0x3d, 3) => {
                out.extend_from_slice(&(self.bits << 6).to_be_bytes()[1..3]);
                *self = Self::default();
            }
            (0x3d, _) => return Err(Base64Reason::BadPadding),
            (0..=0x20, 0) => {}
            _ => return Err(Base64Reason::InvalidCharacter),
        }
        Ok(())
    }

    /// The end of the value.
    pub(crate) fn finish(self) -> Result<(), Base64Reason> {
        if self.position == 0 { Ok(()) } else { Err(Base64Reason::Truncated) }
    }
}
