//! The pulling consumer: keeps the next pull of every assigned queue in flight, and hands out the messages (Apache
//! `DefaultLitePullConsumerImpl`).
//!
//! No thread and no task waits for messages: an answer's callback adds the records, wakes pollers, and pulls again
//! while the queue has room in its share of `ahead_bytes`. `poll` only takes messages: `pull` (`pulling.rs`) sends the
//! request of a queue when the queue is assigned, when an answer was added, and when a poll has made room. Periodic
//! work (positions, share of the queues) is in `rebalance/`.

mod callback_calls;
mod ending;
mod rebalance_calls;
mod start;
mod stats;

use crate::consumer::options::PullerOptions;
use crate::consumer::process_queue::{Messages, QueueKey};
use crate::consumer::rebalance::assignment::Assignment;
use crate::consumer::rebalance::events::Departure;
use crate::consumer::requests::offsets::{Offsets, WhichOffset};
use crate::consumer::requests::subscription_check::check_filter;
use crate::consumer::shared::{ConsumerShared, ConsumerState};
use crate::error::ClientError;
use crate::session::membership::Subscription;
use crate::session::routes::Routes;
use crate::session::topic_name::check_name;
use pyrmq_remoting::clock;
use pyrmq_remoting::sync::{lock, wait_while};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use crate::consumer::options::Start;

/// Pulls messages. Shared by any number of threads.
#[derive(Debug)]
pub struct Puller {
    pub(crate) shared: Arc<ConsumerShared>,
}

impl Puller {
    /// The settings.
    pub fn options(&self) -> &PullerOptions {
        &self.shared.options
    }

    /// The topics' routes.
    pub fn routes(&self) -> &Routes {
        &self.shared.routes
    }

    /// Offsets of queues, assigned or not.
    pub fn offsets(&self) -> &Offsets {
        &self.shared.offsets
    }

    /// Joins the group for a topic: takes this member's share of its queues now and whenever the group changes. Fails
    /// if the topic is unsubscribed from before this member has joined.
    pub async fn subscribe(&self, topic: &str, expression: &str, is_sql: bool) -> Result<(), ClientError> {
        check_name(topic)?;
        let topic: Arc<str> = topic.into();
        let joining = self.shared.begin_joining(&topic);
        self.shared.routes.find(&topic).await?;
        let subscription = Subscription {
            expression: expression.to_owned(),
            is_sql,
            version: clock::now_ms(),
        };
        let membership = (
            &*self.shared.heartbeat.membership,
            self.shared.options.client.request_timeout,
        );
        let (client, routes) = (&self.shared.client, &self.shared.routes);
        check_filter(client, routes, membership, &topic, &subscription).await?;
        self.shared.subscribe(topic, subscription, &joining).await?;
        if self.shared.options.is_listening && !self.shared.options.is_broadcasting {
            self.shared.subscribe_retry_topic();
            self.shared.read_max_tries().await;
            let shared = self.shared.clone();
            self.shared
                .tracker
                .spawn(async move { shared.follow_pop_retries().await });
        }
        Ok(())
    }

    /// Takes exactly these queues, and gives all others back. A queue without a given start continues where the group
    /// has committed.
    pub async fn assign(
        &self,
        queues: Vec<(QueueKey, Option<i64>)>,
        expression: &str,
    ) -> Result<(), ClientError> {
        let subscription = Arc::new(Subscription::tags_of(expression, clock::now_ms()));
        for (key, _) in &queues {
            self.shared.routes.find(&key.topic).await?;
        }
        let wanted = queues
            .into_iter()
            .map(|(key, start)| Assignment {
                key: Arc::new(key),
                start,
                is_contended: false,
                subscription: subscription.clone(),
            })
            .collect();
        let shared = self.shared.clone();
        self.shared
            .uninterrupted(async move { shared.take(wanted, |_| true, Departure::Silent).await })
            .await
    }

    /// Leaves the group for a topic: its queues go back with their last positions. `is_lost`: the poller did not
    /// request it, so polls report the queues as lost. False: it was not subscribed to.
    pub async fn unsubscribe(&self, topic: &str, is_lost: bool) -> Result<bool, ClientError> {
        let (shared, topic) = (self.shared.clone(), topic.to_owned());
        self.shared
            .uninterrupted(async move { shared.unsubscribe(&topic, is_lost).await })
            .await
    }

    /// Fails subscriptions of a topic that have not joined the group yet.
    pub fn cancel_subscribe(&self, topic: &str) {
        self.shared.end_joining(topic);
    }

