//! `RecordBatch`, `Record` and `Position`: Arrow columns first, single rows when someone asks for them.
//!
//! A batch is a handle: it, its slices and its records share the column buffers and keep them alive. A record makes
//! its values at each access, so looking at one record of 10,000 costs one record.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use fastkcl_codec as codec;
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyCapsule, PyDateTime, PyDelta, PyIterator, PyList, PyTuple, PyTzInfo};

use crate::arrow;
use crate::message_batch::rows_of_slice;

/// A place in a shard: (sequence number, sub-sequence number). Compares as integers, then sub numbers.
///
/// A missing sub-sequence number compares as 0. Unpacks like a tuple of two.
#[pyclass(module = "fastkcl._core", frozen, eq, ord, hash, str)]
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Position(codec::Position);

impl Position {
    fn of(batch: &codec::RecordBatch, row: usize) -> PyResult<Self> {
        Self::new(batch.sequence_number(row), batch.sub_sequence_number(row))
    }

    fn as_tuple<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        (self.0.sequence_number(), self.0.sub_sequence_number()).into_pyobject(py)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

#[pymethods]
impl Position {
    #[new]
    #[pyo3(signature = (sequence_number, sub_sequence_number=None))]
    fn new(sequence_number: &str, sub_sequence_number: Option<i64>) -> PyResult<Self> {
        codec::Position::new(sequence_number, sub_sequence_number)
            .map(Self)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// From text as `str` writes it.
    #[staticmethod]
    fn parse(text: &str) -> PyResult<Self> {
        text.parse().map(Self).map_err(|error: codec::PositionError| PyValueError::new_err(error.to_string()))
    }

    #[classattr]
    #[pyo3(name = "AT_TIMESTAMP")]
    fn at_timestamp() -> Self {
        Self(codec::Position::AT_TIMESTAMP)
    }

    #[classattr]
    #[pyo3(name = "TRIM_HORIZON")]
    fn trim_horizon() -> Self {
        Self(codec::Position::TRIM_HORIZON)
    }

    #[classattr]
    #[pyo3(name = "LATEST")]
    fn latest() -> Self {
        Self(codec::Position::LATEST)
    }

    #[classattr]
    #[pyo3(name = "SHARD_END")]
    fn shard_end() -> Self {
        Self(codec::Position::SHARD_END)
    }

    #[classattr]
    fn __match_args__() -> (&'static str, &'static str) {
        ("sequence_number", "sub_sequence_number")
    }

    /// Decimal digits, as the daemon wrote them; of a sentinel its name.
    #[getter]
    fn sequence_number(&self) -> &str {
        self.0.sequence_number()
    }

    /// Place inside an aggregate; None where the daemon sent none, and of a sentinel.
    #[getter]
    fn sub_sequence_number(&self) -> Option<i64> {
        self.0.sub_sequence_number()
    }

    /// Whether it is no record's: TRIM_HORIZON, LATEST, AT_TIMESTAMP or SHARD_END.
    #[getter]
    fn is_sentinel(&self) -> bool {
        self.0.is_sentinel()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.as_tuple(py)?.try_iter()
    }

    /// For pickle and copy: positions travel to Spark executors in closures.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        Ok((slf.getattr(intern!(slf.py(), "parse"))?, (slf.get().to_string(),)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        if self.0.is_sentinel() {
            return Ok(format!("Position.{}", self.0));
        }
        Ok(format!("Position{}", self.as_tuple(py)?.repr()?))
    }
}

/// The records of one processRecords line, or of one GetRecords answer, as Arrow columns. Immutable.
///
/// Any Arrow library imports it without a copy, e.g. pyarrow.record_batch(batch). Columns: data,
/// partitionKey, sequenceNumber, subSequenceNumber, approximateArrivalTimestamp; of an answer encryptionType, too,
/// and after deaggregate() explicitHashKey and aggregated.
#[pyclass(module = "fastkcl._core", frozen, weakref)]
pub(crate) struct RecordBatch(pub(crate) codec::RecordBatch);

impl RecordBatch {
    /// The row that Python's `index` means, counted from the end when negative.
    fn row(&self, index: isize) -> PyResult<usize> {
        let length = self.0.len();
        let row = if index < 0 { length.checked_sub(index.unsigned_abs()) } else { Some(index.unsigned_abs()) };
        row.filter(|&row| row < length)
            .ok_or_else(|| PyIndexError::new_err(format!("record {index} of a batch of {length}")))
    }

