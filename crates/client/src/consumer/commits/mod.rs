//! How far a group has come: what is committed, when, and where. Brokers keep the offsets of a group whose members
//! share its queues; where every member gets every message each keeps its own (Apache `RemoteBrokerOffsetStore`,
//! `LocalFileOffsetStore`).

mod giving_back;
mod gone_queues;
mod lost;
mod named;
mod reset;

use crate::consumer::options::Start;
use crate::consumer::process_queue::{ProcessQueue, QueueKey};
use crate::consumer::requests::offsets::{Offsets, WhichOffset};
use crate::consumer::shared::ConsumerShared;
use crate::error::{ClientError, Uncommitted};
use pyrmq_remoting::names::RETRY_PREFIX;
use pyrmq_remoting::sync::lock;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How often all commits are checked again.
const VERIFY_INTERVAL: Duration = Duration::from_mins(1);

/// How often commits in doubt are checked where the application commits.
const DOUBT_INTERVAL: Duration = Duration::from_secs(5);

/// Why a position is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommitReason {
    /// The commit interval has passed. A position that was committed before is not sent.
    Interval,
    /// The application has called `commit`. The call returns once the broker has the position, so a position that was
    /// committed before is compared with the broker's.
    Call,
    /// The application names the offset.
    Named,
    /// The broker has lost it. It is sent unless it was replaced meanwhile.
    Lost,
    /// The queue was given back with this position.
    Last,
}

/// A position to be committed.
pub(crate) struct PendingCommit {
    key: Arc<QueueKey>,
    offset: i64,
    committing: Arc<tokio::sync::Mutex<()>>,
    reason: CommitReason,
    /// See [`ProcessQueue::is_untouched`].
    is_untouched: bool,
    /// The queue was about to be given back: polls may come late, and its next member may have it by now.
    was_going: bool,
}

impl PendingCommit {
    fn of(queue: &ProcessQueue, reason: CommitReason) -> Self {
        Self {
            key: queue.key.clone(),
            offset: queue.done,
            committing: queue.committing.clone(),
            reason,
            is_untouched: queue.is_untouched(),
            was_going: queue.phase.is_going(),
        }
    }

    /// The position that this member has committed last.
    pub(crate) fn lost(queue: &ProcessQueue) -> Self {
        Self {
            offset: queue.committed,
            ..Self::of(queue, CommitReason::Lost)
        }
    }
}

/// How to commit a position, decided once earlier commits of its queue have ended.
struct DueCommit {
    offset: i64,
    /// The position of the queue that this member has committed last; -1: none.
    committed: i64,
    /// Another member may have the queue by now, or the broker may have this position: its position is requested first.
    is_verified: bool,
    /// The position is committed only if the group has no position at all.
    is_untouched: bool,
}

impl ConsumerShared {
    /// Commits the last positions of queues that were given back, then gives their locks back.
    pub(crate) async fn end_queues(self: &Arc<Self>, lost: Vec<ProcessQueue>) -> Result<(), ClientError> {
        if self.options.is_broadcasting {
            self.keep_local_offsets(&lost);
            return Ok(());
        }
        let needs_lock = self.needs_locks();
        let keys: Vec<_> = lost.iter().map(|queue| queue.key.clone()).collect();
        let mut positions = Vec::new();
        let mut locked = Vec::new();
        for queue in lost {
            let is_due = self.is_last_due(&queue);
            self.note_uncommitted(&queue, is_due);
            if is_due {
                positions.push(PendingCommit::of(&queue, CommitReason::Last));
            }
            if needs_lock && queue.listeners.is_locked() {
                locked.push(queue.key);
            }
        }
        let committed = self.commit_positions(positions).await;
        self.locks.unlock(&locked).await;
        self.has_given_back(&keys, committed)
    }

    /// Whether the position of a queue is to be committed when it goes back.
    pub(crate) fn is_last_due(&self, queue: &ProcessQueue) -> bool {
        let is_mine = !self.needs_locks() || queue.listeners.is_locked();
        let commits = self.options.commit_interval.is_some() && !self.options.is_broadcasting;
        commits && queue.done > queue.committed && is_mine
    }

    /// Commits what is done, each interval, and checks whether brokers have lost it.
    pub(crate) async fn keep_positions(self: Arc<Self>) {
        if self.options.is_broadcasting {
            return;
        }
        let interval = self.options.commit_interval.unwrap_or(DOUBT_INTERVAL);
        let mut verified = Instant::now();
        while !self.shutdown.sleep_or_stop(interval).await {
            self.commit_each().await;
            let all = verified.elapsed() >= VERIFY_INTERVAL;
            if all {
                verified = Instant::now();
            }
            // A broker that does not answer must not delay the commits of others.
            let shared = self.clone();
            self.tracker.spawn(async move {
                let lost = shared.verify_commits(all).await;
                if let Err(error) = shared.commit_positions(lost).await {
                    tracing::warn!(%error, "positions not committed again");
                }
            });
        }
    }

