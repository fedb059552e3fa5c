//! Any valid line as a whole, and the end of a daemon's line after its records.
//!
//! `action` may stand anywhere and decides the rules for the other keys, so a member is looked at when its action is
//! known: at once if `action` came before it, else when it comes. Until then only its JSON is checked. So errors keep
//! the order of their bytes as far as one reader who goes from left to right can know them, and an error in a value
//! that a later duplicate would replace is an error all the same. The last duplicate wins.

use super::dialect::Dialect;
use super::message::{Checkpoint, Initialize, ShutdownReason};
use super::shape::Kcl;
use crate::columns::Columns;
use crate::error::{Error, ErrorKind, Result};
use crate::input::Padded;
use crate::json::Cursor;
use crate::kernel::Kernels;
use crate::record::fast::{Records, Stop};
use crate::record::general::record;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Initialize,
    ProcessRecords,
    LeaseLost,
    ShardEnded,
    ShutdownRequested,
    Shutdown,
    Checkpoint,
}

const ACTIONS: [(&str, Action); 7] = [
    ("initialize", Action::Initialize),
    ("processRecords", Action::ProcessRecords),
    ("leaseLost", Action::LeaseLost),
    ("shardEnded", Action::ShardEnded),
    ("shutdownRequested", Action::ShutdownRequested),
    ("shutdown", Action::Shutdown),
    ("checkpoint", Action::Checkpoint),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    ShardId,
    SequenceNumber,
    SubSequenceNumber,
    Records,
    MillisBehindLatest,
    Reason,
    Checkpoint,
    Error,
}

impl Key {
    const ALL: [Self; 8] = [
        Self::ShardId,
        Self::SequenceNumber,
        Self::SubSequenceNumber,
        Self::Records,
        Self::MillisBehindLatest,
        Self::Reason,
        Self::Checkpoint,
        Self::Error,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::ShardId => "shardId",
            Self::SequenceNumber => "sequenceNumber",
            Self::SubSequenceNumber => "subSequenceNumber",
            Self::Records => "records",
            Self::MillisBehindLatest => "millisBehindLatest",
            Self::Reason => "reason",
            Self::Checkpoint => "checkpoint",
            Self::Error => "error",
        }
    }
}

/// The type of a field. The first three are required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Text,
    Reason,
    Records,
    TextOrNull,
    IntegerOrNull,
}

impl Action {
    /// The fields of each action in the order of the protocol's tables.
    const fn fields(self) -> &'static [(Key, Holds)] {
        match self {
            Self::Initialize => &[
                (Key::ShardId, Holds::Text),
                (Key::SequenceNumber, Holds::TextOrNull),
                (Key::SubSequenceNumber, Holds::IntegerOrNull),
            ],
            Self::ProcessRecords => &[(Key::Records, Holds::Records), (Key::MillisBehindLatest, Holds::IntegerOrNull)],
            Self::LeaseLost | Self::ShardEnded | Self::ShutdownRequested => &[],
            Self::Shutdown => &[(Key::Reason, Holds::Reason)],
            Self::Checkpoint => &[
                (Key::SequenceNumber, Holds::TextOrNull),
                (Key::Checkpoint, Holds::TextOrNull),
                (Key::SubSequenceNumber, Holds::IntegerOrNull),
                (Key::Error, Holds::TextOrNull),
            ],
        }
    }

    fn holds(self, key: Key) -> Option<Holds> {
        self.fields().iter().find_map(|(field, holds)| (*field == key).then_some(*holds))
    }
}

/// A line's message; the records of `ProcessRecords` are in the columns.
#[derive(Debug)]
pub(crate) enum Parsed {
    Initialize(Initialize),
    ProcessRecords { millis_behind_latest: Option<i64> },
    LeaseLost,
    ShardEnded,
    ShutdownRequested,
    Shutdown(ShutdownReason),
    Checkpoint(Checkpoint),
}

/// A known member: where its value begins. None: the records that the stream has put into the columns.
struct Member {
    key: Key,
    value: Option<usize>,
}

struct Line<'c> {
    columns: &'c mut Columns,
    action: Option<Action>,
    members: Vec<Member>,
    /// For each action, how many of the members have been checked under it.
    checked: [usize; ACTIONS.len()],
}

