//! How far a group has come: what is committed, when, and where. Brokers keep the offsets of a group whose members
//! share its queues; where every member gets every message each keeps its own (Apache `RemoteBrokerOffsetStore`,
//! `LocalFileOffsetStore`).

use crate::consumer::offsets::WhichOffset;
use crate::consumer::process_queue::{ProcessQueue, QueueKey};
use crate::consumer::shared::Shared;
use crate::error::{ClientError, Uncommitted};
use pyrmq_remoting::sync::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How often all commits are looked at again.
const VERIFY_INTERVAL: Duration = Duration::from_mins(1);

/// What is to be committed of a queue.
struct Position {
    key: Arc<QueueKey>,
    offset: i64,
    committing: Arc<tokio::sync::Mutex<()>>,
    /// It counts only while the queue is assigned: one that goes back takes its last position along.
    is_of_assigned: bool,
}

impl Position {
    fn of(queue: &ProcessQueue) -> Self {
        Self {
            key: queue.key.clone(),
            offset: queue.done,
            committing: queue.committing.clone(),
            is_of_assigned: false,
        }
    }
}

impl Shared {
    /// Commits the last positions of queues that were given back, then gives their locks back.
    pub(crate) async fn end_queues(self: &Arc<Self>, lost: Vec<ProcessQueue>) -> Result<(), ClientError> {
        if self.options.is_broadcasting {
            self.keep_local_offsets(&lost);
            return Ok(());
        }
        let needs_lock = self.needs_locks();
        let mut positions = Vec::new();
        let mut locked = Vec::new();
        for queue in lost {
            let is_mine = !needs_lock || queue.listeners.is_locked();
            if self.options.commit_interval.is_some() && queue.done > queue.committed && is_mine {
                positions.push(Position::of(&queue));
            }
            if needs_lock && queue.listeners.is_locked() {
                locked.push(queue.key);
            }
        }
        let committed = self.commit_positions(positions).await;
        self.locks.unlock(&locked).await;
        committed
    }

