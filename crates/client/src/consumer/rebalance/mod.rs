//! Which queues a puller has: its share of a group's, or those that it was told (Apache `RebalanceImpl`). Those of a
//! topic that the group pops go to `pop::listening`.

mod allocation;
pub mod events;
mod orderly;
mod request_mode;

use crate::consumer::options::{Order, Start};
use crate::consumer::process_queue::{ProcessQueue, QueueKey, phase::Phase};
use crate::consumer::rebalance::{events::Departure, request_mode::RequestMode};
use crate::consumer::shared::{Shared, State};
use crate::error::ClientError;
use crate::session::heartbeat::Subscription;
use pyrmq_remoting::body::{Body, GetConsumerListByGroupResponseBody};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::client::GetConsumerListByGroupRequestHeader;
use pyrmq_remoting::names::RETRY_PREFIX;
use pyrmq_remoting::{Command, clock};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Pauses between the first looks at the route of a subscribed topic.
const NEW_GROUP_INTERVALS: [Duration; 6] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

/// A queue to take.
#[derive(Debug)]
pub(crate) struct Assignment {
    pub(crate) key: Arc<QueueKey>,
    pub(crate) start: Option<i64>,
    pub(crate) subscription: Arc<Subscription>,
}

/// A queue that was taken, where to begin in it if that is given, and its generation.
type Fresh = (Arc<QueueKey>, Option<i64>, u64);

impl Shared {
    pub(crate) async fn subscribe(
        self: &Arc<Self>,
        topic: Arc<str>,
        subscription: Subscription,
    ) -> Result<(), ClientError> {
        self.heartbeat.membership.subscribe(topic.clone(), subscription);
        // The broker must know this member before it can count it.
        self.heartbeat.send().await?;
        self.balance(&topic).await?;
        self.tracker.spawn(self.clone().rebalance_new_member(topic));
        Ok(())
    }

    /// Subscribes to the topic by which messages that were handed back come again. Brokers make it when they hear of the
    /// group, so its queues are found with one of the next looks.
    pub(crate) fn subscribe_retry_topic(self: &Arc<Self>) {
        let topic: Arc<str> = format!("{RETRY_PREFIX}{}", self.options.client.group).into();
        if self.heartbeat.membership.subscription(&topic).is_some() {
            return;
        }
        let subscription = Subscription::tags_of("*", clock::now_ms());
        let shared = self.clone();
        self.tracker.spawn(async move {
            if let Err(error) = shared.subscribe(topic.clone(), subscription).await {
                tracing::debug!(topic = &*topic, %error, "retry topic not there yet");
                shared.rebalance.notify_one();
            }
        });
    }

