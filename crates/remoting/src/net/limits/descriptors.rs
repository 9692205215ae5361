//! The file descriptors of this process: connections must leave enough of them to its other parts, above all to a
//! store.
//!
//! The system gives a new file or connection the lowest free number. So a connection's own number shows how many are in
//! use, regardless of what opened them, and no counter is needed.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Maximum that is requested. In some containers the hard limit is a thousand times as high: child programs that close
/// every possible descriptor would then take minutes.
const MAX_DESCRIPTORS: u64 = 1 << 20;

/// Returns how many descriptors this process may have.
pub fn descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Raises the limit of this process to the hard limit, but at most to 1,048,576: a server needs one descriptor for each
/// connection and file. Returns the new limit, or the old one if it cannot be raised.
pub fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit
        .maximum
        .map_or(MAX_DESCRIPTORS, |maximum| maximum.min(MAX_DESCRIPTORS));
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: limit.maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, limit = limit.current, wanted, "cannot raise the limit of open files");
        }
    }
    descriptor_limit()
}

/// Returns true if a connection took one of the last `reserved` descriptors. At most half of the limit is reserved.
pub(crate) fn is_reserved(connection: BorrowedFd<'_>, reserved: usize, limit: usize) -> bool {
    let used = usize::try_from(connection.as_raw_fd())
        .unwrap_or_default()
        .saturating_add(1);
    used > limit.saturating_sub(reserved.min(limit / 2))
}
