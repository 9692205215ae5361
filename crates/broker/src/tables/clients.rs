//! The connected clients: producers and consumers by group, with their subscriptions (Apache `ConsumerManager`,
//! `ConsumerGroupInfo`, `ProducerManager`).
//!
//! Invariant: a group is in the table only while it has a member. A member is one connection; a client with several
//! groups appears in each.

use crate::tables::conflicts::Conflicts;
use crate::tables::subscription::Subscription;
use pyrmq_remoting::Language;
use pyrmq_remoting::body::{ConsumeFromWhere, ConsumeType, MessageModel};
use pyrmq_remoting::net::Peer;
use pyrmq_remoting::sync::{read, write};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Maximum number of producer groups, whose names clients choose freely.
pub const MAX_PRODUCER_GROUPS: usize = 65_536;

/// Maximum number of producer groups of one connection, and of client ids: one client must not use up the limit of all.
pub const MAX_NAMES_PER_CONNECTION: usize = 256;

/// A limit on names that a heartbeat would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooMany {
    /// All producer groups of the broker.
    #[error("the broker has {MAX_PRODUCER_GROUPS} producer groups, which is the limit")]
    Groups,
    /// The producer groups of the connection.
    #[error("the connection has {MAX_NAMES_PER_CONNECTION} producer groups, which is the limit")]
    GroupsOfConnection,
    /// The client ids of the connection.
    #[error("the connection has {MAX_NAMES_PER_CONNECTION} client ids, which is the limit")]
    Ids,
}

/// One connected client.
#[derive(Debug, Clone)]
pub struct Client {
    /// The client's id.
    pub id: String,
    /// The client's connection.
    pub peer: Peer,
    /// The user who sent its heartbeat; `None` while rights are not checked.
    pub user: Option<Arc<str>>,
    /// The language of the client.
    pub language: Language,
    /// Version ordinal of the client's software.
    pub version: i32,
    /// When the client last sent a heartbeat, in ms.
    pub seen_ms: i64,
}

/// How a group consumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConsumeMode {
    /// Push, pull or pop.
    pub consume_type: ConsumeType,
    /// Whether each message goes to one member or to every member.
    pub message_model: MessageModel,
    /// Where a new group begins to consume.
    pub consume_from_where: ConsumeFromWhere,
}

impl ConsumeMode {
    /// Whether every member reads every queue.
    pub fn is_broadcasting(&self) -> bool {
        self.message_model == MessageModel::Broadcasting
    }
}

/// The members of a consumer group and their subscriptions.
#[derive(Debug, Clone, Default)]
pub struct Consumers {
    /// How they consume, according to the last heartbeat.
    pub consume_mode: ConsumeMode,
    /// By connection.
    pub members: HashMap<u64, Client>,
    /// By topic.
    pub subscriptions: BTreeMap<String, Arc<Subscription>>,
    /// The client id of the member that has said each of them, by topic.
    pub(super) authors: BTreeMap<String, String>,
    /// When the log last said that members differ, in ms; 0: never.
    pub(super) warned_ms: i64,
    fingerprint: i32,
}

/// The part of a heartbeat about one consumer group.
#[derive(Debug)]
pub struct ConsumerHeartbeat {
    /// The group.
    pub group: String,
    /// How the group consumes.
    pub consume_mode: ConsumeMode,
    /// The group's subscriptions; `None` in the short form, which omits them.
    pub subscriptions: Option<Vec<Subscription>>,
    /// Hash of the subscriptions; 0 from clients that send none.
    pub fingerprint: i32,
}

/// What a heartbeat makes necessary.
#[derive(Debug, Default)]
pub struct HeartbeatEffect {
    /// The short form cannot be resolved, so the client must send the full form.
    pub wants_subscriptions: bool,
    /// Whether members or topics changed.
    pub changed: bool,
    /// Members to notify that the membership changed.
    pub notify: Vec<Peer>,
    /// How the member's subscriptions differ from those of others.
    pub conflicts: Conflicts,
}

#[derive(Debug, Default)]
struct ClientTables {
    consumers: HashMap<String, Consumers>,
    producers: HashMap<String, HashMap<u64, Client>>,
    /// Number of producer groups of each connection that has any.
    producer_groups: HashMap<u64, usize>,
    /// The user of each client id, and the number of connections with it. Empty while rights are not checked.
    owners: HashMap<String, (Arc<str>, usize)>,
    /// The client ids of each connection.
    ids: HashMap<u64, HashSet<String>>,
}

impl ClientTables {
    fn forget_producer(counts: &mut HashMap<u64, usize>, peer: u64) {
        if let Some(count) = counts.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&peer);
            }
        }
    }
}