    /// Looks at the route of a topic that was just subscribed more often than usual: brokers that make it with the
    /// first message tell the name servers one after the other.
    async fn rebalance_new_member(self: Arc<Self>, topic: Arc<str>) {
        for pause in NEW_GROUP_INTERVALS {
            if self.shutdown.sleep_or_stop(pause).await {
                return;
            }
            let before = self.routes.cached(&topic);
            // A failure has been logged, and the next look comes.
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
        let subscription = Arc::new(subscription);
        let wanted = mine
            .into_iter()
            .filter_map(|place| queues.get(place))
            .map(|queue| Assignment {
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
        // The topic may have been left, or subscribed to anew, while the share was worked out. Queues that are taken
        // after their topic was left would stay: nobody looks at its share again.
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

    /// The client ids of the group; nobody's where every member gets all messages.
    async fn known_members(&self, topic: &Arc<str>) -> Result<Vec<String>, ClientError> {
        if self.options.is_broadcasting {
            return Ok(Vec::new());
        }
        match self.members(topic).await {
            Ok(members) if members.contains(&self.heartbeat.membership.client_id) => Ok(members),
            // A broker that has been started again does not know its clients yet.
            Ok(_) | Err(ClientError::Answer { .. }) => {
                self.heartbeat.send().await?;
                self.members(topic).await
            }
            Err(error) => Err(error),
        }
    }

    /// The client ids of the group, as one broker of the topic knows them; this one's at least.
    async fn members(&self, topic: &Arc<str>) -> Result<Vec<String>, ClientError> {
        const WHAT: &str = "a group's members";
        let header = GetConsumerListByGroupRequestHeader {
            consumer_group: &self.options.client.group,
        };
        let command = Command::request(request::GET_CONSUMER_LIST_BY_GROUP).with_header(&header);
        let (answer, address) = self.offsets.ask_any(WHAT, topic, command).await?;
        if answer.code != response::SUCCESS {
            return Err(ClientError::answer(WHAT, &address, answer.code, answer.remark));
        }
        let body = answer.body.unwrap_or_default();
        match GetConsumerListByGroupResponseBody::decode(&body) {
            Ok(body) => Ok(body.consumer_id_list),
            Err(source) => Err(ClientError::Answered {
                what: WHAT,
                address,
                source,
            }),
        }
    }

    /// Takes the wanted queues and gives back those of `scope` that are not wanted.
    pub(crate) async fn take(
        self: &Arc<Self>,
        wanted: Vec<Assignment>,
        scope: impl Fn(&QueueKey) -> bool,
        departure: Departure<'_>,
    ) -> Result<(), ClientError> {
        let _taking = self.taking.lock().await;
        self.exchange(wanted, scope, departure).await
    }

    /// As [`Self::take`], for callers that hold `taking`.
    async fn exchange(
        self: &Arc<Self>,
        wanted: Vec<Assignment>,
        scope: impl Fn(&QueueKey) -> bool,
        departure: Departure<'_>,
    ) -> Result<(), ClientError> {
        let (lost, fresh, changed, is_announced) = {
            let mut state = self.state();
            if state.is_ending && matches!(departure, Departure::Announced(_)) {
                return Ok(());
            }
            let lost = self.remove_unwanted(&mut state, &wanted, scope, departure);
            let (fresh, changed) = self.insert_wanted(&mut state, wanted, departure);
            if state.has_events() {
                self.wake(&state);
            }
            let is_announced = state.queues.values().any(|queue| queue.phase.is_going());
            (lost, fresh, changed, is_announced)
        };
        for queue in &lost {
            tracing::info!(key = %queue.key, "queue given back");
        }
        if is_announced {
            // Its next member begins where this one has committed, whenever the next poll comes.
            let shared = self.clone();
            self.tracker.spawn(async move { shared.commit_each().await });
        }
        for key in &changed {
            self.pull(key);
        }
        let (ended, begun) = tokio::join!(self.end_queues(lost), async {
            if self.needs_locks() {
                self.lock(fresh.into_iter().map(|(key, ..)| key).collect()).await
            } else {
                self.begin(fresh).await
            }
        });
        ended.and(begun)
    }

    fn remove_unwanted(
        &self,
        state: &mut State,
        wanted: &[Assignment],
        scope: impl Fn(&QueueKey) -> bool,
        departure: Departure<'_>,
    ) -> Vec<ProcessQueue> {
        let mut lost = Vec::new();
        let keys: Vec<Arc<QueueKey>> = state.queues.keys().filter(|key| scope(key)).cloned().collect();
        for key in keys {
            let is_wanted = wanted.iter().any(|wish| wish.key == key);
            let mut is_kept = false;
            if let Some(queue) = state.queues.get_mut(&key) {
                let was_leaving = queue.listeners.is_leaving;
                // A listener that has messages of an orderly queue finishes them first.
                queue.listeners.is_leaving =
                    !is_wanted && self.options.order == Order::Queue && queue.listeners.is_taken();
                if queue.listeners.is_leaving {
                    continue;
                }
                is_kept = was_leaving && is_wanted;
            }
            if is_kept {
                // Nothing of it was handed out while it was about to go.
                state.make_ready(&key);
                self.wake(state);
            }
            if is_wanted {
                state.stays_after_all(&key);
            } else if !state.stays_for_now(&key, departure)
                && let Some(queue) = state.queues.remove(&key)
            {
                lost.push(queue);
            }
        }
        lost
    }

    /// Returns the queues that are new, and those that stay and are to be pulled anew.
    fn insert_wanted(
        &self,
        state: &mut State,
        wanted: Vec<Assignment>,
        departure: Departure<'_>,
    ) -> (Vec<Fresh>, Vec<Arc<QueueKey>>) {
        let mut fresh = Vec::new();
        let mut changed = Vec::new();
        for wish in wanted {
            if wish.start.is_none()
                && let Some(queue) = state.queues.get_mut(&wish.key)
            {
                if self.resubscribe(queue, wish.subscription) {
                    changed.push(wish.key);
                }
                continue;
            }
            let generation = self.next_generation();
            let mut queue = ProcessQueue::new(wish.key.clone(), wish.subscription, generation);
            queue.listeners.is_shared = self.options.is_broadcasting;
            if matches!(departure, Departure::Announced(_)) {
                queue.phase = Phase::New;
            }
            if let Some(before) = state.queues.get(&wish.key) {
                queue.committing = before.committing.clone();
            }
            state.queues.insert(wish.key.clone(), queue);
            fresh.push((wish.key, wish.start, generation));
        }
        (fresh, changed)
    }

    /// Gives a queue that stays its new subscription. True when that selects other messages: what was fetched is
    /// forgotten, and the queue must be pulled. What was handed out is done or comes again as without the change.
    fn resubscribe(&self, queue: &mut ProcessQueue, subscription: Arc<Subscription>) -> bool {
        let before = std::mem::replace(&mut queue.subscription, subscription);
        let is_same =
            before.expression == queue.subscription.expression && before.is_sql == queue.subscription.is_sql;
        if is_same || queue.next_pull.is_none() {
            return false;
        }
        let done = queue.done;
        // Outcomes of what listeners have now are ignored after the restart, so it comes again.
        let begin = if self.options.is_listening {
            done
        } else {
            queue.delivered
        };
        queue.restart(begin, self.next_generation());
        queue.done = done;
        true
    }

    /// Starts to read queues that were taken, side by side: a broker that does not answer delays its own queues only.
    pub(crate) async fn begin(self: &Arc<Self>, fresh: Vec<Fresh>) -> Result<(), ClientError> {
        let mut asked = JoinSet::new();
        for (key, start, generation) in fresh {
            let shared = self.clone();
            asked.spawn(async move {
                let begin = match start {
                    Some(offset) => Ok(offset),
                    None => shared.begin_of(&key).await,
                };
                begin
                    .map(|begin| shared.read_from(&key, begin, generation))
                    .inspect_err(|_| shared.forget(&key, generation))
            });
        }
        let mut failure = None;
        while let Some(outcome) = asked.join_next().await {
            if let Ok(Err(error)) = outcome {
                failure = Some(error);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Begins to pull a queue, unless it was given back or moved meanwhile.
    fn read_from(self: &Arc<Self>, key: &Arc<QueueKey>, begin: i64, generation: u64) {
        {
            let mut state = self.state();
            let Some(queue) = state.queue(key, generation) else {
                return;
            };
            tracing::info!(%key, begin, "queue taken");
            queue.restart(begin, generation);
            if queue.phase == Phase::New {
                state.has_events = true;
                self.wake(&state);
            }
        }
        self.pull(key);
    }

    /// Drops a queue whose start is not known: the next look at the shares tries again.
    fn forget(&self, key: &Arc<QueueKey>, generation: u64) {
        let mut state = self.state();
        if state.queue(key, generation).is_some() {
            state.queues.remove(key);
        }
    }

    /// Where the group has come, else where it shall begin.
    async fn begin_of(&self, key: &QueueKey) -> Result<i64, ClientError> {
        if self.options.is_broadcasting {
            if let Some(offset) = self.local_offset(key) {
                return Ok(offset);
            }
        } else if let Some(offset) = self.offsets.committed(key).await? {
            return Ok(offset);
        }
        match self.start {
            Start::First => self.offsets.first(key).await,
            Start::Last => self.offsets.last(key).await,
            Start::Time(timestamp_ms) => self.offsets.at_time(key, timestamp_ms).await,
        }
    }

    /// Looks at the share of every subscribed topic when the group changes, and each interval.
    pub(crate) async fn keep_balanced(self: Arc<Self>) {
        let mut pause = self.options.rebalance_interval;
        loop {
            let told = async {
                self.rebalance.notified().await;
                false
            };
            let stopped = tokio::select! {
                told = told => told,
                stopped = self.shutdown.sleep_or_stop(pause) => stopped,
            };
            if stopped || self.shutdown.is_stopped() {
                return;
            }
            pause = self.options.rebalance_interval;
            for topic in self.heartbeat.membership.topics() {
                if let Err(error) = self.balance(&topic).await {
                    tracing::warn!(topic = &*topic, %error, "share of the queues not known");
                    pause = Duration::from_secs(1);
                }
            }
            self.follow_pop_retries().await;
        }
    }
}
