//! The JSON that Newtonsoft.Json reads, as far as a core or a stitch may write it.
//!
//! Beyond RFC 8259: names without quotes or in single ones, strings in single quotes, comments, one trailing comma, any
//! Unicode white space. Not taken, although the original does: hexadecimal and octal numbers, booleans for numbers or
//! text, raw control characters in strings. Nothing is kept but the members asked for; the rest is skipped.

use std::borrow::Cow;
use std::num::IntErrorKind;

use super::message::{Message, Value};
use crate::error::{Error, ErrorKind, Result};
use crate::json::MAX_DEPTH;
use crate::json::error::RAW_CONTROL;
use crate::json::escape::{Escape, escape, escaped_character};

/// Reads a frame's message; none if the frame is null, white space or comments only. Offsets count from its start.
pub(super) fn message<M: Message>(raw: &[u8]) -> Result<Option<M>> {
    let text = str::from_utf8(raw)
        .map_err(|error| Error::new(ErrorKind::Utf8, error.valid_up_to(), "bytes that are no UTF-8"))?;
    let mut reader = Reader { text, at: 0 };
    reader.skip_space()?;
    let message = match reader.peek() {
        None => return Ok(None),
        Some(b'{') => {
            let mut message = M::default();
            reader.object(1, |name, reader| message.member(name, &mut Value(reader)))?;
            Some(message)
        }
        Some(b'n') => reader.word("null").map(|()| None)?,
        Some(b'[' | b'"' | b'\'' | b'-' | b'0'..=b'9' | b't' | b'f') => {
            return Err(Error::new(ErrorKind::NotAnObject, reader.at, "a message is a JSON object"));
        }
        Some(_) => return Err(reader.unexpected("an object")),
    };
    reader.skip_space()?;
    if reader.peek().is_some() {
        return Err(reader.unexpected("the end of the frame"));
    }
    Ok(message)
}

