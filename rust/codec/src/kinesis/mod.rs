//! Answers of GetRecords, and KPL aggregates, as columns.
//!
//! ```text
//!  body of a GetRecords answer ── answer ─▶ RecordBatch ── kpl::deaggregate ─▶ RecordBatch of user records
//!   JSON: get_records, the scanner of crate::record      │
//!   CBOR: cbor                                           └─ beside it: next iterator, child shards, lag
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | `answer` | [`decode_get_records`], [`Answer`], which encoding a content type means |
//! | `parts` | the members of an answer besides its records |
//! | `get_records` | a JSON answer |
//! | `cbor` | a CBOR answer |
//! | [`kpl`] | splits aggregates, and makes them |
//! | [`netstring`] | items of any bytes in one record |
//! | `shape`, `time` | how the service writes a record and a time in JSON |

mod answer;
mod cbor;
mod get_records;
mod hash_key;
pub mod kpl;
pub mod netstring;
mod parts;
mod shape;
mod time;

pub use answer::{Answer, Encoding, LARGEST_BODY_BYTES, decode_get_records, decode_get_records_with_isa};
pub use parts::ChildShard;
