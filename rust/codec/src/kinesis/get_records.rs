//! A GetRecords answer in JSON: one pass, resumable where the body's end comes near.
//!
//! Kernels read whole blocks, past the end of their input, so the last bytes of a body need a copy with room after
//! it. All before them is parsed where it stands:
//!
//! ```text
//!  body  ▏ { "Records" : [ {…} , {…} , {…} ▏ , {…} ] , "NextShardIterator" : … } ▏
//!         └────── parsed in place ────────┘ └────── the rest, copied ───────────┘
//! ```
//!
//! The parser goes in steps, each of which takes a member, records, or a mark between them. A step that fails in place, or
//! may not have seen all of its value, is taken again in the copy, so errors are found there only.

use std::ops::RangeInclusive;

use super::hash_key::parse_hash_key;
use super::parts::{ChildShard, Parts};
use super::shape::Answered;
use crate::columns::Columns;
use crate::error::{Error, ErrorKind, Result};
use crate::input::{Padded, SLACK, pad};
use crate::json::{Cursor, Text};
use crate::kernel::Kernels;
use crate::record::fast::{Records, Stop};
use crate::record::general::record;

const RECORDS: &str = "Records";
const CHILD_SHARDS: &str = "ChildShards";

/// What must come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Root,
    Member,
    AfterMember,
    Record,
    AfterRecord,
    End,
}

struct Parser<'c> {
    kernels: Kernels,
    columns: &'c mut Columns,
    parts: Parts,
    place: Place,
    /// Index in the body up to which it is taken.
    at: usize,
}

/// Parses `body`; its records are put into `columns`, which are empty.
pub(super) fn parse(kernels: Kernels, body: &[u8], columns: &mut Columns) -> Result<Parts> {
    let mut parser = Parser { kernels, columns, parts: Parts::default(), place: Place::Root, at: 0 };
    if body.len() > SLACK {
        parser.in_place(Padded::new(body, body.len() - SLACK));
    }
    let rest = pad(&body[parser.at..]);
    parser.finish(Padded::new(&rest, rest.len() - SLACK))?;
    Ok(parser.parts)
}

