//! CrossStitch ProcessV1: the messages of both directions, their decoder, its framer, and a batch of messages.

use std::collections::VecDeque;
use std::sync::Mutex;

use fastkcl_codec::Error;
use fastkcl_codec::framing::end_lines::{Frame, Framer, joined_lines};
use fastkcl_codec::processv1::{self, DataColumn, FromStitch, Message as _, ToStitch};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::bytes::{Bytes, detach_for};
use crate::decoder::{Waiting, try_lock};
use crate::errors::decode_error;
use crate::message::keyword_repr;
use crate::message_batch::MessageBatch;

/// A bound of one frame: at least a byte.
#[derive(Clone, Copy)]
struct MaxFrameBytes(usize);

impl MaxFrameBytes {
    const DEFAULT: Self = Self(processv1::DEFAULT_MAX_FRAME_BYTES);
}

impl FromPyObject<'_, '_> for MaxFrameBytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match object.extract::<usize>() {
            Ok(value) if value > 0 => Ok(Self(value)),
            Err(error) if !error.is_instance_of::<PyOverflowError>(object.py()) => Err(error),
            _ => Err(PyValueError::new_err(format!("max_frame_bytes must be from 1 on, not {}", &*object))),
        }
    }
}

/// A message from a core to a stitch.
#[pyclass(module = "fastkcl._core", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct ToStitchMessage(ToStitch);

#[pymethods]
impl ToStitchMessage {
    #[new]
    #[pyo3(signature = (*, id=0, channel_name=None, data=None, from_stitch_instance_id=None, node_id=None))]
    fn new(
        id: i64,
        channel_name: Option<String>,
        data: Option<String>,
        from_stitch_instance_id: Option<String>,
        node_id: Option<String>,
    ) -> Self {
        Self(ToStitch { id, from_stitch_instance_id, node_id, channel_name, data })
    }

    #[classattr]
    fn __match_args__() -> (&'static str, &'static str, &'static str, &'static str, &'static str) {
        ("id", "channel_name", "data", "from_stitch_instance_id", "node_id")
    }

    /// Of a heartbeat its number, of an exit the exit code, of data the message's id; 0 of data to a group.
    #[getter]
    fn id(&self) -> i64 {
        self.0.id
    }

    /// _heartbeat, _exit, _error, or any name of data; None of data to a group.
    #[getter]
    fn channel_name(&self) -> Option<&str> {
        self.0.channel_name.as_deref()
    }

    /// What was sent.
    #[getter]
    fn data(&self) -> Option<&str> {
        self.0.data.as_deref()
    }

    /// Who sent it.
    #[getter(from_stitch_instance_id)]
    fn sender(&self) -> Option<&str> {
        self.0.from_stitch_instance_id.as_deref()
    }

    /// The sender's node.
    #[getter]
    fn node_id(&self) -> Option<&str> {
        self.0.node_id.as_deref()
    }

    /// The frame: ASCII JSON on one line, and the line end.
    fn to_frame<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_frame())
    }

    fn __repr__(this: &Bound<'_, Self>) -> PyResult<String> {
        keyword_repr(this.as_any())
    }
}

/// A message from a stitch to its core.
#[pyclass(module = "fastkcl._core", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct FromStitchMessage(FromStitch);

