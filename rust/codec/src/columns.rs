//! Column builders: where a record's values are written, and how a batch leaves.
//!
//! Values go straight after the committed part of their column. A record that turns out invalid, or whose key comes a
//! second time, is cut off again; one that is complete is committed by its offsets. So a column never holds half a
//! record, and nothing is copied on the way.
//!
//! ```text
//!  values   ▏committed ………………………▏open record's value ▏room
//!  offsets  ▏0 ▏ … ▏end of the last committed record   ▏
//! ```
//!
//! A batch leaves by [`Columns::finish`]. Buffers that are at least half full go out as they are and come back to the
//! pool later; of the others a copy goes out, in buffers that it fills, so that holding a small batch holds little
//! memory.

use std::sync::Arc;

use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, BinaryArray, PrimitiveArray, StringArray};
use arrow_buffer::{Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};

use crate::pool::{Buf, Lane, Pool, lend};
use crate::schema::{Column, RecordSchema};

/// A column of values of any length.
#[derive(Debug)]
pub(crate) struct Variable {
    /// Committed values, then the open record's.
    pub(crate) values: Buf,
    offsets: Buf,
    committed: usize,
}

impl Variable {
    fn new() -> Self {
        let mut column = Self { values: Buf::new(), offsets: Buf::new(), committed: 0 };
        column.clear();
        column
    }

    fn clear(&mut self) {
        self.values.truncate(0);
        self.offsets.truncate(0);
        self.committed = 0;
    }

    /// Discards everything written for the open record.
    #[inline]
    pub(crate) fn reopen(&mut self) {
        self.values.truncate(self.committed);
    }

    /// Room for `room` more offsets after those of `rows` records.
    fn make_room(&mut self, rows: usize, room: usize) {
        self.settle(rows);
        if rows == 0 {
            self.offsets.extend_from_slice(&0_i32.to_ne_bytes());
        }
        self.offsets.reserve(room * OFFSET);
    }

    /// Makes the offsets as long as those of `rows` records, all of which have been committed.
    fn settle(&mut self, rows: usize) {
        let offsets = if rows == 0 { 0 } else { rows + 1 };
        // SAFETY: `make_room` wrote the first offset, and made room for those after it, which `commit` wrote.
        unsafe { self.offsets.set_len(offsets * OFFSET) };
    }

    /// Writes the offset after the record of `row`.
    ///
    /// # Safety
    /// There is room for it.
    #[inline(always)]
    unsafe fn commit(&mut self, row: usize) {
        self.committed = self.values.len();
        #[expect(clippy::cast_possible_truncation, reason = "checked for all columns at once")]
        let end = self.committed as u32;
        // SAFETY: the caller's promise.
        unsafe { self.offsets.write_at((row + 1) * OFFSET, end.to_ne_bytes()) };
    }

    /// Takes the offsets and values of the committed records out.
    fn seal(&mut self, column: Column, pool: &Arc<Pool>, capacity: &mut usize) -> (OffsetBuffer<i32>, Buffer) {
        let ends = offsets(seal(&mut self.offsets, Lane::Offsets(column), pool, capacity));
        (ends, seal(&mut self.values, Lane::Values(column), pool, capacity))
    }
}

/// A column of texts of which some, or all, are null.
#[derive(Debug)]
pub(crate) struct Nullable {
    pub(crate) text: Variable,
    nulls: NullBufferBuilder,
}

/// Bytes of an offset.
const OFFSET: usize = size_of::<i32>();
/// Bytes of a number or a time.
const NUMBER: usize = size_of::<i64>();
/// Rows that room is first made for.
const FIRST_ROWS: usize = 128;

/// All columns of the batch at work.
#[derive(Debug)]
pub(crate) struct Columns {
    pub(crate) data: Variable,
    pub(crate) keys: Variable,
    pub(crate) sequences: Variable,
    subs: Buf,
    timestamps: Buf,
    data_nulls: NullBufferBuilder,
    sub_nulls: NullBufferBuilder,
    timestamp_nulls: NullBufferBuilder,
    /// Only where answers of the service are read.
    encryption_types: Option<Nullable>,
    rows: usize,
    /// Rows for which the offsets, the numbers and the times have room: one look for all of them at each record. Their
    /// buffers' lengths are right after `settle` only.
    room: usize,
    pool: Arc<Pool>,
    /// The buffers of a batch of more bytes do not come back. Its memory would stay for good where nobody closes the pool.
    largest_at_rest: usize,
}

