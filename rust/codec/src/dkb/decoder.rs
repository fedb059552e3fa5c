//! Input cut anywhere, in; messages and markers, out: one by one, or messages straight into Arrow columns.

use super::columns::RunColumns;
use crate::error::{Error, ErrorKind, Result};
use crate::framing::markers::{self, MarkerFramer, Markers, MarkersError};
use crate::framing::{Buffer, READ_BYTES};
use crate::message_batch::MessageBatch;

/// An event, with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A message, and whether EOM ended it.
    Message(Vec<u8>, bool),
    /// So many messages have gone to the columns, as many as were asked for.
    Collected(usize),
    /// EOP.
    EndOfProcess,
    /// EOB for a worker, BNC for a supervisor.
    AtBoundary,
    /// The rest at the end of input; never a message.
    Truncated(Vec<u8>),
}

/// An incremental decoder of one direction of the stream.
#[derive(Debug)]
pub struct Decoder {
    framer: MarkerFramer,
    buffer: Buffer,
    at_end: bool,
    max_message_bytes: usize,
    failed: bool,
    run: RunColumns,
    /// Messages that still go to the columns before the caller hears of it; 0: messages come one by one.
    collecting: usize,
    collected: usize,
}

impl Decoder {
    /// A decoder for `markers`.
    ///
    /// # Errors
    /// The markers cannot be told apart, see [`MarkerFramer::new`].
    ///
    /// # Panics
    /// `max_message_bytes` is 0.
    pub fn new(markers: Markers, max_message_bytes: usize) -> std::result::Result<Self, MarkersError> {
        Ok(Self {
            framer: MarkerFramer::new(markers, max_message_bytes)?,
            buffer: Buffer::default(),
            at_end: false,
            max_message_bytes,
            failed: false,
            run: RunColumns::new(0),
            collecting: 0,
            collected: 0,
        })
    }

    /// Takes input.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.feed(bytes);
    }

    /// Room to read into; [`Decoder::commit`] says how much was.
    pub fn space(&mut self) -> &mut [u8] {
        self.buffer.space(READ_BYTES)
    }

    /// The first `count` bytes of [`Decoder::space`] are input now.
    pub fn commit(&mut self, count: usize) {
        self.buffer.commit(count);
    }

    /// No more input comes; the rest is reported by [`Decoder::next_event`].
    pub fn finish(&mut self) {
        self.at_end = true;
    }

    /// Whether no part of a message is held.
    #[must_use]
    pub const fn is_at_start(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Bytes that have arrived and are part of no event yet: a call may have to look at all of them.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.buffer.open().len()
    }

    /// Gives back the memory of the buffer, if nothing is held in it.
    pub fn release_memory(&mut self) {
        self.buffer.release_memory();
    }

    /// From now, the next `most` messages go to the columns; then, or when something else comes, there is an event.
    pub fn collect(&mut self, most: usize) {
        self.collecting = most;
        self.collected = 0;
    }

    /// Messages in the columns.
    #[must_use]
    pub const fn collected(&self) -> usize {
        self.run.len()
    }

    /// The messages in the columns.
    #[must_use]
    pub fn take_batch(&mut self) -> MessageBatch {
        self.run.finish()
    }

    /// The next event; `None` when more input is needed, or at its end nothing is left.
    ///
    /// # Errors
    /// A message is longer than it may be (once; then there is nothing more).
    pub fn next_event(&mut self) -> Option<Result<Event>> {
        if self.failed {
            return None;
        }
        loop {
            let Ok(next) = self.framer.next(self.buffer.open(), self.at_end) else {
                self.failed = true;
                let limit = self.max_message_bytes;
                let what = format!("a message is longer than max_message_bytes={limit}");
                let error = Error::new(ErrorKind::MessageTooLong, limit, what);
                return Some(Err(error.with_context(self.buffer.open(), 0)));
            };
            let (event, count) = next?;
            let taken = self.buffer.take(count);
            return Some(Ok(match event {
                markers::Event::Message { length, terminated } => {
                    let message = &taken[..length];
                    // A message that does not fit (more than 2 GiB in a run) comes alone; the caller takes the batch before it.
                    if self.collecting == 0 || self.run.is_full_for(length) {
                        Event::Message(message.to_vec(), terminated)
                    } else {
                        self.run.push(message);
                        self.collected += 1;
                        self.collecting -= 1;
                        if self.collecting > 0 {
                            continue;
                        }
                        Event::Collected(self.collected)
                    }
                }
                markers::Event::EndOfProcess => Event::EndOfProcess,
                markers::Event::AtBoundary => Event::AtBoundary,
                markers::Event::Truncated { length } => Event::Truncated(taken[..length].to_vec()),
            }));
        }
    }
}
