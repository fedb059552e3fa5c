//! Arrow IPC files, for dead letters: readable by every Arrow library, written without one being installed.

use std::io::Write;
use std::sync::Arc;

use arrow_array::RecordBatch as ArrowBatch;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{Metadata, Schema};

use crate::batch::RecordBatch;
use crate::columns::SCHEMA;

/// A file could not be written.
pub use arrow_schema::ArrowError as IpcError;

/// Writes one IPC file (the random access format) of the canonical schema with `metadata` in its schema.
///
/// # Errors
/// `out` failed.
pub fn write<W: Write>(out: W, batches: &[RecordBatch], metadata: &[(String, String)]) -> Result<(), IpcError> {
    let metadata: Metadata = metadata.iter().cloned().collect();
    let schema = Arc::new(Schema::new_with_metadata(SCHEMA.fields().clone(), metadata));
    let mut writer = FileWriter::try_new(out, &schema)?;
    for batch in batches {
        writer.write(&ArrowBatch::try_new(Arc::clone(&schema), batch.as_arrow().columns().to_vec())?)?;
    }
    writer.finish()
}
