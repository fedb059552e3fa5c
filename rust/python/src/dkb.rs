//! `MarkerDecoder` and `MarkerReader`: the DKB stream from bytes or from a descriptor, as events or as columns.

use std::sync::Mutex;

use fastkcl_codec::Error;
use fastkcl_codec::dkb::{self, Event};
use fastkcl_codec::framing::markers::Markers;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::bytes::{Bytes, detach_for};
use crate::decoder::try_lock;
use crate::descriptor::RawFd;
use crate::errors::decode_error;
use crate::message_batch::MessageBatch;
use crate::source::{IDLE_AFTER, Input, Source};

// Python's allocator aligns objects to 16 bytes, whatever a class holds.
const _: () = assert!(align_of::<dkb::Decoder>() <= 16);

/// What has come out of a DKB stream: a message or a marker.
///
/// kind is "message" (data, and whether EOM has ended it), "collected" (count messages are in the columns),
/// "end_of_process" (EOP), "at_boundary" (EOB for a worker, BNC for a supervisor) or "truncated" (data: what was left
/// at the end of input).
#[pyclass(module = "fastkcl._core", frozen)]
pub(crate) struct MarkerEvent {
    kind: &'static str,
    data: Option<Py<PyBytes>>,
    terminated: bool,
    count: usize,
}

#[pymethods]
impl MarkerEvent {
    /// message, collected, end_of_process, at_boundary or truncated.
    #[getter]
    fn kind(&self) -> &'static str {
        self.kind
    }

    /// The bytes of a message, or of what was left; None for everything else.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Option<&Bound<'py, PyBytes>> {
        self.data.as_ref().map(|data| data.bind(py))
    }

    /// False for a message that EOP has ended in the place of EOM, and for what was left.
    #[getter]
    fn terminated(&self) -> bool {
        self.terminated
    }

    /// Messages that this event stands for.
    #[getter]
    fn count(&self) -> usize {
        self.count
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let data =
            self.data.as_ref().map_or(Ok(String::new()), |data| data.bind(py).repr().map(|data| format!(" {data}")))?;
        let ended = if self.kind == "message" && !self.terminated { ", not terminated" } else { "" };
        let count = if self.kind == "collected" { format!(" {}", self.count) } else { String::new() };
        Ok(format!("<MarkerEvent {}{data}{count}{ended}>", self.kind))
    }
}

fn to_python(py: Python<'_>, outcome: Result<Event, Error>) -> PyResult<MarkerEvent> {
    let marker = |kind| MarkerEvent { kind, data: None, terminated: true, count: 0 };
    let bytes = |data: Vec<u8>| Some(PyBytes::new(py, &data).unbind());
    Ok(match outcome.map_err(|error| decode_error(py, &error))? {
        Event::Message(data, terminated) => MarkerEvent { kind: "message", data: bytes(data), terminated, count: 1 },
        Event::Collected(count) => MarkerEvent { count, ..marker("collected") },
        Event::EndOfProcess => marker("end_of_process"),
        Event::AtBoundary => marker("at_boundary"),
        Event::Truncated(data) => MarkerEvent { kind: "truncated", data: bytes(data), terminated: false, count: 0 },
        other => unreachable!("{other:?} is an event of a newer codec than this module's"),
    })
}

/// A bound of one message that the codec takes: 1 to 2^31 - 1 bytes, as Arrow's offsets are 32 bits wide.
#[derive(Clone, Copy)]
pub(crate) struct MaxMessageBytes(usize);

impl MaxMessageBytes {
    const DEFAULT: Self = Self(dkb::DEFAULT_MAX_MESSAGE_BYTES);
}

impl FromPyObject<'_, '_> for MaxMessageBytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let value = match object.extract::<i64>() {
            Err(error) if !error.is_instance_of::<PyOverflowError>(object.py()) => return Err(error),
            other => other.ok().and_then(|value| usize::try_from(value).ok()),
        };
        value.filter(|value| (1..=dkb::LARGEST_MAX_MESSAGE_BYTES).contains(value)).map(Self).ok_or_else(|| {
            let largest = dkb::LARGEST_MAX_MESSAGE_BYTES;
            PyValueError::new_err(format!("max_message_bytes must be from 1 to {largest}, not {}", &*object))
        })
    }
}

