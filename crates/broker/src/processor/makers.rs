//! Which requests make a group or a topic by using it, besides sends (`send/mod.rs`).

use crate::context::BrokerContext;
use crate::processor::first_use::{FirstUses, Needs, Row, Rule};
use crate::processor::reply::SendReply;
use crate::processor::{client, offset, send_back};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::request;
use pyrmq_remoting::net::{Peer, Processor};
use std::sync::Arc;

/// The field with the place of heartbeats and of what ends them: no request has it, so they share one place.
const NO_FIELD: &str = "";

const RULES: &[(&[i32], Rule)] = &[
    (
        &[request::HEART_BEAT],
        rule(Row::OfConnection, Some(NO_FIELD), client::needs_of_heartbeat),
    ),
    (
        &[request::UNREGISTER_CLIENT],
        rule(Row::OfConnection, Some(NO_FIELD), |_, _, _| None),
    ),
    (
        &[request::LOCK_BATCH_MQ],
        rule(Row::OfConnection, None, client::needs_of_locks),
    ),
    (
        &[request::UPDATE_CONSUMER_OFFSET],
        rule(Row::Single, Some("consumerGroup"), offset::needs),
    ),
    (
        &[request::CONSUMER_SEND_MSG_BACK],
        rule(Row::Single, Some("group"), send_back::needs),
    ),
    (
        &[request::SEND_REPLY_MESSAGE, request::SEND_REPLY_MESSAGE_V2],
        rule(Row::Single, None, SendReply::needs),
    ),
    (
        &[request::PULL_MESSAGE, request::LITE_PULL_MESSAGE],
        rule(Row::OfConnection, Some("consumerGroup"), of_pull),
    ),
    (
        &[
            request::POP_MESSAGE,
            request::NOTIFICATION,
            request::PEEK_MESSAGE,
            request::POLLING_INFO,
        ],
        rule(Row::OfConnection, Some("consumerGroup"), of_pop),
    ),
];

const fn rule(
    kind: fn(Arc<dyn Processor>) -> Row,
    field: Option<&'static str>,
    needs: fn(&BrokerContext, &Command, &Peer) -> Option<Needs>,
) -> Rule {
    Rule { kind, field, needs }
}

/// The row of a request code, behind what it makes.
pub(super) fn row_of(code: i32, row: Arc<dyn Processor>, first_uses: &FirstUses) -> Arc<dyn Processor> {
    match RULES.iter().find(|(codes, _)| codes.contains(&code)) {
        Some((_, rule)) => first_uses.row(row, *rule),
        None => row,
    }
}

fn of_pull(state: &BrokerContext, request: &Command, _peer: &Peer) -> Option<Needs> {
    Needs::group(state, request.fields.get("consumerGroup")?)
}

/// Pops are refused before their group is made when their topic is unknown.
fn of_pop(state: &BrokerContext, request: &Command, peer: &Peer) -> Option<Needs> {
    state.topics.get(request.fields.get("topic")?)?;
    of_pull(state, request, peer)
}
