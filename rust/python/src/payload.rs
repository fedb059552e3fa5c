//! `PayloadReader`: a batch's payloads opened, as Arrow columns.

use fastkcl_codec::payload::{self, Compression, Format, LARGEST_BYTES, Payloads};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::arrow;
use crate::batch::RecordBatch;
use crate::bytes::detach_for;

/// A number of bytes that Arrow's 32-bit offsets can stand.
pub(crate) fn bound(name: &str, bytes: i64) -> PyResult<usize> {
    usize::try_from(bytes)
        .ok()
        .filter(|bytes| (1..=LARGEST_BYTES).contains(bytes))
        .ok_or_else(|| PyValueError::new_err(format!("{name} must be from 1 to {LARGEST_BYTES}, not {bytes}")))
}

/// A compression by its name.
pub(crate) fn compression_named(name: &str) -> PyResult<Compression> {
    match name {
        "none" => Ok(Compression::None),
        "gzip" => Ok(Compression::Gzip),
        "auto" => Ok(Compression::Auto),
        other => Err(PyValueError::new_err(format!("compression must be 'none', 'gzip' or 'auto', not {other:?}"))),
    }
}

/// Opens the payloads of record batches: unpacks gzip, parses JSON objects into typed columns. Immutable.
///
/// Raises:
///     ValueError: no such compression, a bound out of range, or a schema that is no Arrow schema.
#[pyclass(module = "fastkcl._core", frozen)]
pub(crate) struct PayloadReader {
    payloads: Payloads,
    typed: bool,
}

#[pymethods]
impl PayloadReader {
    #[new]
    #[pyo3(signature = (*, json, schema=None, compression="none", max_payload_bytes))]
    fn new(json: bool, schema: Option<&[u8]>, compression: &str, max_payload_bytes: i64) -> PyResult<Self> {
        let compression = compression_named(compression)?;
        let fields = schema
            .map(payload::fields_of_ipc)
            .transpose()
            .map_err(|error| PyValueError::new_err(format!("schema: {error}")))?
            .unwrap_or_default();
        let typed = !fields.is_empty() && fields.iter().all(|field| payload::supports(field.data_type()));
        let format = if json { Format::Json(fields) } else { Format::Binary };
        let max_payload_bytes = bound("max_payload_bytes", max_payload_bytes)?;
        Ok(Self { payloads: Payloads::new(format, compression, max_payload_bytes), typed })
    }

    /// Whether JSON is parsed here; otherwise a type of the schema is not, and every object is left unparsed.
    #[getter]
    fn typed(&self) -> bool {
        self.typed
    }

    /// Open the payloads from row offset on: as many as make no more than max_bytes, and at least one.
    ///
    /// Raises:
    ///     IndexError: offset is outside of the batch.
    ///     ValueError: max_bytes out of range.
    fn open(&self, py: Python<'_>, batch: &RecordBatch, offset: i64, max_bytes: i64) -> PyResult<OpenedPayloads> {
        let max_bytes = bound("max_bytes", max_bytes)?;
        let rows = batch.0.len();
        let offset = usize::try_from(offset)
            .ok()
            .filter(|&offset| offset <= rows)
            .ok_or_else(|| PyIndexError::new_err(format!("row {offset} of a batch of {rows} records")))?;
        let opened = detach_for(py, batch.0.nbytes(), || self.payloads.open(&batch.0, offset, max_bytes));
        Ok(OpenedPayloads(opened))
    }
}

/// Records whose payloads are opened, as Arrow columns. Immutable.
///
/// Columns: data, or the schema's; partitionKey, sequenceNumber, subSequenceNumber, approximateArrivalTimestamp;
/// _corrupt, _unparsed, _packed, the last two not of a `SchemaReader` for Avro or Protobuf.
#[pyclass(module = "fastkcl._core", frozen)]
pub(crate) struct OpenedPayloads(pub(crate) payload::Opened);

#[pymethods]
impl OpenedPayloads {
    /// Number of records.
    #[getter]
    fn num_rows(&self) -> usize {
        self.0.arrow.num_rows()
    }

    /// Bytes of the columns.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.nbytes
    }

    /// Number of records with something in _unparsed.
    #[getter]
    fn unparsed(&self) -> usize {
        self.0.unparsed
    }

    /// The schema as an arrow_schema capsule (Arrow PyCapsule interface).
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::schema_capsule(py, &self.0.arrow)
    }

    /// The columns as (arrow_schema, arrow_array) capsules, a struct array without a copy.
    ///
    /// requested_schema is not followed, as the Arrow PyCapsule interface allows: consumers cast.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        Ok((arrow::schema_capsule(py, &self.0.arrow)?, arrow::array_capsule(py, &self.0.arrow)?))
    }
}
