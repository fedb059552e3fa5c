//! Input on its way to a framer: read into at the end, taken from the front.
//!
//! Bytes that are not taken, seldom more than one open message, are moved to the front when the room after them runs out.
//! The buffer then doubles, so that the copies of a message that arrives in pieces stay linear.
//!
//! ```text
//!  ▏taken ▏open: not yet taken ▏room for the next read ▏
//!  0     start                end                    len
//! ```

use crate::pool::Room;

/// Bytes that have arrived and are not taken yet.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Room,
    start: usize,
    end: usize,
}

impl Buffer {
    /// Bytes that have arrived and are not taken.
    #[must_use]
    pub fn open(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Whether nothing is open.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Room of at least `count` bytes to read into; [`Buffer::commit`] says how much was.
    pub fn space(&mut self, count: usize) -> &mut [u8] {
        if self.end + count > self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            let needed = self.end + count;
            if needed > self.bytes.len() {
                self.bytes.grow(needed.max(self.bytes.len() * 2));
            }
        }
        &mut self.bytes[self.end..]
    }

    /// The first `count` bytes of [`Buffer::space`] are input now.
    ///
    /// # Panics
    /// The space was smaller.
    pub fn commit(&mut self, count: usize) {
        assert!(self.end + count <= self.bytes.len(), "more committed than there was space");
        self.end += count;
    }

    /// Takes a copy of `bytes` in.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.space(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.commit(bytes.len());
    }

    /// The first `count` open bytes are done with. They stay readable until input is added.
    ///
    /// # Panics
    /// Fewer are open.
    pub fn take(&mut self, count: usize) -> &[u8] {
        assert!(count <= self.end - self.start, "more taken than is open");
        let taken = self.start..self.start + count;
        self.start = taken.end;
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
        &self.bytes[taken]
    }

    /// Gives the memory back if nothing is open.
    pub fn release_memory(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Buffer;

    #[test]
    fn what_is_fed_in_any_pieces_is_taken_in_order() {
        let mut buffer = Buffer::default();
        let mut taken = Vec::new();
        let input: Vec<u8> = (0..=255).cycle().take(5000).collect();
        for piece in input.chunks(7) {
            buffer.feed(piece);
            let count = buffer.open().len() / 2;
            taken.extend_from_slice(buffer.take(count));
        }
        taken.extend_from_slice(buffer.open());
        assert_eq!(taken, input);
        let rest = buffer.open().len();
        buffer.take(rest);
        buffer.release_memory();
        assert!(buffer.is_empty() && buffer.bytes.is_empty());
    }
}
