//! Any valid record into the columns: keys in any order, escaped, unknown, or twice.

use crate::base64::text::{Progress, Text};
use crate::columns::{Columns, Fixed};
use crate::error::{Error, ErrorKind, Result};
use crate::json::Cursor;

/// Containers open around a record's members: the root, `records`, the record.
const DEPTH: usize = 3;

/// What of a record has been read. Its texts are behind their columns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fields {
    data: bool,
    key: bool,
    sequence: bool,
    fixed: Fixed,
}

impl Fields {
    /// A record whose `data` has been decoded from its string already.
    pub(crate) fn with_data() -> Self {
        Self { data: true, ..Self::default() }
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
        let missing = [(self.data, "data"), (self.key, "partitionKey"), (self.sequence, "sequenceNumber")]
            .into_iter()
            .find_map(|(there, field)| (!there).then_some(field));
        if let Some(field) = missing {
            return Err(Error::new(ErrorKind::MissingField, cursor.offset(), "missing field").in_field(field));
        }
        cursor.at += 1;
        columns.commit(self.fixed);
        Ok(())
    }

    fn member(&mut self, cursor: &mut Cursor<'_>, columns: &mut Columns) -> Result<()> {
        let name = cursor.name()?;
        if name.is("data") {
            self.fixed.data_is_null = data(cursor, columns).map_err(|error| error.in_field_if_typed("data"))?;
            self.data = true;
        } else if name.is("partitionKey") {
            let text = kept(cursor, "partitionKey")?;
            columns.keys.reopen();
            text.append_to(&mut columns.keys.values);
            self.key = true;
        } else if name.is("sequenceNumber") {
            let text = kept(cursor, "sequenceNumber")?;
            columns.sequences.reopen();
            text.append_to(&mut columns.sequences.values);
            self.sequence = true;
        } else if name.is("subSequenceNumber") {
            let value = cursor.integer().map_err(|error| error.in_field_if_typed("subSequenceNumber"))?;
            self.fixed.sub_sequence_number = value;
        } else if name.is("approximateArrivalTimestamp") {
            let value = micros(cursor).map_err(|error| error.in_field_if_typed("approximateArrivalTimestamp"))?;
            self.fixed.timestamp_micros = value;
        } else {
            cursor.skip_value(DEPTH)?;
        }
        Ok(())
    }
}

/// Takes a comma and the space behind it; false at a closing brace.
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
            match Text::default().advance(cursor.kernels, input, base, cursor.at + 1, &mut columns.data.values)? {
                Progress::Closed(at) => cursor.at = at,
                Progress::Open(_) => return Err(Error::at_end(base.wrapping_add(input.end()))),
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

/// Takes milliseconds since the epoch, as microseconds.
fn micros(cursor: &mut Cursor<'_>) -> Result<Option<i64>> {
    let start = *cursor;
    match cursor.integer()? {
        None => Ok(None),
        Some(millis) => millis.checked_mul(1000).map(Some).ok_or_else(|| start.out_of_range()),
    }
}
