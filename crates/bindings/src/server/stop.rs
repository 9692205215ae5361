//! A server's stop as a task of the runtime: it runs to its end whoever waits for it, and however the wait ends.
//!
//! An interrupt may end a wait (`enter::wait` raises it); the stop itself continues, so that everything acknowledged is
//! flushed before the store is closed.

use crate::enter;
use crate::errors::Error;
use pyo3::prelude::*;
use pyrmq_remoting::net::Tracker;
use pyrmq_remoting::sync::{lock, wait_while};
use std::future::Future;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Longest drain: the caller's deadline ends it earlier.
pub(crate) const DRAIN: Duration = Duration::from_hours(1);

/// The progress of a stop.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    // Guards the phase of the stop; held only to read or set it.
    phase: Mutex<Phase>,
    changed: Condvar,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    NotBegun,
    Running,
    Ended(Option<Error>),
}

impl Stop {
    /// Starts the stop; later calls do nothing.
    pub(crate) fn begin(
        &self,
        handle: &Handle,
        stop: impl Future<Output = Result<(), Error>> + Send + 'static,
    ) {
        let mut phase = lock(&self.shared.phase);
        if !matches!(*phase, Phase::NotBegun) {
            return;
        }
        *phase = Phase::Running;
        drop(phase);
        let shared = self.shared.clone();
        Tracker::new(handle.clone()).spawn(async move {
            let ended = stop.await;
            *lock(&shared.phase) = Phase::Ended(ended.err());
            shared.changed.notify_all();
        });
    }

    /// Waits for the end of the stop. Returns false if it has not ended within `timeout`. Its error is raised once.
    pub(crate) fn wait(&self, py: Python<'_>, timeout: Duration) -> PyResult<bool> {
        let until = Instant::now() + timeout;
        let ended = enter::wait(py, |slice| {
            let left = until.saturating_duration_since(Instant::now());
            let phase = lock(&self.shared.phase);
            let mut phase = wait_while(&self.shared.changed, phase, slice.min(left), |phase| {
                !matches!(phase, Phase::Ended(_))
            });
            match &mut *phase {
                Phase::Ended(error) => Some(Ok(error.take())),
                Phase::NotBegun | Phase::Running if left.is_zero() => Some(Err(())),
                Phase::NotBegun | Phase::Running => None,
            }
        })?;
        match ended {
            Ok(None) => Ok(true),
            Ok(Some(error)) => Err(error.into_py(py)),
            Err(()) => Ok(false),
        }
    }
}