/// A place in a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn bytes(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.bytes().first().copied()
    }

    #[cold]
    fn unexpected(&self, wanted: &str) -> Error {
        let what = match self.text[self.at..].chars().next() {
            Some(found) => format!("no JSON: found {found:?} where {wanted} must be"),
            None => format!("the frame ended where {wanted} must be"),
        };
        Error::new(ErrorKind::Json, self.at, what)
    }

    /// The error for the value here, which must be `wanted`.
    #[cold]
    fn wrong_type(&self, wanted: &str) -> Error {
        let mut value = *self;
        match value.skip_value(1) {
            Ok(()) => Error::new(ErrorKind::WrongType, self.at, format!("expected {wanted}")),
            Err(error) => error,
        }
    }

    /// Skips white space and comments.
    fn skip_space(&mut self) -> Result<()> {
        loop {
            match self.bytes() {
                [b' ' | b'\t'..=b'\r', ..] => self.at += 1,
                [b'/', b'/', rest @ ..] => {
                    self.at += 2 + memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
                }
                [b'/', b'*', rest @ ..] => {
                    let Some(end) = memchr::memmem::find(rest, b"*/") else {
                        return Err(Error::new(ErrorKind::Json, self.at, "the frame ended inside a comment"));
                    };
                    self.at += 2 + end + 2;
                }
                [0x80..=0xff, ..] => match self.text[self.at..].chars().next().filter(|first| first.is_whitespace()) {
                    Some(space) => self.at += space.len_utf8(),
                    None => return Ok(()),
                },
                _ => return Ok(()),
            }
        }
    }

    fn take(&mut self, byte: u8, wanted: &str) -> Result<()> {
        if self.peek() != Some(byte) {
            return Err(self.unexpected(wanted));
        }
        self.at += 1;
        Ok(())
    }

    /// Takes the object here, a member at a time. `member` takes a value and says true, or leaves it and says false.
    fn object(&mut self, depth: usize, mut member: impl FnMut(&str, &mut Self) -> Result<bool>) -> Result<()> {
        self.descend(depth)?;
        loop {
            self.skip_space()?;
            if self.peek() == Some(b'}') {
                break;
            }
            let name = self.name()?;
            self.skip_space()?;
            self.take(b':', "a colon")?;
            self.skip_space()?;
            if !member(&name, self)? {
                self.skip_value(depth)?;
            }
            if !self.comma(b'}', "a comma or }")? {
                break;
            }
        }
        self.take(b'}', "a comma or }")
    }

    /// Takes the array here, an element at a time.
    fn array(&mut self, depth: usize, mut element: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.descend(depth)?;
        loop {
            self.skip_space()?;
            if self.peek() == Some(b']') {
                break;
            }
            element(self)?;
            if !self.comma(b']', "a comma or ]")? {
                break;
            }
        }
        self.take(b']', "a comma or ]")
    }

    /// Takes the opening bracket of level `depth`.
    fn descend(&mut self, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::Depth, self.at, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.at += 1;
        Ok(())
    }

    /// Takes the comma after a value; false if `close` stands there.
    fn comma(&mut self, close: u8, wanted: &str) -> Result<bool> {
        self.skip_space()?;
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(byte) if byte == close => Ok(false),
            _ => Err(self.unexpected(wanted)),
        }
    }

    fn name(&mut self) -> Result<Cow<'a, str>> {
        if matches!(self.peek(), Some(b'"' | b'\'')) {
            return self.string();
        }
        let rest = &self.text[self.at..];
        let end = rest.find(|character: char| !is_name(character)).unwrap_or(rest.len());
        if end == 0 {
            return Err(self.unexpected("a name"));
        }
        self.at += end;
        Ok(Cow::Borrowed(&rest[..end]))
    }

    /// Takes the string here, in the quotes that it begins with.
    fn string(&mut self) -> Result<Cow<'a, str>> {
        let quote = self.bytes()[0];
        self.at += 1;
        let mut text = Cow::Borrowed("");
        loop {
            let rest = &self.text[self.at..];
            let Some(end) = memchr::memchr2(quote, b'\\', rest.as_bytes()) else {
                return Err(Error::new(ErrorKind::Json, self.text.len(), "the frame ended inside a string"));
            };
            let plain = &rest[..end];
            if let Some(control) = plain.bytes().position(|byte| byte < 0x20) {
                return Err(Error::new(ErrorKind::Json, self.at + control, RAW_CONTROL));
            }
            if text.is_empty() {
                text = Cow::Borrowed(plain);
            } else {
                text.to_mut().push_str(plain);
            }
            self.at += end;
            if rest.as_bytes()[end] == quote {
                self.at += 1;
                return Ok(text);
            }
            let character = self.escape()?;
            text.to_mut().push(character);
        }
    }

    /// Takes the escape sequence here.
    fn escape(&mut self) -> Result<char> {
        let bytes = self.bytes();
        let (character, length) = match bytes {
            [b'\\', b'\'', ..] => ('\'', 2),
            _ => match escaped_character(bytes) {
                Some(found) => found,
                None => {
                    return Err(match escape(bytes, self.at)? {
                        Escape::Unit { .. } => {
                            Error::new(ErrorKind::LoneSurrogate, self.at, "half of a surrogate pair")
                        }
                        Escape::Incomplete | Escape::CutCharacter(_) => {
                            Error::new(ErrorKind::Json, self.text.len(), "the frame ended inside a string")
                        }
                    });
                }
            },
        };
        self.at += length;
        Ok(character)
    }

    /// Takes the literal `word`.
    fn word(&mut self, word: &'static str) -> Result<()> {
        let rest = self.text[self.at..].strip_prefix(word);
        if rest.is_none_or(|rest| rest.starts_with(is_name)) {
            return Err(self.unexpected("a value"));
        }
        self.at += word.len();
        Ok(())
    }

    /// Takes the number here, as it stands.
    fn number(&mut self) -> Result<&'a str> {
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
        }
        if self.text[self.at..].starts_with(is_name) {
            return Err(self.unexpected("the end of a number"));
        }
        Ok(&self.text[start..self.at])
    }

    fn digits(&mut self) -> Result<()> {
        let count = self.bytes().iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return Err(self.unexpected("a digit"));
        }
        self.at += count;
        Ok(())
    }

    fn skip_value(&mut self, depth: usize) -> Result<()> {
        match self.peek() {
            Some(b'"' | b'\'') => self.string().map(drop),
            Some(b'{') => self.object(depth + 1, |_, _| Ok(false)),
            Some(b'[') => self.array(depth + 1, |reader| reader.skip_value(depth + 1)),
            Some(b'-' | b'0'..=b'9') => self.number().map(drop),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            _ => Err(self.unexpected("a value")),
        }
    }

    /// Takes a 64-bit integer: a number, rounded half to even, or a string of one.
    pub(super) fn integer(&mut self) -> Result<i64> {
        let start = *self;
        let out_of_range = || Error::new(ErrorKind::OutOfRange, start.at, "an id has 64 bits");
        let text = match self.peek() {
            Some(b'"' | b'\'') => self.string()?,
            Some(b'-' | b'0'..=b'9') => {
                let number = self.number()?;
                if number.contains(['.', 'e', 'E']) {
                    return rounded(number).ok_or_else(out_of_range);
                }
                Cow::Borrowed(number)
            }
            _ => return Err(self.wrong_type("an integer")),
        };
        text.parse().map_err(|error: std::num::ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => out_of_range(),
            _ => start.wrong_type("an integer"),
        })
    }

    /// Takes a string, a number's text, or null.
    pub(super) fn text(&mut self) -> Result<Option<Cow<'a, str>>> {
        match self.peek() {
            Some(b'"' | b'\'') => self.string().map(Some),
            Some(b'-' | b'0'..=b'9') => self.number().map(|number| Some(Cow::Borrowed(number))),
            Some(b'n') => self.word("null").map(|()| None),
            _ => Err(self.wrong_type("a string or null")),
        }
    }

    /// Takes an array of strings, also one that is wrapped with its type, or null.
    pub(super) fn texts(&mut self) -> Result<Option<Vec<String>>> {
        match self.peek() {
            Some(b'n') => self.word("null").map(|()| None),
            Some(b'[') => self.strings(2).map(Some),
            Some(b'{') => {
                let start = *self;
                let mut strings = None;
                self.object(2, |name, reader| {
                    if name != "$values" || reader.peek() != Some(b'[') {
                        return Ok(false);
                    }
                    strings = Some(reader.strings(3)?);
                    Ok(true)
                })?;
                strings.map(Some).ok_or_else(|| start.wrong_type("an array of strings or null"))
            }
            _ => Err(self.wrong_type("an array of strings or null")),
        }
    }

    fn strings(&mut self, depth: usize) -> Result<Vec<String>> {
        let mut strings = Vec::new();
        self.array(depth, |reader| match reader.peek() {
            Some(b'"' | b'\'') => {
                strings.push(reader.string()?.into_owned());
                Ok(())
            }
            _ => Err(reader.wrong_type("a string")),
        })?;
        Ok(strings)
    }
}

fn is_name(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '$')
}

/// 2^63, the first that 64 bits do not hold.
const LIMIT: f64 = 9_223_372_036_854_775_808.0;

/// The nearest integer, half to even, if 64 bits hold it.
fn rounded(number: &str) -> Option<i64> {
    let value = number.parse::<f64>().ok()?.round_ties_even();
    #[expect(clippy::cast_possible_truncation, reason = "a whole number in range")]
    (-LIMIT..LIMIT).contains(&value).then_some(value as i64)
}
