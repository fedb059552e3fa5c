//! CrossStitch ProcessV1 as bytes: the messages of a core to its stitches, and theirs to it.
//!
//! | module | purpose |
//! |---|---|
//! | `message` | the messages of both directions, and how they are written |
//! | `json` | a reader of JSON as lenient as Newtonsoft.Json; KCL's stays strict |
//! | `decoder` | [`Decoder`]: input of any cut, [`read`] |
//! | `batch` | [`batch`]: a run of messages as Arrow columns |
//!
//! The framing is [`crate::framing::end_lines`]. An unreadable frame is an error of its own: the next one is read as if
//! nothing had been.

mod batch;
mod decoder;
mod json;
mod message;

pub use batch::{DataColumn, batch};
pub use decoder::{Decoder, read, too_long};
pub use message::{FromStitch, Message, ToStitch};

/// Default bound of a frame: 16 MiB.
pub const DEFAULT_MAX_FRAME_BYTES: usize = 16 << 20;
