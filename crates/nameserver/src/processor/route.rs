//! Queries for routes, clusters and brokers: 105, 106, 901 (Apache `ClientRequestProcessor`,
//! `DefaultRequestProcessor`). Each takes the address set of the listener on which it was asked.

use crate::context::NameServerContext;
use crate::error::Refusal;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{Body, BrokerMemberGroup, GetBrokerMemberGroupResponseBody, route_style};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::{GetBrokerMemberGroupRequestHeader, GetRouteInfoRequestHeader};
use pyrmq_remoting::names;
use std::sync::atomic::Ordering;

/// 105, in the JSON form that the client reads.
pub(crate) fn route(
    context: &NameServerContext,
    request: &Command,
    set: Option<&str>,
) -> Result<Command, Refusal> {
    let header = GetRouteInfoRequestHeader::decode(&request.fields)?;
    refuse_right_after_start(context)?;
    let style = route_style(request.version, header.accept_standard_json_only);
    let table = context.table.in_set(set);
    let body = match zone(request) {
        None => table.route_body(header.topic, style),
        Some(zone) => {
            let route = table.route(header.topic, Some(zone));
            route.map(|route| route.encode_as(style).into())
        }
    };
    let Some(body) = body else {
        context.counters.unknown_topics.fetch_add(1, Ordering::Relaxed);
        let topic = names::shortened(header.topic);
        let remark = format!(
            "No topic route info in name server for the topic: {topic}: no broker has registered it at this name \
             server; create the topic, or look whether its broker names this name server"
        );
        return Err(Refusal::new(response::TOPIC_NOT_EXIST, remark));
    };
    Ok(Command::response(response::SUCCESS).with_body(body))
}

/// Returns the zone from which the client wants brokers.
fn zone(request: &Command) -> Option<&str> {
    let mode = request.fields.get("__ZONE_MODE")?;
    let zone = request.fields.get("__ZONE_NAME");
    zone.filter(|zone| !zone.trim().is_empty() && mode.eq_ignore_ascii_case("true"))
}

/// Refuses for a time after the start: then only some brokers have registered, so an answer would be incomplete.
fn refuse_right_after_start(context: &NameServerContext) -> Result<(), Refusal> {
    let options = context.options();
    let just_started = options.need_wait_for_service
        && context.now_ms() < options.wait_seconds_for_service.saturating_mul(1000);
    if just_started {
        let remark = "name server not ready: it has just started and waits for its brokers (needWaitForService); ask again";
        return Err(Refusal::new(response::SYSTEM_ERROR, remark));
    }
    Ok(())
}

/// 106. Integer names are bare for every peer, as in Apache.
#[expect(clippy::unnecessary_wraps, reason = "every row has this form")]
pub(crate) fn cluster_info(
    context: &NameServerContext,
    _: &Command,
    set: Option<&str>,
) -> Result<Command, Refusal> {
    let info = context.table.in_set(set).cluster_info();
    Ok(Command::response(response::SUCCESS).with_body(info.encode()))
}

/// 901. Broker ids are bare for every peer, as in Apache; a name that the request lacks is not in the answer.
pub(crate) fn member_group(
    context: &NameServerContext,
    request: &Command,
    set: Option<&str>,
) -> Result<Command, Refusal> {
    let header = GetBrokerMemberGroupRequestHeader::decode(&request.fields)?;
    let name = header.broker_name;
    let body = GetBrokerMemberGroupResponseBody {
        broker_member_group: Some(BrokerMemberGroup {
            broker_addrs: context.table.in_set(set).members(name.unwrap_or_default()),
            broker_name: name.map(str::to_owned),
            cluster: header.cluster_name.map(str::to_owned),
        }),
    };
    Ok(Command::response(response::SUCCESS).with_body(body.encode()))
}
