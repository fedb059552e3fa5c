//! One record's JSON into the columns, for every protocol that has records: two parsers that agree.
//!
//! | module | purpose |
//! |---|---|
//! | `fast` | the scanner for records as their writers usually write them, once per instruction set |
//! | `general` | any valid record |
//!
//! Protocols differ in a record's names and in how they write a time, which a [`Shape`] says. Both parsers are generic
//! over it, so there is one scanner, compiled for each protocol.

pub(crate) mod fast;
pub(crate) mod general;

use crate::columns::{Columns, Fixed};
use crate::error::Result;
use crate::input::Padded;
use crate::json::{Cursor, Text};
use crate::kernel::traits::Kernel;
use fast::Seen;

/// How a protocol writes a record. Names stand with their quotes.
pub(crate) trait Shape: Copy {
    /// How a record usually begins.
    const OPENING: &'static [u8; 9];
    const DATA: &'static [u8; 6];
    const PARTITION_KEY: &'static [u8; 14];
    const SEQUENCE_NUMBER: &'static [u8; 16];
    const TIMESTAMP: &'static [u8; 29];

    /// Takes the usual members after `data`, with the closing brace: the index after it. If it returns none, values
    /// that it leaves in the columns are cut off.
    fn usual_members<K: Kernel>(
        kernel: K,
        input: Padded<'_>,
        at: usize,
        columns: &mut Columns,
    ) -> Option<(usize, Fixed)>;

    /// Takes a member that other protocols do not have, name and value: the index after it.
    fn own_member<K: Kernel>(
        kernel: K,
        input: Padded<'_>,
        at: usize,
        columns: &mut Columns,
        fixed: &mut Fixed,
        seen: &mut Seen,
    ) -> Option<usize>;

    /// Takes a time in microseconds since the epoch, or null, and gives the index after it.
    fn time(input: Padded<'_>, at: usize) -> Option<(Option<i64>, usize)>;

    /// The same as [`Shape::own_member`] for any value; false if the protocol does not know the name.
    fn any_own_member(
        name: Text<'_>,
        cursor: &mut Cursor<'_>,
        columns: &mut Columns,
        fixed: &mut Fixed,
    ) -> Result<bool>;

    /// The same as [`Shape::time`] for any value.
    fn any_time(cursor: &mut Cursor<'_>) -> Result<Option<i64>>;
}

/// A name of a [`Shape`] without its quotes.
pub(crate) const fn unquoted(name: &'static [u8]) -> &'static str {
    let [b'"', name @ .., b'"'] = name else { panic!("names of a shape stand with their quotes") };
    match str::from_utf8(name) {
        Ok(name) => name,
        Err(_) => panic!("names of a shape are ASCII"),
    }
}
