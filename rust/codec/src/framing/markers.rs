//! Markers: messages that end with a byte string, and markers that stand between them.
//!
//! Two ends of one pipe, one machine:
//!
//! ```text
//!                  at a boundary, if the input starts with it     ends a message      anywhere
//!  worker reads    EOB (end of batch)                             EOM                 –
//!  supervisor      BNC (batch not complete)                       EOM                 EOP (end of process)
//! ```
//!
//! Rules:
//! - A boundary is the start of input and the place after a message or marker. A marker there is an event as soon as
//!   its last byte is in; while the input is a proper prefix of it, more is needed; inside a message it is data.
//! - Of EOM and EOP the one that begins first is taken; cuts of the input do not change the result. So
//!   where one of them stands inside the other ("b" in "abc"), it waits until that other one is ruled out.
//! - Text before an EOP is a message that is not terminated; text left at the end of input is truncated, no message.
//! - EOP equal to EOM: each end of a message is also an end of process.
//! - Framing is on bytes: NUL, CR and bytes that are no UTF-8 are data.
//!
//! Each byte is searched once for each of EOM and EOP, by a vectorised search, however it arrives.

use std::fmt;

use memchr::memmem::Finder;

/// The longest marker.
pub const LARGEST_MARKER_BYTES: usize = 16;

/// Byte strings between messages. An absent one is not looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Markers {
    /// EOM, after each message.
    pub end_of_message: Vec<u8>,
    /// EOP, wherever it stands.
    pub end_of_process: Option<Vec<u8>>,
    /// At a boundary: EOB for a worker, BNC for a supervisor.
    pub at_boundary: Option<Vec<u8>>,
}

/// Markers that cannot be told apart, or that are empty or too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkersError(String);

impl fmt::Display for MarkersError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for MarkersError {}

/// The next part of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A message: the first `length` bytes of the input; terminated by EOM, or by an EOP that follows.
    Message {
        /// Bytes of the message, the end not included.
        length: usize,
        /// Whether EOM ended it.
        terminated: bool,
    },
    /// EOP.
    EndOfProcess,
    /// EOB or BNC.
    AtBoundary,
    /// The first `length` bytes, all that was left at the end of input.
    Truncated {
        /// More than 0.
        length: usize,
    },
}

/// A message that is longer than it may be; its first `length` bytes and more are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// Bytes that are open.
    pub length: usize,
}

/// Searches for one marker, from where the search before has ended.
#[derive(Clone, Debug)]
struct Search {
    /// In memory of its own: it is aligned for vectors, which an object of Python is not.
    finder: Box<Finder<'static>>,
    /// Where the marker is, relative to the open input.
    found: Option<usize>,
    /// No occurrence begins before it.
    searched: usize,
}

impl Search {
    fn new(marker: &[u8]) -> Self {
        Self { finder: Box::new(Finder::new(marker).into_owned()), found: None, searched: 0 }
    }

    fn marker(&self) -> &[u8] {
        self.finder.needle()
    }

    /// The first occurrence in `open`, the open input so far.
    #[inline]
    fn find(&mut self, open: &[u8]) -> Option<usize> {
        if self.found.is_none() {
            let rest = &open[self.searched..];
            // A single byte is the usual marker, and its search has no set-up.
            let found = if let [byte] = *self.marker() { memchr::memchr(byte, rest) } else { self.finder.find(rest) };
            self.found = found.map(|at| at + self.searched);
            if self.found.is_none() {
                self.searched = self.searched.max((open.len() + 1).saturating_sub(self.marker().len()));
            }
        }
        self.found
    }

    /// The first `count` bytes are no longer open.
    #[inline]
    fn taken(&mut self, count: usize) {
        self.found = self.found.and_then(|at| at.checked_sub(count));
        self.searched = if self.found.is_some() { 0 } else { self.searched.saturating_sub(count) };
    }

    /// Whether the marker may begin before `end` and go on after the open input.
    fn may_begin_before(&self, end: usize, open: &[u8]) -> bool {
        let first = (open.len() + 1).saturating_sub(self.marker().len());
        (first..end).any(|at| self.marker().starts_with(&open[at..]))
    }
}

