//! Which queues a puller has: its share of a group's, or those that it was given (Apache `RebalanceImpl`). Those of a
//! topic that the group pops go to `pop::listening`.

mod allocation;
pub(crate) mod assignment;
pub mod events;
mod failed;
pub(crate) mod joining;
mod orderly;
mod request_mode;
mod settling;

use crate::consumer::process_queue::QueueKey;
use crate::consumer::rebalance::assignment::Assignment;
use crate::consumer::rebalance::events::Departure;
use crate::consumer::rebalance::failed::FailedTopics;
use crate::consumer::rebalance::joining::Joining;
use crate::consumer::rebalance::request_mode::RequestMode;
use crate::consumer::shared::{AllocationInput, ConsumerShared};
use crate::error::ClientError;
use crate::session::membership::Subscription;
use pyrmq_remoting::body::{Body, GetConsumerListByGroupResponseBody};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::client::GetConsumerListByGroupRequestHeader;
use pyrmq_remoting::names;
use pyrmq_remoting::{Command, clock};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Pauses between the first checks of the route of a subscribed topic.
const NEW_GROUP_INTERVALS: [Duration; 6] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

impl ConsumerShared {
    pub(crate) async fn subscribe(
        self: &Arc<Self>,
        topic: Arc<str>,
        subscription: Subscription,
        joining: &Joining,
    ) -> Result<(), ClientError> {
        let accepting = self.heartbeat.accepting();
        joining.join(subscription)?;
        // The broker must know this member before it can count it.
        self.heartbeat.send_new(&topic, &accepting).await?;
        let (shared, one) = (self.clone(), topic.clone());
        match self
            .uninterrupted(async move { shared.balance(&one).await })
            .await
        {
            Err(error @ ClientError::NoMaster { .. }) => {
                tracing::warn!(topic = &*topic, %error, "some queues start once their master is back");
                self.rebalance.notify_one();
            }
            balanced => balanced?,
        }
        self.tracker.spawn(self.clone().rebalance_new_member(topic));
        Ok(())
    }

    /// See `Puller::unsubscribe`.
    pub(crate) async fn unsubscribe(
        self: &Arc<Self>,
        topic: &str,
        is_lost: bool,
    ) -> Result<bool, ClientError> {
        self.end_joining(topic);
        let was_retired = {
            let mut state = self.state();
            state.allocation_inputs.remove(topic);
            state.retired.remove(topic)
        };
        if !self.heartbeat.membership.unsubscribe(topic) && !was_retired {
            return Ok(false);
        }
        if let Some(pops) = &self.pops {
            pops.leave(topic);
        }
        let departure = if is_lost && self.options.announces_rebalances {
            Departure::Lost
        } else {
            Departure::Silent
        };
        let given_back = self.take(Vec::new(), |key| &*key.topic == topic, departure).await;
        if self.heartbeat.membership.is_away() {
            self.heartbeat.unregister().await;
        } else {
            self.heartbeat.send().await?;
        }
        given_back.map(|()| true)
    }

    /// Subscribes to the topic by which messages that were handed back are delivered again. Brokers create it when they
    /// learn of the group, so one of the next rebalances finds its queues.
    pub(crate) fn subscribe_retry_topic(self: &Arc<Self>) {
        let topic: Arc<str> = names::retry_topic(&self.options.client.group).into();
        if self.heartbeat.membership.subscription(&topic).is_some() {
            return;
        }
        let subscription = Subscription::tags_of("*", clock::now_ms());
        let (shared, joining) = (self.clone(), self.begin_joining(&topic));
        self.tracker.spawn(async move {
            if let Err(error) = shared.subscribe(topic.clone(), subscription, &joining).await {
                tracing::debug!(topic = &*topic, %error, "retry topic not there yet");
                shared.rebalance.notify_one();
            }
        });
    }

    /// Refreshes the route of a topic that was just subscribed more often than usual: brokers that create it with the
    /// first message register it at the name servers one after the other.
    async fn rebalance_new_member(self: Arc<Self>, topic: Arc<str>) {
        for pause in NEW_GROUP_INTERVALS {
            if self.shutdown.sleep_or_stop(pause).await {
                return;
            }
            let before = self.routes.cached(&topic);
            // The failure has been logged, and the next rebalance tries again.
            if let (Some(before), Ok(now)) = (before, self.routes.refresh(&topic).await)
                && before.route.subscribed() != now.route.subscribed()
            {
                self.rebalance.notify_one();
            }
        }
    }

