//! Heartbeats to brokers: at once when a broker becomes known or has a new connection, then every 30 s (Apache
//! `MQClientInstance.sendHeartbeatToAllBrokerWithLock`, `HeartbeatData`).

use crate::error::ClientError;
use crate::session::connections::{Connections, Present};
use crate::session::identity;
use crate::session::late_goodbye::{self, Unanswered};
use crate::session::options::ClientOptions;
use crate::session::routes::Routes;
use bytes::Bytes;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{
    Body, ConsumeFromWhere, ConsumeType, ConsumerData, HeartbeatData, MessageModel, ProducerData,
    SubscriptionData,
};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::client::UnregisterClientRequestHeader;
use pyrmq_remoting::message::java_hash;
use pyrmq_remoting::net::{Client, NetError, Shutdown, Snapshot};
use pyrmq_remoting::sync::lock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::{RwLock, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How often new connections are looked for.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time for the last heartbeats before a goodbye, and for its answers.
const GOODBYE: Duration = Duration::from_millis(500);

/// Which messages of a topic a consumer wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// `*`, or tags with `||` between them; a condition where `is_sql`.
    pub expression: String,
    /// The expression is a SQL92 condition on properties, which the broker evaluates.
    pub is_sql: bool,
    /// When it was made, ms: brokers keep the newest.
    pub version: i64,
}

impl Subscription {
    /// A subscription to tags.
    pub fn tags_of(expression: impl Into<String>, version: i64) -> Self {
        Self {
            expression: expression.into(),
            is_sql: false,
            version,
        }
    }

    /// Apache's name of the kind of expression.
    pub(crate) fn expression_type(&self) -> &'static str {
        if self.is_sql { "SQL92" } else { "TAG" }
    }

    /// The tags; none means all.
    pub fn tags(&self) -> Vec<&str> {
        if self.is_sql || matches!(self.expression.trim(), "" | "*") {
            return Vec::new();
        }
        let tags = self.expression.split("||").map(str::trim);
        tags.filter(|tag| !tag.is_empty()).collect()
    }

    /// The form that brokers read.
    pub(crate) fn data(&self, topic: &str) -> SubscriptionData {
        let tags = self.tags();
        SubscriptionData {
            expression_type: self.expression_type().to_owned(),
            code_set: tags.iter().map(|tag| java_hash::hash(tag)).collect(),
            sub_string: if tags.is_empty() && !self.is_sql {
                "*".to_owned()
            } else {
                self.expression.clone()
            },
            sub_version: self.version,
            tags_set: tags.into_iter().map(str::to_owned).collect(),
            topic: topic.to_owned(),
            ..SubscriptionData::default()
        }
    }
}

/// What a heartbeat says of a consumer's group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConsumerKind {
    /// The consumer polls (`Actively`), or has listeners (`Passively`).
    pub(crate) consume_type: ConsumeType,
    /// Whether one member of the group gets a message, or every member.
    pub(crate) model: MessageModel,
    /// Where a new group begins.
    pub(crate) start: ConsumeFromWhere,
}

/// What a client is to its brokers.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) client_id: String,
    group: String,
    consumer: Option<ConsumerKind>,
    // Guards the topics that a consumer has subscribed to.
    subscriptions: Mutex<BTreeMap<Arc<str>, Subscription>>,
    // The client has left its group, until it subscribes again.
    is_away: AtomicBool,
    // It ends: no subscription brings it back.
    has_ended: AtomicBool,
}

impl Membership {
    /// A producer of the group.
    pub(crate) fn producer(options: &ClientOptions) -> Self {
        Self::new(options, None)
    }

    /// A consumer of the group.
    pub(crate) fn consumer(options: &ClientOptions, kind: ConsumerKind) -> Self {
        Self::new(options, Some(kind))
    }

    fn new(options: &ClientOptions, consumer: Option<ConsumerKind>) -> Self {
        Self {
            client_id: identity::client_id(&options.instance_name, &options.unit_name),
            group: options.group.clone(),
            consumer,
            subscriptions: Mutex::default(),
            is_away: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        }
    }

    /// The group that the client is in.
    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    /// Adds or replaces a subscription.
    pub(crate) fn subscribe(&self, topic: Arc<str>, subscription: Subscription) {
        let mut known = lock(&self.subscriptions);
        known.insert(topic, subscription);
        self.is_away.store(false, Ordering::Release);
    }

    /// The subscription of a topic.
    pub(crate) fn subscription(&self, topic: &str) -> Option<Subscription> {
        let known = lock(&self.subscriptions);
        known.get(topic).cloned()
    }

