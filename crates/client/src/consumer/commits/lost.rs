//! Commits that a broker has lost: after a kill it starts with what it had written.

use crate::consumer::commits::PendingCommit;
use crate::consumer::shared::ConsumerShared;
use crate::error::ClientError;
use std::sync::Arc;
use tokio::task::JoinSet;

impl ConsumerShared {
    /// Checks whether brokers still have the committed positions: `all` of them, or those at brokers that were
    /// unreachable since, which may have been killed. Returns those that must be committed again. Positions of a member
    /// that has continued with the queue meanwhile are higher, and stay.
    pub(crate) async fn verify_commits(self: &Arc<Self>, all: bool) -> Vec<PendingCommit> {
        let mut requests = JoinSet::new();
        {
            let mut state = self.state();
            for queue in state.queues.values_mut() {
                let is_doubtful = all || queue.is_commit_in_doubt;
                let is_mine = !self.needs_locks() || queue.listeners.is_locked();
                if self.options.is_broadcasting || !is_doubtful || queue.committed < 0 || !is_mine {
                    continue;
                }
                queue.is_commit_in_doubt = false;
                let (shared, key, offset) = (self.clone(), queue.key.clone(), queue.committed);
                requests.spawn(async move {
                    let found = shared.offsets.committed(&key).await;
                    (key, offset, found)
                });
            }
        }
        let mut lost = Vec::new();
        while let Some(outcome) = requests.join_next().await {
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
                    lost.push(PendingCommit::lost(queue));
                }
                Ok(_) => {}
                Err(_) => queue.is_commit_in_doubt = true,
            }
        }
        lost
    }

    /// Checks all commits, and repeats those that brokers have lost.
    pub(crate) async fn repeat_lost_commits(self: &Arc<Self>) -> Result<(), ClientError> {
        let lost = self.verify_commits(true).await;
        self.commit_positions(lost).await
    }
}
