//! Exceptions: `DecodeError`, and `OSError` in the shape that Python itself raises it.
//!
//! `DecodeError` must be a class of its own below `ValueError`, with attributes, and survive pickling. The stable
//! ABI of Python 3.11 can't lay a Rust struct over a built-in exception, so it is an ordinary heap class and its
//! attributes are in the instance's `__dict__`: `BaseException.__reduce__` takes those along.

use std::ffi::OsStr;
use std::io;

use fastkcl_codec::Error;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyType};

/// The class `fastkcl._core.DecodeError`.
///
/// Its class attributes are the values of an error without a field, a record and so on.
pub(crate) fn decode_error_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CLASS.get_or_try_init(py, || {
        let attributes = PyDict::new(py);
        attributes.set_item("kind", "")?;
        for name in ["field", "record", "offset", "reason"] {
            attributes.set_item(name, py.None())?;
        }
        attributes.set_item("context", PyBytes::new(py, b""))?;
        PyErr::new_type(
            py,
            c"fastkcl._core.DecodeError",
            Some(
                c"A line that is no valid message. Nothing of the line has been handed out.\n\n\
                str() is one line: <kind>: <what> (record i, byte n). The attributes kind, field, record, offset,\n\
                reason and context say the same in parts.",
            ),
            Some(&py.get_type::<PyValueError>()),
            // Cloned, because new_type drops its reference before it uses the dictionary (pyo3 0.30.1).
            Some(attributes.clone().into_any().unbind()),
        )
    })?;
    Ok(class.bind(py))
}

/// `error` as a `DecodeError`; if that can't be made, the exception that says why.
#[cold]
pub(crate) fn decode_error(py: Python<'_>, error: &Error) -> PyErr {
    let make = || -> PyResult<Bound<'_, PyAny>> {
        let exception = decode_error_type(py)?.call1((error.to_string(),))?;
        exception.setattr("kind", error.kind().name())?;
        exception.setattr("field", error.field())?;
        exception.setattr("record", error.record())?;
        exception.setattr("offset", error.offset())?;
        exception.setattr("reason", error.reason().map(fastkcl_codec::Base64Reason::name))?;
        exception.setattr("context", PyBytes::new(py, error.context()))?;
        Ok(exception)
    };
    make().map_or_else(|failure| failure, PyErr::from_value)
}

/// `error` as the subclass of `OSError` that its errno calls for, with `filename` where one is known.
#[cold]
pub(crate) fn os_error(py: Python<'_>, error: &io::Error, filename: Option<&OsStr>) -> PyErr {
    if cfg!(windows) {
        // The number is Windows' own, not an errno; the kind chooses the subclass.
        let text = filename.map_or_else(|| error.to_string(), |name| format!("{error}: {}", name.display()));
        return io::Error::new(error.kind(), text).into();
    }
    let Some(errno) = error.raw_os_error() else {
        return PyOSError::new_err(error.to_string());
    };
    let make = || -> PyResult<Bound<'_, PyAny>> {
        let text = py.import("os")?.call_method1("strerror", (errno,))?;
        // OSError picks the subclass (BrokenPipeError, FileExistsError…) from errno by itself.
        let class = py.get_type::<PyOSError>();
        match filename {
            Some(name) => class.call1((errno, text, name)),
            None => class.call1((errno, text)),
        }
    };
    make().map_or_else(|failure| failure, PyErr::from_value)
}
