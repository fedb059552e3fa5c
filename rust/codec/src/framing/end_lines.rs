//! Frames that end with a line `end`: the framing of CrossStitch ProcessV1.
//!
//! ```text
//!  {"Id":1}⏎  end  ⏎{"Id":2}⏎end⏎
//!  └ text ┘└─────────┘└ text ┘└───┘  terminators, with the line ends around them
//! ```
//!
//! - Lines end at LF, CR LF or a lone CR; not at U+0085, U+2028, VT or FF.
//! - A line that is `end` between white space (Unicode `White_Space`) is a terminator. JSON escapes line ends, so no
//!   message can hold one.
//! - A frame is the text before its terminator, without the last line end. A byte order mark at the start of the input
//!   belongs to no frame.
//! - A CR ends a line at once: a writer of lone CRs would otherwise wait for ever. An LF after it is part of the same end.
//!
//! One pass of SIMD searches for the three letters, which are rarer than line ends, and each hit is checked for a line of
//! its own. Bytes before a hit are scanned once, however the input is cut.

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::Buffer;

/// The word of the line that ends a frame.
pub const WORD: &[u8] = b"end";

/// Bytes that a terminator's line and the line end before it may have beyond [`Framer`]'s limit.
pub const TERMINATOR_BYTES: usize = 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(WORD));

/// Where a frame ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Bytes of the frame's text.
    pub text: usize,
    /// Bytes up to the line end of the terminator.
    pub line: usize,
    /// Bytes up to the next frame.
    pub next: usize,
    /// The input ended after a CR: an LF that comes next belongs to it.
    pub half: bool,
}

/// Finds the terminator of the open frame, over any number of calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndLine {
    /// Up to here no terminator's word begins.
    searched: usize,
    /// A word that may be a terminator: where its line begins, and up to where only white space follows.
    open: Option<(usize, usize)>,
    /// The first byte is inside of a line.
    inside: bool,
}

impl EndLine {
    /// The terminator in `frame`, the open frame's bytes so far: those of the call before, and more.
    pub fn find(&mut self, frame: &[u8]) -> Option<End> {
        loop {
            if let Some((line, at)) = self.open {
                let at = at + leading_space(&frame[at..]);
                if let Some(end) = Self::closed(frame, line, at) {
                    return Some(end);
                }
                if is_cut_space(&frame[at..]) {
                    self.open = Some((line, at));
                    return None;
                }
                self.open = None;
                self.searched = at;
            }
            let Some(word) = FINDER.find(&frame[self.searched..]).map(|found| self.searched + found) else {
                self.searched = self.searched.max(frame.len().saturating_sub(WORD.len() - 1));
                return None;
            };
            self.searched = word + WORD.len();
            self.open = self.line_start(frame, word).map(|line| (line, self.searched));
        }
    }

    /// The end of input: the terminator that has no line end.
    #[must_use]
    pub fn finish(self, frame: &[u8]) -> Option<End> {
        let (line, at) = self.open.filter(|(_, at)| *at == frame.len())?;
        Some(End { text: without_line_end(frame, line), line: at, next: at, half: false })
    }

    /// The terminator whose line begins at `line`, if it ends at `at`.
    fn closed(frame: &[u8], line: usize, at: usize) -> Option<End> {
        let text = without_line_end(frame, line);
        match frame[at..] {
            [b'\r', b'\n', ..] => Some(End { text, line: at, next: at + 2, half: false }),
            [b'\r' | b'\n', ref rest @ ..] => {
                Some(End { text, line: at, next: at + 1, half: frame[at] == b'\r' && rest.is_empty() })
            }
            _ => None,
        }
    }

    /// Start of the line that holds nothing but white space before `word`.
    fn line_start(self, frame: &[u8], word: usize) -> Option<usize> {
        let mut at = word;
        loop {
            match frame[..at] {
                [] if self.inside => return None,
                [] | [.., b'\n' | b'\r'] => return Some(at),
                _ => match space_before(&frame[..at]) {
                    0 => return None,
                    length => at -= length,
                },
            }
        }
    }
}