    fn position(&self, row: Option<usize>) -> PyResult<Option<Position>> {
        row.map(|row| Position::of(&self.0, row)).transpose()
    }
}

#[pymethods]
impl RecordBatch {
    /// Number of records.
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

    /// Shard of the initialize message that this decoder has seen, or that was named; None without one.
    #[getter]
    fn shard_id(&self) -> Option<&str> {
        self.0.shard_id()
    }

    /// How far the shard is behind its tip, in milliseconds; None when the daemon did not say.
    #[getter]
    fn millis_behind_latest(&self) -> Option<i64> {
        self.0.millis_behind_latest()
    }

    /// None for an empty batch. Raises ValueError when the sequence number is not decimal.
    #[getter]
    fn first_position(&self) -> PyResult<Option<Position>> {
        self.position((!self.0.is_empty()).then_some(0))
    }

    /// None for an empty batch. Raises ValueError when the sequence number is not decimal.
    #[getter]
    fn last_position(&self) -> PyResult<Option<Position>> {
        self.position(self.0.len().checked_sub(1))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __getitem__(&self, index: isize) -> PyResult<Record> {
        Ok(Record { batch: self.0.clone(), row: self.row(index)? })
    }

    fn __iter__(&self) -> RecordIterator {
        RecordIterator { batch: self.0.clone(), next: AtomicUsize::new(0) }
    }

    /// Rows [offset, offset + length) without a copy.
    ///
    /// Raises:
    ///     IndexError: the range is outside the batch.
    #[pyo3(signature = (offset, length=None))]
    fn slice(&self, offset: i64, length: Option<i64>) -> PyResult<Self> {
        let (offset, length) = rows_of_slice(self.0.len(), offset, length, "records")?;
        Ok(Self(self.0.slice(offset, length)))
    }

    /// The same records in the five columns that every batch has, without a copy.
    fn canonical(&self) -> Self {
        Self(self.0.canonical())
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
        let shard = self.0.shard_id().map_or_else(String::new, |shard| format!(" of {shard}"));
        format!("<RecordBatch{shard}: {} records, {} bytes>", self.0.len(), self.0.nbytes())
    }
}

/// Iterator over the records of a batch.
#[pyclass(module = "fastkcl._core", frozen)]
struct RecordIterator {
    batch: codec::RecordBatch,
    next: AtomicUsize,
}

#[pymethods]
impl RecordIterator {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self) -> Option<Record> {
        // Saturating, so that asking again after the end can't wrap around.
        let row = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |row| (row < self.batch.len()).then_some(row + 1))
            .ok()?;
        Some(Record { batch: self.batch.clone(), row })
    }

    fn __length_hint__(&self) -> usize {
        self.batch.len() - self.next.load(Ordering::Relaxed)
    }
}

/// One record: a view into its batch, which it keeps alive. Values are made at each access.
#[pyclass(module = "fastkcl._core", frozen)]
pub(crate) struct Record {
    batch: codec::RecordBatch,
    row: usize,
}

impl Record {
    fn timestamp_micros(&self) -> Option<i64> {
        self.batch.timestamp_micros(self.row)
    }
}

