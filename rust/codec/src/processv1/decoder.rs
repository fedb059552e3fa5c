//! Input cut anywhere, in; messages, out.

use std::collections::VecDeque;

use super::json;
use super::message::Message;
use crate::error::{Error, ErrorKind, Result};
use crate::framing::end_lines::{Frame, Framer};

/// Reads one frame's text; none if it is blank or null. `terminated` is false for a text at the end of input.
///
/// # Errors
/// The text is no message.
pub fn read<M: Message>(text: &[u8], terminated: bool) -> Result<Option<M>> {
    json::message(text).map_err(|error| {
        let offset = error.offset().unwrap_or_default();
        let error = if terminated {
            error
        } else {
            Error::new(ErrorKind::TruncatedFrame, offset, format!("the input ended inside a frame; {error}"))
        };
        error.with_context(text, offset)
    })
}

/// An incremental decoder of frames.
#[derive(Debug)]
pub struct Decoder<M> {
    max_frame_bytes: usize,
    framer: Framer,
    ready: VecDeque<Result<M>>,
}

impl<M: Message> Decoder<M> {
    /// A decoder for frames of at most `max_frame_bytes`.
    #[must_use]
    pub fn new(max_frame_bytes: usize) -> Self {
        Self { max_frame_bytes, framer: Framer::new(max_frame_bytes), ready: VecDeque::new() }
    }

    /// Takes input.
    pub fn feed(&mut self, bytes: &[u8]) {
        let Self { max_frame_bytes, framer, ready } = self;
        framer.feed(bytes, |frame| ready.extend(outcome(frame, *max_frame_bytes)));
    }

    /// Whether messages, or errors, of complete frames wait to be taken.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The end of input: the open text is a frame if it is a whole message. It comes after those that wait.
    pub fn finish(&mut self) {
        let Self { max_frame_bytes, framer, ready } = self;
        framer.finish(|frame| ready.extend(outcome(frame, *max_frame_bytes)));
    }

    /// The next message, or the error of a frame that is not a message; `None` when more input is needed.
    pub fn next_message(&mut self) -> Option<Result<M>> {
        self.ready.pop_front()
    }

    /// Whether no part of a frame is held.
    #[must_use]
    pub fn is_at_frame_start(&self) -> bool {
        self.framer.is_at_frame_start()
    }
}

fn outcome<M: Message>(frame: Frame<'_>, max_frame_bytes: usize) -> Option<Result<M>> {
    match frame {
        Frame::Text { raw, terminated } => read(raw, terminated).transpose(),
        Frame::TooLong => Some(Err(too_long(max_frame_bytes))),
    }
}

/// The error of a frame that is longer than the limit.
#[must_use]
pub fn too_long(max_frame_bytes: usize) -> Error {
    let what = format!("frame of more than {max_frame_bytes} bytes; max_frame_bytes sets the limit");
    Error::new(ErrorKind::FrameTooLong, max_frame_bytes, what)
}
