//! The dialects of the protocol.

/// How checkpoints are spelled. Found from `initialize`; transitional daemons (1.7.2 to 1.15) count as modern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// KCL up to 1.7.1: `checkpoint`, no sub-sequence numbers.
    Legacy,
    /// KCL from 1.7.2: `sequenceNumber` and `subSequenceNumber`.
    Modern,
}

impl Dialect {
    /// `legacy` or `modern`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

/// Which daemon writes a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineDialect {
    /// KCL up to 1.7.1.
    Legacy,
    /// KCL 1.7.2 to 1.15: records as modern ones.
    Transitional,
    /// KCL 2 and 3.
    Modern,
}
