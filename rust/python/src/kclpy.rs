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

use std::cell::UnsafeCell;
use std::mem;

use fastkcl_codec::{self as codec, base64};
use pyo3::exceptions::{PyKeyError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple, PyType};
use pyo3::{PyTypeInfo, ffi, intern};

use crate::batch::{RecordBatch, timestamp_millis};

/// Where a record's values are.
enum Values {
    /// In attributes of the Python object.
    Attributes,
    Row(Py<RecordBatch>, usize),
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
pub(crate) struct RecordBase(UnsafeCell<Values>);

// SAFETY: the cell is only touched by `RecordBase::with`, one thread at a time, and what it holds is `Send`.
unsafe impl Sync for RecordBase {}

impl RecordBase {
    /// The only way to the values: `look` has them for itself.
    ///
    /// A lock would cost as much as all else that is done with a record; the GIL, or the object's critical section in an
    /// interpreter without one, is there anyway.
    ///
    /// # Safety
    /// `look` runs no Python code, drops nothing that could, and does not come back here for the same record: then nobody
    /// else can be in here, as neither the GIL nor the section is let go of.
    unsafe fn with<R>(this: &Bound<'_, Self>, look: impl FnOnce(&mut Values) -> R) -> R {
        with_critical_section(this.as_any(), || {
            // SAFETY: the section is held, and `look` keeps the promise above, so this is the only reference.
            look(unsafe { &mut *this.get().0.get() })
        })
    }

    /// A value that a received record makes; None for a record with attributes.
    fn received<'py>(
        this: &Bound<'py, Self>,
        of_row: impl FnOnce(&codec::RecordBatch, usize) -> Bound<'py, PyAny>,
        of_own: impl FnOnce(&Own) -> Bound<'py, PyAny>,
    ) -> Option<Bound<'py, PyAny>> {
        // SAFETY: bytes, strings and integers are made without Python code: they are not for the cyclic collector, whose
        // run is the only thing that could come in between.
        unsafe {
            Self::with(this, |values| match values {
                Values::Row(batch, row) => Some(of_row(&batch.get().0, *row)),
                Values::Own(own) => Some(of_own(own)),
                Values::Attributes => None,
            })
        }
    }
}

/// The attribute of a record that user code made.
fn attribute<'py>(this: &Bound<'py, RecordBase>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    this.getattr(name)
}

fn bytes_or_none<'py>(py: Python<'py>, data: Option<&[u8]>) -> Bound<'py, PyAny> {
    data.map_or_else(|| py.None().into_bound(py), |data| PyBytes::new(py, data).into_any())
}

fn base64_or_none<'py>(py: Python<'py>, data: Option<&[u8]>) -> Bound<'py, PyAny> {
    data.map_or_else(|| py.None().into_bound(py), |data| text(py, &base64::encode(data)))
}

fn text<'py>(py: Python<'py>, text: &str) -> Bound<'py, PyAny> {
    PyString::new(py, text).into_any()
}

fn number_or_none(py: Python<'_>, number: Option<i64>) -> Bound<'_, PyAny> {
    let Ok(number) = number.into_pyobject(py);
    number
}

#[pymethods]
impl RecordBase {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self(UnsafeCell::new(Values::Attributes))
    }

    /// The payload: new bytes at each access. None when the daemon sent null.
    ///
    /// Raises:
    ///     binascii.Error: a record that was made from a dict, and its data is no base64.
    #[getter]
    fn binary_data<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let of_row = |batch: &codec::RecordBatch, row| bytes_or_none(py, batch.data(row));
        if let Some(data) = Self::received(this, of_row, |own| bytes_or_none(py, own.data.as_deref())) {
            return Ok(data);
        }
        let data = attribute(this, intern!(py, "_data"))?;
        if data.is_none() { Ok(data) } else { this.call_method1(intern!(py, "_decode"), (data,)) }
    }

    /// The payload as base64 text. None when the daemon sent null.
    #[getter]
    fn data<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let of_row = |batch: &codec::RecordBatch, row| base64_or_none(py, batch.data(row));
        let data = Self::received(this, of_row, |own| base64_or_none(py, own.data.as_deref()));
        data.map_or_else(|| attribute(this, intern!(py, "_data")), Ok)
    }

    /// The partition key.
    #[getter]
    fn partition_key<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let of_row = |batch: &codec::RecordBatch, row| text(py, batch.partition_key(row));
        let key = Self::received(this, of_row, |own| text(py, &own.partition_key));
        key.map_or_else(|| attribute(this, intern!(py, "_partition_key")), Ok)
    }

    /// The sequence number: decimal digits. User records of one aggregate share it.
    #[getter]
    fn sequence_number<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let of_row = |batch: &codec::RecordBatch, row| text(py, batch.sequence_number(row));
        let number = Self::received(this, of_row, |own| text(py, &own.sequence_number));
        number.map_or_else(|| attribute(this, intern!(py, "_sequence_number")), Ok)
    }

    /// Place inside an aggregate, 0 for plain records. None where the daemon sent none.
    #[getter]
    fn sub_sequence_number<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let of_row = |batch: &codec::RecordBatch, row| number_or_none(py, batch.sub_sequence_number(row));
        let number = Self::received(this, of_row, |own| number_or_none(py, own.sub_sequence_number));
        number.map_or_else(|| attribute(this, intern!(py, "_sub_sequence_number")), Ok)
    }

    /// Approximate time of arrival, in milliseconds since the epoch. None when the daemon sent null.
    #[getter]
    fn timestamp_millis<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let of_row = |batch: &codec::RecordBatch, row| number_or_none(py, timestamp_millis(batch, row));
        let millis = Self::received(this, of_row, |own| number_or_none(py, own.timestamp_millis));
        millis.map_or_else(|| attribute(this, intern!(py, "_timestamp_millis")), Ok)
    }

    /// A value by its name on the wire, e.g. ``data`` or ``partitionKey``.
    ///
    /// Raises:
    ///     KeyError: there is no such field.
    fn _get<'py>(this: &Bound<'py, Self>, field: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if !Self::_is_received(this) {
            return attribute(this, intern!(this.py(), "_json_dict"))?.get_item(field);
        }
        match field.cast::<PyString>().ok().and_then(|field| field.to_str().ok()) {
            Some("data") => Self::data(this),
            Some("partitionKey") => Self::partition_key(this),
            Some("sequenceNumber") => Self::sequence_number(this),
            Some("subSequenceNumber") => Self::sub_sequence_number(this),
            Some("approximateArrivalTimestamp") => Self::timestamp_millis(this),
            Some("action") => Ok(intern!(this.py(), "record").clone().into_any()),
            _ => {
                field.hash()?; // raises TypeError for a list, as a dict does
                Err(PyKeyError::new_err(field.clone().unbind()))
            }
        }
    }

    /// Whether the values came from a daemon; otherwise they are attributes.
    fn _is_received(this: &Bound<'_, Self>) -> bool {
        // SAFETY: only looks.
        unsafe { Self::with(this, |values| !matches!(values, Values::Attributes)) }
    }

    /// From now on the values are attributes, which the caller sets.
    fn _set_attributes(this: &Bound<'_, Self>) {
        // SAFETY: what was there is dropped outside.
        let before = unsafe { Self::with(this, |values| mem::replace(values, Values::Attributes)) };
        drop(before);
    }

    /// Gives a new record the values of another one that was received, for copy and pickle.
    fn _set_received(
        this: &Bound<'_, Self>,
        data: Option<&[u8]>,
        partition_key: &str,
        sequence_number: &str,
        sub_sequence_number: Option<i64>,
        timestamp_millis: Option<i64>,
    ) {
        let own = Values::Own(Box::new(Own {
            data: data.map(Box::from),
            partition_key: partition_key.into(),
            sequence_number: sequence_number.into(),
            sub_sequence_number,
            timestamp_millis,
        }));
        // SAFETY: what was there is dropped outside.
        let before = unsafe { Self::with(this, |values| mem::replace(values, own)) };
        drop(before);
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
    let make = Maker::new(&base, cls)?;
    let rows = batch.get().0.len();
    // A collection in the middle would look at thousands of new objects that nobody has let go of.
    let _paused = PausedCollection::new(py);
    let list = PyList::empty(py);
    for row in 0..rows {
        let values = Values::Row(batch.clone().unbind(), row);
        list.append(make.record(values)?)?;
    }
    Ok(list)
}

