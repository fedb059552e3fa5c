//! `MessageBatch`: a run of messages without positions as Arrow columns, of whichever protocol.

use fastkcl_codec as codec;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::arrow;

/// Messages in a row as Arrow columns. Immutable.
///
/// Any Arrow library imports it without a copy, e.g. pyarrow.record_batch(batch). Columns: data and number for DKB; id,
/// channel, sender, node and data for ProcessV1.
#[pyclass(module = "fastkcl._core", frozen, weakref)]
pub(crate) struct MessageBatch(pub(crate) codec::MessageBatch);

/// The rows that Python's `offset` and `length` mean, of `rows`.
pub(crate) fn rows_of_slice(rows: usize, offset: i64, length: Option<i64>, what: &str) -> PyResult<(usize, usize)> {
    let range = || {
        let offset = usize::try_from(offset).ok()?;
        let rest = rows.checked_sub(offset)?;
        let length = length.map_or(Some(rest), |length| usize::try_from(length).ok())?;
        (length <= rest).then_some((offset, length))
    };
    range().ok_or_else(|| {
        let length = length.map_or_else(String::new, |length| format!(", length {length}"));
        PyIndexError::new_err(format!("slice at {offset}{length} is outside of a batch of {rows} {what}"))
    })
}

#[pymethods]
impl MessageBatch {
    /// Number of messages.
    #[getter]
    fn num_rows(&self) -> usize {
        self.0.len()
    }

    /// Bytes of the column buffers in use, offsets and validity included.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.nbytes()
    }

    /// Bytes that holding this batch keeps allocated (at least nbytes).
    #[getter]
    fn capacity_bytes(&self) -> usize {
        self.0.capacity_bytes()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Rows [offset, offset + length) without a copy.
    ///
    /// Raises:
    ///     IndexError: the range is outside the batch.
    #[pyo3(signature = (offset, length=None))]
    fn slice(&self, offset: i64, length: Option<i64>) -> PyResult<Self> {
        let (offset, length) = rows_of_slice(self.0.len(), offset, length, "messages")?;
        Ok(Self(self.0.slice(offset, length)))
    }

    /// The schema as an arrow_schema capsule (Arrow PyCapsule interface).
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::schema_capsule(py, self.0.as_arrow())
    }

    /// The batch as (arrow_schema, arrow_array) capsules, a struct array without a copy.
    ///
    /// requested_schema is not followed, as the Arrow PyCapsule interface allows: consumers cast.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        let batch = self.0.as_arrow();
        Ok((arrow::schema_capsule(py, batch)?, arrow::array_capsule(py, batch)?))
    }

    fn __repr__(&self) -> String {
        format!("<MessageBatch: {} messages, {} bytes>", self.0.len(), self.0.nbytes())
    }
}
