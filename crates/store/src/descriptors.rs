//! How many of the process's descriptors the store uses, and how many must be free for it: the rest is for connections.

use crate::fs::descriptor_limit;

/// The store's part of the process's limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    /// Queue files that are kept open at most.
    pub(crate) queue_files: usize,
    /// Segments that are kept open at most, besides those that are not durable yet.
    pub(crate) segments: usize,
    /// For what is open for a moment (directories that are fsynced, configuration files, files beyond those that are
    /// kept open), for new index files and the newest segments, and for whatever else the process opens.
    pub(crate) others: usize,
}

impl Shares {
    pub(crate) fn of_process() -> Self {
        Self::of(descriptor_limit())
    }

    fn of(limit: usize) -> Self {
        Self {
            queue_files: (limit / 8).clamp(8, 4096),
            segments: (limit / 16).clamp(4, 1024),
            others: (limit / 8).clamp(16, 256),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Shares;

    #[test]
    fn the_store_leaves_most_of_a_limit_to_connections() {
        for limit in [64, 256, 1024, 65_536, 1 << 20] {
            let shares = Shares::of(limit);
            assert!(
                shares.queue_files + shares.segments + shares.others <= limit / 2,
                "{limit}: {shares:?}"
            );
        }
    }
}
