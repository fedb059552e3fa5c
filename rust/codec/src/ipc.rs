//! Arrow IPC files, for dead letters: readable by every Arrow library, written without one being installed.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{RecordBatch as ArrowBatch, new_null_array};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{Metadata, Schema};

use crate::batch::RecordBatch;
use crate::schema::RecordSchema;

/// A file could not be written.
pub use arrow_schema::ArrowError as IpcError;

/// Writes one IPC file (the random access format) with `metadata` in its schema. The schema is that of the batch with the
/// most columns, or the canonical one; columns that other batches do not have are null.
///
/// # Errors
/// `out` failed.
pub fn write<W: Write>(out: W, batches: &[RecordBatch], metadata: &[(String, String)]) -> Result<(), IpcError> {
    let metadata: Metadata = metadata.iter().cloned().collect();
    let largest = batches.iter().map(RecordBatch::schema).max().unwrap_or(RecordSchema::Canonical);
    let schema = Arc::new(Schema::new_with_metadata(largest.arrow().fields().clone(), metadata));
    let mut writer = FileWriter::try_new(out, &schema)?;
    for batch in batches {
        let columns = largest.columns().iter().map(|column| {
            let absent = || new_null_array(&column.data_type(), batch.len());
            batch.column(*column).cloned().unwrap_or_else(absent)
        });
        writer.write(&ArrowBatch::try_new(Arc::clone(&schema), columns.collect())?)?;
    }
    writer.finish()
}