/// Length of the white space, without line ends, at the start of `bytes`.
fn leading_space(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        at += match bytes[at..] {
            [b'\t' | 0x0b | 0x0c | b' ', ..] => 1,
            [0xc2, 0x85 | 0xa0, ..] => 2,
            [0xe1, 0x9a, 0x80, ..]
            | [0xe2, 0x80, 0x80..=0x8a | 0xa8 | 0xa9 | 0xaf, ..]
            | [0xe2, 0x81, 0x9f, ..]
            | [0xe3, 0x80, 0x80, ..] => 3,
            _ => return at,
        };
    }
}

/// Length of the white-space character that ends `bytes`; 0 if none does.
fn space_before(bytes: &[u8]) -> usize {
    match bytes {
        [.., b'\t' | 0x0b | 0x0c | b' '] => 1,
        [.., 0xc2, 0x85 | 0xa0] => 2,
        [.., 0xe1, 0x9a, 0x80]
        | [.., 0xe2, 0x80, 0x80..=0x8a | 0xa8 | 0xa9 | 0xaf]
        | [.., 0xe2, 0x81, 0x9f]
        | [.., 0xe3, 0x80, 0x80] => 3,
        _ => 0,
    }
}

/// Whether `bytes` can still become a white-space character.
fn is_cut_space(bytes: &[u8]) -> bool {
    matches!(bytes, [] | [0xc2 | 0xe1 | 0xe2 | 0xe3] | [0xe1, 0x9a] | [0xe2, 0x80 | 0x81] | [0xe3, 0x80])
}

/// `line`, the start of a line, without the line end before it.
fn without_line_end(frame: &[u8], line: usize) -> usize {
    match frame[..line] {
        [.., b'\r', b'\n'] => line - 2,
        [.., b'\r' | b'\n'] => line - 1,
        _ => line,
    }
}

/// Whether a frame holds nothing but white space.
#[must_use]
pub fn is_blank(raw: &[u8]) -> bool {
    let mut at = 0;
    while at < raw.len() {
        at += match raw[at] {
            b'\r' | b'\n' => 1,
            _ => match leading_space(&raw[at..]) {
                0 => return false,
                length => length,
            },
        };
    }
    true
}

/// The text of a frame: its lines joined with LF.
#[must_use]
pub fn joined_lines(raw: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\r', raw).is_none() {
        return Cow::Borrowed(raw);
    }
    let mut text = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\r', rest) {
        text.extend_from_slice(&rest[..at]);
        text.push(b'\n');
        rest = rest[at + 1..].strip_prefix(b"\n").unwrap_or(&rest[at + 1..]);
    }
    text.extend_from_slice(rest);
    Cow::Owned(text)
}

/// A frame of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame<'a> {
    /// Its bytes, with the line ends as they came.
    Text {
        /// See [`joined_lines`].
        raw: &'a [u8],
        /// False for a frame at the end of input without a terminator.
        terminated: bool,
    },
    /// It is longer than the limit; its bytes are dropped.
    TooLong,
}

/// Cuts input of any pieces into frames.
#[derive(Debug)]
pub struct Framer {
    max_frame_bytes: usize,
    /// The open frame, or the kept part of one that is too long.
    buffer: Buffer,
    search: EndLine,
    /// No byte of the input has been taken; a byte order mark may stand here.
    at_start: bool,
    /// An LF that comes next belongs to the CR before it.
    half: bool,
    /// The open frame is too long, and has been reported.
    skipping: bool,
}

/// Above this, the memory of a frame is given back when it is done.
const KEPT_BYTES: usize = 1 << 20;

impl Framer {
    /// A framer for frames of at most `max_frame_bytes`.
    #[must_use]
    pub fn new(max_frame_bytes: usize) -> Self {
        Self {
            max_frame_bytes,
            buffer: Buffer::default(),
            search: EndLine::default(),
            at_start: true,
            half: false,
            skipping: false,
        }
    }

