//! The members of an answer besides its records, in any encoding.

use std::ops::{Range, RangeInclusive};

/// A shard that follows the one that was read to its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChildShard {
    /// E.g. `shardId-000000000002`.
    pub shard_id: String,
    /// One after a split, two after a merge.
    pub parent_shards: Vec<String>,
    /// The hash keys that it owns.
    pub hash_range: RangeInclusive<u128>,
}

/// The members of an answer besides its records; absent ones are none.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) next_shard_iterator: Option<String>,
    pub(super) millis_behind_latest: Option<i64>,
    pub(super) child_shards: Vec<ChildShard>,
    pub(super) records_span: Option<Range<usize>>,
}
