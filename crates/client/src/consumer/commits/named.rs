//! Commits of offsets that the application names.

use crate::consumer::commits::{CommitReason, PendingCommit};
use crate::consumer::process_queue::QueueKey;
use crate::consumer::shared::ConsumerShared;
use crate::error::{ClientError, Uncommitted};
use std::sync::Arc;

impl ConsumerShared {
    /// Commits these offsets, whatever was handed out. The queues of this consumer adopt them, so that later commits
    /// continue from there.
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
        // Another member reads that queue now: an offset of this one could move it backwards.
        let gone = self.take_uncommitted(|key| offsets.iter().any(|(named, _)| named == key));
        let is_gone = |key: &QueueKey| {
            let mut gone = gone.iter();
            gone.any(|one| {
                let topic = self.options.client.unwrap_name(&key.topic);
                (topic, &key.broker, key.queue_id) == (one.topic.clone(), &one.broker, one.queue_id)
            })
        };
        let offsets: Vec<_> = offsets.into_iter().filter(|(key, _)| !is_gone(key)).collect();
        for (key, _) in &offsets {
            self.routes.find(&key.topic).await?;
        }
        let positions: Vec<PendingCommit> = offsets
            .into_iter()
            .map(|(key, offset)| self.named_position(key, offset))
            .collect();
        let keys: Vec<_> = positions.iter().map(|position| position.key.clone()).collect();
        let committed = self.commit_with(positions, || gone).await;
        self.end_named_commits(&keys, &committed);
        committed
    }

    /// The commit of an offset that the application names.
    fn named_position(&self, key: QueueKey, offset: i64) -> PendingCommit {
        let key = Arc::new(key);
        let mut state = self.state();
        let committing = state.queues.get_mut(&key).map(|queue| {
            queue.done = offset;
            queue.own_commit = Some(offset);
            queue.committing.clone()
        });
        PendingCommit {
            key,
            offset,
            committing: committing.unwrap_or_default(),
            reason: CommitReason::Named,
            is_untouched: false,
            was_going: false,
        }
    }

    /// Hands out messages of queues whose named commits have succeeded: a commit of the previous member no longer
    /// matters. Queues whose commits have failed still wait for that one.
    fn end_named_commits(&self, keys: &[Arc<QueueKey>], committed: &Result<(), ClientError>) {
        let failed: &[Uncommitted] = match committed {
            Ok(()) => &[],
            Err(ClientError::NotCommitted { failed, .. }) => failed,
            Err(_) => return,
        };
        let mut state = self.state();
        for key in keys {
            let topic = self.options.client.unwrap_name(&key.topic);
            let has_failed = failed
                .iter()
                .any(|one| (&one.topic, &one.broker, one.queue_id) == (&topic, &key.broker, key.queue_id));
            let Some(queue) = state.queues.get_mut(key) else {
                continue;
            };
            queue.own_commit = None;
            if !has_failed && queue.settling.take().is_some() {
                state.make_ready(key);
            }
        }
        self.wake(&state);
    }
}
