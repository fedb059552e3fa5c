//! `Reader`: a KCL daemon's messages from a file descriptor; how it waits is told in `source`.

use fastkcl_codec::{Error, kcl};
use pyo3::prelude::*;

use crate::bytes::Bytes;
use crate::decoder::{MaxLineBytes, message_or_error};
use crate::descriptor::RawFd;
use crate::source::{IDLE_AFTER, Input, Source};

impl Input for kcl::Decoder {
    type Item = Result<kcl::Message, Error>;

    fn next_item(&mut self) -> Option<Self::Item> {
        self.next_message()
    }

    fn space(&mut self) -> &mut [u8] {
        self.space()
    }

    fn commit(&mut self, count: usize) {
        self.commit(count);
    }

    fn finish(&mut self) -> Option<Self::Item> {
        self.finish()
    }

    fn is_at_start(&self) -> bool {
        self.is_at_line_start()
    }

    fn release_memory(&mut self) {
        self.release_memory();
    }
}

/// Reads messages from a file descriptor; reads and decodes with the GIL released.
///
/// The descriptor is not closed. Not for several threads at once.
///
/// Args:
///     fd: readable descriptor: pipe, socket or file. A pipe's size is raised to 256 KiB where allowed.
///     wakeup_fd: descriptor to watch besides (see signal.set_wakeup_fd); drained when readable, then Python
///         signal handlers run. Without it signals are handled when waiting is interrupted.
///     max_line_bytes: bound of one line.
///     begun: input that was read from fd before, e.g. into a buffer; it comes first.
///     idle_after: seconds of silence between two lines after which the memory of buffers is given back; 2.5.
#[pyclass(module = "fastkcl._core", frozen)]
pub(crate) struct Reader(Source<kcl::Decoder>);

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (fd, *, wakeup_fd=None, max_line_bytes=MaxLineBytes::DEFAULT, begun=None, idle_after=IDLE_AFTER))]
    fn new(
        fd: RawFd,
        wakeup_fd: Option<RawFd>,
        max_line_bytes: MaxLineBytes,
        begun: Option<Bytes>,
        idle_after: f64,
    ) -> PyResult<Self> {
        let mut decoder = kcl::Decoder::new(max_line_bytes.get());
        if let Some(begun) = begun {
            decoder.feed(&begun);
        }
        Source::new(fd, wakeup_fd, idle_after, decoder).map(Self)
    }

    /// Wait for the next message; None at end of input.
    ///
    /// Signal handlers run while waiting; their exceptions come out, and no input is lost.
    ///
    /// Raises:
    ///     DecodeError: an invalid line; also input that ended inside a message.
    ///     OSError: read failed.
    ///     TimeoutError: the deadline has passed.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.next(py, "Reader")?.map(|outcome| message_or_error(py, outcome)).transpose()
    }

    /// From now, until when read may wait; None for no limit.
    ///
    /// May be called from a signal handler during read. Messages that have arrived by then are still handed out.
    ///
    /// Raises:
    ///     ValueError: seconds is not a number.
    #[pyo3(signature = (seconds))]
    fn set_deadline(&self, seconds: Option<f64>) -> PyResult<()> {
        self.0.set_deadline(seconds)
    }

    /// Bytes read from the descriptor until now.
    #[getter]
    fn bytes_read(&self) -> u64 {
        self.0.bytes_read()
    }
}
