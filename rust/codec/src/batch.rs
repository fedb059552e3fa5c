//! The finished batch: Arrow columns of one line's records, and positions in a shard.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
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

/// A place in a shard: sequence number, then sub-sequence number. Orders by value; a missing sub number counts as 0.
#[derive(Clone, Debug)]
pub struct Position {
    sequence_number: String,
    sub_sequence_number: Option<i64>,
}

/// A sequence number that is not decimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PositionError(String);

impl fmt::Display for PositionError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a sequence number is decimal digits, not {:?}", self.0)
    }
}

impl std::error::Error for PositionError {}

impl Position {
    /// The place (`sequence_number`, `sub_sequence_number`).
    ///
    /// # Errors
    /// The sequence number is empty or holds anything but digits.
    pub fn new(sequence_number: &str, sub_sequence_number: Option<i64>) -> Result<Self, PositionError> {
        if sequence_number.is_empty() || !sequence_number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(PositionError(sequence_number.chars().take(140).collect()));
        }
        Ok(Self { sequence_number: sequence_number.to_owned(), sub_sequence_number })
    }

    /// Decimal digits, as given.
    #[must_use]
    pub fn sequence_number(&self) -> &str {
        &self.sequence_number
    }

    /// As given.
    #[must_use]
    pub fn sub_sequence_number(&self) -> Option<i64> {
        self.sub_sequence_number
    }

    /// What places compare by: of two numbers without leading zeros the longer is larger.
    fn key(&self) -> (usize, &str, i64) {
        let digits = self.sequence_number.trim_start_matches('0');
        (digits.len(), digits, self.sub_sequence_number.unwrap_or(0))
    }
}

impl PartialEq for Position {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Position {}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Position {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for Position {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::Position;

    #[test]
    fn positions_compare_as_integers_then_by_sub_number() {
        let at = |digits: &str, sub| Position::new(digits, sub).unwrap();
        let rising = [at("9", None), at("10", None), at("10", Some(3)), at("11", Some(0)), at(&"9".repeat(129), None)];
        assert!(rising.is_sorted_by(|a, b| a < b));
        assert_eq!(at("0010", None), at("10", Some(0)));
        assert!(Position::new("TRIM_HORIZON", None).is_err() && Position::new("", None).is_err());
    }
}
