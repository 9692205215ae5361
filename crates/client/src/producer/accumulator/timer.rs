//! The timer that sends batches which have waited for `linger`.

use super::partition::ReadyBatch;
use super::shared::Accumulator;
use pyrmq_remoting::net::Shutdown;
use std::sync::{Arc, Weak};
use std::time::Instant;
use tokio::sync::Notify;

impl<T: Send + 'static> Accumulator<T> {
    /// Sends what has waited long enough. Returns when to sweep again, if a batch is still open.
    fn sweep(self: &Arc<Self>) -> Option<Instant> {
        let (now, linger) = (Instant::now(), self.limits.linger);
        let mut guard = self.state();
        let state = &mut *guard;
        let (mut due, mut again) = (Vec::new(), None);
        let mut late = Vec::new();
        for (key, partition) in &mut state.partitions {
            while let Some(ready) = partition.take_expired(now) {
                late.push((key.clone(), ready));
            }
            let next = partition.sealed.iter().map(ReadyBatch::expires_at).min();
            again = again
                .into_iter()
                .chain(next.filter(|_| partition.in_flight > 0))
                .min();
            let Some(open) = &mut partition.open else { continue };
            let ready_at = open.since + linger;
            if now < ready_at {
                again = Some(again.map_or(ready_at, |other: Instant| other.min(ready_at)));
            } else {
                // A partition queue that waits for an answer continues by itself when the answer comes.
                open.eager |= key.is_ordered();
                due.push(key.clone());
            }
        }
        state.ticking = again.is_some();
        drop(guard);
        for (key, ready) in late {
            // Its timeout has passed: it fails without being dispatched.
            self.launch(key, ready);
        }
        for key in due {
            self.drain(&key);
        }
        again
    }
}

/// The timer: asleep until a batch is opened, then until the oldest has waited `linger`. It keeps nothing alive.
pub(super) async fn tick<T: Send + 'static>(
    accumulator: Weak<Accumulator<T>>,
    opened: Arc<Notify>,
    shutdown: Shutdown,
) {
    loop {
        let Some(again) = accumulator.upgrade().map(|this| this.sweep()) else {
            return;
        };
        let Some(again) = again else {
            tokio::select! {
                () = opened.notified() => continue,
                () = shutdown.stopped() => return,
            }
        };
        let pause = again.saturating_duration_since(Instant::now());
        tokio::select! {
            // Something that is due earlier may have come.
            () = opened.notified() => {}
            stopped = shutdown.sleep_or_stop(pause) => if stopped {
                return;
            },
        }
    }
}