    /// Commits what is done, unless only the application commits. What fails is logged.
    pub(crate) async fn commit_each(self: &Arc<Self>) {
        if self.options.commit_interval.is_some()
            && let Err(error) = self.commit_changed().await
        {
            tracing::warn!(%error, "positions not committed");
        }
    }

    /// Commits positions that have changed.
    pub(crate) async fn commit_changed(self: &Arc<Self>) -> Result<(), ClientError> {
        let changed = self.positions_of(CommitReason::Interval, |queue| queue.done != queue.committed);
        self.commit_positions(changed).await
    }

    /// Commits all positions for the application: without an error brokers have them.
    pub(crate) async fn commit_for_call(self: &Arc<Self>) -> Result<(), ClientError> {
        let positions = self.positions_of(CommitReason::Call, |_| true);
        // Evaluated at the end: a queue may be taken away while this waits.
        self.commit_with(positions, || self.take_uncommitted(|_| true))
            .await
    }

    fn positions_of(
        &self,
        reason: CommitReason,
        is_due: impl Fn(&ProcessQueue) -> bool,
    ) -> Vec<PendingCommit> {
        if self.options.is_broadcasting {
            return Vec::new();
        }
        let state = self.state();
        let due = state.queues.values().filter(|queue| {
            let is_mine = !self.needs_locks() || queue.listeners.is_locked();
            queue.done >= 0 && is_mine && is_due(queue)
        });
        due.map(|queue| PendingCommit::of(queue, reason)).collect()
    }

    /// Commits positions concurrently, each within the time of one request: an unreachable broker does not delay
    /// commits at others. The error lists the queues that are not committed.
    pub(crate) async fn commit_positions(
        self: &Arc<Self>,
        positions: Vec<PendingCommit>,
    ) -> Result<(), ClientError> {
        self.commit_with(positions, Vec::new).await
    }

    /// Commits positions concurrently (see [`Self::commit_positions`]). The error also lists the queues of `gone`,
    /// which cannot be committed.
    async fn commit_with(
        self: &Arc<Self>,
        positions: Vec<PendingCommit>,
        gone: impl FnOnce() -> Vec<Uncommitted> + Send,
    ) -> Result<(), ClientError> {
        let mut requested = positions.len();
        let mut commits = JoinSet::new();
        let mut committed = HashMap::new();
        let mut failed = Vec::new();
        for position in positions {
            let (shared, queue) = (self.clone(), (position.key.clone(), position.offset));
            let task = commits.spawn(async move { shared.commit_one(position).await });
            committed.insert(task.id(), queue);
        }
        while let Some(outcome) = commits.join_next_with_id().await {
            match outcome {
                Ok((_, Ok(()))) => {}
                Ok((_, Err(uncommitted))) => failed.push(uncommitted),
                Err(error) => {
                    // The task has panicked, or the runtime ends: it is not known what the broker has.
                    tracing::error!(%error, "a commit was not carried out");
                    if let Some((key, offset)) = committed.get(&error.id()) {
                        let cause = ClientError::Aborted { what: "a commit" };
                        failed.push(self.uncommitted(key, *offset, cause));
                    }
                }
            }
        }
        let gone = gone();
        requested += gone.len();
        failed.extend(gone);
        if failed.is_empty() {
            return Ok(());
        }
        failed.sort_by(|one, other| {
            let queue = |of: &Uncommitted| (of.topic.clone(), of.broker.clone(), of.queue_id);
            queue(one).cmp(&queue(other))
        });
        Err(ClientError::NotCommitted { requested, failed })
    }

    /// Commits a position after the commits of this queue that have begun, all within the time of one request.
    async fn commit_one(self: &Arc<Self>, position: PendingCommit) -> Result<(), Uncommitted> {
        let due = Instant::now() + self.options.client.request_timeout;
        let left = || due.saturating_duration_since(Instant::now());
        let _alone = position.committing.lock().await;
        let Some(due_commit) = self.due_commit(&position) else {
            return Ok(());
        };
        let (key, offset) = (&position.key, due_commit.offset);
        let outcome = if due_commit.is_verified {
            match self.offsets.committed_within(key, left()).await {
                Ok(Some(_)) if due_commit.is_untouched => Ok(true),
                Ok(Some(found)) if found >= offset && is_left_out(position.reason, found, &due_commit) => {
                    Ok(true)
                }
                Ok(_) => self.offsets.commit(key, offset, left()).await,
                Err(error) => Err(error),
            }
        } else {
            self.offsets.commit(key, offset, left()).await
        };
        match outcome {
            Ok(false) => {
                self.follow_reset(key);
                Ok(())
            }
            Ok(true) => {
                if let Some(queue) = self.state().queues.get_mut(key) {
                    queue.committed = offset;
                }
                Ok(())
            }
            Err(cause) if self.is_needless(key, offset) => {
                tracing::warn!(%key, offset, error = %cause, "where the consumer began is not committed");
                Ok(())
            }
            Err(cause) => Err(self.uncommitted(key, offset, cause)),
        }
    }

