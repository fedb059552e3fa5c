//! Column builders: where a record's values are written, and how a batch leaves.
//!
//! Values go straight behind the committed part of their column. A record that turns out invalid, or whose key comes a
//! second time, is cut off again; one that is complete is committed by its offsets. So a column never holds half a
//! record, and nothing is copied on the way.
//!
//! ```text
//!  values   ▏committed ………………………▏open record's value ▏room
//!  offsets  ▏0 ▏ … ▏end of the last committed record   ▏
//! ```
//!
//! A batch leaves by [`Columns::finish`]. Buffers that are at least half full go out as they are and come back to the
//! pool later; of the others an exact copy goes out, so that holding a small batch holds little memory.

use std::sync::{Arc, LazyLock};

use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, BinaryArray, PrimitiveArray, StringArray};
use arrow_buffer::{Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::pool::{Buf, Lane, Pool, give, lend};

/// The canonical record schema. All fields are nullable: Spark compares schemas literally.
pub(crate) static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("data", DataType::Binary, true),
        Field::new("partitionKey", DataType::Utf8, true),
        Field::new("sequenceNumber", DataType::Utf8, true),
        Field::new("subSequenceNumber", DataType::Int64, true),
        Field::new("approximateArrivalTimestamp", utc, true),
    ]))
});

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

    /// Cuts off what was written for the open record.
    #[inline]
    pub(crate) fn reopen(&mut self) {
        self.values.truncate(self.committed);
    }

    #[inline(always)]
    fn commit(&mut self) {
        if self.offsets.len() == 0 {
            self.offsets.extend_from_slice(&0_i32.to_ne_bytes());
        }
        self.committed = self.values.len();
        // A line has at most 2^31 - 1 bytes and its values are no longer than it is.
        let end = i32::try_from(self.committed).expect("a column is no longer than its line");
        self.offsets.extend_from_slice(&end.to_ne_bytes());
    }
}

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
    rows: usize,
    pool: Arc<Pool>,
}

/// A record's values that are not written behind their columns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fixed {
    pub(crate) data_is_null: bool,
    pub(crate) sub_sequence_number: Option<i64>,
    pub(crate) timestamp_micros: Option<i64>,
}

