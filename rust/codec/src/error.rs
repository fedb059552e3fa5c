//! Everything that can be wrong with a line, a frame, or an answer of the service: the kind, the field, the record, the
//! byte.
//!
//! The first error in byte order is the one reported; at one byte `utf8` goes before `json`, and both before
//! the rest. The parsers get this by looking at bytes in order and stopping at the first error.

use std::borrow::Cow;
use std::fmt;

/// The kind of an error. The names are those of the protocols' pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The line is longer than `max_line_bytes`.
    LineTooLong,
    /// A message between markers is longer than `max_message_bytes`.
    MessageTooLong,
    /// The frame is longer than `max_frame_bytes`.
    FrameTooLong,
    /// The input ended inside a frame, and its part is no message.
    TruncatedFrame,
    /// Bytes that are no UTF-8.
    Utf8,
    /// No JSON, more than one value, a byte order mark, or the input ended inside a value.
    Json,
    /// No CBOR that the service's protocols use, or more than one value, or the input ended inside a value.
    Cbor,
    /// Nested deeper than 128 levels.
    Depth,
    /// The root is another JSON value than an object.
    NotAnObject,
    /// A required field is not there.
    MissingField,
    /// A field holds another JSON type than it must.
    WrongType,
    /// An integer that the field cannot hold.
    OutOfRange,
    /// Half of a surrogate pair in a text that is kept.
    LoneSurrogate,
    /// `data` is no base64 that a Java daemon could read.
    Base64,
    /// No daemon sends this `action`.
    UnknownAction,
    /// `reason` is neither TERMINATE nor ZOMBIE.
    UnknownReason,
}

impl ErrorKind {
    /// The kind's name in reports, e.g. `wrong_type`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LineTooLong => "line_too_long",
            Self::MessageTooLong => "message_too_long",
            Self::FrameTooLong => "frame_too_long",
            Self::TruncatedFrame => "truncated_frame",
            Self::Utf8 => "utf8",
            Self::Json => "json",
            Self::Cbor => "cbor",
            Self::Depth => "depth",
            Self::NotAnObject => "not_an_object",
            Self::MissingField => "missing_field",
            Self::WrongType => "wrong_type",
            Self::OutOfRange => "out_of_range",
            Self::LoneSurrogate => "lone_surrogate",
            Self::Base64 => "base64",
            Self::UnknownAction => "unknown_action",
            Self::UnknownReason => "unknown_reason",
        }
    }

    /// Whether reports of this kind name the record they were found in.
    const fn names_record(self) -> bool {
        matches!(self, Self::MissingField | Self::WrongType | Self::OutOfRange | Self::LoneSurrogate | Self::Base64)
    }
}

/// Why a base64 text was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Base64Reason {
    /// A character outside the alphabet, or white space inside a unit of four.
    InvalidCharacter,
    /// `=` where none may be, or the second of two missing.
    BadPadding,
    /// The text ended inside a unit of four.
    Truncated,
}

impl Base64Reason {
    /// The reason's name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InvalidCharacter => "invalid_character",
            Self::BadPadding => "bad_padding",
            Self::Truncated => "truncated",
        }
    }
}

/// An invalid line, frame or answer. `Display` is one line: `<kind>: <what> (record i, byte n)`.
#[derive(Clone, Debug)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    kind: ErrorKind,
    what: Cow<'static, str>,
    field: Option<&'static str>,
    record: Option<usize>,
    offset: Option<usize>,
    reason: Option<Base64Reason>,
    context: Vec<u8>,
    at_end: bool,
}

/// A parser's result.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// At most this many bytes of the input around the place are kept.
const CONTEXT_BYTES: usize = 200;

impl Error {
    #[cold]
    pub(crate) fn new(kind: ErrorKind, offset: usize, what: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            what: what.into(),
            field: None,
            record: None,
            offset: Some(offset),
            reason: None,
            context: Vec::new(),
            at_end: false,
        }))
    }

    /// A base64 error at `offset`.
    #[cold]
    pub(crate) fn base64(reason: Base64Reason, offset: usize) -> Self {
        let what = match reason {
            Base64Reason::InvalidCharacter => "character outside of the base64 alphabet, or white space inside a unit",
            Base64Reason::BadPadding => "padding where none may be, or only half of it",
            Base64Reason::Truncated => "base64 text ends inside a unit of four characters",
        };
        let mut error = Self::new(ErrorKind::Base64, offset, what);
        error.0.reason = Some(reason);
        error
    }

    /// The input stopped inside a message; `finish` words this differently from a line that is too short.
    #[cold]
    pub(crate) fn at_end(offset: usize) -> Self {
        let mut error = Self::new(ErrorKind::Json, offset, "the line ended inside a message");
        error.0.at_end = true;
        error
    }

    pub(crate) const fn is_at_end(&self) -> bool {
        self.0.at_end
    }

    pub(crate) fn with_what(mut self, what: impl Into<Cow<'static, str>>) -> Self {
        self.0.what = what.into();
        self
    }

    pub(crate) fn in_field(mut self, field: &'static str) -> Self {
        self.0.field = Some(field);
        self
    }

    /// Names the field, unless the error is one of the text (`utf8`, `json`, `depth`) or a deeper field is named.
    pub(crate) fn in_field_if_typed(self, field: &'static str) -> Self {
        if self.0.field.is_none() && self.0.kind.names_record() { self.in_field(field) } else { self }
    }

    pub(crate) fn in_record(mut self, record: usize) -> Self {
        if self.0.kind.names_record() {
            self.0.record = Some(record);
        }
        self
    }

    /// Keeps up to 200 bytes around `at`, an index into `bytes`.
    pub(crate) fn with_context(mut self, bytes: &[u8], at: usize) -> Self {
        let at = at.min(bytes.len());
        let start = at.saturating_sub(CONTEXT_BYTES / 2);
        let end = (at + CONTEXT_BYTES / 2).min(bytes.len());
        self.0.context = bytes[start..end].to_vec();
        self
    }

    /// The error in words.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Wire name of the field.
    #[must_use]
    pub fn field(&self) -> Option<&'static str> {
        self.0.field
    }

    /// Index among the records, from 0.
    #[must_use]
    pub fn record(&self) -> Option<usize> {
        self.0.record
    }

    /// Bytes from the start of the line, frame or answer.
    #[must_use]
    pub fn offset(&self) -> Option<usize> {
        self.0.offset
    }

    /// For [`ErrorKind::Base64`]: why.
    #[must_use]
    pub fn reason(&self) -> Option<Base64Reason> {
        self.0.reason
    }

    /// At most 200 bytes of the input around the place, as far as they were at hand.
    #[must_use]
    pub fn context(&self) -> &[u8] {
        &self.0.context
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        write!(out, "{}: {}", inner.kind.name(), inner.what)?;
        if let Some(field) = inner.field {
            write!(out, " in {field}")?;
        }
        match (inner.record, inner.offset) {
            (Some(record), Some(offset)) => write!(out, " (record {record}, byte {offset})"),
            (None, Some(offset)) => write!(out, " (byte {offset})"),
            (Some(record), None) => write!(out, " (record {record})"),
            (None, None) => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
