//! Registration of brokers and topics: 103, 104, 217 (Apache `DefaultRequestProcessor.registerBroker`,
//! `unregisterBroker`, `registerTopicToNamesrv`).

use crate::context::NameServerContext;
use crate::error::Refusal;
use crate::processor::fast_path;
use pyrmq_remoting::body::{
    Body, DataVersion, RegisterBrokerBody, TopicConfigAndMappingSerializeWrapper, TopicRouteData,
};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::header::{
    ADVERTISED_ADDRESSES, RegisterBrokerRequestHeader, RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader, UnRegisterBrokerRequestHeader, read_address_sets,
};
use pyrmq_remoting::message::record::body_crc;
use pyrmq_remoting::net::Peer;
use pyrmq_remoting::{Command, Fields, WireError};
use pyrmq_routing::table::{Registered, RegisteredTopics, Registration, RegistrationEvents, RemovalReason};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::Ordering;

/// Brokers from this version on send filter servers around the topic table (Apache `MQVersion.V3_0_11`).
const V3_0_11: i32 = 37;
/// First byte of a zlib stream with the usual window; JSON never begins with it.
const ZLIB: u8 = 0x78;

/// Answers request 103. A registration that equals the broker's previous one, or differs only in its data version, is
/// accepted without being parsed.
pub(crate) fn register(
    context: &NameServerContext,
    request: &Command,
    peer: &Peer,
) -> Result<Command, Refusal> {
    let registered = register_broker(context, request, peer).inspect_err(|refusal| {
        context.counters.refused.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(peer = %peer.remote(), "registration refused: {}", refusal.remark);
    })?;
    context.counters.registrations.fetch_add(1, Ordering::Relaxed);
    // An ignored registration is answered like an accepted one, but without the master.
    let master = match registered {
        Registered::Accepted { master } => master,
        Registered::Stale => None,
    };
    let mut answer = Command::response(response::SUCCESS).with_header(&RegisterBrokerResponseHeader {
        ha_server_addr: master
            .as_ref()
            .map(|(_, ha_address)| ha_address.as_str())
            .filter(|ha_address| !ha_address.is_empty()),
        master_addr: master.as_ref().map(|(address, _)| address.as_str()),
    });
    if context.options().return_order_topic_config_to_broker {
        answer.body = context.table.order_body();
    }
    Ok(answer)
}

/// Renews or reads a registration, and notifies the brokers that must know of it.
fn register_broker(
    context: &NameServerContext,
    request: &Command,
    peer: &Peer,
) -> Result<Registered, Refusal> {
    let fields = fields_of(request);
    let header = RegisterBrokerRequestHeader::decode(&fields)?;
    let bytes = request.body.as_deref().unwrap_or_default();
    check_sum(bytes, header.body_crc32.unwrap_or(0))?;
    let zone = fields.get("__ZONE_NAME").filter(|zone| !zone.is_empty());
    let sets = fields.get(ADVERTISED_ADDRESSES).filter(|sets| !sets.is_empty());
    // 5.x says `compressed=false` for bodies that it compressed.
    let compressed = header.compressed || bytes.first() == Some(&ZLIB);
    let plain = request.version >= V3_0_11 && !compressed;
    let version_part = plain.then(|| fast_path::version_of(bytes)).flatten();
    let version_part = version_part.as_ref();
    let (content_fingerprint, fingerprint) =
        fingerprints(&header, (zone, sets), request.version, bytes, version_part);
    let now_ms = context.now_ms();
    let content = content_fingerprint.zip(version_part.map(|(data_version, ..)| data_version));
    if let Some(registered) = refresh(context, &header, peer, fingerprint, content, now_ms) {
        context.counters.unchanged.fetch_add(1, Ordering::Relaxed);
        return Ok(registered);
    }
    let advertised = advertised(sets)?;
    let (borrowed, lenient);
    let (topics, filter_servers, content_fingerprint): (&dyn RegisteredTopics, Option<&[String]>, _) =
        if let Some(read) = plain.then(|| fast_path::read(bytes)).flatten() {
            borrowed = read;
            (&borrowed, Some(&borrowed.filter_servers), content_fingerprint)
        } else {
            // A body with duplicate members or static topics always goes through the lenient reader.
            lenient = decode(bytes, compressed, request.version)?;
            (&lenient.0, lenient.1.as_deref(), None)
        };
    let registration = Registration {
        cluster: header.cluster_name,
        address: header.broker_addr,
        name: header.broker_name,
        id: header.broker_id,
        ha_address: header.ha_server_addr.unwrap_or_default(),
        zone,
        timeout_ms: header.heartbeat_timeout_millis,
        acting_master: header.enable_acting_master,
        topics,
        filter_servers,
        advertised: &advertised,
        peer: peer.id(),
        software: request.version,
        fingerprint: Some(fingerprint),
        content_fingerprint,
    };
    let (registered, outcome) = context
        .table
        .register_with_events(&registration, now_ms)
        .map_err(|error| Refusal::new(response::SYSTEM_ERROR, format!("register broker failed: {error}")))?;
    report(&header, &registered, &outcome);
    remember_and_notify(context, peer, &registered, &outcome);
    Ok(registered)
}

/// The fields of a registration. Brokers before 4.2 lack `compressed`.
fn fields_of(request: &Command) -> Fields {
    let mut fields = request.fields.clone();
    if fields.get("compressed").is_none() {
        fields.push("compressed", "false");
    }
    fields
}

