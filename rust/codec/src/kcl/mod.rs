//! The KCL multi-language protocol as bytes: lines of a daemon read, lines of a child written.
//!
//! | module | purpose |
//! |---|---|
//! | `dialect` | the dialects, and their capabilities |
//! | `message` | the messages |
//! | `decoder` | [`Decoder`]: input of any cut, [`decode_line`] |
//! | `stream` | the state machine: the kind of the line, the position in it, the parts still missing |
//! | `shape` | how a daemon writes a record, for the parsers of `crate::record` |
//! | `general` | any valid line, and the rest of a daemon's line after its records |
//! | [`mod@write`] | statuses, checkpoints, and lines as a daemon writes them |
//!
//! There are two ways through, and they give the same result, errors and their places included:
//!
//! ```text
//!  {"action":"processRecords","records":[ {"data":"…  ,  {"data":"…   ],"millisBehindLatest":0}⏎
//!  └────────── as every daemon begins ──┘ └─ decoded as bytes arrive ─┘└─ collected, parsed ────┘
//!
//!  any other line  ⏎      collected up to its LF, parsed as a whole
//! ```

mod decoder;
mod dialect;
mod general;
mod message;
mod shape;
mod stream;
pub mod write;

pub use decoder::{Decoder, decode_line};
pub use dialect::{Capabilities, Dialect};
pub use message::{Checkpoint, Initialize, Message, ShutdownReason};

/// Default bound of a line: 256 MiB.
pub const DEFAULT_MAX_LINE_BYTES: usize = 256 << 20;

/// The largest bound that can be set: a Java string cannot be longer, and 32-bit offsets cannot overflow below it.
pub const LARGEST_MAX_LINE_BYTES: usize = (1 << 31) - 1;
