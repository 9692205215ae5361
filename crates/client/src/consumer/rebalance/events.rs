//! Events about a polled consumer's share of the group's queues (Kafka `ConsumerRebalanceListener`).
//!
//! ```text
//!          taken        event ends        not this member's any more         event ends
//! (none) -------> New -----------> Held ------------------------> Leaving ------------> (none)
//!                  assigned                                        revoked: last commit
//! ```
//! Polls hand out messages only of queues in `Held`. An event waits for the thread that polls, which runs the
//! application's callback for it and ends it. A queue that goes without an event, because the member has left the group
//! or the queue no longer exists, is lost.

use crate::consumer::process_queue::phase::Phase;
use crate::consumer::process_queue::{ProcessQueue, QueueKey};
use crate::consumer::shared::{ConsumerShared, ConsumerState};
use crate::error::ClientError;
use std::sync::Arc;

/// What has changed for a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebalanceKind {
    /// Queues were taken.
    Assigned,
    /// Queues are about to go back.
    Revoked,
    /// Queues are gone.
    Lost,
}

/// A change to report to the application. It lasts until `Puller::end_rebalance_event`.
#[derive(Debug)]
pub struct RebalanceEvent {
    /// What has changed.
    pub kind: RebalanceKind,
    /// For these queues.
    pub queues: Vec<Arc<QueueKey>>,
}

/// How queues that are no longer this member's are given back.
#[derive(Clone, Copy)]
pub(crate) enum Departure<'a> {
    /// At once, without a report.
    Silent,
    /// At once; the next poll reports them as lost.
    Lost,
    /// After the next poll has reported it; those that no longer exist are lost.
    Announced(&'a (dyn Fn(&QueueKey) -> bool + Sync)),
}

impl ConsumerState {
    /// True when an event waits for a poll.
    pub(crate) fn has_events(&self) -> bool {
        self.has_events
    }

    /// Decides whether a queue that is no longer this member's stays until a poll has reported it.
    pub(crate) fn stays_for_now(&mut self, key: &Arc<QueueKey>, departure: Departure<'_>) -> bool {
        let Some(queue) = self.queues.get_mut(key) else {
            return false;
        };
        let is_lost = match departure {
            Departure::Silent => return false,
            Departure::Lost => true,
            Departure::Announced(exists) => !exists(key),
        };
        match queue.phase {
            // Its assignment was not reported.
            Phase::New => return false,
            Phase::Revoking => return true,
            Phase::Held | Phase::Assigning | Phase::Leaving if is_lost => self.lost.push(key.clone()),
            Phase::Held | Phase::Assigning | Phase::Leaving => queue.phase = Phase::Leaving,
        }
        self.has_events = true;
        !is_lost
    }

    /// Keeps a queue that was about to be given back and is this member's again; neither was reported.
    pub(crate) fn stays_after_all(&mut self, key: &Arc<QueueKey>) {
        if let Some(queue) = self.queues.get_mut(key)
            && queue.phase == Phase::Leaving
        {
            queue.phase = Phase::Held;
            self.make_ready(key);
        }
    }

    /// The next event: lost queues first, then revoked ones, then assigned ones.
    pub(crate) fn next_event(&mut self, all_done: bool) -> Option<RebalanceEvent> {
        if !self.lost.is_empty() {
            let queues = std::mem::take(&mut self.lost);
            let kind = RebalanceKind::Lost;
            return Some(RebalanceEvent { kind, queues });
        }
        for (kind, from, to) in [
            (RebalanceKind::Revoked, Phase::Leaving, Phase::Revoking),
            (RebalanceKind::Assigned, Phase::New, Phase::Assigning),
        ] {
            let is_concerned = |queue: &&mut ProcessQueue| queue.phase == from && queue.next_pull.is_some();
            let mut queues = Vec::new();
            for queue in self.queues.values_mut().filter(is_concerned) {
                queue.phase = to;
                if all_done && kind == RebalanceKind::Revoked {
                    queue.done = queue.delivered;
                }
                queues.push(queue.key.clone());
            }
            if !queues.is_empty() {
                return Some(RebalanceEvent { kind, queues });
            }
        }
        self.has_events = false;
        None
    }
}

impl ConsumerState {
    pub(crate) fn retire(&mut self, scope: impl Fn(&QueueKey) -> bool) {
        let keys: Vec<_> = self.queues.keys().filter(|key| scope(key)).cloned().collect();
        for key in keys {
            if !self.stays_for_now(&key, Departure::Announced(&|_| true)) {
                self.queues.remove(&key);
            }
        }
    }
}

impl ConsumerShared {
    /// How queues of the group are given back: polled consumers may want a report.
    pub(crate) fn departure<'a>(&self, exists: &'a (dyn Fn(&QueueKey) -> bool + Sync)) -> Departure<'a> {
        if self.options.announces_rebalances {
            Departure::Announced(exists)
        } else {
            Departure::Silent
        }
    }

    /// Ends the callback for assigned queues. If it failed, the next poll calls it again: the application may not have
    /// done what must precede the messages, such as a seek.
    pub(crate) fn hold(self: &Arc<Self>, queues: &[QueueKey], has_returned: bool) {
        let mut state = self.state();
        for key in queues {
            let Some(queue) = state.queues.get_mut(key) else {
                continue;
            };
            if queue.phase != Phase::Assigning {
                continue;
            }
            if has_returned {
                queue.phase = Phase::Held;
                let key = queue.key.clone();
                state.make_ready(&key);
            } else {
                queue.phase = Phase::New;
                state.has_events = true;
            }
        }
        self.wake(&state);
    }

    pub(crate) async fn give_back_revoked(
        self: &Arc<Self>,
        keys: &[QueueKey],
        has_returned: bool,
    ) -> Result<(), ClientError> {
        let _taking = self.taking.lock().await;
        let mut gone = {
            let mut state = self.state();
            let mut gone = Vec::new();
            for key in keys {
                if state
                    .queues
                    .get(key)
                    .is_some_and(|queue| queue.phase == Phase::Revoking)
                {
                    gone.extend(self.remove_queue(&mut state, key));
                }
            }
            gone
        };
        for queue in &mut gone {
            tracing::info!(key = %queue.key, "queue given back");
            if !has_returned {
                queue.done = queue.committed;
            }
        }
        let ended = self.end_queues(gone).await;
        // The queue may have become this member's again while the callback ran.
        self.rebalance.notify_one();
        ended
    }
}
