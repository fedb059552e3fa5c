//! KPL aggregates: many user records in one record of a stream, as the Kinesis Producer Library packs them.
//!
//! ```text
//!  ▏F3 89 9A C2 ▏protobuf AggregatedRecord, at least 1 byte        ▏MD5 of the protobuf ▏
//!               │ 1 partition_key_table      repeated string      │
//!               │ 2 explicit_hash_key_table  repeated string      │
//!               │ 3 records                  repeated Record      │
//!               │     1 partition_key_index, 2 explicit_hash_key_index, 3 data, 4 tags
//! ```
//!
//! A record that is no sound aggregate is a plain record, delivered as it came: nothing is lost, nothing half delivered. A
//! sound aggregate of which one user record does not belong to the shard is dropped, all of it: it was made for the
//! shards before a split or merge, and the shard that owns it has received it, too. User records are never opened
//! again.
//!
//! | module | purpose |
//! |---|---|
//! | `message` | an AggregatedRecord, read and checked |
//! | `protobuf` | the wire format, as far as it takes |
//! | `deaggregate` | splits the aggregates of a batch |
//! | `encode` | aggregates made |

mod deaggregate;
mod encode;
mod message;
mod protobuf;

pub use deaggregate::{Deaggregated, MAX_BATCH_BYTES, TooLarge, deaggregate};
pub use encode::{Aggregate, UserRecordError};
pub use message::{Fallback, user_data};

/// The first bytes of an aggregate.
const MAGIC: [u8; 4] = [0xf3, 0x89, 0x9a, 0xc2];

/// The most characters of a partition key that the service takes.
const MAX_KEY_CHARACTERS: usize = 256;

/// The values of a column: 32-bit offsets cannot overflow up to here.
const LARGEST_COLUMN_BYTES: usize = (1 << 31) - 1;

/// Bytes of an MD5 digest.
const DIGEST: usize = 16;
