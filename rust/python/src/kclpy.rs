//! The records of `fastkcl.kclpy`: light objects over a batch's columns, which let the batch go when it is over.
//!
//! A program may keep one of amazon_kclpy's records for ever, and it costs that record. Here a record is born as a row
//! of its batch, which may be 15 MB. So when the batch is over, [`kclpy_detach`] finds the records that somebody still
//! holds and gives each a copy of its own values; no record holds the batch then.
//!
//! The class that users see, `fastkcl.kclpy.messages.Record`, derives from [`RecordBase`] in Python: so it has a
//! `__dict__`, takes part in garbage collection and can be subclassed freely. A record that user code makes from a
//! dict has no row; its values are attributes of the object, as the original's are.
//!
//! The cyclic collector is not told of a record while its batch lasts: it would walk over all of them, again and
//! again, which costs as much as making them. One that is part of a cycle is held by it when the batch is over, and is
//! told of then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastkcl_codec::{self as codec, base64};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple, PyType};
use pyo3::{PyTypeInfo, ffi, intern};

use crate::batch::{RecordBatch, timestamp_millis};

/// Where a record's values are.
enum Values {
    /// In attributes of the Python object.
    Attributes,
    Row(Arc<codec::RecordBatch>, usize),
    Own(Box<Own>),
}

/// Values that belong to one record alone.
struct Own {
    data: Option<Box<[u8]>>,
    partition_key: Box<str>,
    sequence_number: Box<str>,
    sub_sequence_number: Option<i64>,
    timestamp_millis: Option<i64>,
}

impl Own {
    fn of(batch: &codec::RecordBatch, row: usize) -> Self {
        Self {
            data: batch.data(row).map(Box::from),
            partition_key: batch.partition_key(row).into(),
            sequence_number: batch.sequence_number(row).into(),
            sub_sequence_number: batch.sub_sequence_number(row),
            timestamp_millis: timestamp_millis(batch, row),
        }
    }
}

/// What a record of amazon_kclpy knows; `fastkcl.kclpy.messages.Record` is made of it.
///
/// Takes any arguments, for the sake of classes that derive from it.
#[pyclass(module = "fastkcl._core", name = "KclpyRecordBase", frozen, subclass)]
pub(crate) struct RecordBase(Mutex<Values>);

impl RecordBase {
    /// The lock is held for a copy at most, never while Python code runs.
    fn values(&self, py: Python<'_>) -> MutexGuard<'_, Values> {
        self.0.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }
}

/// The attribute of a record that user code made.
fn attribute<'py>(this: &Bound<'py, RecordBase>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    this.getattr(name)
}

fn bytes_or_none<'py>(py: Python<'py>, data: Option<&[u8]>) -> Bound<'py, PyAny> {
    match data {
        Some(data) => PyBytes::new(py, data).into_any(),
        None => py.None().into_bound(py),
    }
}

fn base64_or_none<'py>(py: Python<'py>, data: Option<&[u8]>) -> PyResult<Bound<'py, PyAny>> {
    match data {
        Some(data) => Ok(PyString::from_bytes(py, &base64::encode(data))?.into_any()),
        None => Ok(py.None().into_bound(py)),
    }
}