/// The framer of one direction of a pipe.
#[derive(Clone, Debug)]
pub struct MarkerFramer {
    end_of_message: Search,
    /// Not set where it equals EOM.
    end_of_process: Option<Search>,
    at_boundary: Option<Vec<u8>>,
    every_message_ends_process: bool,
    /// An EOM that is an EOP as well was taken, and the latter is not told yet.
    owes_end_of_process: bool,
    /// One of EOM and EOP stands inside the other, after its start.
    nested: bool,
    max_message_bytes: usize,
}

impl MarkerFramer {
    /// A framer for `markers`.
    ///
    /// # Errors
    /// A marker is empty or longer than [`LARGEST_MARKER_BYTES`], or one is a prefix of another (EOP may equal EOM).
    ///
    /// # Panics
    /// `max_message_bytes` is 0.
    pub fn new(markers: Markers, max_message_bytes: usize) -> Result<Self, MarkersError> {
        assert!(max_message_bytes > 0, "a message needs room");
        let Markers { end_of_message, end_of_process, at_boundary } = markers;
        let every_message_ends_process = end_of_process.as_deref() == Some(&end_of_message[..]);
        let end_of_process = end_of_process.filter(|_| !every_message_ends_process);
        let all: Vec<&[u8]> = [Some(&end_of_message), end_of_process.as_ref(), at_boundary.as_ref()]
            .into_iter()
            .flatten()
            .map(|m| &m[..])
            .collect();
        for (index, marker) in all.iter().enumerate() {
            if !(1..=LARGEST_MARKER_BYTES).contains(&marker.len()) {
                let what = format!("a marker has 1 to {LARGEST_MARKER_BYTES} bytes: \"{}\"", marker.escape_ascii());
                return Err(MarkersError(what));
            }
            for other in all.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, other)| other) {
                if other.starts_with(marker) {
                    let (marker, other) = (marker.escape_ascii(), other.escape_ascii());
                    return Err(MarkersError(format!("the marker \"{marker}\" is a prefix of \"{other}\"")));
                }
            }
        }
        let inside = |inner: &[u8], outer: &[u8]| outer.windows(inner.len()).any(|window| window == inner);
        let nested =
            end_of_process.as_ref().is_some_and(|eop| inside(eop, &end_of_message) || inside(&end_of_message, eop));
        Ok(Self {
            end_of_message: Search::new(&end_of_message),
            end_of_process: end_of_process.as_deref().map(Search::new),
            at_boundary,
            every_message_ends_process,
            owes_end_of_process: false,
            nested,
            max_message_bytes,
        })
    }

    /// The next event of `open`, and how many of its bytes are done with then; None when more is needed.
    ///
    /// `open` is what is not done with yet: what the call before had, less what it took, and what has arrived since.
    ///
    /// # Errors
    /// A message is longer than it may be. The framer is where it was; nothing sensible follows.
    #[inline]
    pub fn next(&mut self, open: &[u8], at_end: bool) -> Result<Option<(Event, usize)>, TooLong> {
        if self.owes_end_of_process {
            self.owes_end_of_process = false;
            return Ok(Some((Event::EndOfProcess, 0)));
        }
        if let Some(marker) = &self.at_boundary {
            if open.starts_with(marker) {
                let length = marker.len();
                return Ok(Some(self.take(Event::AtBoundary, length)));
            }
            if !at_end && marker.starts_with(open) {
                return Ok(None);
            }
        }
        let message = self.end_of_message.find(open);
        let process = self.end_of_process.as_mut().and_then(|search| search.find(open));
        let process = process.filter(|process| message.is_none_or(|message| *process < message));
        let length = process.or(message);
        if length.unwrap_or_else(|| self.least_length()) > self.max_message_bytes {
            return Err(TooLong { length: open.len() });
        }
        let Some(length) = length else {
            if at_end && !open.is_empty() {
                return Ok(Some(self.take(Event::Truncated { length: open.len() }, open.len())));
            }
            return Ok(None);
        };
        if self.nested && !at_end && self.may_begin_before(length, open) {
            return Ok(None);
        }
        Ok(Some(match process {
            Some(0) => {
                let marker = self.end_of_process.as_ref().map_or(0, |search| search.marker().len());
                self.take(Event::EndOfProcess, marker)
            }
            Some(length) => self.take(Event::Message { length, terminated: false }, length),
            None => {
                self.owes_end_of_process = self.every_message_ends_process;
                self.take(Event::Message { length, terminated: true }, length + self.end_of_message.marker().len())
            }
        }))
    }

    /// How long the open message is at least: the bytes after that may be the beginning of its end.
    fn least_length(&self) -> usize {
        let process = self.end_of_process.as_ref().map_or(usize::MAX, |search| search.searched);
        self.end_of_message.searched.min(process)
    }

    #[inline]
    fn take(&mut self, event: Event, count: usize) -> (Event, usize) {
        self.end_of_message.taken(count);
        if let Some(search) = &mut self.end_of_process {
            search.taken(count);
        }
        (event, count)
    }

    #[cold]
    fn may_begin_before(&self, end: usize, open: &[u8]) -> bool {
        [Some(&self.end_of_message), self.end_of_process.as_ref()]
            .into_iter()
            .flatten()
            .any(|search| search.may_begin_before(end, open))
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, MarkerFramer, Markers, TooLong};

    fn markers(eom: &str, eop: Option<&str>, at_boundary: Option<&str>) -> Markers {
        let bytes = |text: &str| text.as_bytes().to_vec();
        Markers { end_of_message: bytes(eom), end_of_process: eop.map(bytes), at_boundary: at_boundary.map(bytes) }
    }

    #[test]
    fn markers_that_cannot_be_told_apart() {
        for (eom, eop, at_boundary, says) in [
            ("", None, None, "1 to 16 bytes"),
            ("12345678901234567", None, None, "1 to 16 bytes"),
            ("\n", Some(""), None, "1 to 16 bytes"),
            ("EO", Some("EOP"), None, "\"EO\" is a prefix of \"EOP\""),
            ("EOM", Some("\0"), Some("EOM"), "is a prefix of"),
            ("\n", Some("\n"), Some("\n\0"), "\"\\n\" is a prefix of \"\\n\\x00\""),
        ] {
            let error = MarkerFramer::new(markers(eom, eop, at_boundary), 10).expect_err(says);
            assert!(error.to_string().contains(says), "{error}");
        }
        for fine in [markers("\n", Some("\n"), None), markers("abc", Some("b"), Some("c"))] {
            assert!(MarkerFramer::new(fine, 10).is_ok());
        }
    }

    #[test]
    fn a_marker_inside_of_another_waits() {
        let mut framer = MarkerFramer::new(markers("abc", Some("b"), None), 10).unwrap();
        assert_eq!(framer.next(b"xab", false), Ok(None));
        let message = Event::Message { length: 1, terminated: true };
        assert_eq!(framer.clone().next(b"xabc", false), Ok(Some((message, 4))));
        let message = Event::Message { length: 2, terminated: false };
        assert_eq!(framer.clone().next(b"xabd", false), Ok(Some((message, 2))));
        assert_eq!(framer.next(b"xab", true), Ok(Some((message, 2))));
        assert_eq!(framer.next(b"b", true), Ok(Some((Event::EndOfProcess, 1))));
    }

    #[test]
    fn each_byte_is_searched_once() {
        let mut framer = MarkerFramer::new(markers("EOM", Some("\0"), None), 100).unwrap();
        let input = b"0123456789EOM";
        for shown in 0..input.len() {
            assert_eq!(framer.next(&input[..shown], false), Ok(None));
            assert_eq!(framer.end_of_message.searched, shown.saturating_sub(2));
        }
        let message = Event::Message { length: 10, terminated: true };
        assert_eq!(framer.next(input, false), Ok(Some((message, 13))));
        assert_eq!(framer.end_of_message.searched, 0);
    }

    #[test]
    fn a_message_may_be_as_long_as_the_limit_and_no_longer() {
        let mut framer = MarkerFramer::new(markers("\n", None, None), 4).unwrap();
        let message = Event::Message { length: 4, terminated: true };
        assert_eq!(framer.next(b"1234", false), Ok(None));
        assert_eq!(framer.next(b"1234\n", false), Ok(Some((message, 5))));
        assert_eq!(framer.next(b"12345", false), Err(TooLong { length: 5 }));
        assert_eq!(framer.next(b"12345\n", false), Err(TooLong { length: 6 }));
    }
}