    /// Commits what is done, each interval.
    pub(crate) async fn keep_positions(self: Arc<Self>) {
        let Some(interval) = self.options.commit_interval else {
            return;
        };
        if self.options.is_broadcasting {
            return;
        }
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
                if shared.verify_commits(all).await {
                    shared.commit_each().await;
                }
            });
        }
    }

    /// Looks whether brokers still have the positions that were committed; `all`, or those of brokers that were away
    /// since: one that was killed begins with what it had written. True when some must be committed again. Those of a
    /// member that has gone on with the queue meanwhile are higher, and stay.
    pub(crate) async fn verify_commits(self: &Arc<Self>, all: bool) -> bool {
        let mut asked = JoinSet::new();
        {
            let mut state = self.state();
            for queue in state.queues.values_mut() {
                let is_doubtful = all || queue.is_commit_in_doubt;
                if self.options.is_broadcasting
                    || !is_doubtful
                    || queue.done < 0
                    || queue.done != queue.committed
                {
                    continue;
                }
                queue.is_commit_in_doubt = false;
                let (shared, key, offset) = (self.clone(), queue.key.clone(), queue.committed);
                asked.spawn(async move {
                    let found = shared.offsets.committed(&key).await;
                    (key, offset, found)
                });
            }
        }
        let mut is_any_lost = false;
        while let Some(outcome) = asked.join_next().await {
            let Ok((key, offset, found)) = outcome else {
                continue;
            };
            let mut state = self.state();
            let Some(queue) = state.queues.get_mut(&key) else {
                continue;
            };
            match found {
                Ok(found) if found.is_none_or(|found| found < offset) && queue.committed == offset => {
                    tracing::warn!(%key, ?found, offset, "the broker has lost a commit: it is committed again");
                    queue.committed = -1;
                    is_any_lost = true;
                }
                Ok(_) => {}
                Err(_) => queue.is_commit_in_doubt = true,
            }
        }
        is_any_lost
    }

    /// Commits what is done, unless only the application commits. What fails is logged.
    pub(crate) async fn commit_each(self: &Arc<Self>) {
        if self.options.commit_interval.is_some()
            && let Err(error) = self.commit_done().await
        {
            tracing::warn!(%error, "positions not committed");
        }
    }

    /// Commits positions that have changed.
    pub(crate) async fn commit_done(self: &Arc<Self>) -> Result<(), ClientError> {
        if self.options.is_broadcasting {
            return Ok(());
        }
        let changed: Vec<Position> = {
            let state = self.state();
            let queues = state.queues.values();
            let changed = queues.filter(|queue| {
                let is_mine = !self.needs_locks() || queue.listeners.is_locked();
                queue.done >= 0 && queue.done != queue.committed && is_mine
            });
            let positions = changed.map(|queue| Position {
                is_of_assigned: true,
                ..Position::of(queue)
            });
            positions.collect()
        };
        self.commit_positions(changed).await
    }

    /// Commits positions side by side, each with the time of one request: a broker that is away delays and fails
    /// nobody else's. The error lists the queues that are not committed.
    async fn commit_positions(self: &Arc<Self>, positions: Vec<Position>) -> Result<(), ClientError> {
        let asked = positions.len();
        let mut commits = JoinSet::new();
        for position in positions {
            let shared = self.clone();
            commits.spawn(async move { shared.commit_one(position).await });
        }
        let mut failed = Vec::new();
        while let Some(outcome) = commits.join_next().await {
            if let Ok(Err(uncommitted)) = outcome {
                failed.push(uncommitted);
            }
        }
        if failed.is_empty() {
            return Ok(());
        }
        failed.sort_by(|one, other| {
            let place = |of: &Uncommitted| (of.topic.clone(), of.broker.clone(), of.queue_id);
            place(one).cmp(&place(other))
        });
        Err(ClientError::NotCommitted { asked, failed })
    }

    /// Commits a position after the commits of this queue that have begun, all within the time of one request.
    async fn commit_one(&self, position: Position) -> Result<(), Uncommitted> {
        let due = Instant::now() + self.options.client.request_timeout;
        let Position {
            key,
            committing,
            mut offset,
            is_of_assigned,
        } = position;
        let _alone = committing.lock().await;
        match self.state().queues.get(&key) {
            // What was done while this waited, or was committed meanwhile.
            Some(queue) if queue.done >= 0 => {
                offset = queue.done;
                if offset == queue.committed {
                    return Ok(());
                }
            }
            // It went back while this waited: this position would take the group back.
            None if is_of_assigned => return Ok(()),
            _ => {}
        }
        let left = due.saturating_duration_since(Instant::now());
        let outcome = self.offsets.commit(&key, offset, left).await;
        if outcome.is_ok()
            && let Some(queue) = self.state().queues.get_mut(&key)
        {
            queue.committed = offset;
        }
        outcome.map_err(|cause| Uncommitted {
            topic: self.options.client.unwrap_name(&key.topic),
            broker: key.broker.clone(),
            queue_id: key.queue_id,
            offset,
            cause,
        })
    }

    /// Commits these offsets, whatever was handed out. A queue that this consumer has takes its offset over, so that
    /// later commits go on from there.
    pub(crate) async fn commit_offsets(
        self: &Arc<Self>,
        offsets: Vec<(QueueKey, i64)>,
    ) -> Result<(), ClientError> {
        if self.options.is_broadcasting {
            let mut state = self.state();
            for (key, offset) in &offsets {
                if let Some(queue) = state.queues.get_mut(key) {
                    queue.done = *offset;
                }
            }
            self.local_offsets().extend(offsets);
            return Ok(());
        }
        let mut positions = Vec::with_capacity(offsets.len());
        for (key, offset) in offsets {
            let key = Arc::new(key);
            self.routes.find(&key.topic).await?;
            let mut state = self.state();
            let committing = state.queues.get_mut(&key).map(|queue| {
                queue.done = offset;
                queue.committing.clone()
            });
            drop(state);
            positions.push(Position {
                key,
                offset,
                committing: committing.unwrap_or_default(),
                is_of_assigned: false,
            });
        }
        self.commit_positions(positions).await
    }

    fn local_offsets(&self) -> MutexGuard<'_, BTreeMap<QueueKey, i64>> {
        lock(&self.local_offsets)
    }

    /// Where this member goes on in a queue of a broadcasting group.
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

    /// How far this member of a broadcasting group has come in all queues that it has, or had.
    pub(crate) fn all_local_offsets(&self) -> BTreeMap<QueueKey, i64> {
        let state = self.state();
        self.keep_local_offsets(state.queues.values());
        drop(state);
        self.local_offsets().clone()
    }

    /// Offsets of queues, asked at the same time, in the order of the queues.
    pub(crate) async fn offsets_of(
        self: &Arc<Self>,
        keys: Vec<QueueKey>,
        which: WhichOffset,
    ) -> Result<Vec<i64>, ClientError> {
        let mut found = vec![-1; keys.len()];
        let mut asked = JoinSet::new();
        for (at, key) in keys.into_iter().enumerate() {
            let shared = self.clone();
            asked.spawn(async move { (at, shared.offset_of(&key, which).await) });
        }
        while let Some(outcome) = asked.join_next().await {
            if let Ok((at, offset)) = outcome
                && let Some(place) = found.get_mut(at)
            {
                *place = offset?;
            }
        }
        Ok(found)
    }

    async fn offset_of(&self, key: &QueueKey, which: WhichOffset) -> Result<i64, ClientError> {
        match which {
            WhichOffset::First => self.offsets.first(key).await,
            WhichOffset::Last => self.offsets.last(key).await,
            WhichOffset::At(timestamp_ms) => self.offsets.at_time(key, timestamp_ms).await,
            WhichOffset::Committed if self.options.is_broadcasting => {
                Ok(self.local_offset(key).unwrap_or(-1))
            }
            WhichOffset::Committed => Ok(self.offsets.committed(key).await?.unwrap_or(-1)),
        }
    }
}