/// Makes instances of one class without the way through Python's attributes.
struct Maker<'a, 'py> {
    new: ffi::newfunc,
    cls: &'a Bound<'py, PyType>,
    arguments: Bound<'py, PyTuple>,
    collected: bool,
}

impl<'a, 'py> Maker<'a, 'py> {
    /// `cls` derives from `base`, which is the type of [`RecordBase`].
    fn new(base: &Bound<'py, PyType>, cls: &'a Bound<'py, PyType>) -> PyResult<Self> {
        // SAFETY: `base` is a type object, and its slot `tp_new` has the type `newfunc`.
        let new: Option<ffi::newfunc> =
            unsafe { mem::transmute(ffi::PyType_GetSlot(base.as_type_ptr(), ffi::Py_tp_new)) };
        let new = new.ok_or_else(|| PyRuntimeError::new_err("KclpyRecordBase has no constructor"))?;
        Ok(Self { new, cls, arguments: PyTuple::empty(cls.py()), collected: is_collected(cls) })
    }

    fn record(&self, values: Values) -> PyResult<Bound<'py, RecordBase>> {
        // SAFETY: `new` is the constructor of a class that `cls` derives from, and the arguments are a tuple and no
        // keywords; it returns a new reference, or null with an exception set. The object is an instance of `cls`.
        let record = unsafe {
            let object = (self.new)(self.cls.as_type_ptr(), self.arguments.as_ptr(), std::ptr::null_mut());
            Bound::from_owned_ptr_or_err(self.cls.py(), object)?.cast_into_unchecked::<RecordBase>()
        };
        // SAFETY: what was there, no values, is dropped outside, and that runs nothing.
        let before = unsafe { RecordBase::with(&record, |place| mem::replace(place, values)) };
        drop(before);
        if self.collected {
            // SAFETY: a whole object of a class with garbage collection.
            unsafe { ffi::PyObject_GC_UnTrack(record.as_ptr().cast()) };
        }
        Ok(record)
    }
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
    let mut held = 0;
    for record in records.iter_borrowed() {
        // One reference is the tuple's. SAFETY: `record` is a live object, and the GIL is held.
        if unsafe { ffi::Py_REFCNT(record.as_ptr()) } == 1 {
            continue;
        }
        held += 1;
        let record = record.cast::<RecordBase>()?;
        let collected = is_collected(&record.get_type());
        // SAFETY: tracks a whole object of a class with garbage collection that is not tracked, which the section lets one
        // thread do; copies bytes; the batch, whose end may call somebody who waits for it, is let go of outside.
        let before = unsafe {
            RecordBase::with(&record, |values| {
                if collected && ffi::PyObject_GC_IsTracked(record.as_ptr()) == 0 {
                    ffi::PyObject_GC_Track(record.as_ptr().cast());
                }
                let Values::Row(batch, row) = values else { return None };
                let own = Values::Own(Box::new(Own::of(&batch.get().0, *row)));
                Some(mem::replace(values, own))
            })
        };
        drop(before);
    }
    Ok(held)
}
