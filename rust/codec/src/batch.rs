//! The finished batch: Arrow columns of one line's records.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch as ArrowBatch};

use crate::columns::Columns;
use crate::schema::{Column, RecordSchema};

/// The records of one `processRecords` line in the canonical schema, or of one GetRecords answer, with the columns that
/// only the service or aggregates have after it. Clones share the columns.
///
/// The columns' memory stays valid while anyone holds it, also an Arrow consumer that imported it, and returns to the
/// decoder's pool when the last one lets go.
#[derive(Clone, Debug)]
pub struct RecordBatch {
    arrow: ArrowBatch,
    schema: RecordSchema,
    capacity: usize,
    shard_id: Option<Arc<str>>,
    millis_behind_latest: Option<i64>,
}

impl RecordBatch {
    pub(crate) fn from_columns(
        columns: &mut Columns,
        shard_id: Option<Arc<str>>,
        millis_behind_latest: Option<i64>,
    ) -> Self {
        let finished = columns.finish();
        let (schema, capacity) = (finished.schema, finished.capacity);
        Self { arrow: Self::arrow(schema, finished.columns), schema, capacity, shard_id, millis_behind_latest }
    }

    fn arrow(schema: RecordSchema, columns: Vec<ArrayRef>) -> ArrowBatch {
        ArrowBatch::try_new(schema.arrow().clone(), columns)
            .expect("the builders' columns are of the schema's types and equal length")
    }

    /// Other columns for a batch of the same shard, which hold `capacity` bytes.
    #[cfg(feature = "kinesis")]
    pub(crate) fn with_columns(&self, schema: RecordSchema, columns: Vec<ArrayRef>, capacity: usize) -> Self {
        Self { arrow: Self::arrow(schema, columns), schema, capacity, ..self.clone() }
    }

    /// Without the columns that the canonical schema does not have. Nothing is copied.
    #[must_use]
    pub fn canonical(&self) -> Self {
        let schema = RecordSchema::Canonical;
        let columns = self.arrow.columns()[..schema.columns().len()].to_vec();
        Self { arrow: Self::arrow(schema, columns), schema, ..self.clone() }
    }

    /// The columns of its schema.
    #[must_use]
    pub fn as_arrow(&self) -> &ArrowBatch {
        &self.arrow
    }

    /// Which columns it has.
    #[must_use]
    pub const fn schema(&self) -> RecordSchema {
        self.schema
    }

    /// The column, if the batch has it.
    #[must_use]
    pub fn column(&self, column: Column) -> Option<&ArrayRef> {
        self.arrow.columns().get(column as usize)
    }

    /// Records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.arrow.num_rows()
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in use by these rows, offsets and validity included.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.arrow.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or_default()).sum()
    }

    /// Bytes that stay allocated while this batch, or any slice of it, is held.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.capacity
    }

    /// The shard of the `initialize` message before it.
    #[must_use]
    pub fn shard_id(&self) -> Option<&str> {
        self.shard_id.as_deref()
    }

    /// How far the shard was behind its tip, in milliseconds, if the daemon said so.
    #[must_use]
    pub fn millis_behind_latest(&self) -> Option<i64> {
        self.millis_behind_latest
    }

    /// Rows `offset .. offset + length` without a copy.
    ///
    /// # Panics
    /// The range is outside the batch.
    #[must_use]
    pub fn slice(&self, offset: usize, length: usize) -> Self {
        Self { arrow: self.arrow.slice(offset, length), ..self.clone() }
    }

    /// The payload of row `row`; `None` if the daemon sent null.
    ///
    /// # Panics
    /// As all accessors of a row: there is no such row.
    #[must_use]
    pub fn data(&self, row: usize) -> Option<&[u8]> {
        let column = self.arrow.column(Column::Data as usize).as_binary::<i32>();
        column.is_valid(row).then(|| column.value(row))
    }

    /// The partition key of row `row`.
    #[must_use]
    pub fn partition_key(&self, row: usize) -> &str {
        self.arrow.column(Column::PartitionKey as usize).as_string::<i32>().value(row)
    }

    /// The sequence number of row `row`, as the daemon wrote it.
    #[must_use]
    pub fn sequence_number(&self, row: usize) -> &str {
        self.arrow.column(Column::SequenceNumber as usize).as_string::<i32>().value(row)
    }

    /// The sub-sequence number of row `row`.
    #[must_use]
    pub fn sub_sequence_number(&self, row: usize) -> Option<i64> {
        let column = self.arrow.column(Column::SubSequenceNumber as usize).as_primitive::<Int64Type>();
        column.is_valid(row).then(|| column.value(row))
    }

    /// The arrival time of row `row` in microseconds since the epoch.
    #[must_use]
    pub fn timestamp_micros(&self, row: usize) -> Option<i64> {
        let column =
            self.arrow.column(Column::ApproximateArrivalTimestamp as usize).as_primitive::<TimestampMicrosecondType>();
        column.is_valid(row).then(|| column.value(row))
    }

    /// How row `row` was encrypted; `None` where that was not said.
    #[must_use]
    pub fn encryption_type(&self, row: usize) -> Option<&str> {
        self.text(Column::EncryptionType, row)
    }

    /// The explicit hash key of row `row`, a user record of an aggregate.
    #[must_use]
    pub fn explicit_hash_key(&self, row: usize) -> Option<&str> {
        self.text(Column::ExplicitHashKey, row)
    }

    /// Whether row `row` comes out of an aggregate; `None` in a batch that may still hold aggregates.
    #[must_use]
    pub fn aggregated(&self, row: usize) -> Option<bool> {
        let column = self.column(Column::Aggregated)?.as_boolean();
        Some(column.value(row))
    }

    fn text(&self, column: Column, row: usize) -> Option<&str> {
        let column = self.column(column)?.as_string::<i32>();
        column.is_valid(row).then(|| column.value(row))
    }
}
