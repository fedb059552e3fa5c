//! Input that kernels may read past the end of: a slice, and how much of it is input.
//!
//! Two unsafe blocks live here, on the one invariant: SLACK bytes after `end` can be read.
//!
//! Vector loads take whole blocks. Instead of checking bounds for every load, the scanners work on bytes that are
//! followed by [`SLACK`] readable ones. Their values never matter: no result depends on a byte at or after `end`.

/// Bytes that can be read after the end of input.
pub(crate) const SLACK: usize = 64;

/// Bytes of which the first `end` are input and at least [`SLACK`] more can be read.
#[derive(Clone, Copy)]
pub(crate) struct Padded<'a> {
    bytes: &'a [u8],
    end: usize,
}

impl<'a> Padded<'a> {
    /// The first `end` bytes of `bytes` as input.
    ///
    /// # Panics
    /// Fewer than [`SLACK`] bytes follow them.
    pub(crate) fn new(bytes: &'a [u8], end: usize) -> Self {
        assert!(end + SLACK <= bytes.len(), "padded input needs {SLACK} bytes after its end");
        Self { bytes, end }
    }

    /// The input only.
    #[inline]
    pub(crate) fn input(self) -> &'a [u8] {
        &self.bytes[..self.end]
    }

    /// Everything that may be read.
    #[inline]
    pub(crate) fn readable(self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes from `at` on, of which those before `end` are input; none if `at` is after it.
    #[inline(always)]
    pub(crate) fn block(self, at: usize) -> Option<&'a [u8; SLACK]> {
        if at > self.end {
            return None;
        }
        // SAFETY: SLACK bytes after `end` are in `bytes`: `new` makes sure, `until` only brings `end` forward, and
        // `from` takes bytes away before `end` only.
        Some(unsafe { &*self.bytes.as_ptr().add(at).cast() })
    }

    /// The index after `expected`, if it stands at `at`.
    #[inline(always)]
    pub(crate) fn literal<const N: usize>(self, at: usize, expected: &[u8; N]) -> Option<usize> {
        let block = self.block(at)?;
        (self.end - at >= N && block.first_chunk() == Some(expected)).then_some(at + N)
    }

    #[inline]
    pub(crate) fn end(self) -> usize {
        self.end
    }

    /// The same bytes with an earlier end.
    #[inline]
    pub(crate) fn until(self, end: usize) -> Self {
        assert!(end <= self.end);
        Self { end, ..self }
    }

    /// The bytes from `at` on, with the same end.
    #[inline(always)]
    pub(crate) fn from(self, at: usize) -> Self {
        assert!(at <= self.end);
        // SAFETY: `at <= end`, which is inside of `bytes`. The bytes after `end` are still there.
        Self { bytes: unsafe { self.bytes.get_unchecked(at..) }, end: self.end - at }
    }
}

/// Copies `bytes` into a buffer with slack after them.
pub(crate) fn pad(bytes: &[u8]) -> Vec<u8> {
    let mut padded = Vec::with_capacity(bytes.len() + SLACK);
    padded.extend_from_slice(bytes);
    padded.resize(bytes.len() + SLACK, 0);
    padded
}
