//! The requests other than sends (`send/mod.rs`) that create a group or topic by using it.

use crate::context::BrokerContext;
use crate::processor::auto_create::{AutoCreateQueue, Missing, Resume, Rule};
use crate::processor::reply::SendReply;
use crate::processor::{client, offset, send_back};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::request;
use pyrmq_remoting::net::{Peer, Processor};
use std::sync::Arc;

/// The field with the order key of heartbeats and of what ends them: no request has it, so they share one key.
const NO_FIELD: &str = "";

const RULES: &[(&[i32], Rule)] = &[
    (
        &[request::HEART_BEAT],
        rule(Resume::OfConnection, Some(NO_FIELD), client::missing_of_heartbeat),
    ),
    (
        &[request::UNREGISTER_CLIENT],
        rule(Resume::OfConnection, Some(NO_FIELD), |_, _, _| None),
    ),
    (
        &[request::LOCK_BATCH_MQ],
        rule(Resume::OfConnection, None, client::missing_of_locks),
    ),
    (
        &[request::UPDATE_CONSUMER_OFFSET],
        rule(Resume::Single, Some("consumerGroup"), offset::missing),
    ),
    (
        &[request::CONSUMER_SEND_MSG_BACK],
        rule(Resume::Single, Some("group"), send_back::missing),
    ),
    (
        &[request::SEND_REPLY_MESSAGE, request::SEND_REPLY_MESSAGE_V2],
        rule(Resume::Single, None, SendReply::missing),
    ),
    (
        &[request::PULL_MESSAGE, request::LITE_PULL_MESSAGE],
        rule(Resume::OfConnection, Some("consumerGroup"), of_pull),
    ),
    (
        &[
            request::POP_MESSAGE,
            request::NOTIFICATION,
            request::PEEK_MESSAGE,
            request::POLLING_INFO,
        ],
        rule(Resume::OfConnection, Some("consumerGroup"), of_pop),
    ),
];

const fn rule(
    resume: fn(Arc<dyn Processor>) -> Resume,
    field: Option<&'static str>,
    missing: fn(&BrokerContext, &Command, &Peer) -> Option<Missing>,
) -> Rule {
    Rule {
        resume,
        field,
        missing,
    }
}

/// Returns the row of a request code, whose requests wait until what they miss is created.
pub(super) fn wrap(code: i32, row: Arc<dyn Processor>, auto_create: &AutoCreateQueue) -> Arc<dyn Processor> {
    match RULES.iter().find(|(codes, _)| codes.contains(&code)) {
        Some((_, rule)) => auto_create.wrap(row, *rule),
        None => row,
    }
}

fn of_pull(context: &BrokerContext, request: &Command, _peer: &Peer) -> Option<Missing> {
    Missing::group(context, request.fields.get("consumerGroup")?)
}

/// A pop of an unknown topic is refused, before its group would be created.
fn of_pop(context: &BrokerContext, request: &Command, peer: &Peer) -> Option<Missing> {
    context.topics.get(request.fields.get("topic")?)?;
    of_pull(context, request, peer)
}
