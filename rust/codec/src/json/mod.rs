//! A cursor over strict JSON (RFC 8259 on UTF-8). It keeps no values: callers take some and skip others.
//!
//! Bytes are looked at in order and the first error stops, so the error reported is the first in byte order. The
//! first byte shows the kind of a value, so also one of the wrong type.

pub(crate) mod error;
pub(crate) mod escape;
pub(crate) mod write;

use self::error::{RAW_CONTROL, bad_byte, utf8_error};
use self::escape::{Escape, escape, escaped_character};
use crate::error::{Error, ErrorKind, Result};
use crate::input::Padded;
use crate::kernel::Kernels;
use crate::kernel::traits::{Kernel, Routine};
use crate::pool::Buf;

/// Levels of nesting that are accepted; the root counts as 1.
pub(crate) const MAX_DEPTH: usize = 128;

/// A string's content as it stands in the line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a> {
    raw: &'a [u8],
    escaped: bool,
}

impl Text<'_> {
    /// The content after unescaping, appended to `out`.
    pub(crate) fn append_to(self, out: &mut Buf) {
        if !self.escaped {
            out.extend_from_slice(self.raw);
            return;
        }
        let mut rest = self.raw;
        while let Some(at) = memchr::memchr(b'\\', rest) {
            out.extend_from_slice(&rest[..at]);
            rest = &rest[at..];
            // Half a pair, in a string that is not kept, is one escape of six bytes.
            let (character, length) = escaped_character(rest).unwrap_or((char::REPLACEMENT_CHARACTER, 6));
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            rest = &rest[length..];
        }
        out.extend_from_slice(rest);
    }

    /// Whether the content is `name`.
    pub(crate) fn is(self, name: &str) -> bool {
        if !self.escaped {
            return self.raw == name.as_bytes();
        }
        // Each byte of the content takes at most six of the line's.
        self.raw.len() <= 6 * name.len() && self.to_bytes() == name.as_bytes()
    }

    /// The content after unescaping. Kept strings are valid UTF-8; half a surrogate pair in another is U+FFFD.
    pub(crate) fn into_string(self) -> String {
        String::from_utf8_lossy(&self.to_bytes()).into_owned()
    }

    fn to_bytes(self) -> Vec<u8> {
        let mut out = Buf::new();
        self.append_to(&mut out);
        out.as_slice().to_vec()
    }
}

/// The literal that begins with `byte`.
const fn literal_of(byte: u8) -> Option<&'static [u8]> {
    match byte {
        b't' => Some(b"true"),
        b'f' => Some(b"false"),
        b'n' => Some(b"null"),
        _ => None,
    }
}

/// Whether `bytes` are the beginning of a literal or number, too little of it to say that it is a value.
pub(crate) fn is_cut_value(bytes: &[u8]) -> bool {
    match bytes {
        [b'-'] => true,
        [first, ..] => literal_of(*first).is_some_and(|word| word.len() > bytes.len() && word.starts_with(bytes)),
        [] => false,
    }
}

/// [`Kernel::string_run`] as a routine of its own.
struct StringRun<'a> {
    input: Padded<'a>,
    from: usize,
}

impl Routine for StringRun<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> usize {
        kernel.string_run(self.input.from(self.from))
    }
}

