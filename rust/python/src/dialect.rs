//! The dialects of KCL's protocol by name, and their capabilities.

use fastkcl_codec::kcl;
use fastkcl_codec::kcl::Dialect;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The one of `dialects` that has that name.
pub(crate) fn dialect_named(name: &str, dialects: &[Dialect]) -> PyResult<Dialect> {
    dialects.iter().copied().find(|dialect| dialect.name() == name).ok_or_else(|| {
        let names: Vec<String> = dialects.iter().map(|dialect| format!("'{}'", dialect.name())).collect();
        let (last, others) = names.split_last().expect("there are dialects");
        PyValueError::new_err(format!("dialect must be {} or {last}, not {name:?}", others.join(", ")))
    })
}

/// The capabilities of a dialect.
#[pyclass(module = "fastkcl._core", frozen)]
pub(crate) struct Capabilities(kcl::Capabilities);

#[pymethods]
impl Capabilities {
    /// Sub-sequence numbers, in initialize, records and checkpoints; and millisBehindLatest.
    #[getter]
    fn sub_sequence_numbers(&self) -> bool {
        self.0.sub_sequence_numbers
    }

    /// The message shutdownRequested, before a worker stops.
    #[getter]
    fn shutdown_requested(&self) -> bool {
        self.0.shutdown_requested
    }

    /// The messages leaseLost and shardEnded; without them shutdown, with a reason, which allows a checkpoint.
    #[getter]
    fn named_ends(&self) -> bool {
        self.0.named_ends
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// The capabilities of each dialect, by its name, the oldest first.
pub(crate) fn dialects(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let all = PyDict::new(py);
    for dialect in Dialect::ALL {
        all.set_item(dialect.name(), Bound::new(py, Capabilities(dialect.capabilities()))?)?;
    }
    Ok(all)
}
