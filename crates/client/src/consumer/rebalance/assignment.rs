//! Changes the queues of a member: takes and starts new ones, and gives others back.

use crate::consumer::options::{Order, Start};
use crate::consumer::process_queue::phase::Phase;
use crate::consumer::process_queue::{ProcessQueue, QueueKey};
use crate::consumer::rebalance::events::Departure;
use crate::consumer::shared::{ConsumerShared, ConsumerState};
use crate::error::ClientError;
use crate::session::membership::Subscription;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How long a queue that is given back waits for the calls that have messages of it. The member that takes it waits
/// longer for the last commit (`settling`).
const HANDOVER_TIMEOUT: Duration = Duration::from_millis(250);

/// A queue to take.
#[derive(Debug)]
pub(crate) struct Assignment {
    pub(crate) key: Arc<QueueKey>,
    pub(crate) start: Option<i64>,
    pub(crate) subscription: Arc<Subscription>,
    /// Another member may still have the queue, since it learns of the change at the same time.
    pub(crate) is_contended: bool,
}

/// A queue that was taken and is to be started.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) key: Arc<QueueKey>,
    /// Where to begin, if that is given.
    pub(crate) start: Option<i64>,
    pub(crate) generation: u64,
    /// See [`Assignment`].
    pub(crate) is_contended: bool,
}

impl ConsumerShared {
    /// Takes the wanted queues and gives back those of `scope` that are not wanted.
    pub(crate) async fn take(
        self: &Arc<Self>,
        wanted: Vec<Assignment>,
        scope: impl Fn(&QueueKey) -> bool,
        departure: Departure<'_>,
    ) -> Result<(), ClientError> {
        let _taking = self.taking.lock().await;
        self.exchange(wanted, scope, departure).await
    }

