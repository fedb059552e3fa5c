//! The Python extension `fastkcl._core`: bytes and file descriptors in, frozen objects and Arrow capsules out.
//!
//! A thin skin: every rule of a protocol lives in `fastkcl_codec`, everything that only Python needs lives here.
//!
//! | module | purpose |
//! |---|---|
//! | `bytes` | bytes-like arguments, safe to read without the GIL |
//! | `decoder` | `decode_line`, `Decoder` |
//! | `source` | waiting on a descriptor, signals, deadlines |
//! | `reader` | `Reader`: a KCL daemon's messages from one |
//! | `dialect` | the capabilities of each dialect |
//! | `message` | a class for each message |
//! | `batch`, `arrow` | `RecordBatch`, `Record`, `Position`; Arrow PyCapsules |
//! | `message_batch` | `MessageBatch`: messages without positions as columns |
//! | `dkb` | `MarkerDecoder`, `MarkerReader`: messages between markers |
//! | `payload` | `PayloadReader`: gzip unpacked, JSON in typed columns |
//! | `schema_payload` | `SchemaReader`: Avro, Protobuf, and headers of registries |
//! | `kinesis` | answers and records of the Kinesis client |
//! | `processv1` | messages, decoder and framer of CrossStitch ProcessV1 |
//! | `kclpy` | the records of the amazon_kclpy drop-in |
//! | `write` | the lines of a child and a daemon; `write_all` |
//! | `ipc` | Arrow IPC files that are whole or absent |
//! | `descriptor` | poll(2), read(2), write(2), fcntl(2); `no_descriptor` in its place where there is no POSIX |
//! | `errors` | `DecodeError`, `OSError` from errno |
//!
//! Rules: classes are frozen; a lock guards inner state that changes; it is only tried, never waited for,
//! so nothing here can deadlock with the GIL. Work on more than [`bytes::DETACH_BYTES`] runs without the GIL.

#![allow(clippy::doc_markdown, reason = "doc comments of Python's names are its docstrings: text, not Markdown")]
#![allow(clippy::needless_pass_by_value, reason = "pyo3 hands extracted arguments over by value")]

mod arrow;
mod batch;
mod bytes;
mod decoder;
#[cfg_attr(not(unix), path = "no_descriptor.rs")]
mod descriptor;
mod dialect;
mod dkb;
mod errors;
mod ipc;
mod kclpy;
mod kinesis;
mod message;
mod message_batch;
mod payload;
mod processv1;
mod reader;
mod schema_payload;
mod source;
mod write;

use fastkcl_codec::schema::RecordSchema;
use fastkcl_codec::{cpu, pool};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The instruction set chosen for this process: avx512, avx2, neon or portable (`FASTKCL_FORCE_ISA` forces one).
#[pyfunction]
fn isa() -> PyResult<&'static str> {
    // The same answer as at import, which fails when there is none.
    cpu::active().map(cpu::Isa::name).map_err(|error| PyImportError::new_err(error.to_string()))
}

/// The instruction sets that this build has and this CPU can run, best first.
#[pyfunction]
fn supported_isas() -> Vec<&'static str> {
    cpu::supported().into_iter().map(cpu::Isa::name).collect()
}

/// Column buffers at rest in the pools of this process: {"buffers": ..., "bytes": ...}.
#[pyfunction]
fn pool_stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let stats = pool::stats();
    let result = PyDict::new(py);
    result.set_item("buffers", stats.buffers)?;
    result.set_item("bytes", stats.bytes)?;
    Ok(result)
}

/// The name and Arrow type of each canonical column, in their order.
fn canonical_columns(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let columns = PyDict::new(py);
    for column in RecordSchema::Canonical.columns() {
        columns.set_item(column.name(), column.type_name())?;
    }
    Ok(columns)
}

/// The Rust extension: bytes and file descriptors in, frozen objects and Arrow capsules out.
#[pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::batch::{Position, Record, RecordBatch, payloads_from, record_metadata};
    #[pymodule_export]
    use crate::decoder::{Decoder, decode_line};
    #[pymodule_export]
    use crate::dialect::Capabilities;
    #[pymodule_export]
    use crate::dkb::{MarkerDecoder, MarkerEvent, MarkerReader, message_batch};
    #[pymodule_export]
    use crate::ipc::write_ipc_file;
    #[pymodule_export]
    use crate::kclpy::{RecordBase, kclpy_detach, kclpy_records};
    #[pymodule_export]
    use crate::kinesis::{
        Aggregate, ChildShard, Deaggregated, GetRecordsAnswer, deaggregate, decode_get_records, record_dicts,
        split_aggregate, split_netstrings,
    };
    #[pymodule_export]
    use crate::message::{Checkpoint, Initialize, LeaseLost, ProcessRecords, ShardEnded, Shutdown, ShutdownRequested};
    #[pymodule_export]
    use crate::message_batch::MessageBatch;
    #[pymodule_export]
    use crate::payload::{OpenedPayloads, PayloadReader};
    #[pymodule_export]
    use crate::processv1::{EndLineFramer, FromStitchMessage, StitchDecoder, ToStitchMessage, stitch_batch};
    #[pymodule_export]
    use crate::reader::Reader;
    #[pymodule_export]
    use crate::schema_payload::{SchemaReader, avro_fingerprint, compile_proto};
    #[pymodule_export]
    use crate::write::{
        decode_base64, encode_base64, encode_checkpoint, encode_process_records, encode_status, write_all,
    };
    #[pymodule_export]
    use crate::{isa, pool_stats, supported_isas};

    #[allow(non_upper_case_globals)]
    #[pymodule_export]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    const DEFAULT_MAX_LINE_BYTES: usize = fastkcl_codec::kcl::DEFAULT_MAX_LINE_BYTES;

    #[pymodule_export]
    const DEFAULT_MAX_MESSAGE_BYTES: usize = fastkcl_codec::dkb::DEFAULT_MAX_MESSAGE_BYTES;

    #[pymodule_export]
    const DEFAULT_MAX_FRAME_BYTES: usize = fastkcl_codec::processv1::DEFAULT_MAX_FRAME_BYTES;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::isa()?;
        module.add("CANONICAL_COLUMNS", crate::canonical_columns(module.py())?)?;
        module.add("DIALECTS", crate::dialect::dialects(module.py())?)?;
        module.add("DecodeError", crate::errors::decode_error_type(module.py())?)
    }
}