/// A record's values that are not written after their columns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fixed {
    pub(crate) data_is_null: bool,
    pub(crate) has_encryption_type: bool,
    pub(crate) sub_sequence_number: Option<i64>,
    pub(crate) timestamp_micros: Option<i64>,
}

/// A batch's arrays, and what holding them holds.
pub(crate) struct Finished {
    pub(crate) schema: RecordSchema,
    pub(crate) columns: Vec<ArrayRef>,
    pub(crate) capacity: usize,
}

impl Columns {
    pub(crate) fn new() -> Self {
        Self {
            data: Variable::new(),
            keys: Variable::new(),
            sequences: Variable::new(),
            subs: Buf::new(),
            timestamps: Buf::new(),
            data_nulls: NullBufferBuilder::new(0),
            sub_nulls: NullBufferBuilder::new(0),
            timestamp_nulls: NullBufferBuilder::new(0),
            encryption_types: None,
            rows: 0,
            room: 0,
            pool: Arc::new(Pool::default()),
            largest_at_rest: usize::MAX,
        }
    }

    /// With a column for the encryption type. Buffers come from `pool`, and go back to it if all of their batch have at
    /// most `largest_at_rest` bytes.
    #[cfg(feature = "kinesis")]
    pub(crate) fn of_answers(pool: &Arc<Pool>, largest_at_rest: usize) -> Self {
        let encryption_types = Nullable { text: Variable::new(), nulls: NullBufferBuilder::new(0) };
        Self { encryption_types: Some(encryption_types), pool: Arc::clone(pool), largest_at_rest, ..Self::new() }
    }

    const fn schema(&self) -> RecordSchema {
        if self.encryption_types.is_some() { RecordSchema::Answered } else { RecordSchema::Canonical }
    }

    /// Where the open record's encryption type is written, if there is a column for it.
    #[cfg(feature = "kinesis")]
    #[inline]
    pub(crate) fn encryption_type(&mut self) -> Option<&mut Variable> {
        self.encryption_types.as_mut().map(|types| &mut types.text)
    }

    /// Records committed.
    pub(crate) const fn rows(&self) -> usize {
        self.rows
    }

    /// A batch begins: in buffers that the batch before has given back by now, if it has.
    pub(crate) fn begin(&mut self) {
        self.clear();
        let encryption_types = self.encryption_types.as_mut().map(|types| (&mut types.text, Column::EncryptionType));
        for (variable, column) in [
            (&mut self.data, Column::Data),
            (&mut self.keys, Column::PartitionKey),
            (&mut self.sequences, Column::SequenceNumber),
        ]
        .into_iter()
        .chain(encryption_types)
        {
            if variable.values.capacity() == 0 {
                variable.values = self.pool.take(Lane::Values(column));
            }
            if variable.offsets.capacity() == 0 {
                variable.offsets = self.pool.take(Lane::Offsets(column));
            }
        }
        for (buf, column) in
            [(&mut self.subs, Column::SubSequenceNumber), (&mut self.timestamps, Column::ApproximateArrivalTimestamp)]
        {
            if buf.capacity() == 0 {
                *buf = self.pool.take(Lane::Values(column));
            }
        }
    }

    /// Bytes of the values of data, keys, sequence numbers and encryption types.
    pub(crate) fn values_bytes(&self) -> [usize; 4] {
        let types = self.encryption_types.as_ref().map_or(0, |types| types.text.values.len());
        [self.data.values.len(), self.keys.values.len(), self.sequences.values.len(), types]
    }

