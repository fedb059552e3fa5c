//! Arrow IPC files, for dead letters: readable by every Arrow library, written without one being installed.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{RecordBatch as ArrowBatch, new_null_array};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{Metadata, Schema};

use crate::batch::RecordBatch;
use crate::columns::{CANONICAL, schema};

/// A file could not be written.
pub use arrow_schema::ArrowError as IpcError;

/// Writes one IPC file (the random access format) with `metadata` in its schema. The schema is that of the batch with the
/// most columns, or the canonical one; what other batches do not have is null.
///
/// # Errors
/// `out` failed.
pub fn write<W: Write>(out: W, batches: &[RecordBatch], metadata: &[(String, String)]) -> Result<(), IpcError> {
    let metadata: Metadata = metadata.iter().cloned().collect();
    let columns = batches.iter().map(|batch| batch.as_arrow().num_columns()).max().unwrap_or(CANONICAL);
    let schema = Arc::new(Schema::new_with_metadata(schema(columns).fields().clone(), metadata));
    let mut writer = FileWriter::try_new(out, &schema)?;
    for batch in batches {
        let mut columns = batch.as_arrow().columns().to_vec();
        let absent = &schema.fields()[columns.len()..];
        columns.extend(absent.iter().map(|field| new_null_array(field.data_type(), batch.len())));
        writer.write(&ArrowBatch::try_new(Arc::clone(&schema), columns)?)?;
    }
    writer.finish()
}
