//! Whether a group pulls a topic or pops it, which its brokers say (Apache
//! `RebalanceImpl#getRebalanceResultFromBroker`, request 400).
//!
//! Every member asks the same broker of a topic, so all members agree within one rebalance interval. After a change,
//! messages that were popped and not acknowledged come by the POP retry topics, which members that pull read, too.

use crate::consumer::options::Allocation;
use crate::consumer::pop::state::ANY_QUEUE;
use crate::consumer::shared::ConsumerShared;
use crate::error::ClientError;
use crate::session::membership::Subscription;
use bytes::Bytes;
use pyrmq_remoting::body::{Body, MessageModel, QueryAssignmentRequestBody, QueryAssignmentResponseBody};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::command::V5_0_0;
use pyrmq_remoting::names;
use pyrmq_remoting::{Command, clock};
use pyrmq_routing::allocate::{AVERAGE, AVERAGE_BY_CIRCLE};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const WHAT: &str = "whether a group pops";
/// The mode of groups that pop, as brokers name it.
const POP: &str = "POP";

/// How a member gets the messages of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestMode {
    /// The member pulls its share of the queues.
    Pull,
    /// The member pops these queues: broker and queue.
    Pop(Vec<(Arc<str>, i32)>),
    /// The broker cannot answer this now: the member continues as before.
    Unknown,
}

impl ConsumerShared {
    /// Asks a broker of the topic.
    pub(crate) async fn request_mode(&self, topic: &Arc<str>) -> Result<RequestMode, ClientError> {
        // Brokers before 5.0 know no POP. Those before 4.9.1 do not even answer a request that they do not know.
        let knows_pop = self.broker_version.load(Ordering::Relaxed) >= V5_0_0;
        if self.pops.is_none() || names::is_retry(topic) || !knows_pop {
            return Ok(RequestMode::Pull);
        }
        let strategy = match self.options.allocation {
            Allocation::Circle => AVERAGE_BY_CIRCLE,
            // Brokers know these two; a member that pulls computes its share itself.
            _ => AVERAGE,
        };
        let body = QueryAssignmentRequestBody {
            client_id: self.heartbeat.membership.client_id.clone(),
            consumer_group: self.options.client.group.clone(),
            message_model: MessageModel::Clustering,
            strategy_name: Some(strategy.to_owned()),
            topic: topic.to_string(),
        };
        let command = Command::request(request::QUERY_ASSIGNMENT).with_body(Bytes::from(body.encode()));
        let (answer, address) = self.offsets.request_any(WHAT, topic, command).await?;
        if answer.code != response::SUCCESS {
            // A broker that refuses has no say.
            tracing::debug!(%topic, address, code = answer.code, "the broker does not say how the group gets messages");
            return Ok(RequestMode::Pull);
        }
        let body = answer.body.unwrap_or_default();
        let found = QueryAssignmentResponseBody::decode(&body);
        let found = found.map_err(|source| ClientError::UnreadableAnswer {
            what: WHAT,
            address,
            source,
        })?;
        Ok(mode_of(&found))
    }

    /// Whether the group pops a topic, as far as this member knows.
    pub(crate) fn is_popping(&self, topic: &str) -> bool {
        self.pops.as_ref().is_some_and(|pops| pops.has(topic))
    }

    /// Where popped messages of a topic come back.
    pub(crate) fn pop_retry_topics(&self, topic: &str) -> [Arc<str>; 2] {
        let group = &self.options.client.group;
        [
            names::pop_retry_topic(topic, group).into(),
            names::pop_retry_topic_v2(topic, group).into(),
        ]
    }

    /// Pulls the POP retry topics of topics that the group pulls, where brokers have any: what was popped before the
    /// group was switched comes back there.
    pub(crate) async fn follow_pop_retries(self: &Arc<Self>) {
        if self.pops.is_none() {
            return;
        }
        for topic in self.heartbeat.membership.topics() {
            if names::is_retry(&topic) || self.is_popping(&topic) {
                continue;
            }
            for retry in self.pop_retry_topics(&topic) {
                let is_followed = self.heartbeat.membership.subscription(&retry).is_some();
                if is_followed || self.routes.get(&retry).await.is_err() {
                    continue;
                }
                let all = Subscription::tags_of("*", clock::now_ms());
                let joining = self.begin_joining(&retry);
                if let Err(error) = self.subscribe(retry.clone(), all, &joining).await {
                    tracing::warn!(%retry, %error, "messages that were popped and not acknowledged are not read yet");
                }
            }
        }
    }
}

fn mode_of(found: &QueryAssignmentResponseBody) -> RequestMode {
    let all = &found.message_queue_assignments;
    if all.is_empty() {
        return RequestMode::Unknown;
    }
    let popped = all.iter().filter(|one| one.mode == POP);
    let queues: Vec<(Arc<str>, i32)> = popped
        .filter_map(|one| one.message_queue.as_ref())
        .map(|queue| (queue.broker_name.as_str().into(), queue.queue_id.max(ANY_QUEUE)))
        .collect();
    if queues.is_empty() {
        RequestMode::Pull
    } else {
        RequestMode::Pop(queues)
    }
}