#[pymethods]
impl FromStitchMessage {
    #[new]
    #[pyo3(signature = (
        *, command=None, id=0, data=None, data_channel=None, logs=None, to_group_name=None, to_stitch_instance_id=None
    ))]
    fn new(
        command: Option<String>,
        id: i64,
        data: Option<String>,
        data_channel: Option<String>,
        logs: Option<Vec<String>>,
        to_group_name: Option<String>,
        to_stitch_instance_id: Option<String>,
    ) -> Self {
        Self(FromStitch { command, id, data_channel, data, logs, to_group_name, to_stitch_instance_id })
    }

    #[classattr]
    fn __match_args__(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, ["command", "id", "data", "data_channel", "logs", "to_group_name", "to_stitch_instance_id"])
    }

    /// sync, ack, fail, logs or data; a core drops everything else without a word.
    #[getter]
    fn command(&self) -> Option<&str> {
        self.0.command.as_deref()
    }

    /// Of what it answers.
    #[getter]
    fn id(&self) -> i64 {
        self.0.id
    }

    /// What is sent.
    #[getter]
    fn data(&self) -> Option<&str> {
        self.0.data.as_deref()
    }

    /// The channel that data is sent in.
    #[getter]
    fn data_channel(&self) -> Option<&str> {
        self.0.data_channel.as_deref()
    }

    /// Lines for the core's log.
    #[getter]
    fn logs<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.0.logs.as_ref().map(|lines| PyTuple::new(py, lines)).transpose()
    }

    /// To all stitches of a group.
    #[getter]
    fn to_group_name(&self) -> Option<&str> {
        self.0.to_group_name.as_deref()
    }

    /// To one stitch.
    #[getter]
    fn to_stitch_instance_id(&self) -> Option<&str> {
        self.0.to_stitch_instance_id.as_deref()
    }

    /// The frame: ASCII JSON on one line, and the line end. Members that are None are left out.
    fn to_frame<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_frame())
    }

    fn __repr__(this: &Bound<'_, Self>) -> PyResult<String> {
        keyword_repr(this.as_any())
    }
}

/// Who reads: each direction has messages of its own.
enum Direction {
    ToStitch(processv1::Decoder<ToStitch>),
    FromStitch(processv1::Decoder<FromStitch>),
}

impl Direction {
    fn has_waiting(&self) -> bool {
        match self {
            Self::ToStitch(decoder) => decoder.has_waiting(),
            Self::FromStitch(decoder) => decoder.has_waiting(),
        }
    }

    fn next_message<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let refused = |error: Error| decode_error(py, &error);
        match self {
            Self::ToStitch(decoder) => decoder
                .next_message()
                .map(|outcome| Bound::new(py, ToStitchMessage(outcome.map_err(refused)?)).map(Bound::into_any)),
            Self::FromStitch(decoder) => decoder
                .next_message()
                .map(|outcome| Bound::new(py, FromStitchMessage(outcome.map_err(refused)?)).map(Bound::into_any)),
        }
        .transpose()
    }
}

/// Incremental decoder of frames: feed bytes cut anywhere, iterate over the complete messages.
///
/// Not for several threads at once. A DecodeError is of one frame; iterating goes on with the next.
#[pyclass(module = "fastkcl._core", frozen)]
pub(crate) struct StitchDecoder(Mutex<Direction>);

#[pymethods]
impl StitchDecoder {
    #[new]
    #[pyo3(signature = (*, direction="to_stitch", max_frame_bytes=MaxFrameBytes::DEFAULT))]
    fn new(direction: &str, max_frame_bytes: MaxFrameBytes) -> PyResult<Self> {
        let limit = max_frame_bytes.0;
        let direction = match direction {
            "to_stitch" => Direction::ToStitch(processv1::Decoder::new(limit)),
            "from_stitch" => Direction::FromStitch(processv1::Decoder::new(limit)),
            _ => {
                let message = format!("direction must be 'to_stitch' or 'from_stitch', not {direction:?}");
                return Err(PyValueError::new_err(message));
            }
        };
        Ok(Self(Mutex::new(direction)))
    }

    /// Take more bytes of the input.
    fn feed(&self, py: Python<'_>, data: Bytes) -> PyResult<()> {
        let mut direction = try_lock(&self.0, "StitchDecoder")?;
        let direction = &mut *direction;
        detach_for(py, data.len(), || match direction {
            Direction::ToStitch(decoder) => decoder.feed(&data),
            Direction::FromStitch(decoder) => decoder.feed(&data),
        });
        Ok(())
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        try_lock(&self.0, "StitchDecoder")?.next_message(py)
    }

    /// End of input: a message whose frame has no line end is returned, None if nothing is open.
    ///
    /// Raises:
    ///     DecodeError: the input ended inside a frame (kind truncated_frame).
    ///     RuntimeError: messages wait; iterate over them first. They are still there.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut direction = try_lock(&self.0, "StitchDecoder")?;
        if direction.has_waiting() {
            return Err(Waiting.into());
        }
        match &mut *direction {
            Direction::ToStitch(decoder) => decoder.finish(),
            Direction::FromStitch(decoder) => decoder.finish(),
        }
        direction.next_message(py)
    }
}

