//! Splits the aggregates of a batch, from columns to columns.

use std::fmt;
use std::iter;
use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow_array::builder::{ArrayBuilder, BooleanBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, new_null_array};
use arrow_buffer::BooleanBuffer;

use super::LARGEST_COLUMN_BYTES;
use super::message::{Fallback, Message, body};
use crate::batch::RecordBatch;
use crate::columns::{Columns, Fixed};
use crate::kinesis::answer::Spare;
use crate::schema::{Column, RecordSchema};

/// User records, and what became of the records that they were in.
#[derive(Clone, Debug)]
pub struct Deaggregated {
    /// The columns of the batch, then explicitHashKey and aggregated.
    pub batch: RecordBatch,
    /// Aggregates that were split.
    pub aggregates: usize,
    /// Aggregates that were dropped, as the shard does not own all of their user records.
    pub dropped_aggregates: usize,
    /// How many user records were in these.
    pub dropped_records: usize,
    /// Records that begin as aggregates and were taken as plain ones, by [`Fallback::ALL`].
    pub fallbacks: [usize; Fallback::ALL.len()],
}

/// The user records take more bytes than a batch may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

impl fmt::Display for TooLarge {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the user records of these aggregates are too large for one batch; take fewer at once")
    }
}

impl std::error::Error for TooLarge {}

/// The most bytes of a batch of user records, if nothing else is asked for.
///
/// The user records of an answer of the service, 10 MiB, are fewer if its aggregates are sound: one of 1 byte with a key
/// of 36 characters takes 7 bytes of an aggregate, and 133 here. So are those of any aggregate of 1 MiB.
pub const MAX_BATCH_BYTES: usize = 256 << 20;

/// Bytes of a user record beside its values, but for bits.
const ROW_BYTES: usize = RecordSchema::Deaggregated.row_bytes();
/// Bits of a user record: aggregated, and whether data, time, encryption type and explicit hash key are there.
const ROW_BITS: usize = 5;
/// Columns of values of any length have one offset more than rows.
const LAST_OFFSETS: usize = RecordSchema::Deaggregated.last_offsets();

/// Takes the aggregates of `batch` apart. `owned` are the hash keys of the shard. A batch that was taken apart
/// stays as it is, and so does one without aggregates.
///
/// # Errors
/// [`TooLarge`]: the records would take more than `max_bytes`; nothing larger was made.
pub fn deaggregate(
    batch: &RecordBatch,
    owned: &RangeInclusive<u128>,
    max_bytes: usize,
) -> Result<Deaggregated, TooLarge> {
    let mut result = Deaggregated {
        batch: batch.clone(),
        aggregates: 0,
        dropped_aggregates: 0,
        dropped_records: 0,
        fallbacks: [0; Fallback::ALL.len()],
    };
    if batch.schema() == RecordSchema::Deaggregated {
        return Ok(result);
    }
    result.batch = match first_aggregate(batch) {
        None => plain(batch),
        Some(first) => take_apart(batch, first, owned, max_bytes, &mut result)?,
    };
    Ok(result)
}

/// The first row that begins as an aggregate.
fn first_aggregate(batch: &RecordBatch) -> Option<usize> {
    // Nearly all batches have none, so this is most of the work: the column is looked up once.
    let data = batch.as_arrow().column(Column::Data as usize).as_binary::<i32>();
    (0..data.len()).find(|row| body(data.value(*row)).is_some() && data.is_valid(*row))
}

/// A batch without aggregates: its own columns.
fn plain(batch: &RecordBatch) -> RecordBatch {
    let rows = batch.len();
    let mut held = 0;
    let columns = RecordSchema::Deaggregated.columns().iter().map(|column| {
        let made: ArrayRef = match (column, batch.column(*column)) {
            (Column::SubSequenceNumber, Some(subs)) => {
                let subs = subs.as_primitive::<Int64Type>().iter();
                Arc::new(Int64Array::from_iter_values(subs.map(Option::unwrap_or_default)))
            }
            (_, Some(own)) => return Arc::clone(own),
            (Column::Aggregated, None) => Arc::new(BooleanArray::new(BooleanBuffer::new_unset(rows), None)),
            (_, None) => new_null_array(&column.data_type(), rows),
        };
        held += made.get_buffer_memory_size();
        made
    });
    let columns = columns.collect();
    batch.with_columns(RecordSchema::Deaggregated, columns, batch.capacity_bytes() + held)
}

