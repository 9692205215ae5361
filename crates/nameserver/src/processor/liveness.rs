//! Heartbeats of brokers, and their query whether they must register: 904, 322 (Apache
//! `DefaultRequestProcessor.brokerHeartbeat`, `queryBrokerTopicConfig`).

use crate::context::NameServerContext;
use crate::error::Refusal;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{Body, DataVersion};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::{
    BrokerHeartbeatRequestHeader, QueryDataVersionRequestHeader, QueryDataVersionResponseHeader,
};

/// 904. As in Apache, an unknown broker gets the same answer as a known one: it registers on its own schedule.
pub(crate) fn heartbeat(context: &NameServerContext, request: &Command) -> Result<Command, Refusal> {
    let header = BrokerHeartbeatRequestHeader::decode(&request.fields)?;
    context
        .table
        .heartbeat(header.cluster_name, header.broker_addr, context.now_ms());
    Ok(Command::response(response::SUCCESS))
}

/// 322. It counts as a heartbeat.
pub(crate) fn data_version(context: &NameServerContext, request: &Command) -> Result<Command, Refusal> {
    let header = QueryDataVersionRequestHeader::decode(&request.fields)?;
    let announced = DataVersion::decode(request.body.as_deref().unwrap_or(b"{}"))?;
    let (cluster, address) = (header.cluster_name, header.broker_addr);
    let known = context.table.version(cluster, address);
    context.table.heartbeat(cluster, address, context.now_ms());
    let changed = known.as_ref() != Some(&announced);
    let answer =
        Command::response(response::SUCCESS).with_header(&QueryDataVersionResponseHeader { changed });
    Ok(match known {
        Some(version) => answer.with_body(version.encode()),
        None => answer,
    })
}
