//! A run of messages as Arrow columns, whatever protocol they came by.
//!
//! Messages of these protocols have no positions: a batch knows only the columns of its rows.

use arrow_array::{Array, RecordBatch as ArrowBatch};

/// Messages in a row. Clones and slices share the columns.
#[derive(Clone, Debug)]
pub struct MessageBatch(ArrowBatch);

impl MessageBatch {
    /// The messages of `columns`, one a row.
    #[must_use]
    pub const fn new(columns: ArrowBatch) -> Self {
        Self(columns)
    }

    /// The columns; which they are is the protocol's.
    #[must_use]
    pub const fn as_arrow(&self) -> &ArrowBatch {
        &self.0
    }

    /// Messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.num_rows()
    }

    /// Whether there is no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in use by these rows, offsets and validity included.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.0.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or_default()).sum()
    }

    /// Bytes that stay allocated while this batch, or any slice of it, is held.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.0.columns().iter().map(Array::get_buffer_memory_size).sum()
    }

    /// Rows `offset .. offset + length` without a copy.
    ///
    /// # Panics
    /// The range is outside the batch.
    #[must_use]
    pub fn slice(&self, offset: usize, length: usize) -> Self {
        Self(self.0.slice(offset, length))
    }
}
