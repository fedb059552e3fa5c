//! Lines of a child and of a daemon, base64, and a whole line to a descriptor.

use std::io::{Error, ErrorKind};
use std::time::{Duration, Instant};

use fastkcl_codec::base64;
use fastkcl_codec::kcl::Dialect;
use fastkcl_codec::kcl::write::{self, RecordToWrite};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyBytes;

use crate::bytes::{Bytes, detach_for};
use crate::descriptor::{self, RawFd};
use crate::dialect::dialect_named;
use crate::errors::{decode_error, os_error};

/// A status line, with a line feed before and after; compact ASCII JSON.
#[pyfunction]
pub(crate) fn encode_status<'py>(py: Python<'py>, response_for: &str) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &write::status(response_for))
}

/// A checkpoint request in the dialect given, with a line feed before and after.
///
/// Raises:
///     ValueError: a sub-sequence number without a sequence number; one above 0 in the legacy dialect
///         (it has no word for it); an unknown dialect.
#[pyfunction]
pub(crate) fn encode_checkpoint<'py>(
    py: Python<'py>,
    sequence_number: Option<&str>,
    sub_sequence_number: Option<i64>,
    dialect: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    write::checkpoint(sequence_number, sub_sequence_number, dialect_named(dialect, &Dialect::OF_CHILDREN)?)
        .map(|line| PyBytes::new(py, &line))
        .map_err(|error| PyValueError::new_err(error.to_string()))
}

/// A processRecords line byte for byte as a daemon of that dialect writes it, LF at the end.
///
/// Legacy lines have no subSequenceNumber, action or millisBehindLatest. None for a whole column writes null
/// (modern) in each record.
///
/// Raises:
///     ValueError: columns of unequal length; an unknown dialect.
#[pyfunction]
#[pyo3(signature = (
    data, partition_keys, sequence_numbers, sub_sequence_numbers, timestamps_millis, *,
    millis_behind_latest=None, dialect="modern"
))]
#[allow(clippy::too_many_arguments, reason = "a record's columns, all named, are the function's contract")]
pub(crate) fn encode_process_records<'py>(
    py: Python<'py>,
    data: Vec<Option<Bytes>>,
    partition_keys: Vec<PyBackedStr>,
    sequence_numbers: Vec<PyBackedStr>,
    sub_sequence_numbers: Option<Vec<Option<i64>>>,
    timestamps_millis: Option<Vec<Option<i64>>>,
    millis_behind_latest: Option<i64>,
    dialect: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let dialect = dialect_named(dialect, &Dialect::ALL)?;
    let lengths = [
        ("partition_keys", Some(partition_keys.len())),
        ("sequence_numbers", Some(sequence_numbers.len())),
        ("sub_sequence_numbers", sub_sequence_numbers.as_ref().map(Vec::len)),
        ("timestamps_millis", timestamps_millis.as_ref().map(Vec::len)),
    ];
    for (column, length) in lengths {
        if let Some(length) = length.filter(|&length| length != data.len()) {
            let rows = data.len();
            return Err(PyValueError::new_err(format!("{column} has {length} values, but data has {rows}")));
        }
    }
    let bytes = data.iter().flatten().map(|data| data.len()).sum();
    let line = detach_for(py, bytes, || {
        let value = |column: Option<&Vec<Option<i64>>>, row: usize| column.and_then(|column| column[row]);
        let records = (0..data.len()).map(|row| RecordToWrite {
            data: data[row].as_deref(),
            partition_key: &partition_keys[row],
            sequence_number: &sequence_numbers[row],
            sub_sequence_number: value(sub_sequence_numbers.as_ref(), row),
            timestamp_millis: value(timestamps_millis.as_ref(), row),
        });
        write::process_records(records, millis_behind_latest, dialect)
    });
    Ok(PyBytes::new(py, &line))
}

/// Standard base64 with padding.
#[pyfunction]
pub(crate) fn encode_base64(py: Python<'_>, data: Bytes) -> Bound<'_, PyBytes> {
    PyBytes::new(py, detach_for(py, data.len(), || base64::encode(&data)).as_bytes())
}

/// Decode as a JSON string's content after unescaping, by the rules of the protocol (Jackson's).
///
/// Raises:
///     DecodeError: kind base64, with reason and offset from the start of text.
#[pyfunction]
pub(crate) fn decode_base64(py: Python<'_>, text: Bytes) -> PyResult<Bound<'_, PyBytes>> {
    detach_for(py, text.len(), || base64::decode(&text))
        .map(|data| PyBytes::new(py, &data))
        .map_err(|error| decode_error(py, &error))
}

/// A megabyte at a time: as much as an unprivileged pipe can ever hold.
const WRITE_SIZE: usize = 1 << 20;

/// How long Python's signal handlers may have to wait.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// Writes pieces of `rest` until all is written or signals should be looked at.
fn write_for_a_while(fd: RawFd, rest: &mut &[u8], write_size: usize, pause: &mut Pause) -> Result<(), Error> {
    let start = Instant::now();
    while !rest.is_empty() && start.elapsed() < SIGNAL_INTERVAL {
        if !pause.wait(SIGNAL_INTERVAL) {
            return Ok(());
        }
        let piece = write_size.min(rest.len());
        match descriptor::write(fd, &rest[..piece]) {
            Ok(0) => return Err(Error::from(ErrorKind::WriteZero)),
            Ok(count) => {
                *rest = &rest[count..];
                pause.start();
                // A signal ends a blocked write early; the next one could block for ever.
                if count < piece {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => match descriptor::poll_writable(fd, SIGNAL_INTERVAL)
            {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => return Ok(()),
            },
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The pause before each piece; waited for in parts, so that signals are not kept waiting.
struct Pause {
    each: Duration,
    left: Duration,
}

impl Pause {
    /// Begins the next pause.
    fn start(&mut self) {
        self.left = self.each;
    }

    /// Sleeps at most `limit`; whether the pause is over.
    fn wait(&mut self, limit: Duration) -> bool {
        let part = self.left.min(limit);
        if !part.is_zero() {
            std::thread::sleep(part);
            self.left -= part;
        }
        self.left.is_zero()
    }
}

/// Write all of data in pieces of write_size bytes, GIL released; pause seconds before each.
///
/// Signal handlers run between pieces; their exceptions come out, and the rest is not written.
///
/// Raises:
///     OSError: write failed, BrokenPipeError included.
///     ValueError: write_size below 1, or a pause that is negative or not finite.
#[pyfunction]
#[pyo3(signature = (fd, data, *, write_size=WRITE_SIZE, pause=0.0))]
pub(crate) fn write_all(py: Python<'_>, fd: RawFd, data: Bytes, write_size: usize, pause: f64) -> PyResult<()> {
    if write_size == 0 {
        return Err(PyValueError::new_err("write_size must be at least 1"));
    }
    let each = Duration::try_from_secs_f64(pause)
        .map_err(|_| PyValueError::new_err(format!("pause must be a number of seconds from 0, not {pause}")))?;
    let mut pause = Pause { each, left: each };
    let mut rest: &[u8] = &data;
    while !rest.is_empty() {
        py.detach(|| write_for_a_while(fd, &mut rest, write_size, &mut pause))
            .map_err(|error| os_error(py, &error, None))?;
        py.check_signals()?;
    }
    Ok(())
}
