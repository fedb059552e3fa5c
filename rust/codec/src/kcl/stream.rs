//! The state machine: the kind of the line, the position in it, the parts still missing.
//!
//! ```text
//!              ┌──────────────── LF of the line before ────────────────┐
//!              ▼                                                       │
//!  LineStart ──┬─ begins as a daemon's ─▶ Element ─▶ Data ─▶ Members ──┤ (record committed ─▶ After)
//!              │                            │  ▲                ▲      │
//!              │                            │  └─── , ── After ─┤      │
//!              │                            └─ other ▶ Record ──┘      │
//!              │                                  ] ─▶ Tail ───────────┤
//!              └─ anything else ─▶ Collect ────────────────────────────┤
//!                                     any error ─▶ Skip ───────────────┘
//! ```
//!
//! Each state can wait for more input at any byte and never looks at a byte twice, but for a few at a piece's edge.
//! Nothing is handed out before the line's LF.

use std::sync::Arc;

use super::LARGEST_MAX_LINE_BYTES;
use super::general::{self, Parsed};
use super::message::Message;
use super::shape::Kcl;
use crate::base64::text::{Progress, Text};
use crate::batch::RecordBatch;
use crate::columns::Columns;
use crate::error::{Error, ErrorKind, Result};
use crate::framing::{LineEnd, is_blank};
use crate::input::Padded;
use crate::json::error::is_cut_character;
use crate::json::{Cursor, End, Nesting, is_cut_value};
use crate::kernel::Kernels;
use crate::record::Shape;
use crate::record::fast::{Members, Records, Stop};
use crate::record::general::{Fields, record};

/// How every daemon begins a `processRecords` line. Other writers put white space between.
const OPENING_TOKENS: [&[u8]; 8] = [b"{", b"\"action\"", b":", b"\"processRecords\"", b",", b"\"records\"", b":", b"["];

/// From this length on white space is not waited for the end of: each wait looks at it again.
const LONGEST_OPENING: usize = 256;

/// Whether a line begins as `processRecords` lines do.
enum Opening {
    /// Its length.
    Whole(usize),
    /// The bytes so far may become one.
    Cut,
    Other,
}

impl Opening {
    fn of(line: &[u8]) -> Self {
        let mut rest = line;
        for token in OPENING_TOKENS {
            while let [b' ' | b'\t' | b'\r', after @ ..] = rest {
                rest = after;
            }
            rest = match rest.strip_prefix(token) {
                Some(after) => after,
                None if token.starts_with(rest) && line.len() < LONGEST_OPENING => return Self::Cut,
                None => return Self::Other,
            };
        }
        Self::Whole(line.len() - rest.len())
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// A line begins.
    LineStart,
    /// A line that does not begin as a daemon's records: all of it, up to the LF.
    Collect(LineEnd),
    /// A record must begin, or, if it is the first, `]` may stand.
    Element { first: bool },
    /// Inside of the `data` of a record that began as a daemon's.
    Data(Text),
    /// After that `data`: looking for the record's end.
    Members(Nesting),
    /// A record that began otherwise: looking for its end.
    Record(Nesting),
    /// After a record: `,` or `]`.
    After,
    /// After the records: the rest of the line, up to the LF.
    Tail(LineEnd),
    /// After an error: the bytes up to the LF are not checked.
    Skip,
}

/// The result of a step of the state machine.
enum Step {
    /// It went on to another state.
    On,
    /// It needs more input.
    Wait,
    /// The line is complete.
    Done(Parsed),
}

#[derive(Debug)]
pub(crate) struct Stream {
    kernels: Kernels,
    max_line_bytes: usize,
    state: State,
    columns: Columns,
    /// Line offset of the input's index 0, modulo 2^64.
    base: usize,
    shard_id: Option<Arc<str>>,
}

impl Stream {
    pub(crate) fn new(kernels: Kernels, max_line_bytes: usize) -> Self {
        let columns = Columns::new();
        Self { kernels, max_line_bytes, state: State::LineStart, columns, base: 0, shard_id: None }.anew(max_line_bytes)
    }

    /// At the start of another input, with another limit and the same memory.
    pub(crate) fn anew(self, max_line_bytes: usize) -> Self {
        assert!((1..=LARGEST_MAX_LINE_BYTES).contains(&max_line_bytes), "max_line_bytes is 1 to 2^31 - 1");
        Self { max_line_bytes, state: State::LineStart, base: 0, shard_id: None, ..self }
    }