/// Parses the line that begins at `at` and ends at the end of `input`. `base` is the line offset of `input[0]`.
pub(crate) fn whole(
    kernels: Kernels,
    input: Padded<'_>,
    base: usize,
    at: usize,
    columns: &mut Columns,
) -> Result<Parsed> {
    columns.clear();
    let mut cursor = Cursor { kernels, input, at, base };
    let mut line = Line { columns, action: None, members: Vec::new(), checked: [0; ACTIONS.len()] };
    cursor.skip_space();
    cursor.begin_value()?;
    if cursor.peek() != Some(b'{') {
        return Err(Error::new(ErrorKind::NotAnObject, cursor.offset(), "a message is a JSON object"));
    }
    cursor.at += 1;
    cursor.skip_space();
    if cursor.peek() != Some(b'}') {
        line.member(&mut cursor)?;
    }
    line.rest(cursor)
}

/// Parses the text after the `]` of a daemon's `processRecords` line, whose records are in the columns.
pub(crate) fn tail(
    kernels: Kernels,
    input: Padded<'_>,
    base: usize,
    at: usize,
    columns: &mut Columns,
) -> Result<Parsed> {
    let cursor = Cursor { kernels, input, at, base };
    let mut checked = [0; ACTIONS.len()];
    checked[Action::ProcessRecords as usize] = 1;
    let members = vec![Member { key: Key::Records, value: None }];
    Line { columns, action: Some(Action::ProcessRecords), members, checked }.rest(cursor)
}