#[pymethods]
impl Record {
    /// The payload, decoded. None only when the daemon sent null.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.batch.data(self.row).map(|data| PyBytes::new(py, data))
    }

    /// The partition key.
    #[getter]
    fn partition_key(&self) -> &str {
        self.batch.partition_key(self.row)
    }

    /// The sequence number, decimal digits.
    #[getter]
    fn sequence_number(&self) -> &str {
        self.batch.sequence_number(self.row)
    }

    /// Place inside an aggregate, 0 for plain records; None where the daemon sent none.
    #[getter]
    fn sub_sequence_number(&self) -> Option<i64> {
        self.batch.sub_sequence_number(self.row)
    }

    /// UTC, aware; None when the daemon sent null.
    ///
    /// Raises:
    ///     OverflowError: beyond the range of datetime; timestamp_millis always works.
    #[getter]
    fn approximate_arrival_timestamp<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.timestamp_micros().map(|micros| datetime_utc(py, micros)).transpose()
    }

    /// Milliseconds since the epoch.
    #[getter]
    fn timestamp_millis(&self) -> Option<i64> {
        timestamp_millis(&self.batch, self.row)
    }

    /// NONE or KMS, as the service says; None where nobody did.
    #[getter]
    fn encryption_type(&self) -> Option<&str> {
        self.batch.encryption_type(self.row)
    }

    /// Of a user record of an aggregate that has one: decimal digits.
    #[getter]
    fn explicit_hash_key(&self) -> Option<&str> {
        self.batch.explicit_hash_key(self.row)
    }

    /// Whether it comes out of an aggregate; None in a batch that deaggregate() did not make.
    #[getter]
    fn aggregated(&self) -> Option<bool> {
        self.batch.aggregated(self.row)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let key = self.partition_key().into_pyobject(py)?.repr()?.to_string();
        let sub = self.sub_sequence_number().map_or_else(|| "None".to_owned(), |sub| sub.to_string());
        let data = self.batch.data(self.row).map_or_else(|| "null".to_owned(), |data| format!("{} bytes", data.len()));
        Ok(format!("<Record {}/{sub}, partition key {key}, {data}>", self.sequence_number()))
    }
}

/// The payloads of the rows from `first` on, the last one first, so that who takes them pops them: `most_bytes` of all
/// together, unless the first one alone has more. A payload that is null is empty.
#[pyfunction]
pub(crate) fn payloads_from<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
    first: usize,
    most_bytes: usize,
) -> PyResult<Bound<'py, PyList>> {
    let payload = |row: usize| batch.0.data(row).unwrap_or_default();
    let (mut end, mut bytes) = (first, 0);
    while end < batch.0.len() && (end == first || bytes + payload(end).len() <= most_bytes) {
        bytes += payload(end).len();
        end += 1;
    }
    PyList::new(py, (first..end).rev().map(|row| PyBytes::new(py, payload(row))))
}

/// What `Record` has of a row beside its payload, in one call: the partition key, the explicit hash key, the sequence
/// number, the sub-sequence number, the arrival time and the encryption type.
#[pyfunction]
pub(crate) fn record_metadata<'py>(py: Python<'py>, batch: &RecordBatch, row: isize) -> PyResult<Bound<'py, PyTuple>> {
    let row = batch.row(row)?;
    let batch = &batch.0;
    (
        batch.partition_key(row),
        batch.explicit_hash_key(row),
        batch.sequence_number(row),
        batch.sub_sequence_number(row),
        batch.timestamp_micros(row).map(|micros| datetime_utc(py, micros)).transpose()?,
        batch.encryption_type(row),
    )
        .into_pyobject(py)
}

const MICROS_PER_MILLI: i64 = 1_000;
const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// The arrival time of row `row` in milliseconds since the epoch.
pub(crate) fn timestamp_millis(batch: &codec::RecordBatch, row: usize) -> Option<i64> {
    batch.timestamp_micros(row).map(|micros| micros / MICROS_PER_MILLI)
}

/// `micros` since the epoch as an aware datetime. The module datetime is imported by the first call, not with us.
fn datetime_utc(py: Python<'_>, micros: i64) -> PyResult<Bound<'_, PyAny>> {
    static EPOCH: PyOnceLock<Py<PyDateTime>> = PyOnceLock::new();
    let epoch = EPOCH.get_or_try_init(py, || {
        let utc = PyTzInfo::utc(py)?;
        PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, Some(&utc)).map(Bound::unbind)
    })?;
    let within_day = micros.rem_euclid(MICROS_PER_DAY);
    // i64::MAX microseconds are 1.07e8 days, so none of the three can overflow.
    let part = |value: i64| i32::try_from(value).expect("parts of a time fit 32 bits");
    let delta = PyDelta::new(
        py,
        part(micros.div_euclid(MICROS_PER_DAY)),
        part(within_day / MICROS_PER_SECOND),
        part(within_day % MICROS_PER_SECOND),
        false,
    )?;
    epoch.bind(py).add(delta).map_err(|_| {
        PyOverflowError::new_err(format!(
            "approximateArrivalTimestamp {} ms is outside of datetime's years 1 to 9999; use timestamp_millis",
            micros / MICROS_PER_MILLI
        ))
    })
}
