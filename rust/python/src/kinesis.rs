//! The Kinesis client's bytes: GetRecords answers, KPL aggregates, netstrings.

use std::sync::{Arc, Mutex};

use fastkcl_codec::kinesis::kpl::{self, Fallback};
use fastkcl_codec::kinesis::{self, Encoding, netstring};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::batch::RecordBatch;
use crate::bytes::{Bytes, detach_for};
use crate::decoder::try_lock;
use crate::errors::decode_error;

/// A shard that follows the one that was read to its end.
#[pyclass(module = "fastkcl._core", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct ChildShard(kinesis::ChildShard);

#[pymethods]
impl ChildShard {
    #[classattr]
    fn __match_args__() -> (&'static str, &'static str, &'static str) {
        ("shard_id", "parent_shards", "hash_range")
    }

    /// E.g. shardId-000000000002.
    #[getter]
    fn shard_id(&self) -> &str {
        &self.0.shard_id
    }

    /// One id after a split, two after a merge.
    #[getter]
    fn parent_shards<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.parent_shards)
    }

    /// The lowest and the highest hash key that it owns.
    #[getter]
    fn hash_range(&self) -> (u128, u128) {
        (*self.0.hash_range.start(), *self.0.hash_range.end())
    }

    fn __repr__(&self) -> String {
        format!("<ChildShard {} of {}>", self.0.shard_id, self.0.parent_shards.join(", "))
    }
}

/// What GetRecords answered. Immutable.
#[pyclass(module = "fastkcl._core", frozen)]
pub(crate) struct GetRecordsAnswer(kinesis::Answer);

#[pymethods]
impl GetRecordsAnswer {
    /// The records: the canonical columns, and encryptionType. subSequenceNumber is null.
    #[getter]
    fn batch(&self) -> RecordBatch {
        RecordBatch(self.0.batch.clone())
    }

    /// Where to go on; None at the end of a closed shard.
    #[getter]
    fn next_shard_iterator(&self) -> Option<&str> {
        self.0.next_shard_iterator.as_deref()
    }

    /// How far the answer is behind the shard's tip, in milliseconds; None when the service did not say.
    #[getter]
    fn millis_behind_latest(&self) -> Option<i64> {
        self.0.batch.millis_behind_latest()
    }

    /// The shards that follow, at the end of a closed shard; else none.
    #[getter]
    fn child_shards<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.child_shards.iter().cloned().map(ChildShard))
    }

    /// Where the value of Records stands in the body: its first byte, and the one after it.
    #[getter]
    fn records_span(&self) -> (usize, usize) {
        (self.0.records_span.start, self.0.records_span.end)
    }

    fn __repr__(&self) -> String {
        format!("<GetRecordsAnswer: {} records>", self.0.batch.len())
    }
}

/// Decode the body of a GetRecords answer.
///
/// Raises:
///     DecodeError: the body is no such answer.
///     ValueError: no answer is written in this content type.
#[pyfunction]
#[pyo3(signature = (body, content_type="application/x-amz-json-1.1", *, shard_id=None))]
pub(crate) fn decode_get_records(
    py: Python<'_>,
    body: Bytes,
    content_type: &str,
    shard_id: Option<&str>,
) -> PyResult<GetRecordsAnswer> {
    let Some(encoding) = Encoding::of_content_type(content_type) else {
        return Err(PyValueError::new_err(format!(
            "no GetRecords answer is written as {content_type:?}; known are {}",
            Encoding::CONTENT_TYPES.map(|(name, _)| name).join(", ")
        )));
    };
    let shard_id = shard_id.map(Arc::from);
    detach_for(py, body.len(), || kinesis::decode_get_records(&body, encoding, shard_id))
        .map(GetRecordsAnswer)
        .map_err(|error| decode_error(py, &error))
}

/// The records of a GetRecords answer as dictionaries, as botocore has them; values that are null are not there.
///
/// time makes what stands for a number of seconds since the epoch.
#[pyfunction]
pub(crate) fn record_dicts<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
    time: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    let batch = &batch.0;
    let records = PyList::empty(py);
    for row in 0..batch.len() {
        let record = PyDict::new(py);
        record.set_item(intern!(py, "SequenceNumber"), batch.sequence_number(row))?;
        if let Some(micros) = batch.timestamp_micros(row) {
            #[expect(clippy::cast_precision_loss, reason = "botocore's numbers of seconds are doubles as well")]
            let seconds = micros as f64 / 1e6;
            record.set_item(intern!(py, "ApproximateArrivalTimestamp"), time.call1((seconds,))?)?;
        }
        if let Some(data) = batch.data(row) {
            record.set_item(intern!(py, "Data"), PyBytes::new(py, data))?;
        }
        record.set_item(intern!(py, "PartitionKey"), batch.partition_key(row))?;
        if let Some(encryption_type) = batch.encryption_type(row) {
            record.set_item(intern!(py, "EncryptionType"), encryption_type)?;
        }
        records.append(record)?;
    }
    Ok(records)
}

/// User records, and what became of the aggregates that they were in. Immutable.
#[pyclass(module = "fastkcl._core", frozen)]
pub(crate) struct Deaggregated(kpl::Deaggregated);

#[pymethods]
impl Deaggregated {
    /// The user records and the plain records, in order: the batch's columns, then explicitHashKey and aggregated.
    #[getter]
    fn batch(&self) -> RecordBatch {
        RecordBatch(self.0.batch.clone())
    }

    /// Aggregates that were split.
    #[getter]
    fn aggregates(&self) -> usize {
        self.0.aggregates
    }