fn decoder(
    end_of_message: Bytes,
    end_of_process: Option<Bytes>,
    at_boundary: Option<Bytes>,
    max_message_bytes: MaxMessageBytes,
) -> PyResult<dkb::Decoder> {
    let markers = Markers {
        end_of_message: end_of_message.to_vec(),
        end_of_process: end_of_process.map(|marker| marker.to_vec()),
        at_boundary: at_boundary.map(|marker| marker.to_vec()),
    };
    dkb::Decoder::new(markers, max_message_bytes.0).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Incremental decoder: feed bytes cut anywhere, iterate over what they hold.
///
/// Not for several threads at once. After a DecodeError (a message is too long) there is nothing more.
///
/// Args:
///     end_of_message: EOM, after each message; like every marker 1 to 16 bytes, and no prefix of another.
///     end_of_process: EOP, looked for everywhere; may equal EOM.
///     at_boundary: looked for where a message could begin: EOB for a worker, BNC for a supervisor.
///     max_message_bytes: bound of one message.
#[pyclass(module = "fastkcl._core", frozen)]
pub(crate) struct MarkerDecoder(Mutex<dkb::Decoder>);

#[pymethods]
impl MarkerDecoder {
    #[new]
    #[pyo3(signature = (*, end_of_message, end_of_process=None, at_boundary=None, max_message_bytes=MaxMessageBytes::DEFAULT))]
    fn new(
        end_of_message: Bytes,
        end_of_process: Option<Bytes>,
        at_boundary: Option<Bytes>,
        max_message_bytes: MaxMessageBytes,
    ) -> PyResult<Self> {
        decoder(end_of_message, end_of_process, at_boundary, max_message_bytes).map(|it| Self(Mutex::new(it)))
    }

    /// Take more bytes of the input.
    fn feed(&self, data: Bytes) -> PyResult<()> {
        try_lock(&self.0, "MarkerDecoder")?.feed(&data);
        Ok(())
    }

    /// No more input comes: iterating once more gives what is left.
    fn finish(&self) -> PyResult<()> {
        try_lock(&self.0, "MarkerDecoder")?.finish();
        Ok(())
    }

    /// Let the next most messages go to the columns, with one event for all of them. 0: one by one again.
    fn collect(&self, most: usize) -> PyResult<()> {
        try_lock(&self.0, "MarkerDecoder")?.collect(most);
        Ok(())
    }

    /// The messages in the columns; they begin anew, and their numbers go on.
    fn take_batch(&self) -> PyResult<MessageBatch> {
        Ok(MessageBatch(try_lock(&self.0, "MarkerDecoder")?.take_batch()))
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<MarkerEvent>> {
        let mut guard = try_lock(&self.0, "MarkerDecoder")?;
        let decoder = &mut *guard;
        let held = decoder.held_bytes();
        detach_for(py, held, || decoder.next_event()).map(|outcome| to_python(py, outcome)).transpose()
    }
}

impl Input for dkb::Decoder {
    type Item = Result<Event, Error>;

    fn next_item(&mut self) -> Option<Self::Item> {
        self.next_event()
    }

    fn space(&mut self) -> &mut [u8] {
        self.space()
    }

    fn commit(&mut self, count: usize) {
        self.commit(count);
    }

    fn finish(&mut self) -> Option<Self::Item> {
        self.finish();
        self.next_event()
    }

    fn is_at_start(&self) -> bool {
        self.is_at_start()
    }

    fn release_memory(&mut self) {
        self.release_memory();
    }
}

/// Reads a DKB stream from a file descriptor; reads and frames with the GIL released.
///
/// The descriptor is not closed. Not for several threads at once.
///
/// Args:
///     fd: readable descriptor: pipe, socket or file. A pipe's size is raised to 256 KiB where allowed.
///     end_of_message: as the other markers and the bound, see MarkerDecoder.
///     wakeup_fd: descriptor to watch besides (see signal.set_wakeup_fd); drained when readable, then Python
///         signal handlers run. Without it signals are handled when waiting is interrupted.
///     idle_after: seconds of silence after which the memory of buffers is given back; 2.5.
#[pyclass(module = "fastkcl._core", frozen)]
pub(crate) struct MarkerReader(Source<dkb::Decoder>);

#[pymethods]
impl MarkerReader {
    #[new]
    #[pyo3(signature = (fd, *, end_of_message, end_of_process=None, at_boundary=None, wakeup_fd=None, max_message_bytes=MaxMessageBytes::DEFAULT, idle_after=IDLE_AFTER))]
    fn new(
        fd: RawFd,
        end_of_message: Bytes,
        end_of_process: Option<Bytes>,
        at_boundary: Option<Bytes>,
        wakeup_fd: Option<RawFd>,
        max_message_bytes: MaxMessageBytes,
        idle_after: f64,
    ) -> PyResult<Self> {
        let decoder = decoder(end_of_message, end_of_process, at_boundary, max_message_bytes)?;
        Source::new(fd, wakeup_fd, idle_after, decoder).map(Self)
    }

    /// Wait for the next message or marker; None at end of input.
    ///
    /// Signal handlers run while waiting; what they raise comes out, and nothing of the input is lost by it.
    ///
    /// Raises:
    ///     DecodeError: a message is longer than max_message_bytes.
    ///     OSError: read failed.
    ///     TimeoutError: the deadline has passed.
    fn read(&self, py: Python<'_>) -> PyResult<Option<MarkerEvent>> {
        self.next(py, 0)
    }

    /// Wait until so many messages, or a marker, have come; None at end of input. The messages go to the columns.
    ///
    /// Raises:
    ///     DecodeError: a message is longer than max_message_bytes.
    ///     OSError: read failed.
    ///     TimeoutError: the deadline has passed.
    ///     ValueError: most is 0.
    fn read_run(&self, py: Python<'_>, most: usize) -> PyResult<Option<MarkerEvent>> {
        if most == 0 {
            return Err(PyValueError::new_err("most must be 1 or more"));
        }
        self.next(py, most)
    }

    /// Messages in the columns.
    #[getter]
    fn collected(&self) -> PyResult<usize> {
        self.0.with_input("MarkerReader", |decoder| decoder.collected())
    }

    /// The messages in the columns; they begin anew, and their numbers go on.
    fn take_batch(&self) -> PyResult<MessageBatch> {
        self.0.with_input("MarkerReader", |decoder| MessageBatch(decoder.take_batch()))
    }

    /// From now, until when read may wait; None for no limit.
    ///
    /// May be called from a signal handler during read. What has arrived by then is still handed out.
    ///
    /// Raises:
    ///     ValueError: seconds is not a number.
    #[pyo3(signature = (seconds))]
    fn set_deadline(&self, seconds: Option<f64>) -> PyResult<()> {
        self.0.set_deadline(seconds)
    }
}

impl MarkerReader {
    fn next(&self, py: Python<'_>, most: usize) -> PyResult<Option<MarkerEvent>> {
        self.0.with_input("MarkerReader", |decoder| decoder.collect(most))?;
        self.0.next(py, "MarkerReader")?.map(|outcome| to_python(py, outcome)).transpose()
    }
}

/// Messages that are at hand as Arrow columns, numbered from first_number on.
///
/// Raises:
///     ValueError: they have more than 2 GiB together, or one's number more than 64 bits.
#[pyfunction]
#[pyo3(signature = (messages, *, first_number=0))]
pub(crate) fn message_batch(messages: Vec<Bytes>, first_number: i64) -> PyResult<MessageBatch> {
    if i64::try_from(messages.len()).ok().and_then(|count| first_number.checked_add(count)).is_none() {
        return Err(PyValueError::new_err(format!("messages from number {first_number} on need more than 64 bits")));
    }
    let mut run = dkb::RunColumns::new(first_number);
    for message in &messages {
        if run.is_full_for(message.len()) {
            return Err(PyValueError::new_err("messages of more than 2 GiB do not fit into one batch: split them"));
        }
        run.push(message);
    }
    Ok(MessageBatch(run.finish()))
}
