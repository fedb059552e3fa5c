//! Input that kernels may read past the end of: a slice, and how much of it is input.
//!
//! Vector loads take whole blocks. Instead of checking bounds for every load, the scanners work on bytes that are
//! followed by [`SLACK`] readable ones. What those hold never matters: no result depends on a byte at or after `end`.

/// Bytes that can be read behind the end of input.
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
        assert!(end + SLACK <= bytes.len(), "padded input needs {SLACK} bytes behind its end");
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
}

/// Copies `bytes` into a buffer with slack behind them.
pub(crate) fn pad(bytes: &[u8]) -> Vec<u8> {
    let mut padded = Vec::with_capacity(bytes.len() + SLACK);
    padded.extend_from_slice(bytes);
    padded.resize(bytes.len() + SLACK, 0);
    padded
}
