//! The columns of a run of messages: `data`, the bytes as they came, and `number`, their place in the stream.

use std::sync::{Arc, LazyLock};

use arrow_array::builder::BinaryBuilder;
use arrow_array::{ArrayRef, Int64Array, RecordBatch as ArrowBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::LARGEST_MAX_MESSAGE_BYTES;
use crate::message_batch::MessageBatch;

/// All fields are nullable: Spark compares schemas literally.
pub static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![Field::new("data", DataType::Binary, true), Field::new("number", DataType::Int64, true)]))
});

/// Builds the batch of a run; continues with the next run's numbers.
#[derive(Debug)]
pub struct RunColumns {
    data: BinaryBuilder,
    rows: usize,
    bytes: usize,
    first: i64,
}

impl RunColumns {
    /// A builder whose first message has the number `first`.
    #[must_use]
    pub fn new(first: i64) -> Self {
        Self { data: BinaryBuilder::new(), rows: 0, bytes: 0, first }
    }

    /// Messages since the last batch.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rows
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Whether a message of `length` bytes no longer fits.
    #[must_use]
    pub const fn is_full_for(&self, length: usize) -> bool {
        self.bytes + length > LARGEST_MAX_MESSAGE_BYTES
    }

    /// Adds a message.
    ///
    /// # Panics
    /// The run [`RunColumns::is_full_for`] it.
    pub fn push(&mut self, message: &[u8]) {
        assert!(!self.is_full_for(message.len()), "a run of messages is no longer than 2 GiB");
        self.data.append_value(message);
        self.rows += 1;
        self.bytes += message.len();
    }

    /// The run so far; the next one begins.
    ///
    /// # Panics
    /// The messages' numbers no longer fit into 64 bits.
    #[must_use]
    pub fn finish(&mut self) -> MessageBatch {
        let end = i64::try_from(self.rows).ok().and_then(|rows| self.first.checked_add(rows));
        let end = end.expect("a message's number has 64 bits");
        let columns: Vec<ArrayRef> =
            vec![Arc::new(self.data.finish()), Arc::new(Int64Array::from_iter_values(self.first..end))];
        *self = Self::new(end);
        MessageBatch::new(
            ArrowBatch::try_new(SCHEMA.clone(), columns)
                .expect("the columns are of the schema's types and equal length"),
        )
    }
}
