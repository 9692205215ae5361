//! What a producer shares with its sends under way and its tasks.

use crate::producer::back_pressure::BackPressure;
use crate::producer::options::ProducerOptions;
use crate::producer::trace::Traces;
use crate::session::heartbeat::Heartbeat;
use crate::session::routes::Routes;
use pyrmq_remoting::message::id::UniqueIds;
use pyrmq_remoting::net::{Client, Shutdown, Tracker};
use pyrmq_routing::fault::LatencyFaultTolerance;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

/// Counters of a producer.
#[derive(Debug, Default)]
pub struct ProducerStats {
    /// Messages confirmed.
    pub confirmed: AtomicU64,
    /// Messages given up.
    pub failed: AtomicU64,
    /// Attempts beyond the first.
    pub retries: AtomicU64,
    /// Frames that carried messages.
    pub frames: AtomicU64,
    /// Frames that were batches.
    pub batches: AtomicU64,
    /// Messages in batches.
    pub batched: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct ProducerShared {
    pub(crate) options: ProducerOptions,
    pub(crate) client: Client,
    pub(crate) routes: Routes,
    pub(crate) back_pressure: Arc<BackPressure>,
    pub(crate) ids: UniqueIds,
    pub(crate) faults: Arc<LatencyFaultTolerance>,
    pub(crate) stats: ProducerStats,
    pub(crate) tracker: Tracker,
    pub(crate) born: Instant,
    pub(crate) traces: Option<Arc<Traces>>,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) closed: AtomicBool,
    pub(crate) shutdown: Shutdown,
}