impl Parser<'_> {
    /// Takes as many steps as `input` has.
    fn in_place(&mut self, input: Padded<'_>) {
        while self.place != Place::End {
            let mut cursor = Cursor { kernels: self.kernels, input, at: self.at, base: 0 };
            // A record's end, and the character after it, end by themselves; a number, or space, may go on after the end.
            let ends = matches!(self.place, Place::Record | Place::AfterRecord | Place::AfterMember);
            match self.step(&mut cursor) {
                Ok(place) if ends || cursor.at < input.end() => (self.place, self.at) = (place, cursor.at),
                _ => return,
            }
        }
    }

    /// Takes all that is left.
    fn finish(&mut self, rest: Padded<'_>) -> Result<()> {
        let mut cursor = Cursor { kernels: self.kernels, input: rest, at: 0, base: self.at };
        while self.place != Place::End {
            self.place = self.step(&mut cursor)?;
        }
        cursor.skip_space();
        if cursor.peek().is_some() { Err(cursor.unexpected("the end of the answer")) } else { Ok(()) }
    }

    fn step(&mut self, cursor: &mut Cursor<'_>) -> Result<Place> {
        cursor.skip_space();
        match self.place {
            Place::Root => {
                cursor.begin_value()?;
                if cursor.peek() != Some(b'{') {
                    return Err(Error::new(ErrorKind::NotAnObject, cursor.offset(), "an answer is a JSON object"));
                }
                cursor.at += 1;
                cursor.skip_space();
                if cursor.peek() == Some(b'}') { self.close(cursor) } else { Ok(Place::Member) }
            }
            Place::Member => self.member(cursor),
            Place::AfterMember => match cursor.peek() {
                Some(b',') => {
                    cursor.at += 1;
                    Ok(Place::Member)
                }
                Some(b'}') => self.close(cursor),
                _ => Err(cursor.unexpected("a comma or }")),
            },
            Place::Record => self.record(cursor),
            Place::AfterRecord => match cursor.peek() {
                Some(b',') => {
                    cursor.at += 1;
                    Ok(Place::Record)
                }
                Some(b']') => Ok(self.close_records(cursor)),
                _ => Err(cursor.unexpected("a comma or ]")),
            },
            Place::End => Ok(Place::End),
        }
    }

    fn close(&self, cursor: &mut Cursor<'_>) -> Result<Place> {
        if self.parts.records_span.is_none() {
            return Err(Error::new(ErrorKind::MissingField, cursor.offset(), "missing field").in_field(RECORDS));
        }
        cursor.at += 1;
        Ok(Place::End)
    }

    fn close_records(&mut self, cursor: &mut Cursor<'_>) -> Place {
        cursor.at += 1;
        if let Some(span) = &mut self.parts.records_span {
            span.end = cursor.offset();
        }
        Place::AfterMember
    }

    fn member(&mut self, cursor: &mut Cursor<'_>) -> Result<Place> {
        let name = cursor.name()?;
        if name.is(RECORDS) {
            if cursor.peek() != Some(b'[') {
                return Err(cursor.wrong_type("an array of records").in_field_if_typed(RECORDS));
            }
            // A duplicate replaces the records before it.
            self.columns.clear();
            self.parts.records_span = Some(cursor.offset()..cursor.offset());
            cursor.at += 1;
            cursor.skip_space();
            return Ok(if cursor.peek() == Some(b']') { self.close_records(cursor) } else { Place::Record });
        }
        if name.is("NextShardIterator") {
            let text = cursor.text(true).map_err(|error| error.in_field_if_typed("NextShardIterator"))?;
            self.parts.next_shard_iterator = text.map(Text::into_string);
        } else if name.is("MillisBehindLatest") {
            let millis = cursor.integer().map_err(|error| error.in_field_if_typed("MillisBehindLatest"))?;
            self.parts.millis_behind_latest = millis;
        } else if name.is(CHILD_SHARDS) {
            self.parts.child_shards = child_shards(cursor).map_err(|error| error.in_field_if_typed(CHILD_SHARDS))?;
        } else {
            cursor.skip_value(1)?;
        }
        Ok(Place::AfterMember)
    }

    /// Takes records for as long as the scanner does, or else one.
    fn record(&mut self, cursor: &mut Cursor<'_>) -> Result<Place> {
        let records = Records { shape: Answered, input: cursor.input, at: cursor.at, columns: self.columns };
        let scanned = self.kernels.run(records);
        if let Stop::After(next) = scanned.stop {
            cursor.at = next;
            return Ok(Place::AfterRecord);
        }
        if scanned.record > cursor.at {
            cursor.at = scanned.record;
            return Ok(Place::Record);
        }
        record(Answered, RECORDS, cursor, self.columns)?;
        Ok(Place::AfterRecord)
    }
}

/// Takes an array, or null, of shards.
fn child_shards(cursor: &mut Cursor<'_>) -> Result<Vec<ChildShard>> {
    let mut shards = Vec::new();
    if cursor.peek() == Some(b'n') {
        cursor.literal(b"null")?;
        return Ok(shards);
    }
    elements(cursor, "an array of shards, or null", |cursor| {
        shards.push(child_shard(cursor)?);
        Ok(())
    })?;
    Ok(shards)
}