    /// Drops all records, keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.data.clear();
        self.keys.clear();
        self.sequences.clear();
        self.subs.truncate(0);
        self.timestamps.truncate(0);
        self.data_nulls = NullBufferBuilder::new(0);
        self.sub_nulls = NullBufferBuilder::new(0);
        self.timestamp_nulls = NullBufferBuilder::new(0);
        if let Some(types) = &mut self.encryption_types {
            types.text.clear();
            types.nulls = NullBufferBuilder::new(0);
        }
        (self.rows, self.room) = (0, 0);
    }

    /// Discards everything written for a record that is not committed.
    pub(crate) fn reopen(&mut self) {
        self.data.reopen();
        self.reopen_texts();
    }

    /// Discards everything written for the open record except its data.
    pub(crate) fn reopen_texts(&mut self) {
        self.keys.reopen();
        self.sequences.reopen();
        if let Some(types) = &mut self.encryption_types {
            types.text.reopen();
        }
    }

    /// Commits the open record, whose data, key and sequence number are after their columns.
    #[inline(always)]
    pub(crate) fn commit(&mut self, fixed: Fixed) {
        if self.rows == self.room {
            self.make_room();
        }
        let row = self.rows;
        // A line has at most 2^31 - 1 bytes and its values are no longer than it is.
        let ends = self.data.values.len() | self.keys.values.len() | self.sequences.values.len();
        assert!(i32::try_from(ends).is_ok(), "a column is no longer than its line");
        // SAFETY: `row < self.room`, for which `make_room` has made room.
        unsafe {
            self.data.commit(row);
            self.keys.commit(row);
            self.sequences.commit(row);
            self.subs.write_at(row * NUMBER, fixed.sub_sequence_number.unwrap_or_default().to_ne_bytes());
            self.timestamps.write_at(row * NUMBER, fixed.timestamp_micros.unwrap_or_default().to_ne_bytes());
            if let Some(types) = &mut self.encryption_types {
                assert!(i32::try_from(types.text.values.len()).is_ok(), "a column is no longer than its answer");
                types.text.commit(row);
                types.nulls.append(fixed.has_encryption_type);
            }
        }
        for (null, nulls) in [
            (fixed.data_is_null, &mut self.data_nulls),
            (fixed.sub_sequence_number.is_none(), &mut self.sub_nulls),
            (fixed.timestamp_micros.is_none(), &mut self.timestamp_nulls),
        ] {
            if null {
                nulls.append_n_non_nulls(row - nulls.len());
                nulls.append_null();
            }
        }
        self.rows += 1;
    }

    #[cold]
    fn make_room(&mut self) {
        let more = self.rows.max(FIRST_ROWS);
        self.settle();
        for column in [&mut self.data, &mut self.keys, &mut self.sequences] {
            column.make_room(self.rows, more);
        }
        if let Some(types) = &mut self.encryption_types {
            types.text.make_room(self.rows, more);
        }
        self.subs.reserve(more * NUMBER);
        self.timestamps.reserve(more * NUMBER);
        self.room = self.rows + more;
    }

    /// Makes the buffers that are written by row as long as the committed rows.
    fn settle(&mut self) {
        for column in [&mut self.data, &mut self.keys, &mut self.sequences] {
            column.settle(self.rows);
        }
        if let Some(types) = &mut self.encryption_types {
            types.text.settle(self.rows);
        }
        // SAFETY: `make_room` made room for the rows, and `commit` wrote them.
        unsafe {
            self.subs.set_len(self.rows * NUMBER);
            self.timestamps.set_len(self.rows * NUMBER);
        }
    }

    /// The committed records as Arrow arrays; the builder begins anew.
    pub(crate) fn finish(&mut self) -> Finished {
        self.reopen();
        self.settle();
        let schema = self.schema();
        let mut capacity = 0;
        let home = self.home();
        let mut fixed = |buf: &mut Buf, column| seal(buf, Lane::Values(column), &home, &mut capacity);
        let subs = ScalarBuffer::new(fixed(&mut self.subs, Column::SubSequenceNumber), 0, self.rows);
        let timestamps = fixed(&mut self.timestamps, Column::ApproximateArrivalTimestamp);
        let timestamps = ScalarBuffer::new(timestamps, 0, self.rows);
        let mut variable = |variable: &mut Variable, column| variable.seal(column, &home, &mut capacity);
        let data = variable(&mut self.data, Column::Data);
        let keys = variable(&mut self.keys, Column::PartitionKey);
        let sequences = variable(&mut self.sequences, Column::SequenceNumber);
        let encryption_types =
            self.encryption_types.as_mut().map(|types| variable(&mut types.text, Column::EncryptionType));
        let encryption_type_nulls = self.encryption_types.as_mut().and_then(|types| types.nulls.finish());
        let [data_nulls, sub_nulls, timestamp_nulls] =
            [&mut self.data_nulls, &mut self.sub_nulls, &mut self.timestamp_nulls].map(|nulls| {
                nulls.append_n_non_nulls(self.rows - nulls.len());
                nulls.finish()
            });
        if self.rows == 0 {
            // Arrow's one offset of each column without rows.
            capacity += schema.columns().iter().filter(|column| column.has_offsets()).count() * OFFSET;
        }
        let nulls = [&data_nulls, &sub_nulls, &timestamp_nulls, &encryption_type_nulls];
        capacity += nulls.into_iter().flatten().map(|nulls| nulls.buffer().capacity()).sum::<usize>();
        let timestamps =
            PrimitiveArray::<TimestampMicrosecondType>::new(timestamps, timestamp_nulls).with_timezone("UTC");
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(BinaryArray::new(data.0, data.1, data_nulls)),
            Arc::new(strings(keys.0, keys.1, None)),
            Arc::new(strings(sequences.0, sequences.1, None)),
            Arc::new(PrimitiveArray::<Int64Type>::new(subs, sub_nulls)),
            Arc::new(timestamps),
        ];
        if let Some((ends, values)) = encryption_types {
            columns.push(Arc::new(strings(ends, values, encryption_type_nulls)));
        }
        self.clear();
        Finished { schema, columns, capacity }
    }

    /// The pool that the buffers of this batch come back to.
    fn home(&self) -> Arc<Pool> {
        let bytes = self.values_bytes().iter().sum::<usize>() + self.rows * self.schema().row_bytes();
        if bytes > self.largest_at_rest { Arc::new(Pool::closed()) } else { Arc::clone(&self.pool) }
    }

    /// Gives all memory back, also that of buffers which batches still hold, when they let go.
    pub(crate) fn rest(&mut self) {
        debug_assert!(self.encryption_types.is_none(), "the pool of answers is that of all");
        self.pool.close();
        *self = Self::new();
    }
}