    /// Aggregates that were dropped, as one of their user records does not belong to the shard.
    #[getter]
    fn dropped_aggregates(&self) -> usize {
        self.0.dropped_aggregates
    }

    /// User records in the aggregates that were dropped.
    #[getter]
    fn dropped_records(&self) -> usize {
        self.0.dropped_records
    }

    /// Records that begin as aggregates and are plain ones, counted by reason; reasons that did not occur are not there.
    #[getter]
    fn fallbacks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = PyDict::new(py);
        for (fallback, count) in Fallback::ALL.iter().zip(self.0.fallbacks).filter(|(_, count)| *count > 0) {
            counts.set_item(fallback.name(), count)?;
        }
        Ok(counts)
    }

    fn __repr__(&self) -> String {
        format!("<Deaggregated: {} records of {} aggregates>", self.0.batch.len(), self.0.aggregates)
    }
}

/// Take the KPL aggregates of a batch apart.
///
/// Raises:
///     OverflowError: the user records would take more than max_batch_bytes; take slices, or allow more.
///     ValueError: max_batch_bytes is not from 1 to 2**31 - 1, or hash_range ends before it begins.
#[pyfunction]
#[pyo3(signature = (batch, hash_range=None, *, max_batch_bytes=kpl::MAX_BATCH_BYTES))]
pub(crate) fn deaggregate(
    py: Python<'_>,
    batch: &RecordBatch,
    hash_range: Option<(u128, u128)>,
    max_batch_bytes: usize,
) -> PyResult<Deaggregated> {
    if !(1..=i32::MAX as usize).contains(&max_batch_bytes) {
        return Err(PyValueError::new_err(format!("max_batch_bytes must be 1 to 2**31 - 1, not {max_batch_bytes}")));
    }
    let (low, high) = hash_range.unwrap_or((0, u128::MAX));
    if low > high {
        // It would drop every aggregate.
        return Err(PyValueError::new_err(format!("hash_range must be (lowest, highest) key, not ({low}, {high})")));
    }
    detach_for(py, batch.0.nbytes(), || kpl::deaggregate(&batch.0, &(low..=high), max_batch_bytes))
        .map(Deaggregated)
        .map_err(|error| PyOverflowError::new_err(format!("{error} (max_batch_bytes: {max_batch_bytes})")))
}

/// The data of the user records in one record's data: its own, if it is no sound KPL aggregate.
#[pyfunction]
pub(crate) fn split_aggregate(py: Python<'_>, data: Bytes) -> PyResult<Bound<'_, PyList>> {
    let users = kpl::user_data(&data).unwrap_or_else(|| vec![&*data]);
    PyList::new(py, users.into_iter().map(|user| PyBytes::new(py, user)))
}

/// A KPL aggregate that is being filled. Not for several threads at once.
#[pyclass(module = "fastkcl._core", frozen)]
pub(crate) struct Aggregate(Mutex<kpl::Aggregate>);

#[pymethods]
impl Aggregate {
    #[new]
    fn new() -> Self {
        Self(Mutex::default())
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(try_lock(&self.0, "Aggregate")?.len())
    }

    /// What its record counts against the limits of the service, in bytes: data and partition key.
    #[getter]
    fn size(&self) -> PyResult<usize> {
        Ok(try_lock(&self.0, "Aggregate")?.size())
    }

    /// The size with one more user record, of data_size bytes.
    #[pyo3(signature = (partition_key, data_size, explicit_hash_key=None))]
    fn size_with(&self, partition_key: &str, data_size: usize, explicit_hash_key: Option<&str>) -> PyResult<usize> {
        Ok(try_lock(&self.0, "Aggregate")?.size_with(partition_key, data_size, explicit_hash_key))
    }

    /// Add a user record, whatever the size becomes.
    ///
    /// Raises:
    ///     ValueError: the service would not take one of its keys. Nothing is added.
    #[pyo3(signature = (partition_key, data, explicit_hash_key=None))]
    fn add(&self, partition_key: &str, data: Bytes, explicit_hash_key: Option<&str>) -> PyResult<()> {
        try_lock(&self.0, "Aggregate")?
            .add(partition_key, &data, explicit_hash_key)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Partition key of the record: that of the first user record. None while there is none.
    #[getter]
    fn partition_key(&self) -> PyResult<Option<String>> {
        Ok(try_lock(&self.0, "Aggregate")?.keys().map(|(key, _)| key.to_owned()))
    }

    /// Explicit hash key of the record: that of the first user record, if it has one.
    #[getter]
    fn explicit_hash_key(&self) -> PyResult<Option<String>> {
        Ok(try_lock(&self.0, "Aggregate")?.keys().and_then(|(_, key)| key.map(str::to_owned)))
    }

    /// The data of the record.
    fn encode<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &try_lock(&self.0, "Aggregate")?.encode()))
    }

    fn __repr__(&self) -> PyResult<String> {
        let aggregate = try_lock(&self.0, "Aggregate")?;
        Ok(format!("<Aggregate: {} user records, {} bytes>", aggregate.len(), aggregate.size()))
    }
}

/// The items of netstrings: <decimal length>:<bytes>, one after the other.
///
/// Raises:
///     ValueError: anything else, with item and byte.
#[pyfunction]
pub(crate) fn split_netstrings(py: Python<'_>, data: Bytes) -> PyResult<Bound<'_, PyList>> {
    let items: Result<Vec<_>, _> =
        netstring::split(&data).map(|item| item.map(|item| PyBytes::new(py, item))).collect();
    PyList::new(py, items.map_err(|error| PyValueError::new_err(error.to_string()))?)
}
