//! Messages of a hash whose topic is not known yet: they wait until the route says which queue their hash means.

use super::follow::Followed;
use super::lane::{Key, Lane, Now};
use super::{Accumulator, Item, Landed, OwnBatch, Place, State};
use crate::ClientError;
use crate::draft::Packed;
use crate::error::SendFailure;
use crate::routes::TopicRoute;
use bytes::Bytes;
use pyrmq_remoting::clock;
use pyrmq_routing::select;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// A message of a hash that waits for its topic's route.
pub(super) struct Parked<T> {
    number: u64,
    /// Empty where it is packed.
    body: Bytes,
    packed: Option<Packed>,
    /// Bytes that it counts for at the gate.
    counted: usize,
    extra: String,
    flag: i32,
    hash: i32,
    eager: bool,
    alone: bool,
    timeout: Option<Duration>,
    batch: Option<OwnBatch>,
    ticket: Option<T>,
    since: Instant,
}

impl<T> Parked<T> {
    /// Lets it leave as soon as it may, without waiting for company.
    pub(super) fn hurry(&mut self) {
        self.eager = true;
    }
}

impl<T: Send + 'static> Accumulator<T> {
    /// Keeps a message until its topic's route says which queue its hash means.
    pub(super) fn park(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State<T>>,
        topic: &Arc<str>,
        hash: i32,
        item: Item<'_, T>,
        since: Instant,
    ) {
        state.last_parked += 1;
        let number = state.last_parked;
        let by = since + item.time(self.producer.options().send_timeout);
        state.parked.entry(topic.clone()).or_default().push(Parked {
            number,
            body: match item.packed {
                Some(_) => Bytes::new(),
                None => Bytes::copy_from_slice(item.body),
            },
            counted: item.counted(),
            packed: item.packed,
            extra: item.extra.to_owned(),
            flag: item.flag,
            hash,
            eager: item.eager,
            alone: item.alone,
            timeout: item.timeout,
            batch: item.batch,
            ticket: item.ticket,
            since,
        });
        drop(state);
        let (this, name) = (self.clone(), topic.clone());
        self.producer.routes().with(topic, by, move |known| match known {
            Ok(route) => this.unpark(&name, &route),
            Err(error) => this.turn_away(&name, number, error),
        });
    }

    /// One message's time is over, or its topic has no route.
    fn turn_away(&self, topic: &Arc<str>, number: u64, error: ClientError) {
        let mut state = self.state();
        let Some(all) = state.parked.get_mut(topic) else {
            return;
        };
        let at = all.iter().position(|parked| parked.number == number);
        let found = at.map(|at| all.remove(at));
        if all.is_empty() {
            state.parked.remove(topic);
        }
        drop(state);
        if let Some(parked) = found {
            self.refuse(topic, parked.counted, parked.ticket, error);
        }
    }

    /// The route is known: each message goes to its lane, in the order in which they came.
    fn unpark(self: &Arc<Self>, topic: &Arc<str>, route: &TopicRoute) {
        let mut failed = Vec::new();
        let mut used = Vec::new();
        let mut guard = self.state();
        let state = &mut *guard;
        let mut followed = Followed::default();
        self.follow(state, topic, route, &mut followed);
        for parked in state.parked.remove(topic).unwrap_or_default() {
            let bytes = parked.counted;
            let put = by_hash(topic, route, parked.hash).and_then(|key| {
                let mut item = Item {
                    topic,
                    body: &parked.body,
                    packed: parked.packed,
                    extra: &parked.extra,
                    flag: parked.flag,
                    place: Place::Hash(parked.hash),
                    eager: parked.eager,
                    alone: parked.alone,
                    timeout: parked.timeout,
                    batch: parked.batch,
                    ticket: None,
                };
                let lane = state.lanes.entry(key.clone()).or_default();
                self.put(
                    &mut state.bodies,
                    lane,
                    &key,
                    (&mut item, bytes),
                    &mut Now::at(parked.since),
                )?;
                Ok(key)
            });
            match put {
                Ok(key) => {
                    if let (Some(ticket), Some(lane)) = (parked.ticket, state.lanes.get_mut(&key)) {
                        lane.give_ticket(ticket);
                    }
                    if !used.contains(&key) {
                        used.push(key);
                    }
                }
                Err(error) => failed.push((bytes, parked.ticket, error)),
            }
        }
        drop(guard);
        for (bytes, ticket, error) in failed {
            self.refuse(topic, bytes, ticket, error);
        }
        self.go_on(followed);
        for key in used {
            self.pump(&key);
        }
        // What is neither eager nor full leaves by the timer.
        self.opened.notify_one();
    }

    /// A message that cannot be sent, before it had an id and a place.
    pub(super) fn refuse(&self, topic: &Arc<str>, bytes: usize, ticket: Option<T>, last: ClientError) {
        let id = self.producer.ids().next(clock::now_ms()).to_string();
        let name = self.producer.options().client.unwrap_name(topic);
        let error = ClientError::NotConfirmed {
            failure: Arc::new(SendFailure::unsent(name, id, Instant::now(), last)),
            item: None,
        };
        let kept = usize::from(ticket.is_some());
        self.producer.gate().leave(1 - kept, bytes);
        self.producer.count_failed(1);
        let Some(ticket) = ticket else {
            tracing::warn!(topic = &**topic, %error, "a message without a callback was not sent");
            return;
        };
        (self.sink)(Landed {
            tickets: vec![(0, ticket)],
            batch: false,
            outcome: Err(error),
        });
    }
}

impl<T> Lane<T> {
    /// The ticket of the message that was put last.
    fn give_ticket(&mut self, ticket: T) {
        if let Some(open) = &mut self.open {
            open.tickets.push((open.batch.len().saturating_sub(1), ticket));
        } else if let Some(load) = self.sealed.back_mut() {
            load.tickets.push((0, ticket));
        }
    }
}

/// The lane of a hash.
pub(super) fn by_hash(topic: &Arc<str>, route: &TopicRoute, hash: i32) -> Result<Key, ClientError> {
    let queues = &route.published.queues;
    let at = select::by_number(i64::from(hash), queues.len());
    let queue = at.and_then(|at| queues.get(at));
    let queue = queue.ok_or_else(|| route.no_queue(topic))?;
    Ok(Key::Queue(topic.clone(), queue.broker.clone(), queue.queue_id))
}
