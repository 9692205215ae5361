//! The state of a store: counters, durations, health, and what it needs of the machine.

use crate::stats::{Health, Stats};
use crate::store::Store;
use pyrmq_remoting::meter::Latency;

impl Store {
    /// Counters.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Durations of fsyncs: those of the log, and those of all consume queues.
    pub fn flush_times(&self) -> [Latency; 2] {
        self.engine.flush_times()
    }

    /// How long those that must know their messages durable waited for fsyncs of the log, one count for each.
    pub fn flush_waits(&self) -> Latency {
        self.engine.flush_waits()
    }

    /// Number of descriptors that the rest of the process must leave to the store: for files that it keeps open but has
    /// not opened yet, and for files that it opens for a moment.
    pub fn reserved_descriptors(&self) -> usize {
        self.engine.reserved_descriptors()
    }

    /// Bytes of memory that this process may use: the machine's, or less in a control group with a limit; `None` if
    /// the system does not say.
    pub fn memory_limit(&self) -> Option<u64> {
        self.engine.shared.fs.memory_limit()
    }

    /// Whether a write or an fsync has failed: nothing more is accepted until a restart.
    pub fn has_failed(&self) -> bool {
        self.engine.shared.log.failure.is_set()
    }

    /// The state of the store.
    pub fn health(&self) -> Health {
        self.engine.health()
    }

    /// Position in the commit log after the last record.
    pub fn end_position(&self) -> i64 {
        self.engine.end_position()
    }
}
