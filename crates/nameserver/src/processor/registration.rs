//! Brokers come and go: 103, 104, 217 (Apache `DefaultRequestProcessor.registerBroker`, `unregisterBroker`,
//! `registerTopicToNamesrv`).

use crate::error::Refusal;
use crate::state::State;
use pyrmq_remoting::body::{
    Body, KVTable, RegisterBrokerBody, TopicConfigAndMappingSerializeWrapper, TopicRouteData,
};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::{
    RegisterBrokerRequestHeader, RegisterBrokerResponseHeader, RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
};
use pyrmq_remoting::message::record::body_crc;
use pyrmq_remoting::net::Peer;
use pyrmq_remoting::{Command, WireError};
use pyrmq_routing::table::{Registered, Registration};
use std::sync::atomic::Ordering;

/// Brokers from this version on send filter servers around the topic table (Apache `MQVersion.V3_0_11`).
const V3_0_11: i32 = 37;
/// First byte of a zlib stream with the usual window; JSON never begins with it.
const ZLIB: u8 = 0x78;

/// 103.
pub(crate) fn register(state: &State, request: &Command, peer: &Peer) -> Result<Command, Refusal> {
    let mut fields = request.fields.clone();
    if fields.get("compressed").is_none() {
        // Brokers before 4.2 do not have the field.
        fields.push("compressed", "false");
    }
    let header = RegisterBrokerRequestHeader::decode(&fields)?;
    let bytes = request.body.as_deref().unwrap_or_default();
    check_sum(bytes, header.body_crc32.unwrap_or(0))?;
    let (topics, servers) = decode(bytes, header.compressed, request.version)?;
    let registration = Registration {
        cluster: header.cluster_name,
        address: header.broker_addr,
        name: header.broker_name,
        id: header.broker_id,
        ha_address: header.ha_server_addr,
        zone: fields.get("__ZONE_NAME").filter(|zone| !zone.is_empty()),
        timeout_ms: header.heartbeat_timeout_millis,
        acting_master: header.enable_acting_master,
        topics: &topics,
        filter_servers: servers.as_deref(),
        peer: peer.id(),
    };
    let now_ms = state.now_ms();
    let registered = state
        .table_mut()
        .register(&registration, now_ms)
        .map_err(|error| Refusal::new(response::SYSTEM_ERROR, error.to_string()))?;
    state.counters.registrations.fetch_add(1, Ordering::Relaxed);
    let Registered::Taken { master } = registered else {
        tracing::warn!(
            broker = header.broker_name,
            address = header.broker_addr,
            "registration ignored: another address holds this id with a newer state"
        );
        return Ok(Command::response(response::SUCCESS));
    };
    state.remember(peer);
    let mut answer = Command::response(response::SUCCESS).with_header(&RegisterBrokerResponseHeader {
        ha_server_addr: master.as_ref().map(|(_, ha_address)| ha_address.as_str()),
        master_addr: master.as_ref().map(|(address, _)| address.as_str()),
    });
    if state.options().return_order_topic_config_to_broker {
        let table = state.table().order_config().clone();
        if !table.is_empty() {
            answer = answer.with_body(KVTable { table }.encode());
        }
    }
    Ok(answer)
}

fn check_sum(bytes: &[u8], told: i32) -> Result<(), WireError> {
    let expected = told.cast_unsigned();
    let actual = body_crc(bytes);
    if expected == 0 || expected == actual {
        return Ok(());
    }
    Err(WireError::Checksum {
        what: "registration",
        expected,
        actual,
    })
}

type Announced = (TopicConfigAndMappingSerializeWrapper, Option<Vec<String>>);

fn decode(bytes: &[u8], compressed: bool, version: i32) -> Result<Announced, WireError> {
    if bytes.is_empty() {
        return Ok(Announced::default());
    }
    if version < V3_0_11 {
        return Ok((TopicConfigAndMappingSerializeWrapper::decode(bytes)?, None));
    }
    // 5.x says `compressed=false` of bodies that it has compressed.
    let compressed = compressed || bytes.first() == Some(&ZLIB);
    let body = RegisterBrokerBody::decode_form(bytes, compressed, version)?;
    Ok((body.topic_config_serialize_wrapper, Some(body.filter_server_list)))
}

/// 104. The broker is out of the tables when this is answered.
pub(crate) fn unregister(state: &State, request: &Command, _: &Peer) -> Result<Command, Refusal> {
    let header = UnRegisterBrokerRequestHeader::decode(&request.fields)?;
    let gone = state
        .table_mut()
        .unregister(header.cluster_name, header.broker_addr, header.broker_name);
    tracing::info!(
        broker = header.broker_name,
        address = header.broker_addr,
        known = gone.is_some(),
        "broker unregistered"
    );
    Ok(Command::response(response::SUCCESS))
}

/// 217.
pub(crate) fn register_topic(state: &State, request: &Command, _: &Peer) -> Result<Command, Refusal> {
    let header = RegisterTopicRequestHeader::decode(&request.fields)?;
    let body = TopicRouteData::decode(request.body.as_deref().unwrap_or(b"{}"))?;
    if !state.table_mut().register_topic(header.topic, body.queue_datas) {
        let remark = format!(
            "topic {} names a broker that is not registered here",
            header.topic
        );
        return Err(Refusal::new(response::SYSTEM_ERROR, remark));
    }
    Ok(Command::response(response::SUCCESS))
}
