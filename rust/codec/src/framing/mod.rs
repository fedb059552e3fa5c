//! Where messages end, by protocol: one file a framing rule.
//!
//! | module | rule | whose |
//! |---|---|---|
//! | [`line`] | a line feed ends a line | KCL |
//! | [`buffer`] | what all framers stand on: input read into one place, taken from its front | |

pub mod buffer;
pub mod line;

pub use buffer::Buffer;
pub use line::{LineEnd, is_blank};
