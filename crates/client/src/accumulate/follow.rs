//! Messages of a hash whose queue has left the route while they waited: they go to the queue that the hash means now.
//!
//! Apache's selector is asked for each message as it leaves, over the queues of that moment, so what has not left yet
//! follows the route. It does so in order, before anything newer of its hash is taken; what was on its way to the
//! queue that is gone stays bound to it and fails. Messages for a queue that the caller chose never follow.

use super::lane::{Key, Load, Now};
use super::{Accumulator, State, park, unencodable};
use crate::ClientError;
use crate::batch::counted;
use crate::routes::TopicRoute;
use pyrmq_remoting::message::batch;
use std::sync::Arc;

/// What follows a route.
pub(super) struct Followed<T> {
    topic: Option<Arc<str>>,
    /// The lanes that got something.
    lanes: Vec<Key>,
    /// What could not be taken there: bytes of its body, ticket, why.
    failed: Vec<(usize, Option<T>, ClientError)>,
}

impl<T> Default for Followed<T> {
    fn default() -> Self {
        Self {
            topic: None,
            lanes: Vec::new(),
            failed: Vec::new(),
        }
    }
}

impl<T: Send + 'static> Accumulator<T> {
    /// Looks whether a topic's queues have changed since it was last looked; costs a pointer's comparison when not.
    pub(super) fn follow(
        &self,
        state: &mut State<T>,
        topic: &Arc<str>,
        route: &TopicRoute,
        into: &mut Followed<T>,
    ) {
        let published = &route.published;
        match state.routes.get_mut(topic) {
            None => {
                state.forget_idle_routes();
                state.routes.insert(topic.clone(), published.clone());
                return;
            }
            Some(seen) if Arc::ptr_eq(seen, published) => return,
            Some(seen) => {
                // A route that was asked for again is another object, most times with the same queues.
                let same = seen.queues == published.queues;
                *seen = published.clone();
                if same {
                    return;
                }
            }
        }
        let queues = &published.queues;
        // Without any queue the broker that has them may be about to come back.
        if queues.is_empty() {
            return;
        }
        let is_gone = |key: &Key| match key {
            Key::Any(_) => false,
            Key::Queue(of, broker, id) => {
                of == topic
                    && !queues
                        .iter()
                        .any(|queue| queue.queue_id == *id && (broker.is_empty() || queue.broker == *broker))
            }
        };
        let mut moved = Vec::new();
        for (_, lane) in state.lanes.iter_mut().filter(|(key, _)| is_gone(key)) {
            lane.seal();
            let (by_hash, chosen) = std::mem::take(&mut lane.sealed)
                .into_iter()
                .partition(|load| !load.hashes.is_empty());
            lane.sealed = chosen;
            moved.push(by_hash);
        }
        into.topic = Some(topic.clone());
        for load in moved.into_iter().flatten() {
            self.place_again(state, topic, route, load, into);
        }
    }

    /// Puts each message of a load into the lane of its hash, behind what is there.
    fn place_again(
        &self,
        state: &mut State<T>,
        topic: &Arc<str>,
        route: &TopicRoute,
        mut load: Load<T>,
        into: &mut Followed<T>,
    ) {
        let own = load.own;
        let body = load.draft.body.clone();
        let is_batch = load.draft.items > 0;
        let items = batch::items(&body).filter_map(Result::ok);
        let mut ids = load.draft.message_id.split(',');
        let mut tickets = std::mem::take(&mut load.tickets).into_iter().peekable();
        if !is_batch {
            let hash = load.hashes.first().copied().unwrap_or_default();
            match park::by_hash(topic, route, hash) {
                Ok(key) => {
                    let lane = state.lanes.entry(key.clone()).or_default();
                    lane.seal();
                    load.draft.target = key.target();
                    load.tickets = tickets.collect();
                    lane.sealed.push_back(load);
                    into.note(key);
                }
                Err(error) => {
                    let ticket = tickets.next().map(|(_, ticket)| ticket);
                    into.failed.push((load.draft.counted, ticket, error));
                }
            }
            return;
        }
        for ((place, item), hash) in (0..).zip(items).zip(load.hashes) {
            let ticket = tickets.next_if(|(at, _)| *at == place).map(|(_, ticket)| ticket);
            let id = ids.next().unwrap_or_default();
            let key = match park::by_hash(topic, route, hash) {
                Ok(key) => key,
                Err(error) => {
                    into.failed.push((counted(&item), ticket, error));
                    continue;
                }
            };
            let lane = state.lanes.entry(key.clone()).or_default();
            let size = (item.body.len(), item.properties.len());
            let open = self.open(lane, &key, size, true, own, &mut Now::at(load.since));
            let (place, text) = (open.batch.len(), String::from_utf8_lossy(item.properties));
            if let Err(source) = open.batch.push(item.body, &text, id, item.flag) {
                into.failed.push((counted(&item), ticket, unencodable(source)));
                continue;
            }
            open.hashes.push(hash);
            // It has waited long enough.
            open.eager = true;
            open.since = open.since.min(load.since);
            open.tickets.extend(ticket.map(|ticket| (place, ticket)));
            into.note(key);
        }
    }

    /// Tells of what failed, and sends what may leave; the lock is not held.
    pub(super) fn go_on(self: &Arc<Self>, followed: Followed<T>) {
        let Some(topic) = followed.topic else { return };
        for (bytes, ticket, error) in followed.failed {
            self.refuse(&topic, bytes, ticket, error);
        }
        for key in followed.lanes {
            self.pump(&key);
        }
    }
}

impl<T> Followed<T> {
    fn note(&mut self, key: Key) {
        if !self.lanes.contains(&key) {
            self.lanes.push(key);
        }
    }
}
