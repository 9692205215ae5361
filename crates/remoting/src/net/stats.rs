//! Counters of a server or client: plain atomics, written once per poll of a connection, read by whoever asks.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! stats {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// The counters. All grow for ever but `connections`.
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
    /// Connections that live now.
    connections,
    /// Connections that were ever opened.
    opened,
    /// Connections refused because of the cap, TLS or a PROXY header.
    refused,
    /// Connections refused because the descriptors that are left are reserved for others, a store above all.
    starved,
    /// Requests that came.
    requests,
    /// Responses that came.
    responses,
    /// Responses that came after their wait had ended, or that nobody asked for.
    late,
    /// Requests answered SYSTEM_BUSY.
    busy,
    /// Requests of codes that no row serves.
    unsupported,
    /// Processors that panicked.
    panics,
    /// Connections closed because the peer's bytes are not the protocol's.
    malformed,
    /// Connections closed because the rest of a frame did not come while unfinished frames took all memory that they
    /// may.
    unfinished,
    /// Connections closed because the peer did not read.
    stalled,
    /// Bytes read.
    bytes_in,
    /// Bytes written.
    bytes_out,
    /// Write calls, each with as many frames as were ready.
    writes,
    /// Read calls that brought bytes.
    reads,
}