    /// Drops a subscription. False: there was none. Without the last one the client leaves its group.
    pub(crate) fn unsubscribe(&self, topic: &str) -> bool {
        let mut known = lock(&self.subscriptions);
        let was_there = known.remove(topic).is_some();
        if was_there && known.is_empty() {
            self.is_away.store(true, Ordering::Release);
        }
        was_there
    }

    /// Whether the client has left its group.
    pub(crate) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Acquire) || self.has_ended.load(Ordering::Acquire)
    }

    /// All subscriptions, as brokers read them.
    pub(crate) fn subscription_data(&self) -> Vec<SubscriptionData> {
        let known = lock(&self.subscriptions);
        known.iter().map(|(topic, wish)| wish.data(topic)).collect()
    }

    /// Apache's name for which members of the group get a message: one or all.
    pub(crate) fn model_name(&self) -> &'static str {
        match self.consumer.map(|kind| kind.model) {
            Some(MessageModel::Broadcasting) => "BROADCASTING",
            _ => "CLUSTERING",
        }
    }

    /// The topics that are subscribed to.
    pub(crate) fn topics(&self) -> Vec<Arc<str>> {
        let known = lock(&self.subscriptions);
        known.keys().cloned().collect()
    }

    /// Whether another client is in the group that brokers take for this one.
    pub(super) fn is_back(&self, connections: &Connections) -> bool {
        connections.is_present(&self.client_id, &self.group, self.consumer.is_some())
    }

    /// The request by which the client leaves its group.
    pub(super) fn goodbye(&self) -> Command {
        let group = self.group.as_str();
        let header = UnregisterClientRequestHeader {
            client_id: &self.client_id,
            producer_group: self.consumer.is_none().then_some(group),
            consumer_group: self.consumer.is_some().then_some(group),
        };
        Command::request(request::UNREGISTER_CLIENT).with_header(&header)
    }

    /// What a heartbeat says.
    fn data(&self) -> HeartbeatData {
        let mut data = HeartbeatData {
            client_id: self.client_id.clone(),
            ..HeartbeatData::default()
        };
        if let Some(kind) = self.consumer {
            data.consumer_data_set.push(ConsumerData {
                consume_from_where: kind.start,
                consume_type: kind.consume_type,
                group_name: self.group.clone(),
                message_model: kind.model,
                subscription_data_set: self.subscription_data(),
                unit_mode: false,
            });
        } else {
            data.producer_data_set.push(ProducerData {
                group_name: self.group.clone(),
            });
        }
        data
    }
}

impl Present for Membership {
    fn is_present(&self, client_id: &str, group: &str, is_consumer: bool) -> bool {
        let is_it = self.client_id == client_id && self.group == group;
        is_it && self.consumer.is_some() == is_consumer && !self.is_away()
    }
}

/// The last round of heartbeats: its time, and what was known then.
struct LastRound {
    at: Instant,
    stats: Snapshot,
    changes: u64,
    brokers: Vec<(String, bool)>,
}

/// Sends heartbeats to the brokers of every known route.
#[derive(Debug, Clone)]
pub(crate) struct Heartbeat {
    client: Client,
    routes: Routes,
    pub(crate) membership: Arc<Membership>,
    timeout: Duration,
    // Shared by heartbeats until they are answered, whatever has become of their callers; a goodbye has it alone.
    // Brokers work on requests of one connection at once: a heartbeat behind the goodbye would register the client
    // again.
    on_their_way: Arc<RwLock<()>>,
    unanswered: Unanswered,
    connections: Arc<Connections>,
}

impl Heartbeat {
    pub(crate) fn new(
        client: Client,
        routes: Routes,
        membership: Membership,
        options: &ClientOptions,
    ) -> Self {
        let membership = Arc::new(membership);
        let present: Weak<dyn Present> = Arc::<Membership>::downgrade(&membership);
        options.connections.note(present);
        Self {
            client,
            routes,
            membership,
            timeout: options.request_timeout,
            on_their_way: Arc::default(),
            unanswered: Unanswered::default(),
            connections: options.connections.clone(),
        }
    }

    /// Sends a heartbeat to every broker (a producer: to masters only), side by side. Fails when all fail.
    pub(crate) async fn send(&self) -> Result<(), ClientError> {
        self.send_within(self.timeout).await
    }

    /// Sends a heartbeat to every broker, each within `time` or the request timeout if that is shorter. Fails when all
    /// fail.
    pub(crate) async fn send_within(&self, time: Duration) -> Result<(), ClientError> {
        let (answered, failed) = self.send_all(self.timeout.min(time)).await;
        failed.filter(|_| answered == 0).map_or(Ok(()), Err)
    }