    /// Takes input, and hands each frame that it completes to `take`.
    pub fn feed(&mut self, bytes: &[u8], mut take: impl FnMut(Frame<'_>)) {
        if self.buffer.is_empty() {
            let taken = self.frames(bytes, &mut take);
            self.buffer.feed(&bytes[taken..]);
        } else {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.feed(bytes);
            let held = buffer.open().len();
            let taken = self.frames(buffer.open(), &mut take);
            buffer.take(taken);
            if held > KEPT_BYTES {
                buffer.release_memory();
            }
            self.buffer = buffer;
        }
        self.bound(&mut take);
    }

    /// The end of input: open text, unless it is blank, is a frame.
    pub fn finish(&mut self, mut take: impl FnMut(Frame<'_>)) {
        let buffer = std::mem::take(&mut self.buffer);
        let open = buffer.open();
        let end = self.search.finish(open);
        let raw = &open[..end.map_or_else(|| without_line_end(open, open.len()), |end| end.text)];
        let nothing = self.skipping || (end.is_none() && is_blank(open));
        if !nothing {
            let too_long = raw.len() > self.max_frame_bytes;
            take(if too_long { Frame::TooLong } else { Frame::Text { raw, terminated: end.is_some() } });
        }
        *self = Self::new(self.max_frame_bytes);
    }

    /// Whether no part of a frame is held.
    #[must_use]
    pub fn is_at_frame_start(&self) -> bool {
        self.buffer.is_empty() && !self.skipping
    }

    /// Hands the complete frames of `bytes` over; how many bytes they have, with those between frames.
    fn frames(&mut self, bytes: &[u8], take: &mut impl FnMut(Frame<'_>)) -> usize {
        let mut start = 0;
        if self.at_start {
            if bytes.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(bytes) {
                return 0;
            }
            self.at_start = false;
            if bytes.starts_with(BYTE_ORDER_MARK) {
                start = BYTE_ORDER_MARK.len();
            }
        }
        if self.half && !bytes.is_empty() {
            self.half = false;
            start += usize::from(bytes[0] == b'\n');
        }
        while let Some(end) = self.search.find(&bytes[start..]) {
            let most = self.max_frame_bytes.saturating_add(TERMINATOR_BYTES);
            let too_long = end.text > self.max_frame_bytes || end.line > most;
            let raw = &bytes[start..start + end.text];
            if !std::mem::take(&mut self.skipping) {
                take(if too_long { Frame::TooLong } else { Frame::Text { raw, terminated: true } });
            }
            self.search = EndLine::default();
            self.half = end.half;
            start += end.next;
        }
        start
    }

    /// Reports an open frame that is too long, and keeps only the part that may be its terminator.
    fn bound(&mut self, take: &mut impl FnMut(Frame<'_>)) {
        let most = if self.skipping { 0 } else { self.max_frame_bytes.saturating_add(TERMINATOR_BYTES) };
        if self.buffer.open().len() <= most || self.at_start {
            return;
        }
        if !std::mem::replace(&mut self.skipping, true) {
            take(Frame::TooLong);
        }
        let buffer = std::mem::take(&mut self.buffer);
        let bytes = buffer.open();
        let line = memchr::memrchr2(b'\n', b'\r', bytes).map(|at| at + 1);
        let inside = self.search.inside && line.is_none();
        let rest = &bytes[line.unwrap_or(0)..];
        let rest = &rest[leading_space(rest)..];
        let word = &rest[..rest.len().min(WORD.len())];
        let after = &rest[word.len()..];
        let after = &after[leading_space(after)..];
        let possible = !inside && ((WORD.starts_with(word) && is_cut_space(after)) || is_cut_space(rest));
        // White space around the word tells nothing; without it the line stays short.
        if possible {
            self.buffer.feed(&[word, after].concat());
        }
        self.search = EndLine { inside: !possible, ..EndLine::default() };
    }
}
