//! Whether the application knows that a queue was assigned, or is revoked (see `rebalance::events`).

/// Where a queue is between being taken and being given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    /// Messages are handed out.
    #[default]
    Held,
    /// The queue was taken, but no event has reported it yet.
    New,
    /// The callback for its assignment runs.
    Assigning,
    /// The queue is to be given back, but no event has reported it yet.
    Leaving,
    /// The callback for its revocation runs.
    Revoking,
}

impl Phase {
    /// True while polls may hand out messages of the queue.
    pub(crate) fn is_held(self) -> bool {
        self == Self::Held
    }

    /// True while it is about to go back.
    pub(crate) fn is_going(self) -> bool {
        matches!(self, Self::Leaving | Self::Revoking)
    }
}