/// The rows of a batch of which row `first` is the first that begins as an aggregate.
fn take_apart(
    batch: &RecordBatch,
    first: usize,
    owned: &RangeInclusive<u128>,
    max_bytes: usize,
    result: &mut Deaggregated,
) -> Result<RecordBatch, TooLarge> {
    let mut users =
        Users { columns: Spare::take(), hash_keys: StringBuilder::new(), aggregated: BooleanBuilder::new(), max_bytes };
    for row in 0..batch.len() {
        let aggregate = batch.data(row).filter(|_| row >= first).and_then(body);
        match aggregate.map(|(body, digest)| Message::read(body, digest)) {
            None => users.plain(batch, row)?,
            Some(Err(fallback)) => {
                result.fallbacks[fallback as usize] += 1;
                users.plain(batch, row)?;
            }
            Some(Ok(message)) if message.belongs_to(owned) => {
                result.aggregates += 1;
                users.aggregate(batch, row, &message)?;
            }
            Some(Ok(message)) => {
                result.dropped_aggregates += 1;
                result.dropped_records += message.user_records().count();
            }
        }
    }
    Ok(users.finish(batch))
}

/// The columns at work.
struct Users {
    columns: Columns,
    hash_keys: StringBuilder,
    aggregated: BooleanBuilder,
    /// The bound of all columns, in bytes.
    max_bytes: usize,
}

impl Users {
    fn plain(&mut self, batch: &RecordBatch, row: usize) -> Result<(), TooLarge> {
        let (data, key) = (batch.data(row), batch.partition_key(row));
        self.make_sure_of_room(batch, row, iter::once((key, None, data.unwrap_or_default())))?;
        self.user_record(batch, row, key, data, batch.sub_sequence_number(row).unwrap_or_default());
        self.hash_keys.append_null();
        self.aggregated.append_value(false);
        Ok(())
    }

    fn aggregate(&mut self, batch: &RecordBatch, row: usize, message: &Message<'_>) -> Result<(), TooLarge> {
        self.make_sure_of_room(batch, row, message.user_records())?;
        for (sub_sequence_number, (key, hash_key, data)) in (0..).zip(message.user_records()) {
            self.user_record(batch, row, key, Some(data), sub_sequence_number);
            self.hash_keys.append_option(hash_key);
            self.aggregated.append_value(true);
        }
        Ok(())
    }

    fn user_record(&mut self, batch: &RecordBatch, row: usize, key: &str, data: Option<&[u8]>, sub: i64) {
        let columns = &mut self.columns;
        columns.data.values.extend_from_slice(data.unwrap_or_default());
        columns.keys.values.extend_from_slice(key.as_bytes());
        columns.sequences.values.extend_from_slice(batch.sequence_number(row).as_bytes());
        let encryption_type = batch.encryption_type(row);
        if let (Some(column), Some(text)) = (columns.encryption_type(), encryption_type) {
            column.values.extend_from_slice(text.as_bytes());
        }
        columns.commit(Fixed {
            data_is_null: data.is_none(),
            has_encryption_type: encryption_type.is_some(),
            sub_sequence_number: Some(sub),
            timestamp_micros: batch.timestamp_micros(row),
        });
    }

    /// Whether these user records of row `row` fit in: partition key, explicit hash key and data of each.
    fn make_sure_of_room<'a>(
        &self,
        batch: &RecordBatch,
        row: usize,
        users: impl Iterator<Item = (&'a str, Option<&'a str>, &'a [u8])>,
    ) -> Result<(), TooLarge> {
        let [mut all_data, mut keys, mut sequence_numbers, mut encryption_types] = self.columns.values_bytes();
        let mut hash_keys = self.hash_keys.values_slice().len();
        let mut rows = self.aggregated.len();
        let sequence_number = batch.sequence_number(row).len();
        let encryption_type = batch.encryption_type(row).map_or(0, str::len);
        for (key, hash_key, data) in users {
            all_data += data.len();
            keys += key.len();
            hash_keys += hash_key.map_or(0, str::len);
            sequence_numbers += sequence_number;
            encryption_types += encryption_type;
            rows += 1;
        }
        let values = [all_data, keys, hash_keys, sequence_numbers, encryption_types];
        let fits_columns = values.into_iter().all(|bytes| bytes <= LARGEST_COLUMN_BYTES);
        let last_offsets = if rows == 0 { 0 } else { LAST_OFFSETS };
        let bytes = values.into_iter().sum::<usize>() + rows * ROW_BYTES + ROW_BITS * rows.div_ceil(8) + last_offsets;
        if fits_columns && bytes <= self.max_bytes { Ok(()) } else { Err(TooLarge) }
    }

    fn finish(mut self, batch: &RecordBatch) -> RecordBatch {
        let finished = self.columns.finish();
        let mut columns = finished.columns;
        debug_assert_eq!(finished.schema, RecordSchema::Answered);
        let added: [ArrayRef; 2] = [Arc::new(self.hash_keys.finish()), Arc::new(self.aggregated.finish())];
        let held = added.iter().map(Array::get_buffer_memory_size).sum::<usize>();
        columns.extend(added);
        Spare::put(self.columns, finished.capacity);
        batch.with_columns(RecordSchema::Deaggregated, columns, finished.capacity + held)
    }
}