/// Takes a column's bytes out of its builder: as they are if they fill half of their buffer, else as a copy in one that
/// they do fill. That one comes from the pool if it can, as writing to fresh memory costs more than decoding.
fn seal(buf: &mut Buf, lane: Lane, pool: &Arc<Pool>, capacity: &mut usize) -> Buffer {
    let sealed = if buf.len() < buf.capacity().div_ceil(2) {
        let mut copy = pool.take_fitting(lane, buf.len());
        copy.extend_from_slice(buf.as_slice());
        buf.truncate(0);
        copy
    } else {
        std::mem::take(buf)
    };
    *capacity += sealed.capacity();
    lend(sealed, lane, pool)
}

fn offsets(buffer: Buffer) -> OffsetBuffer<i32> {
    if buffer.is_empty() {
        return OffsetBuffer::new_empty();
    }
    // SAFETY: `Variable::make_room` writes 0 first, and `Variable::commit` the column's length after each record,
    // which only grows.
    unsafe { OffsetBuffer::new_unchecked(ScalarBuffer::from(buffer)) }
}

fn strings(offsets: OffsetBuffer<i32>, values: Buffer, nulls: Option<NullBuffer>) -> StringArray {
    // SAFETY: the offsets are those of `values` and lie between whole strings; each string comes from `json`, which
    // validates UTF-8 and refuses half surrogate pairs, or is ASCII by `Kernel::plain_run`, or UTF-8 by
    // `Kernel::unescape`, or is validated by `cbor`.
    // There are as many nulls as strings: `commit` appends both.
    unsafe { StringArray::new_unchecked(offsets, values, nulls) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(columns: &mut Columns, bytes: usize) -> Vec<ArrayRef> {
        columns.begin();
        columns.data.values.extend_from_slice(&vec![7; bytes]);
        columns.commit(Fixed::default());
        columns.finish().columns
    }

    /// Bytes of one buffer of data that rests.
    fn resting(columns: &Columns) -> usize {
        columns.pool.take(Lane::Values(Column::Data)).capacity()
    }

    /// A child is silent while user code holds a batch; the batch after it does not bring its memory back.
    #[test]
    fn what_is_held_while_memory_is_given_back_does_not_rest_later() {
        let mut columns = Columns::new();
        let held = batch(&mut columns, 5 << 20);
        columns.rest();
        let next = batch(&mut columns, 1000);
        drop(held);
        assert_eq!(resting(&columns), 0);
        drop(next);
        assert!((1000..2000).contains(&resting(&columns)));
    }

    #[test]
    fn a_batch_above_the_limit_does_not_rest() {
        let pool = Arc::default();
        let mut columns = Columns::of_answers(&pool, 5000);
        for (bytes, rests) in [(6000, false), (3000, true), (4990, false)] {
            drop(batch(&mut columns, bytes));
            assert_eq!(resting(&columns) >= bytes, rests, "{bytes}");
        }
    }
}