    /// Whether nothing of a line has been taken.
    pub(crate) fn is_at_line_start(&self) -> bool {
        matches!(self.state, State::LineStart)
    }

    /// What stood at index `from` of the input now stands at `to`.
    pub(crate) fn moved(&mut self, from: usize, to: usize) {
        self.base = self.base.wrapping_add(from).wrapping_sub(to);
    }

    /// Gives memory back; only at a line's start.
    pub(crate) fn rest(&mut self) {
        debug_assert!(self.is_at_line_start());
        self.columns.rest();
    }

    /// Takes input from `at` on, moving it forward, up to the end of a line with a message or an error.
    pub(crate) fn advance(&mut self, input: Padded<'_>, at: &mut usize) -> Option<Result<Message>> {
        loop {
            let within = self.within_limit(input, *at);
            match self.step(within, at) {
                Ok(Step::On) => {}
                Ok(Step::Done(parsed)) => return Some(Ok(self.message(parsed))),
                Err(error) if !self.is_cut_character(&error, within) => return Some(Err(self.fail(error, input))),
                Ok(Step::Wait) | Err(_) => {
                    let error = self.beyond_limit(input, *at, input.end())?;
                    return Some(Err(self.fail(error, input)));
                }
            }
        }
    }

    /// The part of the line at `at` that may be looked at: as much as its limit allows, and its LF. So a line that is too
    /// long has the same error whole and in pieces.
    fn within_limit<'a>(&self, input: Padded<'a>, at: usize) -> Padded<'a> {
        if matches!(self.state, State::Skip) {
            return input;
        }
        let begin = if matches!(self.state, State::LineStart) { at } else { 0_usize.wrapping_sub(self.base) };
        let end = begin.wrapping_add(self.max_line_bytes);
        let end = if input.input().get(end) == Some(&b'\n') { end + 1 } else { end };
        // A line that began before this input has `begin` below 0, and so perhaps `end`.
        if end >= at && end < input.end() { input.until(end) } else { input }
    }

    #[cold]
    fn fail(&mut self, error: Error, input: Padded<'_>) -> Error {
        self.state = State::Skip;
        self.columns.clear();
        let offset = error.offset().unwrap_or_default();
        let beyond = offset > self.max_line_bytes || (offset == self.max_line_bytes && !error.is_at_end());
        let error = if beyond { too_long(self.max_line_bytes) } else { error };
        let index = error.offset().unwrap_or_default().wrapping_sub(self.base);
        let index = if index <= input.end() { index } else { 0 };
        let line = LineEnd::from(index).find(input.input()).unwrap_or(input.end());
        // Index 0 where the line began before this input.
        let start = Some(0_usize.wrapping_sub(self.base)).filter(|start| *start <= index).unwrap_or(0);
        error.with_context(&input.input()[start..line], index - start)
    }

    /// The error of an open line that has passed its limit by index `end`: the first one before the limit, if it has one.
    fn beyond_limit(&mut self, input: Padded<'_>, at: usize, end: usize) -> Option<Error> {
        if matches!(self.state, State::Skip) || self.base.wrapping_add(end) <= self.max_line_bytes {
            return None;
        }
        let limit = self.max_line_bytes.wrapping_sub(self.base);
        if at <= limit
            && limit <= input.end()
            && let Err(error) = self.end_of_line(input.until(limit), at)
            && !error.is_at_end()
            && !self.is_cut_character(&error, input.until(limit))
        {
            return Some(error);
        }
        Some(too_long(self.max_line_bytes))
    }

    /// Whether the error is only that the end of `input` cuts a character.
    fn is_cut_character(&self, error: &Error, input: Padded<'_>) -> bool {
        let index = error.offset().unwrap_or_default().wrapping_sub(self.base);
        input.input().get(index..).is_some_and(|rest| is_cut_character(error, rest))
    }

    fn cursor<'a>(&self, input: Padded<'a>, at: usize) -> Cursor<'a> {
        Cursor { kernels: self.kernels, input, at, base: self.base }
    }

    /// The line ends where `input` does.
    fn end_of_line(&mut self, input: Padded<'_>, at: usize) -> Result<Parsed> {
        match self.state {
            State::LineStart | State::Collect(_) => {
                general::whole(self.kernels, input, self.base, at, &mut self.columns)
            }
            State::Tail(_) => general::tail(self.kernels, input, self.base, at, &mut self.columns),
            State::Members(_) => {
                let mut cursor = self.cursor(input, at);
                Fields::with_data(Kcl).members(&mut cursor, &mut self.columns, true)?;
                Err(Error::at_end(self.base.wrapping_add(input.end())))
            }
            State::Record(_) => {
                let mut cursor = self.cursor(input, at);
                record(Kcl, "records", &mut cursor, &mut self.columns)?;
                Err(Error::at_end(self.base.wrapping_add(input.end())))
            }
            State::Data(mut text) => {
                text.check_rest(self.kernels, input, self.base, at)
                    .map_err(|error| error.in_field_if_typed("data").in_record(self.columns.rows()))?;
                Err(Error::at_end(self.base.wrapping_add(input.end())))
            }
            State::Element { .. } | State::After | State::Skip => {
                Err(Error::at_end(self.base.wrapping_add(input.end())))
            }
        }
    }

    fn begin_line(&mut self, at: usize) {
        self.state = State::LineStart;
        self.base = 0_usize.wrapping_sub(at);
    }

    fn message(&mut self, parsed: Parsed) -> Message {
        if let Parsed::Initialize(initialize) = &parsed {
            self.shard_id = Some(Arc::from(initialize.shard_id.as_str()));
        }
        Self::message_of(parsed, &mut self.columns, self.shard_id.clone())
    }

    /// The message of a parsed line, with the records in `columns`.
    pub(crate) fn message_of(parsed: Parsed, columns: &mut Columns, shard_id: Option<Arc<str>>) -> Message {
        match parsed {
            Parsed::Initialize(initialize) => Message::Initialize(initialize),
            Parsed::ProcessRecords { millis_behind_latest } => {
                Message::ProcessRecords(RecordBatch::from_columns(columns, shard_id, millis_behind_latest))
            }
            Parsed::LeaseLost => Message::LeaseLost,
            Parsed::ShardEnded => Message::ShardEnded,
            Parsed::ShutdownRequested => Message::ShutdownRequested,
            Parsed::Shutdown(reason) => Message::Shutdown(reason),
            Parsed::Checkpoint(checkpoint) => Message::Checkpoint(checkpoint),
        }
    }

    fn step(&mut self, input: Padded<'_>, at: &mut usize) -> Result<Step> {
        let rest = &input.input()[*at..];
        match &mut self.state {
            State::LineStart => {
                self.base = 0_usize.wrapping_sub(*at);
                match Opening::of(rest) {
                    Opening::Whole(length) if self.kernels.scan() => {
                        self.columns.begin();
                        *at += length;
                        self.state = State::Element { first: true };
                    }
                    Opening::Cut => return Ok(Step::Wait),
                    Opening::Whole(_) | Opening::Other => self.state = State::Collect(LineEnd::default()),
                }
                Ok(Step::On)
            }
            State::Collect(end) | State::Tail(end) => {
                let Some(length) = end.find(rest) else { return Ok(Step::Wait) };
                self.line(input, at, *at + length)
            }
            State::Skip => {
                let Some(length) = LineEnd::default().find(rest) else {
                    *at = input.end();
                    return Ok(Step::Wait);
                };
                *at += length + 1;
                self.begin_line(*at);
                Ok(Step::On)
            }
            State::Element { first } => {
                let first = *first;
                self.element(input, at, first)
            }
            State::Data(text) => {
                match text.advance(self.kernels, input, self.base, *at, &mut self.columns.data.values) {
                    Ok(Progress::Open(next)) => {
                        *at = next;
                        Ok(Step::Wait)
                    }
                    Ok(Progress::Closed(next)) => {
                        *at = next;
                        self.state = State::Members(Nesting::inside(1));
                        Ok(Step::On)
                    }
                    Err(error) => Err(error.in_field_if_typed("data").in_record(self.columns.rows())),
                }
            }
            State::Members(nesting) | State::Record(nesting) => match nesting.find(rest) {
                None => Ok(Step::Wait),
                Some(End::Line(length)) => {
                    let end = *at + length;
                    self.line(input, at, end)
                }
                Some(End::Object(length)) => self.object(input, at, *at + length),
            },
            State::After => {
                let mut cursor = self.cursor(input, *at);
                if !skip_line_space(&mut cursor) {
                    *at = cursor.at;
                    return Ok(Step::Wait);
                }
                self.state = match cursor.peek() {
                    Some(b',') => State::Element { first: false },
                    Some(b']') => State::Tail(LineEnd::default()),
                    _ => return Err(cursor.unexpected("a comma or ]")),
                };
                *at = cursor.at + 1;
                Ok(Step::On)
            }
        }
    }

    /// The line that began before, or at, `at` ends with the LF at `end`.
    fn line(&mut self, input: Padded<'_>, at: &mut usize, end: usize) -> Result<Step> {
        if let Some(error) = self.beyond_limit(input, *at, end) {
            return Err(error);
        }
        let blank = matches!(self.state, State::Collect(_)) && is_blank(&input.input()[*at..end]);
        let parsed = if blank { None } else { Some(self.end_of_line(input.until(end), *at)?) };
        *at = end + 1;
        self.begin_line(*at);
        Ok(parsed.map_or(Step::On, Step::Done))
    }

    /// An element of `records` must begin at `at`.
    fn element(&mut self, input: Padded<'_>, at: &mut usize, first: bool) -> Result<Step> {
        let stop = self.kernels.run(Records { shape: Kcl, input, at: *at, columns: &mut self.columns }).stop;
        let next = match stop {
            Stop::Element(next) | Stop::Data(next) | Stop::Members(next) | Stop::After(next) => next,
        };
        let first = first && next == *at;
        *at = next;
        self.state = State::Element { first };
        match stop {
            Stop::Data(_) => self.state = State::Data(Text::default()),
            Stop::Members(_) => self.state = State::Members(Nesting::inside(1)),
            Stop::After(_) => self.state = State::After,
            Stop::Element(_) => {
                let mut cursor = self.cursor(input, next);
                let more = skip_line_space(&mut cursor);
                *at = cursor.at;
                let rest = &input.input()[*at..];
                if !more || (rest.len() < Kcl::OPENING.len() && Kcl::OPENING.starts_with(rest)) || is_cut_value(rest) {
                    return Ok(Step::Wait);
                }
                match rest[0] {
                    // Begins as a daemon's after white space, or at the edge of the window: the scanner takes it.
                    b'{' if rest.starts_with(Kcl::OPENING) => self.state = State::Element { first: false },
                    b'{' => {
                        self.columns.reopen();
                        self.state = State::Record(Nesting::inside(0));
                    }
                    b']' if first => {
                        *at += 1;
                        self.state = State::Tail(LineEnd::default());
                    }
                    _ => {
                        let record = self.columns.rows();
                        return Err(cursor.wrong_type("an object").in_field_if_typed("records").in_record(record));
                    }
                }
            }
        }
        Ok(Step::On)
    }

    /// The open record's bytes are there up to `end`.
    fn object(&mut self, input: Padded<'_>, at: &mut usize, end: usize) -> Result<Step> {
        let input = input.until(end);
        let mut cursor = self.cursor(input, *at);
        if matches!(self.state, State::Members(_)) {
            let members = Members { shape: Kcl, input, at: *at, columns: &mut self.columns };
            if let Some(next) = self.kernels.run(members) {
                cursor.at = next;
            } else {
                Fields::with_data(Kcl).members(&mut cursor, &mut self.columns, true)?;
            }
        } else {
            record(Kcl, "records", &mut cursor, &mut self.columns)?;
        }
        *at = cursor.at;
        self.state = State::After;
        Ok(Step::On)
    }
}

/// The error of a line that is longer than the limit.
#[cold]
pub(crate) fn too_long(limit: usize) -> Error {
    let what = format!("line of more than {limit} bytes; max_line_bytes sets the limit");
    Error::new(ErrorKind::LineTooLong, limit, what)
}

/// Skips white space that cannot end the line; false if more input is needed.
fn skip_line_space(cursor: &mut Cursor<'_>) -> bool {
    while matches!(cursor.peek(), Some(b' ' | b'\t' | b'\r')) {
        cursor.at += 1;
    }
    cursor.peek().is_some()
}