    /// Hands out no messages of these queues, and fetches none, until they are resumed.
    pub fn pause(&self, keys: &[QueueKey], is_paused: bool) -> Result<(), ClientError> {
        {
            let mut state = self.shared.state();
            if let Some(key) = keys.iter().find(|key| !state.queues.contains_key(*key)) {
                return Err(not_assigned(key));
            }
            for key in keys {
                let Some(queue) = state.queues.get_mut(key) else {
                    continue;
                };
                queue.is_paused = is_paused;
                if queue.has_messages() {
                    let key = queue.key.clone();
                    state.make_ready(&key);
                    self.shared.wake(&state);
                }
            }
        }
        for key in keys {
            self.shared.pull(&Arc::new(key.clone()));
        }
        Ok(())
    }

    /// The assigned queues that are paused.
    pub fn paused(&self) -> Vec<Arc<QueueKey>> {
        let state = self.shared.state();
        let paused = state.queues.values().filter(|queue| queue.is_paused);
        paused.map(|queue| queue.key.clone()).collect()
    }

    /// Commits these offsets, whatever was handed out.
    pub async fn commit_offsets(&self, offsets: Vec<(QueueKey, i64)>) -> Result<(), ClientError> {
        self.shared.commit_offsets(offsets).await
    }

    /// Offsets of queues, requested concurrently, in the order of the queues: first, last, committed (-1 if there is
    /// none), or by time. With `only_masters` no slave is asked: it may have only the newest messages, so a position
    /// from it would skip the others.
    pub async fn offsets_of(
        &self,
        keys: Vec<QueueKey>,
        which: &str,
        timestamp_ms: i64,
        only_masters: bool,
    ) -> Result<Vec<i64>, ClientError> {
        let which = match which {
            "first" => WhichOffset::First,
            "last" => WhichOffset::Last,
            "timestamp" => WhichOffset::At(timestamp_ms),
            _ => WhichOffset::Committed,
        };
        self.shared.offsets_of(keys, which, only_masters).await
    }

    /// True once the consumer is closed.
    pub fn is_closed(&self) -> bool {
        self.shared.state().closed
    }

    /// The client id that brokers list.
    pub fn client_id(&self) -> &str {
        &self.shared.heartbeat.membership.client_id
    }

    /// Sets where a member of a broadcasting group continues, from its own store.
    pub fn begin_at(&self, offsets: Vec<(QueueKey, i64)>) {
        let mut kept = lock(&self.shared.local_offsets);
        kept.extend(offsets);
    }

    /// The offsets of a member of a broadcasting group.
    pub fn local_offsets(&self) -> BTreeMap<QueueKey, i64> {
        self.shared.all_local_offsets()
    }

    /// Continues at this offset of an assigned queue.
    pub fn seek(&self, key: &QueueKey, offset: i64) -> Result<(), ClientError> {
        let generation = self.shared.next_generation();
        let mut state = self.shared.state();
        let queue = state.queues.get_mut(key).ok_or_else(|| not_assigned(key))?;
        queue.restart(offset, generation);
        let key = queue.key.clone();
        drop(state);
        self.shared.pull(&key);
        Ok(())
    }

    /// Goes back to this offset of an assigned queue, but never forward: a queue that another call has taken back
    /// further, or to exactly this offset, stays where it is.
    pub fn seek_back(&self, key: &QueueKey, offset: i64) -> Result<(), ClientError> {
        let generation = self.shared.next_generation();
        let mut state = self.shared.state();
        let queue = state.queues.get_mut(key).ok_or_else(|| not_assigned(key))?;
        if queue.go_back(offset, generation) {
            let key = queue.key.clone();
            drop(state);
            self.shared.pull(&key);
        }
        Ok(())
    }

    /// Hands out up to `max` messages without waiting. Those that earlier calls handed out are done now.
    pub fn take(&self, max: usize) -> Result<Vec<Messages>, ClientError> {
        let mut again = Vec::new();
        let shared = &self.shared;
        let taken = shared
            .state()
            .take(max, (&shared.options, &*shared.counted), &mut again);
        for key in again {
            self.shared.pull(&key);
        }
        taken
    }

    /// Waits up to `slice` until there are messages or a failure. True: call [`Puller::take`].
    pub fn wait(&self, slice: Duration) -> bool {
        let mut state = self.shared.state();
        let is_ready = |state: &ConsumerState| state.is_ready() || self.shared.has_popped();
        state.sleepers += 1;
        let mut state = wait_while(&self.shared.arrived, state, slice, |state| !is_ready(state));
        state.sleepers -= 1;
        is_ready(&state)
    }

    /// Calls this whenever something may be there. It must not block.
    pub fn on_arrival(&self, waker: Arc<dyn Fn() + Send + Sync>) {
        self.shared.state().waker = Some(waker);
    }

    /// Commits everything that was handed out as done. Without an error the brokers have the positions, including those
    /// of earlier commits.
    pub async fn commit(&self) -> Result<(), ClientError> {
        self.shared.finish_delivered();
        self.shared.commit_for_call().await
    }
}

fn not_assigned(key: &QueueKey) -> ClientError {
    ClientError::NotAssigned {
        topic: key.topic.to_string(),
        broker: key.broker.to_string(),
        queue_id: key.queue_id,
    }
}
