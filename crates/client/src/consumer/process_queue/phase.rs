//! Whether the application has heard of a queue that was taken, or goes back (see `rebalance::events`).

/// Where a queue is between being taken and being given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    /// Messages are handed out.
    #[default]
    Held,
    /// The queue was taken; no event says so yet.
    New,
    /// The callback for its assignment runs.
    Assigning,
    /// The queue is to go back; no event says so yet.
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
