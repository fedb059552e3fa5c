//! A record as the service writes it in JSON.

use super::time;
use crate::columns::{Columns, Fixed};
use crate::error::Result;
use crate::input::Padded;
use crate::json::{Cursor, Text};
use crate::kernel::traits::Kernel;
use crate::record::fast::{Seen, named, seconds_with_millis, take_once, text};
use crate::record::{Shape, unquoted};

/// The shape of the records of a GetRecords answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered;

const ENCRYPTION_TYPE: &[u8; 16] = b"\"EncryptionType\"";

impl Shape for Answered {
    const OPENING: &'static [u8; 9] = b"{\"Data\":\"";
    const DATA: &'static [u8; 6] = b"\"Data\"";
    const PARTITION_KEY: &'static [u8; 14] = b"\"PartitionKey\"";
    const SEQUENCE_NUMBER: &'static [u8; 16] = b"\"SequenceNumber\"";
    const TIMESTAMP: &'static [u8; 29] = b"\"ApproximateArrivalTimestamp\"";

    /// The service promises no order.
    #[inline(always)]
    fn usual_members<K: Kernel>(_: K, _: Padded<'_>, _: usize, _: &mut Columns) -> Option<(usize, Fixed)> {
        None
    }

    #[inline(always)]
    fn own_member<K: Kernel>(
        kernel: K,
        input: Padded<'_>,
        at: usize,
        columns: &mut Columns,
        fixed: &mut Fixed,
        seen: &mut Seen,
    ) -> Option<usize> {
        let value = named(input, at, ENCRYPTION_TYPE)?;
        take_once(&mut seen.own)?;
        if let Some(at) = input.literal(value, b"null") {
            return Some(at);
        }
        fixed.has_encryption_type = true;
        text(kernel, input, input.literal(value, b"\"")?, columns.encryption_type()?, b"\"")
    }

    #[inline(always)]
    fn time(input: Padded<'_>, at: usize) -> Option<(Option<i64>, usize)> {
        if let Some((micros, end)) = seconds_with_millis(input, at).filter(|(micros, _)| time::is_exact(*micros)) {
            return Some((Some(micros), end));
        }
        let bytes = input.input().get(at..)?;
        if let Some(at) = input.literal(at, b"null") {
            return Some((None, at));
        }
        let (micros, length) = time::usual_micros(bytes)?;
        // The number must end before the input does.
        (length < bytes.len()).then_some((Some(micros), at + length))
    }

    fn any_own_member(
        name: Text<'_>,
        cursor: &mut Cursor<'_>,
        columns: &mut Columns,
        fixed: &mut Fixed,
    ) -> Result<bool> {
        let Some(column) = columns.encryption_type().filter(|_| name.is(unquoted(ENCRYPTION_TYPE))) else {
            return Ok(false);
        };
        column.reopen();
        let text = cursor.text(true).map_err(|error| error.in_field_if_typed(unquoted(ENCRYPTION_TYPE)))?;
        fixed.has_encryption_type = text.is_some();
        if let Some(text) = text {
            text.append_to(&mut column.values);
        }
        Ok(true)
    }

    fn any_time(cursor: &mut Cursor<'_>) -> Result<Option<i64>> {
        time::seconds(cursor)
    }
}
