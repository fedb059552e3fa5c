//! Where messages end, by protocol: one file a framing rule.
//!
//! | module | rule | whose |
//! |---|---|---|
//! | [`mod@line`] | a line feed ends a line | KCL |
//! | [`markers`] | byte strings end messages and stand between them | DKB |
//! | [`end_lines`] | a line `end` ends a frame | ProcessV1 |
//! | [`buffer`] | the base of all framers: input is read into one place and taken from its front | |

pub mod buffer;
pub mod end_lines;
pub mod line;
pub mod markers;

pub use buffer::Buffer;
pub use line::{LineEnd, is_blank};

/// The size of one read: above it a pipe gives no more at once, and the bytes are still in the cache.
pub const READ_BYTES: usize = 256 * 1024;
