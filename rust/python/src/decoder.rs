//! `decode_line` and `Decoder`: bytes given by Python, messages back.
//!
//! A decoder is used by one thread at a time. Its lock is tried, never waited for: two threads at once are a bug of
//! the caller and get a `RuntimeError` instead of messages in an order that nobody chose.

use std::sync::{Mutex, MutexGuard};

use fastkcl_codec::kcl;
use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::bytes::{Bytes, detach_for};
use crate::errors::decode_error;
use crate::message::to_python;

/// A bound of one line that the codec takes: 1 to 2^31 - 1 bytes, as Arrow's offsets are 32 bits wide.
#[derive(Clone, Copy)]
pub(crate) struct MaxLineBytes(usize);

impl MaxLineBytes {
    pub(crate) const DEFAULT: Self = Self(kcl::DEFAULT_MAX_LINE_BYTES);

    pub(crate) const fn get(self) -> usize {
        self.0
    }
}

impl FromPyObject<'_, '_> for MaxLineBytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let value = match object.extract::<i64>() {
            Err(error) if !error.is_instance_of::<PyOverflowError>(object.py()) => return Err(error),
            other => other.ok().and_then(|value| usize::try_from(value).ok()),
        };
        value.filter(|value| (1..=kcl::LARGEST_MAX_LINE_BYTES).contains(value)).map(Self).ok_or_else(|| {
            let largest = kcl::LARGEST_MAX_LINE_BYTES;
            PyValueError::new_err(format!("max_line_bytes must be from 1 to {largest}, not {}", &*object))
        })
    }
}

/// The outcome of decoding as Python sees it.
pub(crate) fn message_or_error(
    py: Python<'_>,
    outcome: Result<kcl::Message, fastkcl_codec::Error>,
) -> PyResult<Bound<'_, PyAny>> {
    match outcome {
        Ok(message) => to_python(py, message),
        Err(error) => Err(decode_error(py, &error)),
    }
}

/// Locks what only one thread may use at a time.
pub(crate) fn try_lock<'a, T>(state: &'a Mutex<T>, class: &str) -> PyResult<MutexGuard<'a, T>> {
    state.try_lock().map_err(|error| {
        PyRuntimeError::new_err(match error {
            std::sync::TryLockError::WouldBlock => {
                format!("{class} used by two threads at the same time, or by a signal handler during a call")
            }
            std::sync::TryLockError::Poisoned(_) => {
                format!("{class} can't go on after a panic; please report the panic as a bug and make a new {class}")
            }
        })
    })
}

/// What came before the end of input waits to be taken: `finish` would be of something else than its last part.
pub(crate) struct Waiting;

impl From<Waiting> for PyErr {
    fn from(_: Waiting) -> Self {
        PyRuntimeError::new_err(
            "finish() before everything has been taken: iterate until the end first, also after an error",
        )
    }
}

/// Decode one complete line, with or without its line feed; None for a blank line.
///
/// Raises:
///     DecodeError: the line is no valid message.
///     ValueError: max_line_bytes out of range.
#[pyfunction]
#[pyo3(signature = (line, *, max_line_bytes=MaxLineBytes::DEFAULT))]
pub(crate) fn decode_line(
    py: Python<'_>,
    line: Bytes,
    max_line_bytes: MaxLineBytes,
) -> PyResult<Option<Bound<'_, PyAny>>> {
    detach_for(py, line.len(), || kcl::decode_line(&line, max_line_bytes.get()))
        .transpose()
        .map(|outcome| message_or_error(py, outcome))
        .transpose()
}

struct State {
    decoder: kcl::Decoder,
    /// Bytes fed since the last time that nothing was left to hand out; a call may have to look at all of them.
    waiting: usize,
}

/// Incremental decoder: feed bytes cut anywhere, iterate over the complete messages.
///
/// Not for several threads at once. After a DecodeError the rest of that line is skipped.
#[pyclass(module = "fastkcl._core", frozen)]
pub(crate) struct Decoder(Mutex<State>);

#[pymethods]
impl Decoder {
    #[new]
    #[pyo3(signature = (*, max_line_bytes=MaxLineBytes::DEFAULT))]
    fn new(max_line_bytes: MaxLineBytes) -> Self {
        Self(Mutex::new(State { decoder: kcl::Decoder::new(max_line_bytes.get()), waiting: 0 }))
    }

    /// Take more bytes of the input.
    fn feed(&self, py: Python<'_>, data: Bytes) -> PyResult<()> {
        let mut state = try_lock(&self.0, "Decoder")?;
        let state = &mut *state;
        state.waiting = state.waiting.saturating_add(data.len());
        detach_for(py, data.len(), || state.decoder.feed(&data));
        Ok(())
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut state = try_lock(&self.0, "Decoder")?;
        let state = &mut *state;
        let next = detach_for(py, state.waiting, || state.decoder.next_message());
        if next.is_none() {
            state.waiting = 0;
        }
        next.map(|outcome| message_or_error(py, outcome)).transpose()
    }

    /// End of input: a complete message without its line feed is returned, None if nothing is open.
    ///
    /// Raises:
    ///     DecodeError: the input ended inside a message (kind json), or the message is invalid.
    ///     RuntimeError: messages wait; iterate over them first. They are still there.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut state = try_lock(&self.0, "Decoder")?;
        let state = &mut *state;
        // A line that takes the general way is only looked at now, so this may be any amount of work.
        let last = py.detach(|| if state.decoder.has_waiting() { Err(Waiting) } else { Ok(state.decoder.finish()) });
        last?.map(|outcome| message_or_error(py, outcome)).transpose()
    }
}