/// What a framer has found: a frame's bytes and whether it has a terminator; none for one that is too long.
type Found = Option<(Vec<u8>, bool)>;

struct Frames {
    framer: Framer,
    ready: VecDeque<Found>,
    max_frame_bytes: usize,
}

impl Frames {
    fn next_frame<'py>(&mut self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyBytes>, bool)>> {
        match self.ready.pop_front() {
            None => Ok(None),
            Some(None) => Err(decode_error(py, &processv1::too_long(self.max_frame_bytes))),
            Some(Some((text, terminated))) => Ok(Some((PyBytes::new(py, &text), terminated))),
        }
    }
}

fn found(frame: Frame<'_>) -> Found {
    match frame {
        Frame::Text { raw, terminated } => Some((joined_lines(raw).into_owned(), terminated)),
        Frame::TooLong => None,
        other => unreachable!("{other:?} is a frame of a newer codec than this module's"),
    }
}

/// The framer alone: feed bytes cut anywhere, iterate over (text, terminated) of the complete frames.
///
/// The text's lines are joined with a line feed. Not for several threads at once.
#[pyclass(module = "fastkcl._core", frozen)]
pub(crate) struct EndLineFramer(Mutex<Frames>);

#[pymethods]
impl EndLineFramer {
    #[new]
    #[pyo3(signature = (*, max_frame_bytes=MaxFrameBytes::DEFAULT))]
    fn new(max_frame_bytes: MaxFrameBytes) -> Self {
        let max_frame_bytes = max_frame_bytes.0;
        let framer = Framer::new(max_frame_bytes);
        Self(Mutex::new(Frames { framer, ready: VecDeque::new(), max_frame_bytes }))
    }

    /// Take more bytes of the input.
    fn feed(&self, py: Python<'_>, data: Bytes) -> PyResult<()> {
        let mut frames = try_lock(&self.0, "EndLineFramer")?;
        let Frames { framer, ready, .. } = &mut *frames;
        detach_for(py, data.len(), || framer.feed(&data, |frame| ready.push_back(found(frame))));
        Ok(())
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyBytes>, bool)>> {
        try_lock(&self.0, "EndLineFramer")?.next_frame(py)
    }

    /// End of input: the frame that is open, None if there is none or it is blank.
    ///
    /// Raises:
    ///     DecodeError: it is too long (kind frame_too_long).
    ///     RuntimeError: frames wait; iterate over them first. They are still there.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyBytes>, bool)>> {
        let mut frames = try_lock(&self.0, "EndLineFramer")?;
        let Frames { framer, ready, .. } = &mut *frames;
        if !ready.is_empty() {
            return Err(Waiting.into());
        }
        framer.finish(|frame| ready.push_back(found(frame)));
        frames.next_frame(py)
    }
}

/// A run of messages as Arrow columns: id, channel, sender, node, data (binary of base64, or string of text).
///
/// Raises:
///     DecodeError: data that is no base64 (kind base64); record is the index of its message.
///     ValueError: data is neither "base64" nor "text".
#[pyfunction]
#[pyo3(signature = (messages, *, data="base64"))]
pub(crate) fn stitch_batch(
    py: Python<'_>,
    messages: Vec<PyRef<'_, ToStitchMessage>>,
    data: &str,
) -> PyResult<MessageBatch> {
    let column = match data {
        "base64" => DataColumn::Base64,
        "text" => DataColumn::Text,
        _ => return Err(PyValueError::new_err(format!("data must be 'base64' or 'text', not {data:?}"))),
    };
    let messages: Vec<&ToStitch> = messages.iter().map(|message| &message.0).collect();
    let bytes = messages.iter().filter_map(|message| message.data.as_ref()).map(String::len).sum();
    detach_for(py, bytes, || processv1::batch(&messages, column))
        .map(MessageBatch)
        .map_err(|error| decode_error(py, &error))
}
