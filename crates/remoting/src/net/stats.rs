//! Counters of a server or client: plain atomics, written once per poll of a connection and readable at any time.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! stats {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// The counters. All only grow, except `connections`.
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[$meta])* pub $name: AtomicU64,)*
        }

        /// The counters at one moment.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Snapshot {
            $($(#[$meta])* pub $name: u64,)*
        }

        impl Stats {
            /// Reads all counters.
            pub fn snapshot(&self) -> Snapshot {
                Snapshot { $($name: self.$name.load(Ordering::Relaxed),)* }
            }

            /// Adds what one poll of a connection counted.
            pub(super) fn add(&self, tally: &mut Snapshot) {
                $(if tally.$name != 0 {
                    self.$name.fetch_add(tally.$name, Ordering::Relaxed);
                })*
                *tally = Snapshot::default();
            }
        }
    };
}

stats! {
    /// Open connections.
    connections,
    /// Connections opened so far.
    opened,
    /// Connections refused because of the limit, TLS or a PROXY header.
    refused,
    /// Connections refused because the remaining descriptors are reserved for others, above all a store.
    starved,
    /// Requests received.
    requests,
    /// Responses received.
    responses,
    /// Responses received after their wait had ended, or without a request.
    late,
    /// Requests answered SYSTEM_BUSY.
    busy,
    /// Requests of codes that no row serves.
    unsupported,
    /// Processors that panicked.
    panics,
    /// Connections closed because the peer sent invalid bytes.
    malformed,
    /// Connections closed because the rest of a frame did not arrive while unfinished frames used all of their memory.
    unfinished,
    /// Connections closed because the peer did not read.
    stalled,
    /// Bytes read.
    bytes_in,
    /// Bytes written.
    bytes_out,
    /// Write calls; each writes all frames that are ready.
    writes,
    /// Read calls that returned bytes.
    reads,
}
