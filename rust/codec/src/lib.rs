//! Bytes from a worker's pipe to Arrow columns.
//!
//! A pure function of bytes: no Python, no threads, no file descriptors. Each byte takes this way once:
//!
//! ```text
//!  bytes as they arrive
//!      │
//!      ▼
//!  kcl::Decoder ── framing ─▶ which line is this?
//!      │                       │
//!      │ as every daemon        │ any other shape
//!      │ writes it              ▼
//!      │                   kcl::general (json::Cursor over the whole line)
//!      ▼                       │
//!  kcl::stream                 │
//!   record ── base64 kernel ───┤   (one kernel, chosen once: kernel/<instruction set>)
//!                              ▼
//!                          columns ─▶ RecordBatch (Arrow; its buffers return to the pool)
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | [`framing`] | where a message ends: lines, markers, frames |
//! | `kernel` | routines of each instruction set for `base64` and `json`; they use `base64::alphabet` and `json::escape` |
//! | [`base64`] | encoding; decoding by kernels; the exact slow path |
//! | `json` | a cursor over strict RFC 8259; there is no tree of values |
//! | [`kcl`] | messages, the incremental decoder, and writers for child and daemon |
//! | [`processv1`] | frames and messages of CrossStitch ProcessV1 |
//! | [`dkb`] | messages between markers, one at a time or as columns |
//! | [`kinesis`] | answers of the Kinesis service, KPL aggregates |
//! | `record` | one record's JSON into the columns, for the protocols that have records |
//! | [`schema`] | the columns of record batches, each defined once |
//! | `columns`, [`batch`] | column builders, the finished batch |
//! | [`Position`] | a place in a shard: its text and its order |
//! | [`message_batch`] | a finished batch of messages without positions |
//! | [`payload`] | opens payloads: unpacks gzip; JSON objects, and by features Avro and Protobuf, become typed columns |
//! | [`pool`] | keeps column buffers between batches |
//! | [`ipc`] | Arrow IPC files, for dead letters |
//! | [`cpu`] | which instruction set this process uses |
//! | [`Error`] | everything that can be wrong with a line or an answer |

/// The examples of README.md, which are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

pub mod base64;
pub mod batch;
mod columns;
#[cfg(feature = "dkb")]
pub mod dkb;
mod error;
pub mod framing;
#[cfg(test)]
#[path = "../tests/guard/mod.rs"]
mod guard;
mod input;
pub mod ipc;
mod json;
pub mod kcl;
mod kernel;
#[cfg(feature = "kinesis")]
pub mod kinesis;
#[cfg(any(feature = "dkb", feature = "processv1"))]
pub mod message_batch;
#[cfg(feature = "payload")]
pub mod payload;
pub mod pool;
mod position;
#[cfg(feature = "processv1")]
pub mod processv1;
mod record;
pub mod schema;

pub use batch::RecordBatch;
pub use error::{Base64Reason, Error, ErrorKind};
pub use kernel::cpu;
#[cfg(any(feature = "dkb", feature = "processv1"))]
pub use message_batch::MessageBatch;
pub use position::{Position, PositionError};