/// Renews a registration that equals the one before, or differs from it only in its version; `None`: it must be read.
fn refresh(
    context: &NameServerContext,
    header: &RegisterBrokerRequestHeader<'_>,
    peer: &Peer,
    fingerprint: u64,
    content: Option<(u64, &DataVersion)>,
    now_ms: i64,
) -> Option<Registered> {
    let (cluster, address, id) = (header.cluster_name, header.broker_addr, header.broker_id);
    let table = &context.table;
    let unchanged = table.refresh(cluster, address, id, peer.id(), fingerprint, now_ms);
    unchanged.or_else(|| {
        let (content_fingerprint, data_version) = content?;
        let summary = (content_fingerprint, data_version, fingerprint);
        table.refresh_version((cluster, address, id), peer.id(), summary, now_ms)
    })
}

/// Reads the address sets that a broker of ours announces.
fn advertised(sets: Option<&str>) -> Result<Vec<(String, String)>, Refusal> {
    let sets = read_address_sets(sets.unwrap_or_default(), false).map_err(|error| {
        let remark = format!("register broker failed: field `{ADVERTISED_ADDRESSES}`: {error}");
        Refusal::new(response::SYSTEM_ERROR, remark)
    })?;
    Ok(sets
        .into_iter()
        .map(|one| {
            let address = one.to_string();
            (one.set, address)
        })
        .collect())
}

/// Returns two hashes that identify a registration: one without its version, if the version is at its usual place, and
/// one with it. Two different registrations collide with a probability of 2^-64; a collision would last until the next
/// change.
fn fingerprints(
    header: &RegisterBrokerRequestHeader<'_>,
    (zone, sets): (Option<&str>, Option<&str>),
    software: i32,
    body: &[u8],
    version_part: Option<&(DataVersion, &[u8], &[u8])>,
) -> (Option<u64>, u64) {
    let mut hasher = DefaultHasher::new();
    let names = (header.broker_name, header.broker_addr, header.cluster_name);
    let rest = (header.ha_server_addr, header.broker_id, header.compressed);
    let flags = (header.heartbeat_timeout_millis, header.enable_acting_master);
    (names, rest, flags, zone, sets, software).hash(&mut hasher);
    let Some((data_version, before, after)) = version_part else {
        body.hash(&mut hasher);
        return (None, hasher.finish());
    };
    (before, after).hash(&mut hasher);
    let content_fingerprint = hasher.finish();
    (
        data_version.counter,
        data_version.state_version,
        data_version.timestamp,
    )
        .hash(&mut hasher);
    (Some(content_fingerprint), hasher.finish())
}

/// Remembers the connection of the broker, and notifies the brokers of its name if their lowest id has changed.
fn remember_and_notify(
    context: &NameServerContext,
    peer: &Peer,
    registered: &Registered,
    outcome: &RegistrationEvents,
) {
    if matches!(registered, Registered::Accepted { .. }) {
        context.remember(peer);
    }
    if let Some(notice) = &outcome.notice
        && context.options().notify_min_broker_id_changed
    {
        context.notify(notice);
    }
}

fn report(header: &RegisterBrokerRequestHeader<'_>, registered: &Registered, outcome: &RegistrationEvents) {
    let (broker, id, address) = (header.broker_name, header.broker_id, header.broker_addr);
    let cluster = header.cluster_name;
    if *registered == Registered::Stale {
        tracing::warn!(
            broker,
            id,
            address,
            cluster,
            "registration ignored: another address holds this id with a newer state"
        );
    }
    for event in &outcome.events {
        tracing::info!(broker, id, address, cluster, "broker registered: {event}");
    }
}

fn check_sum(bytes: &[u8], announced: i32) -> Result<(), Refusal> {
    let expected = announced.cast_unsigned();
    if expected == 0 {
        return Ok(());
    }
    let actual = body_crc(bytes);
    if expected == actual {
        return Ok(());
    }
    let remark = format!(
        "crc32 not match: the registration's body has {actual:#010x}, bodyCrc32 says {expected:#010x}; it was changed on \
         its way"
    );
    Err(Refusal::new(response::SYSTEM_ERROR, remark))
}

type DecodedBody = (TopicConfigAndMappingSerializeWrapper, Option<Vec<String>>);

fn decode(bytes: &[u8], compressed: bool, software: i32) -> Result<DecodedBody, WireError> {
    if bytes.is_empty() {
        return Ok(DecodedBody::default());
    }
    if software < V3_0_11 {
        return Ok((TopicConfigAndMappingSerializeWrapper::decode(bytes)?, None));
    }
    let body = RegisterBrokerBody::decode_form(bytes, compressed, software)?;
    Ok((body.topic_config_serialize_wrapper, Some(body.filter_server_list)))
}

/// Reads request 104: the broker that leaves.
pub(crate) fn removal(request: &Command) -> Result<RemovalReason, Refusal> {
    let header = UnRegisterBrokerRequestHeader::decode(&request.fields)?;
    Ok(RemovalReason::Unregister {
        cluster: header.cluster_name.to_owned(),
        address: header.broker_addr.to_owned(),
        name: header.broker_name.to_owned(),
    })
}

/// Answers request 217, which registers the queues of a topic.
pub(crate) fn register_topic(context: &NameServerContext, request: &Command) -> Result<Command, Refusal> {
    let header = RegisterTopicRequestHeader::decode(&request.fields)?;
    if header.topic.is_empty() {
        let remark = "field `topic` is empty: a topic without a name would appear in every list";
        return Err(Refusal::new(response::SYSTEM_ERROR, remark));
    }
    let body = TopicRouteData::decode(request.body.as_deref().unwrap_or(b"{}"))?;
    if !context.table.register_topic(header.topic, &body.queue_datas) {
        let remark = format!(
            "topic {} names a broker that is not registered here, or that has as many topics as it may have",
            header.topic
        );
        return Err(Refusal::new(response::SYSTEM_ERROR, remark));
    }
    Ok(Command::response(response::SUCCESS))
}