/// A place in one line's bytes, or in a part of them.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    pub(crate) kernels: Kernels,
    pub(crate) input: Padded<'a>,
    pub(crate) at: usize,
    /// Line offset of `input[0]`, modulo 2^64: the line may begin after it.
    pub(crate) base: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn offset(&self) -> usize {
        self.base.wrapping_add(self.at)
    }

    fn offset_of_end(&self) -> usize {
        self.base.wrapping_add(self.input.end())
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.input.input().get(self.at).copied()
    }

    fn rest(&self) -> &'a [u8] {
        &self.input.input()[self.at..]
    }

    pub(crate) fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// The error for the byte here, which stands where `wanted` must.
    #[cold]
    pub(crate) fn unexpected(&self, wanted: &'static str) -> Error {
        if self.rest().is_empty() { Error::at_end(self.offset()) } else { bad_byte(self.rest(), self.offset(), wanted) }
    }

    /// The error for the value here, which must be `wanted`. The first byte shows the kind of a value; a literal must
    /// be spelt out, and a minus be followed by a digit, to be one at all.
    #[cold]
    pub(crate) fn wrong_type(&self, wanted: &'static str) -> Error {
        match self.begin_value() {
            Ok(()) => Error::new(ErrorKind::WrongType, self.offset(), format!("expected {wanted}")),
            Err(error) => error,
        }
    }

    /// Whether a value begins here, whatever it is.
    pub(crate) fn begin_value(&self) -> Result<()> {
        match self.peek() {
            Some(b'"' | b'{' | b'[' | b'0'..=b'9') => Ok(()),
            Some(b'-') => Cursor { at: self.at + 1, ..*self }.digits(),
            first => match first.and_then(literal_of) {
                Some(word) => Cursor { ..*self }.literal(word),
                None => Err(self.unexpected("a value")),
            },
        }
    }

    pub(crate) fn take(&mut self, byte: u8, wanted: &'static str) -> Result<()> {
        if self.peek() != Some(byte) {
            return Err(self.unexpected(wanted));
        }
        self.at += 1;
        Ok(())
    }

    /// Takes the name and colon of a member, and the space after them.
    pub(crate) fn name(&mut self) -> Result<Text<'a>> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected("a name in quotes"));
        }
        let name = self.string(false)?;
        self.skip_space();
        self.take(b':', "a colon")?;
        self.skip_space();
        Ok(name)
    }

    /// Takes the string here. If it is `kept`, half a surrogate pair is an error.
    pub(crate) fn string(&mut self, kept: bool) -> Result<Text<'a>> {
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        loop {
            let end = self.at + self.kernels.run(StringRun { input: self.input, from: self.at });
            if let Err(error) = str::from_utf8(&self.input.input()[self.at..end]) {
                return Err(utf8_error(self.offset() + error.valid_up_to()));
            }
            self.at = end;
            match self.peek() {
                None => return Err(Error::at_end(self.offset())),
                Some(b'"') => {
                    let raw = &self.input.input()[start..self.at];
                    self.at += 1;
                    return Ok(Text { raw, escaped });
                }
                Some(b'\\') => {
                    escaped = true;
                    self.skip_escape(kept)?;
                }
                Some(_) => return Err(Error::new(ErrorKind::Json, self.offset(), RAW_CONTROL)),
            }
        }
    }

    fn skip_escape(&mut self, kept: bool) -> Result<()> {
        let (unit, length) = match escape(self.rest(), self.offset())? {
            Escape::Unit { unit, length } => (unit, length),
            Escape::Incomplete => return Err(Error::at_end(self.offset_of_end())),
            Escape::CutCharacter(index) => return Err(utf8_error(self.offset() + index)),
        };
        if kept && (0xd800..=0xdfff).contains(&unit) {
            let next = self.rest().get(length..).unwrap_or_default();
            let low = if next.first() == Some(&b'\\') { escape(next, 0).ok() } else { None };
            match low {
                Some(Escape::Unit { unit: 0xdc00..=0xdfff, .. }) if unit < 0xdc00 => self.at += length,
                Some(Escape::Incomplete) if unit < 0xdc00 => return Err(Error::at_end(self.offset_of_end())),
                _ if unit < 0xdc00 && next.is_empty() => return Err(Error::at_end(self.offset_of_end())),
                _ => return Err(Error::new(ErrorKind::LoneSurrogate, self.offset(), "half of a surrogate pair")),
            }
        }
        self.at += length;
        Ok(())
    }

    /// Takes a string that is kept, or null where that is allowed.
    pub(crate) fn text(&mut self, nullable: bool) -> Result<Option<Text<'a>>> {
        match self.peek() {
            Some(b'"') => self.string(true).map(Some),
            Some(b'n') if nullable => self.literal(b"null").map(|()| None),
            _ if nullable => Err(self.wrong_type("a string or null")),
            _ => Err(self.wrong_type("a string")),
        }
    }

    /// Takes a 64-bit integer or null.
    pub(crate) fn integer(&mut self) -> Result<Option<i64>> {
        let start = *self;
        match self.peek() {
            Some(b'n') => self.literal(b"null").map(|()| None),
            Some(b'-' | b'0'..=b'9') => {
                if !self.number()? {
                    return Err(start.wrong_type("an integer without fraction or exponent, or null"));
                }
                let digits = &self.input.input()[start.at..self.at];
                let value = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
                value.map(Some).ok_or_else(|| start.out_of_range())
            }
            _ => Err(self.wrong_type("an integer or null")),
        }
    }

    /// The error for the integer here, which its field cannot hold.
    #[cold]
    pub(crate) fn out_of_range(&self) -> Error {
        Error::new(ErrorKind::OutOfRange, self.offset(), "integer out of range")
    }

    /// Takes the number here; false if it has a fraction or an exponent.
    pub(crate) fn number(&mut self) -> Result<bool> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        let mut integral = true;
        if self.peek() == Some(b'.') {
            integral = false;
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            integral = false;
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(integral)
    }

    fn digits(&mut self) -> Result<()> {
        let count = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        if count == 0 { Err(self.unexpected("a digit")) } else { Ok(()) }
    }

    pub(crate) fn literal(&mut self, word: &'static [u8]) -> Result<()> {
        for byte in word {
            self.take(*byte, "true, false or null")?;
        }
        Ok(())
    }

    /// Takes any value, inside `depth` open containers.
    pub(crate) fn skip_value(&mut self, depth: usize) -> Result<()> {
        // One bit for each container opened here, the innermost lowest: 1 for an object.
        let (mut objects, mut open) = (0_u128, 0);
        'value: loop {
            match self.peek() {
                Some(byte @ (b'{' | b'[')) => {
                    if depth + open == MAX_DEPTH {
                        return Err(Error::new(ErrorKind::Depth, self.offset(), "nested deeper than 128 levels"));
                    }
                    self.at += 1;
                    open += 1;
                    objects = objects << 1 | u128::from(byte == b'{');
                    self.skip_space();
                    if byte == b'{' && self.peek() != Some(b'}') {
                        self.name()?;
                        continue 'value;
                    }
                    if byte == b'[' && self.peek() != Some(b']') {
                        continue 'value;
                    }
                }
                Some(b'"') => drop(self.string(false)?),
                Some(b't') => self.literal(b"true")?,
                Some(b'f') => self.literal(b"false")?,
                Some(b'n') => self.literal(b"null")?,
                Some(b'-' | b'0'..=b'9') => drop(self.number()?),
                _ => return Err(self.unexpected("a value")),
            }
            while open > 0 {
                let in_object = objects & 1 == 1;
                self.skip_space();
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        self.skip_space();
                        if in_object {
                            self.name()?;
                        }
                        continue 'value;
                    }
                    Some(b'}') if in_object => {}
                    Some(b']') if !in_object => {}
                    _ if in_object => return Err(self.unexpected("a comma or }")),
                    _ => return Err(self.unexpected("a comma or ]")),
                }
                self.at += 1;
                open -= 1;
                objects >>= 1;
            }
            return Ok(());
        }
    }
}