fn number_or_none(py: Python<'_>, number: Option<i64>) -> PyResult<Bound<'_, PyAny>> {
    Ok(number.into_pyobject(py)?)
}

#[pymethods]
impl RecordBase {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self(Mutex::new(Values::Attributes))
    }

    /// The payload: new bytes at each access. None when the daemon sent null.
    ///
    /// Raises:
    ///     DecodeError: a record that was made from a dict, and its data is no base64.
    #[getter]
    fn binary_data<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        match &*this.get().values(py) {
            Values::Row(batch, row) => return Ok(bytes_or_none(py, batch.data(*row))),
            Values::Own(own) => return Ok(bytes_or_none(py, own.data.as_deref())),
            Values::Attributes => {}
        }
        let text = attribute(this, intern!(py, "_data"))?;
        if text.is_none() { Ok(text) } else { this.call_method1(intern!(py, "_decode"), (text,)) }
    }

    /// The payload as base64 text. None when the daemon sent null.
    #[getter]
    fn data<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        match &*this.get().values(py) {
            Values::Row(batch, row) => return base64_or_none(py, batch.data(*row)),
            Values::Own(own) => return base64_or_none(py, own.data.as_deref()),
            Values::Attributes => {}
        }
        attribute(this, intern!(py, "_data"))
    }

    /// The partition key.
    #[getter]
    fn partition_key<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        match &*this.get().values(py) {
            Values::Row(batch, row) => return Ok(PyString::new(py, batch.partition_key(*row)).into_any()),
            Values::Own(own) => return Ok(PyString::new(py, &own.partition_key).into_any()),
            Values::Attributes => {}
        }
        attribute(this, intern!(py, "_partition_key"))
    }

    /// The sequence number: decimal digits. User records of one aggregate share it.
    #[getter]
    fn sequence_number<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        match &*this.get().values(py) {
            Values::Row(batch, row) => return Ok(PyString::new(py, batch.sequence_number(*row)).into_any()),
            Values::Own(own) => return Ok(PyString::new(py, &own.sequence_number).into_any()),
            Values::Attributes => {}
        }
        attribute(this, intern!(py, "_sequence_number"))
    }

    /// Place inside an aggregate, 0 for plain records. None where the daemon sent none.
    #[getter]
    fn sub_sequence_number<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        match &*this.get().values(py) {
            Values::Row(batch, row) => return number_or_none(py, batch.sub_sequence_number(*row)),
            Values::Own(own) => return number_or_none(py, own.sub_sequence_number),
            Values::Attributes => {}
        }
        attribute(this, intern!(py, "_sub_sequence_number"))
    }

    /// Approximate time of arrival, in milliseconds since the epoch. None when the daemon sent null.
    #[getter]
    fn timestamp_millis<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        match &*this.get().values(py) {
            Values::Row(batch, row) => return number_or_none(py, timestamp_millis(batch, *row)),
            Values::Own(own) => return number_or_none(py, own.timestamp_millis),
            Values::Attributes => {}
        }
        attribute(this, intern!(py, "_timestamp_millis"))
    }

    /// Whether the values came from a daemon; otherwise they are attributes.
    fn _is_received(&self, py: Python<'_>) -> bool {
        !matches!(*self.values(py), Values::Attributes)
    }

    /// Gives a new record the values of another one that was received, for copy and pickle.
    fn _set_received(
        &self,
        py: Python<'_>,
        data: Option<&[u8]>,
        partition_key: &str,
        sequence_number: &str,
        sub_sequence_number: Option<i64>,
        timestamp_millis: Option<i64>,
    ) {
        *self.values(py) = Values::Own(Box::new(Own {
            data: data.map(Box::from),
            partition_key: partition_key.into(),
            sequence_number: sequence_number.into(),
            sub_sequence_number,
            timestamp_millis,
        }));
    }
}

/// A new list with an instance of `cls` for each record of a batch. `__init__` is not called.
///
/// Each keeps the batch until it is detached.
///
/// Raises:
///     TypeError: cls is no class that derives from KclpyRecordBase.
#[pyfunction]
pub(crate) fn kclpy_records<'py>(
    batch: &Bound<'py, RecordBatch>,
    cls: &Bound<'py, PyType>,
) -> PyResult<Bound<'py, PyList>> {
    let py = batch.py();
    let base = RecordBase::type_object(py);
    if !cls.is_subclass(&base)? {
        return Err(PyTypeError::new_err(format!("{} does not derive from KclpyRecordBase", cls.name()?)));
    }
    let batch = Arc::new(batch.get().0.clone());
    let arguments = PyTuple::empty(py);
    let collected = is_collected(cls);
    // A collection in the middle would look at thousands of new objects that nobody has let go of.
    let _paused = PausedCollection::new(py);
    let list = PyList::empty(py);
    for row in 0..batch.len() {
        let record = new_instance(&base, cls, &arguments)?;
        *record.get().values(py) = Values::Row(Arc::clone(&batch), row);
        if collected {
            // SAFETY: a whole object of a class with garbage collection.
            unsafe { ffi::PyObject_GC_UnTrack(record.as_ptr().cast()) };
        }
        list.append(record)?;
    }
    Ok(list)
}