impl Line<'_> {
    /// Takes everything from after a member's value, or from an empty object's brace, to the end.
    fn rest(mut self, mut cursor: Cursor<'_>) -> Result<Parsed> {
        loop {
            cursor.skip_space();
            match cursor.peek() {
                Some(b',') => {
                    cursor.at += 1;
                    cursor.skip_space();
                    self.member(&mut cursor)?;
                }
                Some(b'}') => break,
                _ => return Err(cursor.unexpected("a comma or }")),
            }
        }
        let missing =
            |field| Err(Error::new(ErrorKind::MissingField, cursor.offset(), "missing field").in_field(field));
        let Some(action) = self.action else { return missing("action") };
        for (key, holds) in action.fields() {
            let required = matches!(holds, Holds::Text | Holds::Reason | Holds::Records);
            if required && self.last(*key).is_none() {
                return missing(key.name());
            }
        }
        let end = cursor;
        cursor.at += 1;
        cursor.skip_space();
        if cursor.peek().is_some() {
            return Err(cursor.unexpected("the end of the line"));
        }
        self.message(action, end)
    }

    fn last(&self, key: Key) -> Option<&Member> {
        self.members.iter().rev().find(|member| member.key == key)
    }

    fn member(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        let name = cursor.name()?;
        if name.is("action") {
            return self.action(cursor);
        }
        let Some(key) = Key::ALL.into_iter().find(|key| name.is(key.name())) else { return cursor.skip_value(1) };
        self.members.push(Member { key, value: Some(cursor.at) });
        let Some(action) = self.action else { return cursor.skip_value(1) };
        self.check(action, key, cursor)?;
        self.checked[action as usize] = self.members.len();
        Ok(())
    }

    fn action(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        let start = *cursor;
        let Some(text) = cursor.text(false).map_err(|error| error.in_field_if_typed("action"))? else {
            return Err(start.wrong_type("a string").in_field("action"));
        };
        let Some(&(_, action)) = ACTIONS.iter().find(|(name, _)| text.is(name)) else {
            let shown: String = text.into_string().chars().take(40).collect();
            let what = format!("a daemon does not send {shown:?}");
            return Err(Error::new(ErrorKind::UnknownAction, start.offset(), what).in_field("action"));
        };
        self.action = Some(action);
        for member in self.checked[action as usize]..self.members.len() {
            let Member { key, value: Some(at) } = self.members[member] else { continue };
            self.check(action, key, &mut Cursor { at, ..*cursor })?;
        }
        self.checked[action as usize] = self.members.len();
        Ok(())
    }

    /// Takes the value of `key` as `action` wants it.
    fn check(&mut self, action: Action, key: Key, cursor: &mut Cursor<'_>) -> Result<()> {
        let Some(holds) = action.holds(key) else { return cursor.skip_value(1) };
        let start = *cursor;
        let result = match holds {
            Holds::Text => cursor.text(false).map(drop),
            Holds::TextOrNull => cursor.text(true).map(drop),
            Holds::IntegerOrNull => cursor.integer().map(drop),
            Holds::Reason => cursor.text(false).and_then(|text| reason(text, start).map(drop)),
            Holds::Records => self.records(cursor),
        };
        result.map_err(|error| error.in_field_if_typed(key.name()))
    }

    /// Takes the array of records into the columns, in place of those before.
    fn records(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        self.columns.begin();
        if cursor.peek() != Some(b'[') {
            return Err(cursor.wrong_type("an array of records"));
        }
        cursor.at += 1;
        cursor.skip_space();
        if cursor.peek() == Some(b']') {
            cursor.at += 1;
            return Ok(());
        }
        loop {
            let records = Records { shape: Kcl, input: cursor.input, at: cursor.at, columns: self.columns };
            let scanned = cursor.kernels.run(records);
            if let Stop::After(next) = scanned.stop {
                cursor.at = next;
            } else {
                cursor.at = scanned.record;
                cursor.skip_space();
                record(Kcl, Key::Records.name(), cursor, self.columns)?;
            }
            cursor.skip_space();
            match cursor.peek() {
                Some(b',') => cursor.at += 1,
                Some(b']') => {
                    cursor.at += 1;
                    return Ok(());
                }
                _ => return Err(cursor.unexpected("a comma or ]")),
            }
            cursor.skip_space();
        }
    }

    /// The message of a line whose members have all been checked; `end` is the line's cursor.
    fn message(self, action: Action, end: Cursor<'_>) -> Result<Parsed> {
        let value = |key| self.last(key).and_then(|member| member.value).map(|at| Cursor { at, ..end });
        let text = |key| -> Result<Option<String>> {
            let Some(mut cursor) = value(key) else { return Ok(None) };
            Ok(cursor.text(true)?.map(crate::json::Text::into_string))
        };
        let integer = |key| -> Result<Option<i64>> { value(key).map_or(Ok(None), |mut cursor| cursor.integer()) };
        Ok(match action {
            Action::Initialize => {
                let modern = value(Key::SequenceNumber).or_else(|| value(Key::SubSequenceNumber)).is_some();
                Parsed::Initialize(Initialize {
                    shard_id: text(Key::ShardId)?.unwrap_or_default(),
                    sequence_number: text(Key::SequenceNumber)?,
                    sub_sequence_number: integer(Key::SubSequenceNumber)?,
                    dialect: if modern { Dialect::Modern } else { Dialect::Legacy },
                })
            }
            Action::ProcessRecords => {
                Parsed::ProcessRecords { millis_behind_latest: integer(Key::MillisBehindLatest)? }
            }
            Action::LeaseLost => Parsed::LeaseLost,
            Action::ShardEnded => Parsed::ShardEnded,
            Action::ShutdownRequested => Parsed::ShutdownRequested,
            Action::Shutdown => {
                let mut cursor = value(Key::Reason).unwrap_or(end);
                let start = cursor;
                Parsed::Shutdown(reason(cursor.text(false)?, start)?)
            }
            Action::Checkpoint => Parsed::Checkpoint(Checkpoint {
                sequence_number: match text(Key::SequenceNumber)? {
                    Some(sequence_number) => Some(sequence_number),
                    None => text(Key::Checkpoint)?,
                },
                sub_sequence_number: integer(Key::SubSequenceNumber)?,
                error: text(Key::Error)?,
            }),
        })
    }
}

fn reason(text: Option<crate::json::Text<'_>>, start: Cursor<'_>) -> Result<ShutdownReason> {
    let Some(text) = text else { return Err(start.wrong_type("a string")) };
    [ShutdownReason::Terminate, ShutdownReason::Zombie].into_iter().find(|reason| text.is(reason.name())).ok_or_else(
        || {
            let shown: String = text.into_string().chars().take(40).collect();
            let what = format!("a reason is TERMINATE or ZOMBIE, not {shown:?}");
            Error::new(ErrorKind::UnknownReason, start.offset(), what).in_field("reason")
        },
    )
}