    /// What to send for a position now; `None`: nothing.
    fn due_commit(&self, position: &PendingCommit) -> Option<DueCommit> {
        let state = self.state();
        let Some(queue) = state.queues.get(&position.key) else {
            // The queue was given back while this waited: a position of this member would move the group backwards.
            let counts = matches!(position.reason, CommitReason::Named | CommitReason::Last);
            return counts.then_some(DueCommit {
                offset: position.offset,
                committed: -1,
                is_verified: position.was_going || position.is_untouched,
                is_untouched: position.is_untouched,
            });
        };
        let (offset, is_due) = match position.reason {
            // Includes messages that were done while this waited.
            CommitReason::Interval => (queue.done, queue.done >= 0 && queue.done != queue.committed),
            CommitReason::Call => (queue.done, queue.done >= 0),
            CommitReason::Lost => (position.offset, queue.committed == position.offset),
            CommitReason::Named | CommitReason::Last => (position.offset, true),
        };
        let is_repeated = position.reason == CommitReason::Call && offset == queue.committed;
        let is_untouched = position.reason != CommitReason::Named && queue.is_untouched();
        is_due.then_some(DueCommit {
            offset,
            committed: queue.committed,
            is_verified: queue.phase.is_going() || is_repeated || is_untouched,
            is_untouched,
        })
    }

    /// Whether no message is lost if this position is not committed: without it the group begins there, too.
    fn is_needless(&self, key: &QueueKey, offset: i64) -> bool {
        let begins_there = self.options.is_listening
            && (matches!(self.start, Start::First) || key.topic.starts_with(RETRY_PREFIX));
        let state = self.state();
        let queue = state.queues.get(key);
        begins_there && queue.is_some_and(|queue| queue.began == offset && queue.committed < 0)
    }

    fn local_offsets(&self) -> MutexGuard<'_, BTreeMap<QueueKey, i64>> {
        lock(&self.local_offsets)
    }

    /// Where this member of a broadcasting group continues in a queue.
    pub(crate) fn local_offset(&self, key: &QueueKey) -> Option<i64> {
        self.local_offsets().get(key).copied()
    }

    fn keep_local_offsets<'a>(&self, queues: impl IntoIterator<Item = &'a ProcessQueue>) {
        let mut kept = self.local_offsets();
        for queue in queues {
            if queue.done >= 0 {
                kept.insert((*queue.key).clone(), queue.done);
            }
        }
    }

    /// The offsets of this member of a broadcasting group in all queues that it has or had.
    pub(crate) fn all_local_offsets(&self) -> BTreeMap<QueueKey, i64> {
        let state = self.state();
        self.keep_local_offsets(state.queues.values());
        drop(state);
        self.local_offsets().clone()
    }

    /// See `Puller::offsets_of`.
    pub(crate) async fn offsets_of(
        self: &Arc<Self>,
        keys: Vec<QueueKey>,
        which: WhichOffset,
        only_masters: bool,
    ) -> Result<Vec<i64>, ClientError> {
        let mut found = vec![-1; keys.len()];
        let offsets = if only_masters {
            self.offsets.of_masters()
        } else {
            self.offsets.clone()
        };
        let mut requests = JoinSet::new();
        for (at, key) in keys.into_iter().enumerate() {
            let (shared, offsets) = (self.clone(), offsets.clone());
            requests.spawn(async move { (at, shared.offset_of(&offsets, &key, which).await) });
        }
        while let Some(outcome) = requests.join_next().await {
            if let Ok((at, offset)) = outcome
                && let Some(slot) = found.get_mut(at)
            {
                *slot = offset?;
            }
        }
        Ok(found)
    }

    async fn offset_of(
        &self,
        offsets: &Offsets,
        key: &QueueKey,
        which: WhichOffset,
    ) -> Result<i64, ClientError> {
        match which {
            WhichOffset::First => offsets.first(key).await,
            WhichOffset::Last => offsets.last(key).await,
            WhichOffset::At(timestamp_ms) => offsets.at_time(key, timestamp_ms).await,
            WhichOffset::Committed if self.options.is_broadcasting => {
                Ok(self.local_offset(key).unwrap_or(-1))
            }
            WhichOffset::Committed => Ok(offsets.committed(key).await?.unwrap_or(-1)),
        }
    }
}

/// Whether the committed offset that was found stays, because this member has committed it, or another one that is
/// further ahead.
fn is_left_out(reason: CommitReason, found: i64, due_commit: &DueCommit) -> bool {
    reason != CommitReason::Named || found > due_commit.committed
}