/// Looks for the end of an object whose inside arrives in pieces. It knows strings and brackets, not grammar: what lies
/// before the end is parsed, and judged, once it is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nesting {
    searched: usize,
    depth: usize,
    in_string: bool,
}

/// What [`Nesting::find`] found, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// After the closing bracket.
    Object(usize),
    /// The LF that ends the line inside of the object.
    Line(usize),
}

impl Nesting {
    /// A search that begins inside of `depth` brackets.
    pub(crate) const fn inside(depth: usize) -> Self {
        Self { searched: 0, depth, in_string: false }
    }

    /// Looks through the bytes that are new in `bytes`, which begins where it did in the call before.
    pub(crate) fn find(&mut self, bytes: &[u8]) -> Option<End> {
        while let Some(&byte) = bytes.get(self.searched) {
            if self.in_string {
                let Some(skip) = memchr::memchr3(b'"', b'\\', b'\n', &bytes[self.searched..]) else {
                    self.searched = bytes.len();
                    return None;
                };
                self.searched += skip;
                match bytes[self.searched] {
                    b'"' => self.in_string = false,
                    b'\n' => return Some(End::Line(self.searched)),
                    // The escaped character may be a quote or a backslash; wait for it.
                    _ if self.searched + 1 == bytes.len() => return None,
                    _ if bytes[self.searched + 1] == b'\n' => {}
                    _ => self.searched += 1,
                }
            } else {
                match byte {
                    b'"' => self.in_string = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => {
                        self.depth -= 1;
                        if self.depth == 0 {
                            return Some(End::Object(self.searched + 1));
                        }
                    }
                    b'\n' => return Some(End::Line(self.searched)),
                    _ => {}
                }
            }
            self.searched += 1;
        }
        None
    }
}
