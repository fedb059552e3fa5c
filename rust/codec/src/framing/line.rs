//! Lines: their ends, and blank ones.
//!
//! Lines end at LF only. A CR before it is JSON white space, so it needs no rule of its own; U+2028, U+0085, VT and FF
//! are ordinary characters inside JSON strings. [`LineEnd`] remembers how far it has looked, so that a line fed one byte
//! at a time is searched once, not once a byte.

/// Finds the LF that ends the open line, over any number of calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct LineEnd {
    searched: usize,
}

impl LineEnd {
    /// A search that skips the first `searched` bytes: they are known to hold no LF.
    #[must_use]
    pub const fn from(searched: usize) -> Self {
        Self { searched }
    }

    /// Index of the LF in `line`, the open line's bytes so far: those of the call before, and more.
    pub fn find(&mut self, line: &[u8]) -> Option<usize> {
        let found = memchr::memchr(b'\n', &line[self.searched..]).map(|at| self.searched + at);
        self.searched = found.unwrap_or(line.len());
        found
    }
}

/// Whether a line holds nothing but space, tab and CR.
#[must_use]
pub fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
}

#[cfg(test)]
mod tests {
    use super::{LineEnd, is_blank};

    #[test]
    fn each_byte_is_searched_once() {
        let line = b"abc\ndef";
        let mut end = LineEnd::default();
        for shown in 0..=3 {
            assert_eq!(end.find(&line[..shown]), None);
        }
        assert_eq!(end.searched, 3);
        assert_eq!(end.find(line), Some(3));
    }

    #[test]
    fn blank() {
        assert!(is_blank(b"") && is_blank(b" \t\r"));
        assert!(!is_blank(b" \x0b ") && !is_blank("\u{a0}".as_bytes()));
    }
}