/// `RecordBase.__new__(cls)`, without the way through Python's attributes.
fn new_instance<'py>(
    base: &Bound<'py, PyType>,
    cls: &Bound<'py, PyType>,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, RecordBase>> {
    // SAFETY: `base` is a type object, and its slot `tp_new` has the type `newfunc`.
    let new: Option<ffi::newfunc> =
        unsafe { std::mem::transmute(ffi::PyType_GetSlot(base.as_type_ptr(), ffi::Py_tp_new)) };
    let new = new.ok_or_else(|| PyRuntimeError::new_err("KclpyRecordBase has no constructor"))?;
    // SAFETY: `new` is the constructor of `base`, `cls` derives from it (checked by the caller), the arguments are a
    // tuple and no keywords; it returns a new reference, or null with an exception set.
    let object = unsafe {
        Bound::from_owned_ptr_or_err(cls.py(), new(cls.as_type_ptr(), arguments.as_ptr(), std::ptr::null_mut()))
    }?;
    Ok(object.cast_into::<RecordBase>()?)
}

/// Whether instances of `cls` take part in garbage collection; a class with empty `__slots__` does not.
fn is_collected(cls: &Bound<'_, PyType>) -> bool {
    // SAFETY: `cls` is a type object.
    unsafe { ffi::PyType_GetFlags(cls.as_type_ptr()) & ffi::Py_TPFLAGS_HAVE_GC != 0 }
}

/// Keeps Python's cyclic collector from running while it lives.
struct PausedCollection {
    was_enabled: bool,
}

impl PausedCollection {
    fn new(_py: Python<'_>) -> Self {
        // SAFETY: needs the GIL, which `_py` proves.
        Self { was_enabled: unsafe { ffi::PyGC_Disable() } == 1 }
    }
}

impl Drop for PausedCollection {
    fn drop(&mut self) {
        if self.was_enabled {
            // SAFETY: needs the GIL, which its only user holds.
            unsafe { ffi::PyGC_Enable() };
        }
    }
}

/// Ends a batch: each of its records that anybody but the tuple holds gets its own values.
///
/// Args:
///     records: all records of the batch, as kclpy_records made them, held by nobody else who does not count.
///
/// Returns:
///     How many are held.
#[pyfunction]
pub(crate) fn kclpy_detach(records: &Bound<'_, PyTuple>) -> PyResult<usize> {
    let py = records.py();
    let mut held = 0;
    for record in records.iter_borrowed() {
        // One reference is the tuple's. SAFETY: `record` is a live object, and the GIL is held.
        if unsafe { ffi::Py_REFCNT(record.as_ptr()) } == 1 {
            continue;
        }
        held += 1;
        let record = record.cast::<RecordBase>()?;
        // SAFETY: the second call is for a whole object of a class with garbage collection that is not tracked.
        unsafe {
            if is_collected(&record.get_type()) && ffi::PyObject_GC_IsTracked(record.as_ptr()) == 0 {
                ffi::PyObject_GC_Track(record.as_ptr().cast());
            }
        }
        let mut values = record.get().values(py);
        if let Values::Row(batch, row) = &*values {
            let own = Own::of(batch, *row);
            *values = Values::Own(Box::new(own));
        }
    }
    Ok(held)
}
