//! The DKB stream protocol as bytes: messages between markers, and runs of them as Arrow columns.
//!
//! | module | purpose |
//! |---|---|
//! | `decoder` | [`Decoder`]: input of any cut, events |
//! | `columns` | the Arrow batch of a run of messages |
//!
//! The bytes of a message are the application's; its end is found by `framing::markers`.

mod columns;
mod decoder;

pub use columns::{RunColumns, SCHEMA};
pub use decoder::{Decoder, Event};

/// Default bound of a message: 64 MiB.
pub const DEFAULT_MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The largest bound that can be set: an offset of a column has 32 bits.
pub const LARGEST_MAX_MESSAGE_BYTES: usize = (1 << 31) - 1;