    /// How many brokers answered, and a failure.
    async fn send_all(&self, timeout: Duration) -> (usize, Option<ClientError>) {
        const WHAT: &str = "a heartbeat";
        let on_its_way = Arc::new(self.on_their_way.clone().read_owned().await);
        if self.membership.is_away() {
            return (0, None);
        }
        let body = Bytes::from(self.membership.data().encode());
        let mut beats = Vec::new();
        for (address, master) in self.routes.brokers() {
            if !master && self.membership.consumer.is_none() {
                continue;
            }
            let command = Command::request(request::HEART_BEAT).with_body(body.clone());
            let (result_sender, outcome) = oneshot::channel();
            let on_its_way = on_its_way.clone();
            let note = self.unanswered.begin(&address);
            self.client
                .request_with(&address, command, timeout, move |result| {
                    note(&result);
                    drop(result_sender.send(result));
                    drop(on_its_way);
                });
            beats.push((address, outcome));
        }
        drop(on_its_way);
        let (mut answered, mut failed) = (0, None);
        for (address, outcome) in beats {
            let error = match outcome.await.unwrap_or(Err(NetError::Closed)) {
                Ok(answer) if answer.code == response::SUCCESS => {
                    answered += 1;
                    continue;
                }
                Ok(answer) => ClientError::refused(WHAT, &address, answer.code, answer.remark),
                Err(source) => ClientError::net(WHAT, address.clone(), source),
            };
            tracing::warn!(address, %error, "heartbeat failed");
            failed = Some(error);
        }
        (answered, failed)
    }

    /// Beats until the client stops: when another broker is known, when a connection came or went (a broker that has
    /// started again knows nobody, and cannot ask about transactions), both looked for each second; and each interval.
    /// After a failure sooner, with pauses that double. A broker that becomes known may have a connection already: that
    /// of another client.
    pub(crate) async fn keep_alive(self, interval: Duration, shutdown: Shutdown) {
        let stats = self.client.stats();
        let mut last: Option<LastRound> = None;
        let (mut pause, mut failures) = (interval, 0);
        while !shutdown.sleep_or_stop(CHECK_INTERVAL.min(interval)).await {
            let now = stats.snapshot();
            let changes = self.routes.broker_changes();
            let is_due = match &mut last {
                Some(last)
                    if last.at.elapsed() < pause
                        && now.opened == last.stats.opened
                        && now.connections >= last.stats.connections =>
                {
                    // The list is made only when it may differ: a producer may have many thousand topics.
                    std::mem::replace(&mut last.changes, changes) != changes
                        && last.brokers != self.routes.brokers()
                }
                _ => true,
            };
            let brokers = if is_due { self.routes.brokers() } else { Vec::new() };
            if brokers.is_empty() {
                continue;
            }
            // What failed is in the log.
            if self.send_all(self.timeout).await.1.is_none() {
                (pause, failures) = (interval, 0);
            } else {
                pause = (CHECK_INTERVAL * 2_u32.saturating_pow(failures)).min(interval);
                failures += 1;
            }
            last = Some(LastRound {
                at: Instant::now(),
                stats: stats.snapshot(),
                changes,
                brokers,
            });
        }
    }

    /// Says goodbye for good: no heartbeat follows, whatever is still under way in this client.
    pub(crate) async fn end(&self) {
        self.membership.has_ended.store(true, Ordering::Release);
        self.unregister().await;
    }

    /// Says goodbye to every connected broker, after the heartbeats that are on their way; what fails does not matter
    /// any more.
    pub(crate) async fn unregister(&self) {
        let wait = GOODBYE.min(self.timeout);
        // One that has not answered by then hears of both later, maybe in the wrong order.
        let _alone = tokio::time::timeout(wait, self.on_their_way.write()).await;
        if !self.membership.is_away() {
            // It has subscribed again meanwhile.
            return;
        }
        let mut connected = self.client.connected();
        let brokers = self.routes.brokers();
        connected.retain(|address| brokers.iter().any(|(broker, _)| broker == address));
        let silent = self.unanswered.of(&connected);
        let mut requests = JoinSet::new();
        for address in connected {
            let (client, command) = (self.client.clone(), self.membership.goodbye());
            requests.spawn(async move {
                if let Err(error) = client.request(&address, command, wait).await {
                    tracing::debug!(address, %error, "cannot unregister from a broker");
                }
            });
        }
        while requests.join_next().await.is_some() {}
        if !silent.is_empty() {
            late_goodbye::say_later(&self.client, &self.connections, &self.membership, silent);
        }
    }
}
