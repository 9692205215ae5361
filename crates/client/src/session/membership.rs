//! A client's group and subscriptions, as its heartbeats announce them.

use crate::session::connections::{Connections, Present};
use crate::session::identity;
use crate::session::options::ClientOptions;
use pyrmq_remoting::body::{
    ConsumeFromWhere, ConsumeType, ConsumerData, HeartbeatData, MessageModel, ProducerData, SubscriptionData,
};
use pyrmq_remoting::codes::request;
use pyrmq_remoting::header::client::UnregisterClientRequestHeader;
use pyrmq_remoting::message::java_hash;
use pyrmq_remoting::sync::lock;
use pyrmq_remoting::{Command, clock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Which messages of a topic a consumer wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// `*`, or tags with `||` between them; a condition where `is_sql`.
    pub expression: String,
    /// The expression is a SQL92 condition on properties, which the broker evaluates.
    pub is_sql: bool,
    /// When it was created, ms: brokers keep the newest.
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

/// A client's group and subscriptions.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) client_id: String,
    group: String,
    pub(super) consumer: Option<ConsumerKind>,
    // Guards the topics that a consumer has subscribed to.
    subscriptions: Mutex<BTreeMap<Arc<str>, Subscription>>,
    // The client has left its group, until it subscribes again.
    is_away: AtomicBool,
    // The client is closing: no subscription brings it back.
    pub(super) has_ended: AtomicBool,
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

    /// Replaces a subscription that failed with the one before it, or drops it where there was none. False: it has been
    /// replaced or dropped since, and stays as it is.
    pub(crate) fn put_back(
        &self,
        topic: &Arc<str>,
        failed: &Subscription,
        before: Option<Subscription>,
    ) -> bool {
        let mut known = lock(&self.subscriptions);
        if known.get(topic) != Some(failed) {
            return false;
        }
        if let Some(before) = before {
            // A broker may have the failed one, and keeps the newest.
            let version = clock::now_ms().max(failed.version + 1);
            known.insert(topic.clone(), Subscription { version, ..before });
        } else {
            known.remove(topic);
            self.is_away.store(known.is_empty(), Ordering::Release);
        }
        true
    }

    /// Whether the client has left its group.
    pub(crate) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Acquire) || self.has_ended.load(Ordering::Acquire)
    }

    /// All subscriptions, as brokers read them.
    pub(crate) fn subscription_data(&self) -> Vec<SubscriptionData> {
        let known = lock(&self.subscriptions);
        known
            .iter()
            .map(|(topic, subscription)| subscription.data(topic))
            .collect()
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
    pub(super) fn unregistration(&self) -> Command {
        let group = self.group.as_str();
        let header = UnregisterClientRequestHeader {
            client_id: &self.client_id,
            producer_group: self.consumer.is_none().then_some(group),
            consumer_group: self.consumer.is_some().then_some(group),
        };
        Command::request(request::UNREGISTER_CLIENT).with_header(&header)
    }

    /// What a heartbeat says.
    pub(super) fn data(&self) -> HeartbeatData {
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
