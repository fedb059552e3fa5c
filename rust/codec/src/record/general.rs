//! Any valid record into the columns: keys in any order, escaped, unknown, or twice.

use std::marker::PhantomData;

use crate::base64::text::{Progress, Text};
use crate::columns::{Columns, Fixed};
use crate::error::{Error, ErrorKind, Result};
use crate::json::Cursor;
use crate::record::{Shape, unquoted};

/// Containers open around a record's members: the root, the array of records, the record.
const DEPTH: usize = 3;

/// The members of a record that were read. Its texts are after their columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<S> {
    shape: PhantomData<S>,
    data: bool,
    key: bool,
    sequence: bool,
    fixed: Fixed,
}

/// Takes the record that must be here, an element of the array that `field` names.
pub(crate) fn record<S: Shape>(
    shape: S,
    field: &'static str,
    cursor: &mut Cursor<'_>,
    columns: &mut Columns,
) -> Result<()> {
    if cursor.peek() != Some(b'{') {
        return Err(cursor.wrong_type("an object").in_field_if_typed(field).in_record(columns.rows()));
    }
    columns.reopen();
    cursor.at += 1;
    Fields::of(shape).members(cursor, columns, false)
}

impl<S: Shape> Fields<S> {
    /// A record of which nothing has been read.
    fn of(_shape: S) -> Self {
        Self { shape: PhantomData, data: false, key: false, sequence: false, fixed: Fixed::default() }
    }

    /// A record whose `data` has been decoded from its string already.
    pub(crate) fn with_data(shape: S) -> Self {
        Self { data: true, ..Self::of(shape) }
    }

    /// Takes the members from here to the closing brace, and commits the record. `after_value` says that a member has
    /// just ended, so that a comma or the brace comes next.
    pub(crate) fn members(self, cursor: &mut Cursor<'_>, columns: &mut Columns, after_value: bool) -> Result<()> {
        let record = columns.rows();
        self.read(cursor, columns, after_value).map_err(|error| error.in_record(record))
    }

    fn read(mut self, cursor: &mut Cursor<'_>, columns: &mut Columns, after_value: bool) -> Result<()> {
        cursor.skip_space();
        if after_value || cursor.peek() != Some(b'}') {
            let mut more = !after_value || comma(cursor)?;
            while more {
                self.member(cursor, columns)?;
                more = comma(cursor)?;
            }
        }
        let required = [
            (self.data, unquoted(S::DATA)),
            (self.key, unquoted(S::PARTITION_KEY)),
            (self.sequence, unquoted(S::SEQUENCE_NUMBER)),
        ];
        let missing = required.into_iter().find_map(|(there, field)| (!there).then_some(field));
        if let Some(field) = missing {
            return Err(Error::new(ErrorKind::MissingField, cursor.offset(), "missing field").in_field(field));
        }
        cursor.at += 1;
        columns.commit(self.fixed);
        Ok(())
    }

    fn member(&mut self, cursor: &mut Cursor<'_>, columns: &mut Columns) -> Result<()> {
        let name = cursor.name()?;
        if name.is(unquoted(S::DATA)) {
            let value = data(cursor, columns).map_err(|error| error.in_field_if_typed(unquoted(S::DATA)));
            self.fixed.data_is_null = value?;
            self.data = true;
        } else if name.is(unquoted(S::PARTITION_KEY)) {
            let text = kept(cursor, unquoted(S::PARTITION_KEY))?;
            columns.keys.reopen();
            text.append_to(&mut columns.keys.values);
            self.key = true;
        } else if name.is(unquoted(S::SEQUENCE_NUMBER)) {
            let text = kept(cursor, unquoted(S::SEQUENCE_NUMBER))?;
            columns.sequences.reopen();
            text.append_to(&mut columns.sequences.values);
            self.sequence = true;
        } else if name.is(unquoted(S::TIMESTAMP)) {
            let value = S::any_time(cursor).map_err(|error| error.in_field_if_typed(unquoted(S::TIMESTAMP)))?;
            self.fixed.timestamp_micros = value;
        } else if !S::any_own_member(name, cursor, columns, &mut self.fixed)? {
            cursor.skip_value(DEPTH)?;
        }
        Ok(())
    }
}

/// Takes a comma and the space after it; false at a closing brace.
fn comma(cursor: &mut Cursor<'_>) -> Result<bool> {
    cursor.skip_space();
    match cursor.peek() {
        Some(b',') => {
            cursor.at += 1;
            cursor.skip_space();
            Ok(true)
        }
        Some(b'}') => Ok(false),
        _ => Err(cursor.unexpected("a comma or }")),
    }
}

/// Takes `data` into its column; true if it is null.
fn data(cursor: &mut Cursor<'_>, columns: &mut Columns) -> Result<bool> {
    columns.data.reopen();
    match cursor.peek() {
        Some(b'"') => {
            let (input, base) = (cursor.input, cursor.base);
            let mut text = Text::default();
            match text.advance(cursor.kernels, input, base, cursor.at + 1, &mut columns.data.values)? {
                Progress::Closed(at) => cursor.at = at,
                Progress::Open(at) => {
                    text.check_rest(cursor.kernels, input, base, at)?;
                    return Err(Error::at_end(base.wrapping_add(input.end())));
                }
            }
            Ok(false)
        }
        Some(b'n') => cursor.literal(b"null").map(|()| true),
        _ => Err(cursor.wrong_type("a base64 string or null")),
    }
}

/// Takes a string that must be there.
fn kept<'a>(cursor: &mut Cursor<'a>, field: &'static str) -> Result<crate::json::Text<'a>> {
    let start = *cursor;
    match cursor.text(false) {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err(start.wrong_type("a string").in_field(field)),
        Err(error) => Err(error.in_field_if_typed(field)),
    }
}
