//! Which pulls are admitted, and with which filter.

use crate::admission;
use crate::error::Refusal;
use crate::processor::pull::Pull;
use crate::tables::subscription::{MessageFilter, Subscription};
use crate::tables::topics::Topic;
use pyrmq_remoting::body::{ConsumeType, SubscriptionGroupConfig};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::header::pull::{PullMessageRequestHeader, sys_flag};
use pyrmq_remoting::names::{
    FILTER_SERVER_GROUP, ONS_API_OWNER_GROUP, ONS_API_PERMISSION_GROUP, ONS_API_PULL_GROUP,
    ONS_HTTP_PROXY_GROUP, SELF_TEST_GROUP, SYSTEM_GROUP_PREFIX, TOOLS_GROUP,
};
use pyrmq_remoting::net::Peer;
use std::sync::Arc;

/// The kind of a refusal (Apache `ForbiddenType`).
const FORBIDDEN_BROKER: &str = "1";
const FORBIDDEN_GROUP: &str = "2";
const FORBIDDEN_TOPIC: &str = "3";
const FORBIDDEN_BROADCASTING: &str = "4";
const FORBIDDEN_SUBSCRIPTION: &str = "5";

/// Groups of RocketMQ's own tools that may always pull (Apache `MixAll.isSysConsumerGroupPullMessage`).
const TOOL_GROUPS: [&str; 11] = [
    "DEFAULT_CONSUMER",
    TOOLS_GROUP,
    "SCHEDULE_CONSUMER",
    FILTER_SERVER_GROUP,
    "__MONITOR_CONSUMER",
    SELF_TEST_GROUP,
    ONS_HTTP_PROXY_GROUP,
    ONS_API_PERMISSION_GROUP,
    ONS_API_OWNER_GROUP,
    ONS_API_PULL_GROUP,
    "CID_SYS_RMQ_TRANS",
];

/// A pull that passed all checks.
pub(super) struct AdmittedPull {
    pub(super) topic: Arc<Topic>,
    pub(super) group: Arc<SubscriptionGroupConfig>,
    pub(super) filter: MessageFilter,
    /// The response resets the group's offset, so an offset that the pull commits is outdated.
    pub(super) reset: bool,
}

impl Pull {
    /// Checks in Apache's order, since clients act on the first check that fails.
    pub(super) fn admit(
        &self,
        header: &PullMessageRequestHeader<'_>,
        code: i32,
    ) -> Result<AdmittedPull, Refusal> {
        let context = &self.context;
        let options = &context.options;
        if !admission::is_readable(context.live.broker_permission()) {
            return Err(forbidden(
                FORBIDDEN_BROKER,
                format!(
                    "the broker[{}] pulling message is forbidden: brokerPermission of {}",
                    options.broker_ip1, options.broker_name
                ),
            ));
        }
        if code == request::LITE_PULL_MESSAGE && !context.live.lite_pull_message_enable() {
            return Err(forbidden(
                FORBIDDEN_BROKER,
                format!(
                    "the broker[{}] for lite pull consumer is forbidden: litePullMessageEnable",
                    options.broker_ip1
                ),
            ));
        }
        let (topic_name, group_name) = (header.topic, header.consumer_group);
        let group = context.group(group_name)?;
        if !group.consume_enable {
            return Err(forbidden(
                FORBIDDEN_GROUP,
                format!("subscription group no permission, {group_name}: consumeEnable"),
            ));
        }
        let Some(topic) = context.topics.get(topic_name) else {
            return Err(Refusal::no_topic(topic_name));
        };
        if !admission::is_readable(topic.perm) {
            return Err(forbidden(
                FORBIDDEN_TOPIC,
                format!("the topic[{topic_name}] pulling message is forbidden: its perm"),
            ));
        }
        if header.queue_id < 0 || header.queue_id >= topic.read_queue_nums {
            return Err(Refusal::new(
                response::INVALID_PARAMETER,
                format!(
                    "queueId[{}] is illegal, topic:[{topic_name}] topicConfig.readQueueNums:[{}]",
                    header.queue_id, topic.read_queue_nums
                ),
            ));
        }
        let filter = self.filter(header, &group)?;
        Ok(AdmittedPull {
            topic,
            group,
            filter,
            reset: false,
        })
    }

    /// With `rejectPullConsumerEnable`, refuses a pull unless its client is a member of a group of push consumers. The
    /// broker ignores the heartbeats of pull consumers then, so their groups have no members. RocketMQ's own tools may
    /// pull.
    pub(super) fn admit_puller(&self, group: &str, peer: &Peer) -> Result<(), Refusal> {
        let is_pushed_to = self.context.clients.consumers(group, |consumers| {
            consumers.consume_mode.consume_type != ConsumeType::Actively
                || consumers.members.contains_key(&peer.id())
        });
        if is_pushed_to == Some(true)
            || TOOL_GROUPS.contains(&group)
            || group.starts_with(SYSTEM_GROUP_PREFIX)
        {
            return Ok(());
        }
        Err(Refusal::new(
            response::SUBSCRIPTION_NOT_EXIST,
            "the consumer's group info not exist, or the pull consumer is rejected by server: rejectPullConsumerEnable",
        ))
    }

