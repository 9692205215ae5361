//! How many of the process's file descriptors the store uses and needs in reserve. The rest is for connections.

use crate::fs::descriptor_limit;

/// The store's part of the process's limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    /// Maximum number of queue files kept open.
    pub(crate) queue_files: usize,
    /// Maximum number of segments kept open, in addition to those that are not durable yet.
    pub(crate) segments: usize,
    /// Maximum number of index files kept open, the newest ones.
    pub(crate) index_files: usize,
    /// Descriptors for files that are open for a moment (directories being fsynced, configuration files, files beyond
    /// those kept open, older index files during a search), for the newest segments, and for whatever else the process
    /// opens.
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
            index_files: (limit / 32).clamp(1, 64),
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
            let kept = shares.queue_files + shares.segments + shares.index_files;
            assert!(kept + shares.others <= limit / 2, "{limit}: {shares:?}");
        }
    }
}