/// Every connected client.
#[derive(Debug, Default)]
pub struct Clients {
    // Guards both tables. Pulls read it; heartbeats and lost connections write it.
    tables: RwLock<ClientTables>,
}

impl Clients {
    /// Applies a consumer's heartbeat.
    pub fn register_consumer(&self, heartbeat: ConsumerHeartbeat, client: &Client) -> HeartbeatEffect {
        let mut tables = self.write();
        let group = tables.consumers.entry(heartbeat.group).or_default();
        let known_fingerprint = std::mem::replace(&mut group.fingerprint, heartbeat.fingerprint);
        group.consume_mode = heartbeat.consume_mode;
        let before = group.members.insert(client.peer.id(), client.clone());
        let mut changed = before.is_none();
        let mut change = HeartbeatEffect::default();
        match heartbeat.subscriptions {
            Some(subscriptions) => {
                let last_ms = before.map(|before| before.seen_ms);
                change.conflicts = group.conflicts(&subscriptions, client, last_ms);
                changed |= group.subscribe(subscriptions, &client.id);
            }
            None => change.wants_subscriptions = known_fingerprint != heartbeat.fingerprint,
        }
        change.changed = changed;
        if changed {
            change.notify = group.to_notify();
        }
        change
    }

    /// Applies a producer's heartbeat.
    pub fn register_producer(&self, group: &str, client: &Client) -> Result<(), TooMany> {
        let mut tables = self.write();
        let peer = client.peer.id();
        if let Some(known) = tables
            .producers
            .get_mut(group)
            .and_then(|group| group.get_mut(&peer))
        {
            known.clone_from(client);
            return Ok(());
        }
        if tables.producers.len() >= MAX_PRODUCER_GROUPS && !tables.producers.contains_key(group) {
            return Err(TooMany::Groups);
        }
        let count = tables.producer_groups.entry(peer).or_default();
        if *count >= MAX_NAMES_PER_CONNECTION {
            return Err(TooMany::GroupsOfConnection);
        }
        *count += 1;
        let members = tables.producers.entry(group.to_owned()).or_default();
        members.insert(peer, client.clone());
        Ok(())
    }

    /// Binds a client id to a user for as long as a connection with it is open. False: it is bound to another user.
    pub fn claim_id(&self, id: &str, user: &Arc<str>, peer: u64) -> Result<bool, TooMany> {
        let mut tables = self.write();
        let ClientTables { owners, ids, .. } = &mut *tables;
        if owners.get(id).is_some_and(|(owner, _)| owner != user) {
            return Ok(false);
        }
        let of_connection = ids.entry(peer).or_default();
        if of_connection.contains(id) {
            return Ok(true);
        }
        if of_connection.len() >= MAX_NAMES_PER_CONNECTION {
            return Err(TooMany::Ids);
        }
        of_connection.insert(id.to_owned());
        owners.entry(id.to_owned()).or_insert_with(|| (user.clone(), 0)).1 += 1;
        Ok(true)
    }

    /// Releases the client ids of a connection that is closed.
    pub fn release_ids(&self, peer: u64) {
        let mut tables = self.write();
        let ClientTables { owners, ids, .. } = &mut *tables;
        for id in ids.remove(&peer).unwrap_or_default() {
            if let Some((_, connections)) = owners.get_mut(&id) {
                *connections -= 1;
                if *connections == 0 {
                    owners.remove(&id);
                }
            }
        }
    }

    /// Removes a client from a consumer group. Returns the members to notify.
    pub fn leave_consumers(&self, group: &str, peer: u64) -> Vec<Peer> {
        let mut tables = self.write();
        let Some(consumers) = tables.consumers.get_mut(group) else {
            return Vec::new();
        };
        if consumers.members.remove(&peer).is_none() {
            return Vec::new();
        }
        let notify = consumers.to_notify();
        if consumers.members.is_empty() {
            tables.consumers.remove(group);
        }
        notify
    }

    /// Removes a client from a producer group.
    pub fn leave_producers(&self, group: &str, peer: u64) {
        let mut tables = self.write();
        let ClientTables {
            producers,
            producer_groups,
            ..
        } = &mut *tables;
        if let Some(members) = producers.get_mut(group) {
            if members.remove(&peer).is_some() {
                ClientTables::forget_producer(producer_groups, peer);
            }
            if members.is_empty() {
                producers.remove(group);
            }
        }
    }

    /// Removes every member whose last heartbeat is older than `oldest_ms`. Returns the members to notify, by group.
    /// While this side does not read a connection, heartbeats may be in its socket: its members count as seen now.
    pub fn sweep_silent(&self, oldest_ms: i64, now_ms: i64) -> Vec<(String, Vec<Peer>)> {
        self.sweep(|client| {
            if client.peer.is_paused() && !client.peer.is_closed() {
                client.seen_ms = now_ms;
            }
            client.seen_ms < oldest_ms
        })
    }