fn child_shard(cursor: &mut Cursor<'_>) -> Result<ChildShard> {
    let (mut shard_id, mut parents, mut range) = (None, None, None);
    members(cursor, "a shard", |name, cursor| {
        if name.is("ShardId") {
            shard_id = Some(string(cursor, "ShardId")?);
        } else if name.is("ParentShards") {
            let mut ids = Vec::new();
            elements(cursor, "an array of shard ids", |cursor| {
                ids.push(string(cursor, "ParentShards")?);
                Ok(())
            })
            .map_err(|error| error.in_field_if_typed("ParentShards"))?;
            parents = Some(ids);
        } else if name.is("HashKeyRange") {
            range = Some(hash_range(cursor).map_err(|error| error.in_field_if_typed("HashKeyRange"))?);
        } else {
            cursor.skip_value(3)?;
        }
        Ok(())
    })?;
    let missing = |field| Error::new(ErrorKind::MissingField, cursor.offset() - 1, "missing field").in_field(field);
    Ok(ChildShard {
        shard_id: shard_id.ok_or_else(|| missing("ShardId"))?,
        parent_shards: parents.ok_or_else(|| missing("ParentShards"))?,
        hash_range: range.ok_or_else(|| missing("HashKeyRange"))?,
    })
}

fn hash_range(cursor: &mut Cursor<'_>) -> Result<RangeInclusive<u128>> {
    let (mut start, mut end) = (None, None);
    members(cursor, "a range of hash keys", |name, cursor| {
        if name.is("StartingHashKey") {
            start = Some(hash_key(cursor, "StartingHashKey")?);
        } else if name.is("EndingHashKey") {
            end = Some(hash_key(cursor, "EndingHashKey")?);
        } else {
            cursor.skip_value(4)?;
        }
        Ok(())
    })?;
    let missing = |field| Error::new(ErrorKind::MissingField, cursor.offset() - 1, "missing field").in_field(field);
    let start = start.ok_or_else(|| missing("StartingHashKey"))?;
    Ok(start..=end.ok_or_else(|| missing("EndingHashKey"))?)
}

fn hash_key(cursor: &mut Cursor<'_>, field: &'static str) -> Result<u128> {
    let start = *cursor;
    parse_hash_key(&string(cursor, field)?).ok_or_else(|| {
        let what = "a hash key is a decimal number from 0 to 2^128 - 1";
        Error::new(ErrorKind::OutOfRange, start.offset(), what).in_field(field)
    })
}

fn string(cursor: &mut Cursor<'_>, field: &'static str) -> Result<String> {
    let start = *cursor;
    match cursor.text(false) {
        Ok(Some(text)) => Ok(text.into_string()),
        Ok(None) => Err(start.wrong_type("a string").in_field(field)),
        Err(error) => Err(error.in_field_if_typed(field)),
    }
}

/// Takes the array that must be here, each element by `take`.
fn elements<'a>(
    cursor: &mut Cursor<'a>,
    wanted: &'static str,
    mut take: impl FnMut(&mut Cursor<'a>) -> Result<()>,
) -> Result<()> {
    if cursor.peek() != Some(b'[') {
        return Err(cursor.wrong_type(wanted));
    }
    sequence(cursor, b']', "a comma or ]", &mut take)
}

/// Takes the object that must be here, each value by `take`.
fn members<'a>(
    cursor: &mut Cursor<'a>,
    wanted: &'static str,
    mut take: impl FnMut(Text<'a>, &mut Cursor<'a>) -> Result<()>,
) -> Result<()> {
    if cursor.peek() != Some(b'{') {
        return Err(cursor.wrong_type(wanted));
    }
    sequence(cursor, b'}', "a comma or }", &mut |cursor: &mut Cursor<'a>| {
        let name = cursor.name()?;
        take(name, cursor)
    })
}

fn sequence<'a>(
    cursor: &mut Cursor<'a>,
    close: u8,
    wanted: &'static str,
    take: &mut impl FnMut(&mut Cursor<'a>) -> Result<()>,
) -> Result<()> {
    cursor.at += 1;
    cursor.skip_space();
    if cursor.peek() != Some(close) {
        loop {
            take(cursor)?;
            cursor.skip_space();
            match cursor.peek() {
                Some(b',') => cursor.at += 1,
                Some(byte) if byte == close => break,
                _ => return Err(cursor.unexpected(wanted)),
            }
            cursor.skip_space();
        }
    }
    cursor.at += 1;
    Ok(())
}
