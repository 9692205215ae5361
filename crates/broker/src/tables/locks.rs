//! Which client of an orderly group owns which queue (Apache `RebalanceLockManager`).
//!
//! A lock lives `lockMaxLiveTime` after its last renewal; then another client may take it. That of a client whose
//! connection was lost lives 30 s at most: no client trusts a lock for longer (Apache
//! `ProcessQueue.REBALANCE_LOCK_MAX_LIVE_TIME`). Time is an argument, so that expiry can be tested without waiting.

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
    // Guards the whole table: a batch of one client is taken as one step.
    table: Mutex<Table>,
}

impl Locks {
    /// No locks; each will live `live_ms` after its last renewal.
    pub fn new(live_ms: i64) -> Self {
        Self {
            live_ms,
            table: Mutex::default(),
        }
    }

    /// Locks or renews what is free, expired or already this client's. Answers the queues that it now owns.
    /// `is_connected` says whether a client of the group has a connection.
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

    /// Gives up what this client owns of these queues.
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

    /// Forgets what has expired: groups that do not come back leave nothing behind.
    pub fn sweep(&self, now_ms: i64) {
        let mut table = self.table();
        for owners in table.values_mut() {
            owners.retain(|_, owner| now_ms - owner.renewed_ms <= self.live_ms);
        }
        table.retain(|_, owners| !owners.is_empty());
    }

    /// Groups with a lock.
    pub fn groups(&self) -> usize {
        self.table().len()
    }

    /// True when some client of the group holds a live lock: the group consumes in order.
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