    /// Removes every member for which `gone` returns true. Returns the members to notify, by group.
    pub fn sweep(&self, gone: impl Fn(&mut Client) -> bool) -> Vec<(String, Vec<Peer>)> {
        let mut tables = self.write();
        let mut notices = Vec::new();
        for (name, group) in &mut tables.consumers {
            let before = group.members.len();
            group.members.retain(|_, client| !gone(client));
            if group.members.len() != before && !group.members.is_empty() {
                notices.push((name.clone(), group.to_notify()));
            }
        }
        tables.consumers.retain(|_, group| !group.members.is_empty());
        let ClientTables {
            producers,
            producer_groups,
            ..
        } = &mut *tables;
        producers.retain(|_, members| {
            members.retain(|peer, client| {
                let is_gone = gone(client);
                if is_gone {
                    ClientTables::forget_producer(producer_groups, *peer);
                }
                !is_gone
            });
            !members.is_empty()
        });
        notices
    }

    /// Reads one consumer group; `None` if no member is connected.
    pub fn consumers<T>(&self, group: &str, read: impl FnOnce(&Consumers) -> T) -> Option<T> {
        self.read().consumers.get(group).map(read)
    }

    /// Whether a consumer of the group with this client id is connected.
    pub fn has_consumer(&self, group: &str, client_id: &str) -> bool {
        let has = |consumers: &Consumers| consumers.members.values().any(|client| client.id == client_id);
        self.consumers(group, has).unwrap_or(false)
    }

    /// The connected producers of a group.
    pub fn producers(&self, group: &str) -> Vec<Client> {
        let tables = self.read();
        tables
            .producers
            .get(group)
            .map(|members| members.values().cloned().collect())
            .unwrap_or_default()
    }

    /// Every producer group with its members, for the listing of producers.
    pub fn all_producers(&self) -> Vec<(String, Vec<Client>)> {
        let tables = self.read();
        let listed = tables.producers.iter();
        listed
            .map(|(group, members)| (group.clone(), members.values().cloned().collect()))
            .collect()
    }

    /// The connection of a producer with this client id.
    pub fn producer_peer(&self, client_id: &str) -> Option<Peer> {
        let tables = self.read();
        let mut members = tables.producers.values().flat_map(HashMap::values);
        members
            .find(|client| client.id == client_id && !client.peer.is_closed())
            .map(|client| client.peer.clone())
    }

    /// The consumer groups that subscribe to a topic.
    pub fn groups_of_topic(&self, topic: &str) -> Vec<String> {
        let tables = self.read();
        let subscribed = tables
            .consumers
            .iter()
            .filter(|(_, group)| group.subscriptions.contains_key(topic));
        subscribed.map(|(name, _)| name.clone()).collect()
    }

    /// The numbers of connected consumers and producers.
    pub fn counts(&self) -> (usize, usize) {
        let tables = self.read();
        (
            tables.consumers.values().map(|group| group.members.len()).sum(),
            tables.producers.values().map(HashMap::len).sum(),
        )
    }

    fn read(&self) -> RwLockReadGuard<'_, ClientTables> {
        read(&self.tables)
    }

    fn write(&self) -> RwLockWriteGuard<'_, ClientTables> {
        write(&self.tables)
    }
}

impl Consumers {
    /// The members' client ids, sorted.
    pub fn client_ids(&self) -> Vec<String> {
        let mut ids: Vec<String> = self.members.values().map(|client| client.id.clone()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Keeps the newer version of each subscription and removes topics that are no longer named. True: topics were
    /// added or removed. A new expression for a known topic does not count, since it moves no queues.
    fn subscribe(&mut self, subscriptions: Vec<Subscription>, client: &str) -> bool {
        let before: Vec<String> = self.subscriptions.keys().cloned().collect();
        let mut former = std::mem::take(&mut self.subscriptions);
        for subscription in subscriptions {
            let kept = match former.remove(&subscription.topic) {
                Some(old) if old.version >= subscription.version => old,
                _ => {
                    let author = self.authors.entry(subscription.topic.clone()).or_default();
                    client.clone_into(author);
                    Arc::new(subscription)
                }
            };
            self.subscriptions.insert(kept.topic.clone(), kept);
        }
        for topic in former.into_keys() {
            self.authors.remove(&topic);
        }
        !self.subscriptions.keys().eq(before.iter())
    }

    fn to_notify(&self) -> Vec<Peer> {
        if self.consume_mode.is_broadcasting() {
            return Vec::new();
        }
        self.members.values().map(|client| client.peer.clone()).collect()
    }
}