    /// Takes the wanted queues and gives back those of `scope` that are not wanted. The caller holds the lock `taking`,
    /// which [`Self::take`] acquires itself.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        wanted: Vec<Assignment>,
        scope: impl Fn(&QueueKey) -> bool,
        departure: Departure<'_>,
    ) -> Result<(), ClientError> {
        let (lost, fresh, changed, is_announced) = {
            let mut state = self.state();
            if state.is_closing || (state.is_ending && matches!(departure, Departure::Announced(_))) {
                return Ok(());
            }
            let lost = self.remove_unwanted(&mut state, &wanted, scope, departure);
            let (fresh, changed) = self.insert_wanted(&mut state, wanted, departure);
            if state.has_events() {
                self.wake(&state);
            }
            let is_announced = state.queues.values().any(|queue| queue.phase.is_going());
            (lost, fresh, changed, is_announced)
        };
        self.give_back_in_time();
        for queue in &lost {
            tracing::info!(key = %queue.key, "queue given back");
        }
        if is_announced {
            // Commits at once: the queue's next member begins at the committed offset.
            let shared = self.clone();
            self.tracker.spawn(async move { shared.commit_each().await });
        }
        for key in &changed {
            self.pull(key);
        }
        let (ended, begun) = tokio::join!(self.end_queues(lost), async {
            if self.needs_locks() {
                self.lock(fresh.into_iter().map(|one| one.key).collect()).await
            } else {
                self.begin(fresh).await
            }
        });
        ended.and(begun)
    }

    fn remove_unwanted(
        &self,
        state: &mut ConsumerState,
        wanted: &[Assignment],
        scope: impl Fn(&QueueKey) -> bool,
        departure: Departure<'_>,
    ) -> Vec<ProcessQueue> {
        let mut lost = Vec::new();
        let keys: Vec<Arc<QueueKey>> = state.queues.keys().filter(|key| scope(key)).cloned().collect();
        for key in keys {
            let is_wanted = wanted.iter().any(|one| one.key == key);
            let mut is_kept = false;
            if let Some(queue) = state.queues.get_mut(&key) {
                let was_leaving = queue.listeners.is_leaving;
                // Listeners that have messages of the queue finish them first: their outcomes are in the last commit.
                queue.listeners.is_leaving = !is_wanted && self.finishes_first(queue);
                if queue.listeners.is_leaving {
                    continue;
                }
                is_kept = was_leaving && is_wanted;
            }
            if is_kept {
                // No message of it was handed out while it was about to be given back.
                state.make_ready(&key);
                self.wake(state);
            }
            if is_wanted {
                state.stays_after_all(&key);
            } else if !state.stays_for_now(&key, departure)
                && let Some(queue) = self.remove_queue(state, &key)
            {
                lost.push(queue);
            }
        }
        lost
    }

    /// Whether a queue that is given back waits for the listeners that have messages of it. Only members that lock
    /// their queues may wait as long as it takes.
    fn finishes_first(&self, queue: &ProcessQueue) -> bool {
        let commits = self.options.commit_interval.is_some() && !self.options.is_broadcasting;
        queue.is_at_work(self.options.order) && (self.options.order == Order::Queue || commits)
    }

    /// Gives queues that wait for their listeners back after [`HANDOVER_TIMEOUT`], finished or not. Locked queues wait
    /// as long as it takes, since no other member reads them meanwhile.
    fn give_back_in_time(self: &Arc<Self>) {
        if self.options.order == Order::Queue {
            return;
        }
        let going: Vec<_> = {
            let mut state = self.state();
            let queues = state.queues.values_mut();
            let new = queues.filter_map(|queue| queue.listeners.begin_leaving().then(|| queue.key.clone()));
            new.collect()
        };
        if going.is_empty() {
            return;
        }
        let shared = self.clone();
        self.tracker.spawn(async move {
            if !shared.shutdown.sleep_or_stop(HANDOVER_TIMEOUT).await {
                for key in &going {
                    shared.give_back(key);
                }
            }
        });
    }

    /// Returns the new queues, and those that stay and must be pulled again.
    fn insert_wanted(
        &self,
        state: &mut ConsumerState,
        wanted: Vec<Assignment>,
        departure: Departure<'_>,
    ) -> (Vec<Fresh>, Vec<Arc<QueueKey>>) {
        let mut fresh = Vec::new();
        let mut changed = Vec::new();
        for one in wanted {
            if one.start.is_none()
                && let Some(queue) = state.queues.get_mut(&one.key)
            {
                if self.resubscribe(queue, one.subscription) {
                    changed.push(one.key);
                }
                continue;
            }
            let generation = self.next_generation();
            let mut queue = ProcessQueue::new(one.key.clone(), one.subscription, generation);
            queue.listeners.is_shared = self.options.is_broadcasting;
            queue.max_span = self.options.max_span;
            if matches!(departure, Departure::Announced(_)) {
                queue.phase = Phase::New;
            }
            if let Some(before) = state.queues.get(&one.key) {
                queue.committing = before.committing.clone();
            }
            state.queues.insert(one.key.clone(), queue);
            fresh.push(Fresh {
                key: one.key,
                start: one.start,
                generation,
                is_contended: one.is_contended,
            });
        }
        (fresh, changed)
    }

    /// Gives a queue that stays its new subscription. True if that selects other messages: fetched ones are dropped,
    /// and the queue must be pulled. Messages that were handed out are not affected.
    fn resubscribe(&self, queue: &mut ProcessQueue, subscription: Arc<Subscription>) -> bool {
        let before = std::mem::replace(&mut queue.subscription, subscription);
        let is_same =
            before.expression == queue.subscription.expression && before.is_sql == queue.subscription.is_sql;
        if is_same || queue.next_pull.is_none() {
            return false;
        }
        let (done, is_group_start, settling) = (queue.done, queue.is_group_start, queue.settling);
        // Outcomes of what listeners have now are ignored after the restart, so it is delivered again.
        let begin = if self.options.is_listening {
            done
        } else {
            queue.delivered
        };
        queue.restart(begin, self.next_generation());
        queue.done = done;
        (queue.is_group_start, queue.settling) = (is_group_start, settling);
        true
    }

    /// Starts to read new queues, concurrently: a broker that does not answer delays only its own queues.
    pub(crate) async fn begin(self: &Arc<Self>, fresh: Vec<Fresh>) -> Result<(), ClientError> {
        let mut requests = JoinSet::new();
        for one in fresh {
            let shared = self.clone();
            requests.spawn(async move {
                let begin = match one.start {
                    Some(offset) => Ok(offset),
                    None => shared.begin_of(&one.key).await,
                };
                begin
                    .map(|begin| shared.read_from(&one, begin))
                    .inspect_err(|_| shared.forget(&one.key, one.generation))
            });
        }
        let mut failure = None;
        while let Some(outcome) = requests.join_next().await {
            // An unreachable master is the least important error: see `subscribe`.
            if let Ok(Err(error)) = outcome
                && (failure.is_none() || !matches!(error, ClientError::NoMaster { .. }))
            {
                failure = Some(error);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Starts to pull a queue, unless it was given back or moved meanwhile.
    fn read_from(self: &Arc<Self>, fresh: &Fresh, begin: i64) {
        let (key, generation) = (&fresh.key, fresh.generation);
        let commits = self.options.commit_interval.is_some() && !self.options.is_broadcasting;
        let settles = fresh.is_contended && fresh.start.is_none() && commits;
        {
            let mut state = self.state();
            let Some(queue) = state.queue(key, generation) else {
                return;
            };
            tracing::info!(%key, begin, "queue taken");
            queue.restart(begin, generation);
            queue.is_group_start = fresh.start.is_none();
            queue.settling = settles.then_some(generation);
            if queue.phase == Phase::New {
                state.has_events = true;
                self.wake(&state);
            }
        }
        self.pull(key);
        if settles {
            let (shared, key) = (self.clone(), key.clone());
            self.tracker
                .spawn(async move { shared.settle_queue(&key, generation, begin).await });
        }
    }

    /// Drops a queue whose start is not known: the next rebalance tries again.
    fn forget(&self, key: &Arc<QueueKey>, generation: u64) {
        let mut state = self.state();
        if state.queue(key, generation).is_some() {
            state.queues.remove(key);
        }
    }

    /// The group's offset, or the configured start if it has none. A slave may not have the last commits: then messages
    /// are delivered again. But none may be skipped because of what a slave lacks.
    async fn begin_of(&self, key: &QueueKey) -> Result<i64, ClientError> {
        if self.options.is_broadcasting {
            if let Some(offset) = self.local_offset(key) {
                return Ok(offset);
            }
        } else if let Some(offset) = self.offsets.committed_surely(key).await? {
            return Ok(offset);
        }
        let masters = self.offsets.of_masters();
        match self.start {
            Start::First => masters.first(key).await,
            Start::Last => masters.last(key).await,
            Start::Time(timestamp_ms) => masters.at_time(key, timestamp_ms).await,
        }
    }
}