    fn filter(
        &self,
        header: &PullMessageRequestHeader<'_>,
        group: &SubscriptionGroupConfig,
    ) -> Result<MessageFilter, Refusal> {
        if header.sys_flag & sys_flag::SUBSCRIPTION == 0 {
            return self.subscribed_filter(header, group);
        }
        let is_tag = header
            .expression_type
            .is_none_or(|kind| kind.is_empty() || kind == "TAG");
        if is_tag && matches!(header.subscription, None | Some("" | "*")) {
            return Ok(MessageFilter::All);
        }
        if !is_tag && let Some(known) = self.known_filter(header) {
            return self.allowed(&known);
        }
        let parse_failed = |cause: &str| {
            Refusal::new(
                response::SUBSCRIPTION_PARSE_FAILED,
                format!("parse the consumer's subscription failed: {cause}"),
            )
        };
        let subscription = Subscription::parse(
            header.topic,
            header.subscription,
            header.expression_type,
            header.sub_version,
        )
        .ok_or_else(|| parse_failed("the subscription names no tag"))?;
        if let MessageFilter::Invalid(cause) = &subscription.filter {
            return Err(parse_failed(cause));
        }
        self.allowed(&subscription)
    }

    /// The group's subscription if its expression equals the pull's: it is compiled already.
    fn known_filter(&self, header: &PullMessageRequestHeader<'_>) -> Option<Arc<Subscription>> {
        let known = self
            .context
            .clients
            .consumers(header.consumer_group, |consumers| {
                consumers.subscriptions.get(header.topic).cloned()
            });
        known.flatten().filter(|known| {
            Some(known.expression.as_str()) == header.subscription
                && Some(known.expression_type.as_str()) == header.expression_type
                && !matches!(known.filter, MessageFilter::Invalid(_))
        })
    }

    /// The filter of a pull without a subscription: that of its group's heartbeats.
    fn subscribed_filter(
        &self,
        header: &PullMessageRequestHeader<'_>,
        group: &SubscriptionGroupConfig,
    ) -> Result<MessageFilter, Refusal> {
        let name = header.consumer_group;
        let known = self.context.clients.consumers(name, |consumers| {
            (
                consumers.consume_mode.is_broadcasting(),
                consumers.subscriptions.get(header.topic).cloned(),
            )
        });
        let Some((broadcasting, subscription)) = known else {
            return Err(Refusal::new(
                response::SUBSCRIPTION_NOT_EXIST,
                format!("the consumer's group info not exist: no consumer of the group {name} is connected"),
            ));
        };
        if broadcasting && !group.consume_broadcast_enable {
            return Err(forbidden(
                FORBIDDEN_BROADCASTING,
                format!(
                    "the consumer group[{name}] can not consume by broadcast way: consumeBroadcastEnable"
                ),
            ));
        }
        if self.context.groups.is_forbidden(name, header.topic) {
            return Err(forbidden(
                FORBIDDEN_SUBSCRIPTION,
                format!(
                    "the consumer group[{name}] is forbidden for topic[{}]",
                    header.topic
                ),
            ));
        }
        let Some(subscription) = subscription else {
            return Err(Refusal::new(
                response::SUBSCRIPTION_NOT_EXIST,
                format!(
                    "the consumer's subscription not exist: the group {name} does not subscribe to {}",
                    header.topic
                ),
            ));
        };
        if subscription.version < header.sub_version {
            return Err(Refusal::new(
                response::SUBSCRIPTION_NOT_LATEST,
                "the consumer's subscription not latest: the broker has not had the heartbeat with it yet",
            ));
        }
        if let MessageFilter::Invalid(cause) = &subscription.filter {
            return Err(Refusal::new(
                response::FILTER_DATA_NOT_EXIST,
                format!(
                    "The broker's consumer filter data is not exist!Your expression may be wrong! {cause}"
                ),
            ));
        }
        self.allowed(&subscription)
    }

    /// The subscription's filter, unless the broker is configured not to use this kind.
    fn allowed(&self, subscription: &Subscription) -> Result<MessageFilter, Refusal> {
        if !subscription.is_tag() && !self.context.live.enable_property_filter() {
            return Err(Refusal::no_property_filter(&subscription.expression_type));
        }
        Ok(subscription.filter.clone())
    }
}

fn forbidden(kind: &'static str, remark: String) -> Refusal {
    Refusal {
        forbidden_type: Some(kind),
        ..Refusal::new(response::NO_PERMISSION, remark)
    }
}
