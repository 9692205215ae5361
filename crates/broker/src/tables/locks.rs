//! Which client of an orderly group owns which queue (Apache `RebalanceLockManager`).
//!
//! A lock expires `lockMaxLiveTime` after its last renewal; then another client may take it. It expires after at most
//! 30 s if its client's connection was lost: no client trusts a lock for longer (Apache
//! `ProcessQueue.REBALANCE_LOCK_MAX_LIVE_TIME`). Time is an argument, so that tests need not wait for expiry.

use pyrmq_remoting::body::MessageQueue;
use pyrmq_remoting::sync::lock;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// How long clients trust a lock after its last renewal.
const TRUSTED_MS: i64 = 30_000;

#[derive(Debug)]
struct Owner {
    client: String,
    renewed_ms: i64,
}

type Table = HashMap<String, HashMap<MessageQueue, Owner>>;

/// The locks of every group.
#[derive(Debug)]
pub struct Locks {
    live_ms: i64,
    // Guards the whole table: a client's batch of locks is one step.
    table: Mutex<Table>,
}

impl Locks {
    /// An empty table whose locks expire `live_ms` after their last renewal.
    pub fn new(live_ms: i64) -> Self {
        Self {
            live_ms,
            table: Mutex::default(),
        }
    }

    /// Locks queues that are free or expired, and renews those that this client owns. Returns the queues that it now
    /// owns. `is_connected` says whether a client of the group has a connection.
    pub fn lock(
        &self,
        group: &str,
        client: &str,
        queues: Vec<MessageQueue>,
        now_ms: i64,
        is_connected: impl Fn(&str) -> bool,
    ) -> Vec<MessageQueue> {
        if queues.is_empty() {
            return queues;
        }
        let mut table = self.table();
        let owners = table.entry(group.to_owned()).or_default();
        let mut won = Vec::with_capacity(queues.len());
        for queue in queues {
            let owner = owners.entry(queue.clone()).or_insert_with(|| Owner {
                client: client.to_owned(),
                renewed_ms: now_ms,
            });
            if owner.client != client {
                let age_ms = now_ms - owner.renewed_ms;
                let is_lost = age_ms > TRUSTED_MS && !is_connected(&owner.client);
                if age_ms <= self.live_ms && !is_lost {
                    continue;
                }
                tracing::info!(
                    group,
                    client,
                    former = owner.client,
                    "took over an expired queue lock"
                );
                client.clone_into(&mut owner.client);
            }
            owner.renewed_ms = now_ms;
            won.push(queue);
        }
        won
    }

    /// Releases those of these queues that the client owns.
    pub fn unlock(&self, group: &str, client: &str, queues: &[MessageQueue]) {
        let mut table = self.table();
        let Some(owners) = table.get_mut(group) else {
            return;
        };
        for queue in queues {
            if owners.get(queue).is_some_and(|owner| owner.client == client) {
                owners.remove(queue);
            }
        }
        if owners.is_empty() {
            table.remove(group);
        }
    }

    /// Removes expired locks, so that groups that never return leave nothing behind.
    pub fn sweep(&self, now_ms: i64) {
        let mut table = self.table();
        for owners in table.values_mut() {
            owners.retain(|_, owner| now_ms - owner.renewed_ms <= self.live_ms);
        }
        table.retain(|_, owners| !owners.is_empty());
    }

    /// The number of groups with a lock.
    pub fn groups(&self) -> usize {
        self.table().len()
    }

    /// Whether any client of the group holds a live lock: then the group consumes in order.
    pub fn is_held(&self, group: &str, now_ms: i64) -> bool {
        self.table().get(group).is_some_and(|owners| {
            owners
                .values()
                .any(|owner| now_ms - owner.renewed_ms <= self.live_ms)
        })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
}
