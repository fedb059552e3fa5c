//! Input cut anywhere, in; messages, out.
//!
//! The input buffer is read into directly (`space`, `commit`). What the state machine has not taken, seldom more than a
//! record's metadata, is moved to the front when the room behind it runs out.
//!
//! ```text
//!  ▏taken ▏not yet taken ▏room for the next read ▏slack ▏
//!  0     start          end                            len
//! ```

use super::message::Message;
use super::stream::Stream;
use super::{LARGEST_MAX_LINE_BYTES, line};
use crate::base64::Kernels;
use crate::columns::Columns;
use crate::cpu::Isa;
use crate::error::{Error, Result};
use crate::framing::is_blank;
use crate::input::{Padded, SLACK, pad};

/// What one read should ask for: above it a pipe gives no more at once, and what was read is still in the cache.
pub const READ_BYTES: usize = 256 * 1024;

/// An incremental decoder of a daemon's lines.
#[derive(Debug)]
pub struct Decoder {
    stream: Stream,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Decoder {
    /// A decoder with the kernels of this process.
    ///
    /// # Panics
    /// `max_line_bytes` is 0 or above [`LARGEST_MAX_LINE_BYTES`].
    #[must_use]
    pub fn new(max_line_bytes: usize) -> Self {
        Self::with_kernels(Kernels::active(), max_line_bytes)
    }

    /// A decoder with the kernels of `isa`, for tests and benches.
    ///
    /// # Panics
    /// As [`Decoder::new`].
    #[must_use]
    pub fn with_isa(isa: Isa, max_line_bytes: usize) -> Self {
        Self::with_kernels(Kernels::of(isa), max_line_bytes)
    }

    fn with_kernels(kernels: Kernels, max_line_bytes: usize) -> Self {
        assert!((1..=LARGEST_MAX_LINE_BYTES).contains(&max_line_bytes), "max_line_bytes is 1 to 2^31 - 1");
        Self { stream: Stream::new(kernels, max_line_bytes), buffer: Vec::new(), start: 0, end: 0 }
    }

    /// Appends input.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.buffer[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Room of at least [`READ_BYTES`] to read into; [`Decoder::commit`] says how much was.
    pub fn space(&mut self) -> &mut [u8] {
        self.make_room(READ_BYTES);
        let room = self.buffer.len() - SLACK;
        &mut self.buffer[self.end..room]
    }

    /// The first `count` bytes of [`Decoder::space`] are input now.
    ///
    /// # Panics
    /// The space was smaller.
    pub fn commit(&mut self, count: usize) {
        assert!(self.end + count + SLACK <= self.buffer.len(), "more committed than there was space");
        self.end += count;
    }

    fn make_room(&mut self, count: usize) {
        if self.end + count + SLACK <= self.buffer.len() {
            return;
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.stream.moved(self.start, 0);
        self.end -= self.start;
        self.start = 0;
        let needed = self.end + count + SLACK;
        if needed > self.buffer.len() {
            // Doubling keeps a collected line's copies linear.
            self.buffer.resize(needed.max(self.buffer.len() * 2), 0);
        }
    }

    /// The next message; `None` when more input is needed. After an error the rest of its line is skipped.
    pub fn next_message(&mut self) -> Option<Result<Message>> {
        if self.buffer.is_empty() {
            return None;
        }
        let input = Padded::new(&self.buffer, self.end);
        let message = self.stream.advance(input, &mut self.start);
        if self.start == self.end {
            self.stream.moved(self.start, 0);
            self.start = 0;
            self.end = 0;
        }
        message
    }

    /// The end of input: what stands without an LF is handled as a line.
    ///
    /// # Errors
    /// As [`Decoder::next_message`]; the input ended inside a message.
    pub fn finish(&mut self) -> Option<Result<Message>> {
        if self.is_at_line_start() {
            return None;
        }
        self.feed(b"\n");
        let message = self.next_message()?;
        Some(message.map_err(|error| {
            if error.is_at_end() {
                error.with_what("input ended inside a message, before its line feed")
            } else {
                error
            }
        }))
    }

    /// Whether no part of a line is held: the place to wait for a long time.
    #[must_use]
    pub fn is_at_line_start(&self) -> bool {
        self.stream.is_at_line_start() && self.start == self.end
    }

    /// Gives back the memory of buffers, also of those that batches still hold, when they let go. For a child that goes
    /// idle; does nothing inside a line.
    pub fn release_memory(&mut self) {
        if self.is_at_line_start() {
            self.stream.rest();
            self.buffer = Vec::new();
            self.start = 0;
            self.end = 0;
        }
    }
}

/// Decodes one complete message, with or without its LF; `None` if the line is blank. Here an LF elsewhere is white
/// space.
///
/// # Errors
/// `line` is no valid message.
///
/// # Panics
/// `max_line_bytes` is 0 or above [`LARGEST_MAX_LINE_BYTES`].
pub fn decode_line(line: &[u8], max_line_bytes: usize) -> Result<Option<Message>> {
    decode_line_with(Kernels::active(), line, max_line_bytes)
}

fn decode_line_with(kernels: Kernels, line: &[u8], max_line_bytes: usize) -> Result<Option<Message>> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    if is_blank(line) {
        return Ok(None);
    }
    let mut decoder = Decoder::with_kernels(kernels, max_line_bytes);
    // The line is decoded where it stands, but for its end, behind which nothing can be read.
    if line.len() > 2 * SLACK {
        let input = Padded::new(line, line.len() - SLACK);
        let mut at = 0;
        if let Some(early) = decoder.stream.advance(input, &mut at) {
            return early_end(kernels, line, max_line_bytes, early);
        }
        decoder.feed(&line[at..]);
        decoder.stream.moved(at, 0);
    } else {
        decoder.feed(line);
    }
    decoder.feed(b"\n");
    match decoder.next_message() {
        Some(Ok(message)) if decoder.is_at_line_start() => Ok(Some(message)),
        Some(other) => early_end(kernels, line, max_line_bytes, other),
        None => Err(Error::at_end(line.len())),
    }
}

/// The line's message, or its error, came before the line's end. An LF inside of it may be why: parse it as a whole.
#[cold]
fn early_end(kernels: Kernels, line: &[u8], max_line_bytes: usize, early: Result<Message>) -> Result<Option<Message>> {
    if memchr::memchr(b'\n', line).is_none() || line.len() > max_line_bytes {
        return early.map(Some);
    }
    let padded = pad(line);
    let mut columns = Columns::new();
    let parsed = line::whole(kernels, Padded::new(&padded, line.len()), 0, 0, &mut columns);
    let parsed = parsed.map_err(|error| {
        let offset = error.offset().unwrap_or_default();
        error.with_context(line, offset)
    })?;
    Ok(Some(Stream::message_of(parsed, &mut columns, None)))
}