    /// Takes this member's share of a topic's queues.
    async fn balance(self: &Arc<Self>, topic: &Arc<str>) -> Result<(), ClientError> {
        let Some(subscription) = self.heartbeat.membership.subscription(topic) else {
            return Ok(());
        };
        let members = self.known_members(topic).await?;
        match self.request_mode(topic).await? {
            RequestMode::Pop(queues) => return self.pop_from(topic, &queues, &subscription).await,
            RequestMode::Unknown if self.is_popping(topic) => return Ok(()),
            RequestMode::Unknown | RequestMode::Pull => {}
        }
        let route = self.routes.get(topic).await?;
        let queues = route.route.subscribed();
        let mine = self.allocated(topic, &queues, &members).await?;
        let contended = self.contended(topic, &queues, &members);
        let subscription = Arc::new(subscription);
        let wanted = mine
            .into_iter()
            .filter_map(|index| Some((index, queues.get(index)?)))
            .map(|(index, queue)| Assignment {
                is_contended: contended.contains(&index),
                key: Arc::new(QueueKey {
                    topic: topic.clone(),
                    broker: queue.broker.clone(),
                    queue_id: queue.queue_id,
                }),
                start: None,
                subscription: subscription.clone(),
            })
            .collect();
        let _taking = self.taking.lock().await;
        // The topic may have been left, or subscribed to anew, while the share was computed. Queues that are taken
        // after their topic was left would stay: its share is not computed again.
        if self.heartbeat.membership.subscription(topic).as_ref() != Some(&*subscription) {
            return Ok(());
        }
        if let Some(pops) = &self.pops {
            pops.leave(topic);
        }
        let exists = |key: &QueueKey| {
            let mut known = queues.iter();
            known.any(|queue| queue.broker == key.broker && queue.queue_id == key.queue_id)
        };
        let input = AllocationInput {
            members,
            queues: queues.clone(),
        };
        self.state().allocation_inputs.insert(topic.clone(), input);
        self.exchange(wanted, |key| key.topic == *topic, self.departure(&exists))
            .await
    }

    /// Pops a topic: queues that were pulled are given back first.
    async fn pop_from(
        self: &Arc<Self>,
        topic: &Arc<str>,
        queues: &[(Arc<str>, i32)],
        subscription: &Subscription,
    ) -> Result<(), ClientError> {
        let Some(pops) = &self.pops else {
            return Ok(());
        };
        let _taking = self.taking.lock().await;
        if self.heartbeat.membership.subscription(topic).as_ref() != Some(subscription) {
            return Ok(());
        }
        // Pops read the retry topics by themselves.
        let retries = self.pop_retry_topics(topic);
        for retry in &retries {
            self.heartbeat.membership.unsubscribe(retry);
        }
        let given_back = self
            .exchange(
                Vec::new(),
                |key| key.topic == *topic || retries.contains(&key.topic),
                Departure::Silent,
            )
            .await;
        pops.assign(topic, queues);
        given_back
    }

    /// The client ids of the group; none if every member gets all messages.
    async fn known_members(&self, topic: &Arc<str>) -> Result<Vec<String>, ClientError> {
        if self.options.is_broadcasting {
            return Ok(Vec::new());
        }
        match self.members(topic).await {
            Ok(members) if members.contains(&self.heartbeat.membership.client_id) => Ok(members),
            // A broker that has been started again does not know its clients yet.
            Ok(_) | Err(ClientError::Refused { .. }) => {
                self.heartbeat.send().await?;
                self.members(topic).await
            }
            Err(error) => Err(error),
        }
    }

    /// The client ids of the group according to one broker of the topic; at least this member's.
    async fn members(&self, topic: &Arc<str>) -> Result<Vec<String>, ClientError> {
        const WHAT: &str = "a group's members";
        let header = GetConsumerListByGroupRequestHeader {
            consumer_group: &self.options.client.group,
        };
        let command = Command::request(request::GET_CONSUMER_LIST_BY_GROUP).with_header(&header);
        let (answer, address) = self.offsets.request_any(WHAT, topic, command).await?;
        self.broker_version.store(answer.version, Ordering::Relaxed);
        if answer.code != response::SUCCESS {
            return Err(ClientError::refused(WHAT, &address, answer.code, answer.remark));
        }
        let body = answer.body.unwrap_or_default();
        match GetConsumerListByGroupResponseBody::decode(&body) {
            Ok(body) => Ok(body.consumer_id_list),
            Err(source) => Err(ClientError::UnreadableAnswer {
                what: WHAT,
                address,
                source,
            }),
        }
    }

    /// Computes the share of every subscribed topic when the group changes, and each interval. Topics for which that
    /// failed are tried again sooner.
    pub(crate) async fn keep_balanced(self: Arc<Self>) {
        let interval = self.options.rebalance_interval;
        let mut failed = FailedTopics::default();
        let mut due = Instant::now() + interval;
        loop {
            let pause = failed.pause(due.saturating_duration_since(Instant::now()));
            let is_notified = tokio::select! {
                () = self.rebalance.notified() => true,
                _ = self.shutdown.sleep_or_stop(pause) => false,
            };
            if self.shutdown.is_stopped() {
                return;
            }
            let topics = if is_notified || Instant::now() >= due {
                due = Instant::now() + interval;
                self.heartbeat.membership.topics()
            } else {
                failed.topics()
            };
            failed.next_round();
            for topic in topics {
                if self.shutdown.is_stopped() {
                    return;
                }
                match self.balance(&topic).await {
                    Ok(()) => failed.forget(&topic),
                    Err(error) => failed.note(&topic, &error),
                }
            }
            self.follow_pop_retries().await;
        }
    }
}
