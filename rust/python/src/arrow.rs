//! Record batches as Arrow PyCapsules, without a copy.
//!
//! The Arrow PyCapsule interface hands over two C structs, `ArrowSchema` and `ArrowArray`, in capsules of those
//! names. The array's private data holds the column buffers; its release callback drops them, on whatever thread
//! the consumer lets go, without Python. A capsule that nobody imports releases its struct when it is collected.
//! <https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_schema::Schema;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// An `arrow_schema` capsule: a struct of the batch's columns.
pub(crate) fn schema_capsule<'py>(py: Python<'py>, batch: &RecordBatch) -> PyResult<Bound<'py, PyCapsule>> {
    schema_capsule_of(py, batch.schema_ref())
}

/// An `arrow_schema` capsule: a struct of these fields.
pub(crate) fn schema_capsule_of<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema)
        .map_err(|error| PyRuntimeError::new_err(format!("schema export: {error}")))?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}

/// An `arrow_array` capsule: a struct array that shares the batch's buffers.
pub(crate) fn array_capsule<'py>(py: Python<'py>, batch: &RecordBatch) -> PyResult<Bound<'py, PyCapsule>> {
    let array = FFI_ArrowArray::new(&StructArray::from(batch.clone()).to_data());
    PyCapsule::new_with_value(py, array, c"arrow_array")
}
