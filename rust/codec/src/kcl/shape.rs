//! A record as a daemon writes it.

use crate::columns::{Columns, Fixed};
use crate::error::Result;
use crate::input::Padded;
use crate::json::{Cursor, Text};
use crate::kernel::traits::Kernel;
use crate::record::Shape;
use crate::record::fast::{Seen, digits, digits_or_null, named, take_once, text};

/// The shape of the multi-language protocol's records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kcl;

impl Shape for Kcl {
    const OPENING: &'static [u8; 9] = b"{\"data\":\"";
    const DATA: &'static [u8; 6] = b"\"data\"";
    const PARTITION_KEY: &'static [u8; 14] = b"\"partitionKey\"";
    const SEQUENCE_NUMBER: &'static [u8; 16] = b"\"sequenceNumber\"";
    const TIMESTAMP: &'static [u8; 29] = b"\"approximateArrivalTimestamp\"";

    #[inline(always)]
    fn usual_members<K: Kernel>(
        kernel: K,
        input: Padded<'_>,
        at: usize,
        columns: &mut Columns,
    ) -> Option<(usize, Fixed)> {
        let at = input.literal(at, b",\"partitionKey\":\"")?;
        let at = text(kernel, input, at, &mut columns.keys, b"\",\"sequenceNumber\":\"")?;
        let at = text(kernel, input, at, &mut columns.sequences, b"\",\"approximateArrivalTimestamp\":")?;
        let (millis, at) = digits(input, at)?;
        let timestamp_micros = Some(millis.checked_mul(1000)?);
        let (sub_sequence_number, at) = match input.literal(at, b",\"subSequenceNumber\":") {
            // Legacy daemons write neither this nor an action.
            None => (None, input.literal(at, b"}")?),
            Some(at) => {
                let (value, at) = digits(input, at)?;
                (Some(value), input.literal(at, b",\"action\":\"record\"}")?)
            }
        };
        Some((at, Fixed { sub_sequence_number, timestamp_micros, ..Fixed::default() }))
    }

    #[inline(always)]
    fn own_member<K: Kernel>(
        _kernel: K,
        input: Padded<'_>,
        at: usize,
        _columns: &mut Columns,
        fixed: &mut Fixed,
        seen: &mut Seen,
    ) -> Option<usize> {
        let Some(value) = named(input, at, b"\"subSequenceNumber\"") else {
            return input.literal(named(input, at, b"\"action\"")?, b"\"record\"");
        };
        take_once(&mut seen.own)?;
        let (sub_sequence_number, at) = digits_or_null(input, value)?;
        fixed.sub_sequence_number = sub_sequence_number;
        Some(at)
    }

    #[inline(always)]
    fn time(input: Padded<'_>, at: usize) -> Option<(Option<i64>, usize)> {
        let (millis, at) = digits_or_null(input, at)?;
        let micros = millis.map(|millis| millis.checked_mul(1000).ok_or(())).transpose().ok()?;
        Some((micros, at))
    }

    fn any_own_member(
        name: Text<'_>,
        cursor: &mut Cursor<'_>,
        _columns: &mut Columns,
        fixed: &mut Fixed,
    ) -> Result<bool> {
        if !name.is("subSequenceNumber") {
            return Ok(false);
        }
        let value = cursor.integer().map_err(|error| error.in_field_if_typed("subSequenceNumber"))?;
        fixed.sub_sequence_number = value;
        Ok(true)
    }

    /// Milliseconds since the epoch.
    fn any_time(cursor: &mut Cursor<'_>) -> Result<Option<i64>> {
        let start = *cursor;
        match cursor.integer()? {
            None => Ok(None),
            Some(millis) => millis.checked_mul(1000).map(Some).ok_or_else(|| start.out_of_range()),
        }
    }
}