/// A batch's arrays, and what holding them holds.
pub(crate) struct Finished {
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
            rows: 0,
            pool: Arc::new(Pool::default()),
        }
    }

    /// Records committed.
    pub(crate) const fn rows(&self) -> usize {
        self.rows
    }

    /// A batch begins: in buffers that the batch before has given back by now, if it has.
    pub(crate) fn begin(&mut self) {
        self.clear();
        for (buf, lane) in [
            (&mut self.data.values, Lane::Data),
            (&mut self.data.offsets, Lane::DataOffsets),
            (&mut self.keys.values, Lane::Keys),
            (&mut self.keys.offsets, Lane::KeyOffsets),
            (&mut self.sequences.values, Lane::Sequences),
            (&mut self.sequences.offsets, Lane::SequenceOffsets),
            (&mut self.subs, Lane::SubSequences),
            (&mut self.timestamps, Lane::Timestamps),
        ] {
            if buf.capacity() == 0 {
                *buf = self.pool.take(lane);
            }
        }
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
        self.rows = 0;
    }

    /// Cuts off what was written for a record that is not committed.
    pub(crate) fn reopen(&mut self) {
        self.data.reopen();
        self.keys.reopen();
        self.sequences.reopen();
    }

    /// Commits the open record, whose data, key and sequence number are behind their columns.
    #[inline(always)]
    pub(crate) fn commit(&mut self, fixed: Fixed) {
        self.data.commit();
        self.keys.commit();
        self.sequences.commit();
        self.subs.extend_from_slice(&fixed.sub_sequence_number.unwrap_or_default().to_ne_bytes());
        self.timestamps.extend_from_slice(&fixed.timestamp_micros.unwrap_or_default().to_ne_bytes());
        self.data_nulls.append(!fixed.data_is_null);
        self.sub_nulls.append(fixed.sub_sequence_number.is_some());
        self.timestamp_nulls.append(fixed.timestamp_micros.is_some());
        self.rows += 1;
    }

    /// The committed records as Arrow arrays; the builder begins anew.
    pub(crate) fn finish(&mut self) -> Finished {
        self.pool.wake();
        self.reopen();
        let mut capacity = 0;
        let mut seal = |buf: &mut Buf, lane: Lane| seal(buf, lane, &self.pool, &mut capacity);
        let data = (offsets(seal(&mut self.data.offsets, Lane::DataOffsets)), seal(&mut self.data.values, Lane::Data));
        let keys = (offsets(seal(&mut self.keys.offsets, Lane::KeyOffsets)), seal(&mut self.keys.values, Lane::Keys));
        let sequences = (
            offsets(seal(&mut self.sequences.offsets, Lane::SequenceOffsets)),
            seal(&mut self.sequences.values, Lane::Sequences),
        );
        let subs = ScalarBuffer::new(seal(&mut self.subs, Lane::SubSequences), 0, self.rows);
        let timestamps = ScalarBuffer::new(seal(&mut self.timestamps, Lane::Timestamps), 0, self.rows);
        let nulls =
            [&mut self.data_nulls, &mut self.sub_nulls, &mut self.timestamp_nulls].map(NullBufferBuilder::finish);
        capacity += nulls.iter().flatten().map(|nulls| nulls.buffer().capacity()).sum::<usize>();
        let [data_nulls, sub_nulls, timestamp_nulls] = nulls;
        let timestamps =
            PrimitiveArray::<TimestampMicrosecondType>::new(timestamps, timestamp_nulls).with_timezone("UTC");
        let columns: Vec<ArrayRef> = vec![
            Arc::new(BinaryArray::new(data.0, data.1, data_nulls)),
            Arc::new(strings(keys.0, keys.1)),
            Arc::new(strings(sequences.0, sequences.1)),
            Arc::new(PrimitiveArray::<Int64Type>::new(subs, sub_nulls)),
            Arc::new(timestamps),
        ];
        self.clear();
        Finished { columns, capacity }
    }

    /// Gives all memory back, also what comes back later, until the next batch.
    pub(crate) fn rest(&mut self) {
        self.pool.rest();
        let pool = Arc::clone(&self.pool);
        *self = Self { pool, ..Self::new() };
    }
}

/// Takes a column's bytes out of its builder: as they are if they fill half of their buffer, else as an exact copy.
fn seal(buf: &mut Buf, lane: Lane, pool: &Arc<Pool>, capacity: &mut usize) -> Buffer {
    if buf.len() < buf.capacity().div_ceil(2) {
        let exact = Buf::exact(buf.as_slice());
        *capacity += exact.capacity();
        buf.truncate(0);
        return give(exact);
    }
    *capacity += buf.capacity();
    lend(std::mem::replace(buf, Buf::new()), lane, pool)
}

fn offsets(buffer: Buffer) -> OffsetBuffer<i32> {
    if buffer.is_empty() {
        return OffsetBuffer::new_empty();
    }
    // SAFETY: `Variable::commit` writes 0 first and then the column's length after each record, which only grows.
    unsafe { OffsetBuffer::new_unchecked(ScalarBuffer::from(buffer)) }
}

fn strings(offsets: OffsetBuffer<i32>, values: Buffer) -> StringArray {
    const NO_NULLS: Option<NullBuffer> = None;
    // SAFETY: the offsets are those of `values` and lie between whole strings; each string comes from `json`, which
    // validates UTF-8 and refuses half surrogate pairs, or is ASCII by `Kernel::plain_run`.
    unsafe { StringArray::new_unchecked(offsets, values, NO_NULLS) }
}
