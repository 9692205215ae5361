//! What a request needs of its account (Apache `PlainAccessValidator.parse`, `Permission.needAdminPerm`).
//!
//! Apache 4.9.7 asks for a permission for ten codes and for an administrator for five; any account may send the others.
//! Among these are sends of batches, POP, and the codes that change accounts and show their secrets. Here those that
//! Apache asks about need the same, and the others what decision 0008 says: the right to send, to consume, or, where
//! something changes, an administrator. Requests that only read stay open to every account, as with Apache.

use crate::requests::required_rights;
use crate::resource::{Action, ResourceType};
use pyrmq_remoting::body::{Body, HeartbeatData};
use pyrmq_remoting::codes::request;
use pyrmq_remoting::names::{TRACE_TOPIC, group_of_retry};
use pyrmq_remoting::{Command, WireError};

/// The end of the name of a cluster's topic of replies (Apache `MixAll.REPLY_TOPIC_POSTFIX`). Whoever answers a request
/// sends there.
const REPLY_SUFFIX: &str = "_REPLY_TOPIC";

/// One thing that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need<'r> {
    /// The account must be an administrator.
    Admin,
    /// The account must be allowed to send to a topic.
    Publish(&'r str),
    /// The account must be allowed to consume a topic.
    Subscribe(&'r str),
    /// The account must be allowed to consume in the name of a group.
    Group(&'r str),
}

impl<'r> Need<'r> {
    /// A retry topic stands for its group.
    fn of_topic(topic: &'r str, to_topic: impl Fn(&'r str) -> Self) -> Self {
        match group_of_retry(topic) {
            Some(group) => Self::Group(group),
            None => to_topic(topic),
        }
    }
}

/// Why a request was not checked to the end.
pub(crate) enum Stop<E> {
    /// The body does not fit the code.
    Body(WireError),
    /// A need is not met.
    Unmet(E),
}

/// Calls `check` with each right that a request needs, until one is missing. Names in fields are borrowed, not copied.
pub(crate) fn each_need<E>(
    request: &Command,
    check: &mut dyn FnMut(Need<'_>) -> Result<(), E>,
) -> Result<(), Stop<E>> {
    let mut check = |need: Need<'_>| check(need).map_err(Stop::Unmet);
    let field = |name| request.fields.get(name);
    let topic = |name| field(name).filter(|text| !text.is_empty());
    match request.code {
        request::SEND_MESSAGE => check(sending(topic("topic"))),
        request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => check(sending(topic("b"))),
        request::SEND_REPLY_MESSAGE => replying(topic("topic")).map_or(Ok(()), check),
        request::SEND_REPLY_MESSAGE_V2 => replying(topic("b")).map_or(Ok(()), check),
        request::PULL_MESSAGE
        | request::LITE_PULL_MESSAGE
        | request::POP_MESSAGE
        | request::PEEK_MESSAGE
        | request::NOTIFICATION
        | request::UPDATE_CONSUMER_OFFSET => {
            check(consuming(topic("topic")))?;
            check(field("consumerGroup").map_or(Need::Admin, Need::Group))
        }
        request::QUERY_MESSAGE => check(consuming(topic("topic"))),
        request::GET_CONSUMER_LIST_BY_GROUP => check(field("consumerGroup").map_or(Need::Admin, Need::Group)),
        // A producer that leaves names no group of consumers.
        request::UNREGISTER_CLIENT => {
            field("consumerGroup").map_or(Ok(()), |group| check(Need::Group(group)))
        }
        request::HEART_BEAT => {
            let body = request.body.as_deref().unwrap_or_default();
            for consumer in &HeartbeatData::decode(body).map_err(Stop::Body)?.consumer_data_set {
                check(Need::Group(&consumer.group_name))?;
                for subscription in &consumer.subscription_data_set {
                    check(consuming(Some(&subscription.topic)))?;
                }
            }
            Ok(())
        }
        // The first two show a message of any topic and every secret; the others are Apache's.
        request::VIEW_MESSAGE_BY_ID
        | request::GET_BROKER_CLUSTER_ACL_CONFIG
        | request::UPDATE_AND_CREATE_TOPIC
        | request::UPDATE_BROKER_CONFIG
        | request::DELETE_TOPIC_IN_BROKER
        | request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        | request::DELETE_SUBSCRIPTIONGROUP => check(Need::Admin),
        _ => by_rights(request, &mut check),
    }
}

fn sending(topic: Option<&str>) -> Need<'_> {
    topic.map_or(Need::Admin, |topic| Need::of_topic(topic, Need::Publish))
}

fn consuming(topic: Option<&str>) -> Need<'_> {
    topic.map_or(Need::Admin, |topic| Need::of_topic(topic, Need::Subscribe))
}

fn replying(topic: Option<&str>) -> Option<Need<'_>> {
    let is_reply = topic.is_some_and(|topic| topic.ends_with(REPLY_SUFFIX));
    (!is_reply).then(|| sending(topic))
}

fn by_rights<E>(
    request: &Command,
    check: &mut dyn FnMut(Need<'_>) -> Result<(), Stop<E>>,
) -> Result<(), Stop<E>> {
    for right in required_rights(request, "").map_err(Stop::Body)? {
        let (name, actions) = (right.resource.name.as_str(), right.actions);
        let is_read = actions
            .iter()
            .any(|action| matches!(action, Action::Get | Action::List));
        let is_group = right.resource.kind == ResourceType::Group;
        match actions {
            _ if is_read => {}
            [Action::Pub] => check(Need::Publish(name))?,
            [Action::Sub] if is_group => check(Need::Group(name))?,
            [Action::Sub] => check(Need::Subscribe(name))?,
            _ => check(Need::Admin)?,
        }
    }
    Ok(())
}

/// Whether a request only writes a trace, which every account may.
pub(crate) fn is_trace(request: &Command) -> bool {
    let topic = match request.code {
        request::SEND_MESSAGE => request.fields.get("topic"),
        request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => request.fields.get("b"),
        _ => None,
    };
    topic == Some(TRACE_TOPIC)
}
