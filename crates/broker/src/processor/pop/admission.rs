//! The checks of requests to pop, to peek and to wait for messages.

use crate::admission;
use crate::context::BrokerContext;
use crate::error::Refusal;
use crate::pop::MAX_MESSAGES;
use crate::processor::pop::{Pass, check_invisible_time, illegal_queue, revive_queues};
use crate::tables::subscription::{MessageFilter, Subscription};
use crate::tables::topics::Topic;
use pyrmq_remoting::body::SubscriptionGroupConfig;
use pyrmq_remoting::clock;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::PopMessageRequestHeader;
use pyrmq_remoting::names::POP_ORDER_REVIVE_QUEUE;
use std::sync::Arc;

/// Topic and group of a request that may read them. `queue_id` -1 is every queue.
type TopicAndGroup = (Arc<Topic>, Arc<SubscriptionGroupConfig>);

/// The checks that pops, peeks and notifications share, in Apache's order.
pub(super) fn admit(
    context: &BrokerContext,
    what: &str,
    topic: &str,
    group: &str,
    queue_id: i32,
) -> Result<TopicAndGroup, Refusal> {
    if !admission::is_readable(context.live.broker_permission()) {
        let text = format!(
            "the broker[{}] {what} message is forbidden: brokerPermission of {}",
            context.options.broker_ip1, context.options.broker_name
        );
        return Err(Refusal::new(response::NO_PERMISSION, text));
    }
    let known = context
        .topics
        .get(topic)
        .ok_or_else(|| Refusal::no_topic(topic))?;
    if !admission::is_readable(known.perm) {
        let text = format!("the topic[{topic}] {what} message is forbidden: its perm");
        return Err(Refusal::new(response::NO_PERMISSION, text));
    }
    if queue_id >= known.read_queue_nums || queue_id < -1 {
        let text = illegal_queue(queue_id, &known);
        return Err(Refusal::new(response::INVALID_PARAMETER, text));
    }
    let config = context.group(group)?;
    if !config.consume_enable {
        let text = format!("subscription group no permission, {group}: consumeEnable");
        return Err(Refusal::new(response::NO_PERMISSION, text));
    }
    Ok((known, config))
}

/// The filter of a pop's expression; no expression is everything.
pub(super) fn filter(
    context: &BrokerContext,
    topic: &str,
    expression: Option<&str>,
    kind: Option<&str>,
) -> Result<MessageFilter, Refusal> {
    let failed = |cause: &str| {
        let text = format!("parse the consumer's subscription failed: {cause}");
        Refusal::new(response::SUBSCRIPTION_PARSE_FAILED, text)
    };
    let subscription = Subscription::parse(topic, expression, kind, 0)
        .ok_or_else(|| failed("the subscription names no tag"))?;
    if let MessageFilter::Invalid(cause) = &subscription.filter {
        return Err(failed(cause));
    }
    if !subscription.is_tag() && !context.live.enable_property_filter() {
        return Err(Refusal::no_property_filter(&subscription.expression_type));
    }
    Ok(subscription.filter)
}

/// A pop that passed all checks.
pub(super) struct AdmittedPop {
    pub(super) topic: Arc<Topic>,
    pub(super) filter: MessageFilter,
    pub(super) revive_queue: i32,
    pub(super) pop_time: i64,
    pub(super) pass: Pass,
}

impl AdmittedPop {
    /// Checks in Apache's order.
    pub(super) fn new(
        context: &BrokerContext,
        header: &PopMessageRequestHeader<'_>,
        pass: Pass,
    ) -> Result<Self, Refusal> {
        if !(1..=MAX_MESSAGES).contains(&header.max_msg_nums) {
            let text = format!(
                "the broker[{}] pop message's num is greater than 32 or less than 1: maxMsgNums is {}",
                context.options.broker_ip1, header.max_msg_nums
            );
            return Err(Refusal::new(response::INVALID_PARAMETER, text));
        }
        if !context.options.store.timer.enable {
            let text = format!(
                "the broker[{}] pop message is forbidden because timerWheelEnable is false",
                context.options.broker_ip1
            );
            return Err(Refusal::internal(text));
        }
        check_invisible_time(context, header.invisible_time)?;
        let (topic, _) = admit(
            context,
            "popping",
            header.topic,
            header.consumer_group,
            header.queue_id,
        )?;
        let revive_queue = if header.order == Some(true) {
            POP_ORDER_REVIVE_QUEUE
        } else {
            context.pops.next_revive_queue(revive_queues(context))
        };
        Ok(Self {
            topic,
            filter: filter(context, header.topic, header.exp, header.exp_type)?,
            revive_queue,
            pop_time: clock::now_ms(),
            pass,
        })
    }
}
