//! Bytes-like arguments, and the one bound above which the GIL is let go.
//!
//! Memory that another thread could change (bytearray, memoryview, mmap…) must not be read without the GIL, so
//! anything but `bytes` is copied first; `bytes` cannot change and is borrowed.

use std::ops::Deref;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView};

/// Letting the GIL go and waiting for it again pays above this much work; decoding it takes some 20 µs.
pub(crate) const DETACH_BYTES: usize = 64 << 10;

/// A bytes-like argument that stays as it is.
pub(crate) struct Bytes(PyBackedBytes);

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl FromPyObject<'_, '_> for Bytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self(PyBackedBytes::from(bytes.to_owned())));
        }
        let view = PyMemoryView::from(&object).map_err(|_| {
            let name = object.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
            PyTypeError::new_err(format!("expected bytes, bytearray or another bytes-like object, not {name}"))
        })?;
        let copy = view.call_method0("tobytes")?.cast_into::<PyBytes>()?;
        Ok(Self(PyBackedBytes::from(copy)))
    }
}

/// Runs `work` without the GIL if it looks at as many bytes as make that worth it.
pub(crate) fn detach_for<T: Send>(py: Python<'_>, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    if bytes >= DETACH_BYTES { py.detach(work) } else { work() }
}
