//! The messages of all three dialects, typed.

use super::dialect::Dialect;
use crate::batch::RecordBatch;

/// Why a KCL 1.x daemon sends `shutdown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShutdownReason {
    /// The shard has ended.
    Terminate,
    /// The lease is lost.
    Zombie,
}

impl ShutdownReason {
    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Terminate => "TERMINATE",
            Self::Zombie => "ZOMBIE",
        }
    }
}

/// The first message: which shard, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initialize {
    /// E.g. `shardId-000000000000`.
    pub shard_id: String,
    /// Decimal digits, `TRIM_HORIZON`, `LATEST` or `AT_TIMESTAMP`; none in the legacy dialect.
    pub sequence_number: Option<String>,
    /// Where the last checkpoint stands inside an aggregate.
    pub sub_sequence_number: Option<i64>,
    /// One of [`Dialect::OF_CHILDREN`]: modern if the message has either key, whatever its value.
    pub dialect: Dialect,
}

/// The reply to a checkpoint request: its echo, and what went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// `sequenceNumber`; in the legacy dialect `checkpoint`.
    pub sequence_number: Option<String>,
    /// As requested.
    pub sub_sequence_number: Option<i64>,
    /// Simple Java class name; none is success.
    pub error: Option<String>,
}

/// A message from the daemon.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Message {
    /// `initialize`.
    Initialize(Initialize),
    /// `processRecords`; its `millisBehindLatest` is the batch's.
    ProcessRecords(RecordBatch),
    /// `leaseLost`.
    LeaseLost,
    /// `shardEnded`.
    ShardEnded,
    /// `shutdownRequested`.
    ShutdownRequested,
    /// `shutdown` of KCL 1.x.
    Shutdown(ShutdownReason),
    /// `checkpoint`.
    Checkpoint(Checkpoint),
}
