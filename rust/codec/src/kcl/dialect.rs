//! The dialects of the protocol, and the capabilities of each. A new one is a row of [`Dialect::capabilities`].

/// Which daemon speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// KCL up to 1.7.1.
    Legacy,
    /// KCL 1.7.2 to 1.15. A child cannot tell its `initialize` and its records from modern ones, and need not.
    Transitional,
    /// KCL 2 and 3.
    Modern,
}

/// The capabilities of a dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Sub-sequence numbers, in `initialize`, records and checkpoints; and `millisBehindLatest`. Without them a
    /// checkpoint's only key is `checkpoint`.
    pub sub_sequence_numbers: bool,
    /// The message `shutdownRequested`, before a worker stops.
    pub shutdown_requested: bool,
    /// The messages `leaseLost` and `shardEnded`. Without them there is `shutdown`, with the reason, and a child may ask
    /// for a checkpoint in either.
    pub named_ends: bool,
}

impl Dialect {
    /// All of them, the oldest first.
    pub const ALL: [Self; 3] = [Self::Legacy, Self::Transitional, Self::Modern];

    /// Those that a child tells apart, by the daemon's `initialize`.
    pub const OF_CHILDREN: [Self; 2] = [Self::Legacy, Self::Modern];

    /// The name in options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Transitional => "transitional",
            Self::Modern => "modern",
        }
    }

    /// Its capabilities.
    #[must_use]
    pub const fn capabilities(self) -> Capabilities {
        let (sub_sequence_numbers, shutdown_requested, named_ends) = match self {
            Self::Legacy => (false, false, false),
            Self::Transitional => (true, true, false),
            Self::Modern => (true, true, true),
        };
        Capabilities { sub_sequence_numbers, shutdown_requested, named_ends }
    }
}
