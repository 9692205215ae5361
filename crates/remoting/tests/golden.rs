//! Frames recorded from real clients and servers of 4.6.1, 4.9.7 and 5.5.0: each decodes and encodes to the same bytes,
//! and its header structure and body are read.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use bytes::BytesMut;
use pyrmq_remoting::body::{self, Body, Json, Style};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::frame::{self, Limits};
use pyrmq_remoting::header::{self, EncodeHeader};
use pyrmq_remoting::{Command, Fields, SerializeType, WireError};
use std::collections::BTreeMap;
use std::path::Path;

struct Frame {
    name: String,
    kind: String,
    request: i32,
    bytes: Vec<u8>,
}

#[expect(clippy::disallowed_methods, reason = "a test reads its fixtures itself")]
fn golden() -> Vec<Frame> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let manifest = Json::parse(&std::fs::read(root.join("manifest.json")).unwrap()).unwrap();
    let mut frames = Vec::new();
    for file in manifest.get("frames").and_then(Json::as_array).unwrap() {
        let name = file.get("file").and_then(Json::as_str).unwrap();
        let bytes = std::fs::read(root.join(name)).unwrap();
        for entry in file.get("frames").and_then(Json::as_array).unwrap() {
            let number = |key| usize::try_from(entry.get(key).and_then(Json::as_i64).unwrap()).unwrap();
            let text = |key| entry.get(key).and_then(Json::as_str).unwrap_or_default();
            let offset = number("offset");
            frames.push(Frame {
                name: format!("{name} at {offset}: {}", text("what")),
                kind: text("kind").to_owned(),
                request: i32::try_from(number("request")).unwrap(),
                bytes: bytes[offset..offset + number("size")].to_vec(),
            });
        }
    }
    assert!(frames.len() > 500, "only {} golden frames", frames.len());
    frames
}

fn decode(frame: &Frame) -> Command {
    let mut input = BytesMut::from(&frame.bytes[..]);
    let command = frame::decode(&mut input, &Limits::default())
        .unwrap_or_else(|error| panic!("{}: {error}", frame.name))
        .unwrap_or_else(|| panic!("{}: cut", frame.name));
    assert!(input.is_empty(), "{}: bytes left", frame.name);
    command
}

#[test]
fn every_frame_encodes_to_the_bytes_it_came_as() {
    let mut forms = BTreeMap::new();
    for golden in golden() {
        let command = decode(&golden);
        let bytes = frame::encode(&command).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            String::from_utf8_lossy(&golden.bytes),
            "{}",
            golden.name
        );
        assert_eq!(bytes, golden.bytes, "{}", golden.name);
        *forms
            .entry(command.serialize_type == SerializeType::Json)
            .or_insert(0) += 1;
    }
    assert!(forms.values().all(|count| *count > 100), "{forms:?}");
}

/// Fields outside header structures: of hooks, marks of requests (`ReqT`, the kind of request), the target broker
/// (`bname`, which Apache's structures inherit), the mark of a search by unique id, and the fields of a send's answer
/// for traces.
const BESIDE: [&str; 5] = ["ReqT", "bname", "_UNIQUE_KEY_QUERY", "MSG_REGION", "TRACE_ON"];

/// Checks that every field of the peer is in the structure, or in the list of fields outside it.
fn nothing_is_left_out(code: i32, fields: &Fields, again: &Fields) {
    for (key, _) in fields.iter() {
        let known = again.get(key).is_some() || BESIDE.contains(&key);
        assert!(known, "the structure of {code} lacks the field {key}");
    }
}

/// Reads a header structure, writes it again and compares the fields; none may be missing.
fn header_survives<'a, H: EncodeHeader>(
    code: i32,
    fields: &'a Fields,
    decode: impl Fn(&'a Fields) -> Result<H, WireError>,
) -> Result<(), WireError> {
    let mut again = Fields::new();
    decode(fields)?.encode(&mut again);
    for (key, value) in again.iter() {
        // A boolean that the peer omitted is written as false.
        let before = fields.get(key).unwrap_or("false");
        assert_eq!(value, before, "field {key}");
    }
    nothing_is_left_out(code, fields, &again);
    Ok(())
}

macro_rules! headers {
    ($fields:expr, $code:expr; $($($request:ident)|+ => $($header:ident)::+,)*) => {
        match $code {
            $($(request::$request)|+ => header_survives($code, $fields, header::$($header)::+::decode).map(|()| true),)*
            _ => Ok(false),
        }
    };
}

fn request_header(code: i32, fields: &Fields) -> Result<bool, WireError> {
    if [10, 310, 320, 324, 325].contains(&code) {
        let header = header::SendMessageRequestHeader::decode(code, fields)?;
        let mut again = Fields::new();
        if [10, 324].contains(&code) {
            header.encode_v1(&mut again);
        } else {
            header.encode_v2(&mut again);
        }
        for (key, value) in again.iter() {
            assert_eq!(value, fields.get(key).unwrap_or("false"), "field {key}");
        }
        nothing_is_left_out(code, fields, &again);
        return Ok(true);
    }
    headers! { fields, code;
        PULL_MESSAGE | LITE_PULL_MESSAGE => PullMessageRequestHeader,
        QUERY_MESSAGE => QueryMessageRequestHeader,
        QUERY_CONSUMER_OFFSET => QueryConsumerOffsetRequestHeader,
        UPDATE_CONSUMER_OFFSET => UpdateConsumerOffsetRequestHeader,
        UPDATE_AND_CREATE_TOPIC => CreateTopicRequestHeader,
        SEARCH_OFFSET_BY_TIMESTAMP => SearchOffsetRequestHeader,
        GET_MAX_OFFSET => GetMaxOffsetRequestHeader,
        GET_MIN_OFFSET => GetMinOffsetRequestHeader,
        GET_EARLIEST_MSG_STORETIME => GetEarliestMsgStoretimeRequestHeader,
        VIEW_MESSAGE_BY_ID => ViewMessageRequestHeader,
        UNREGISTER_CLIENT => UnregisterClientRequestHeader,
        CONSUMER_SEND_MSG_BACK => ConsumerSendMsgBackRequestHeader,
        END_TRANSACTION => EndTransactionRequestHeader,
        GET_CONSUMER_LIST_BY_GROUP => GetConsumerListByGroupRequestHeader,
        CHECK_TRANSACTION_STATE => CheckTransactionStateRequestHeader,
        NOTIFY_CONSUMER_IDS_CHANGED => NotifyConsumerIdsChangedRequestHeader,
        REGISTER_BROKER => RegisterBrokerRequestHeader,
        UNREGISTER_BROKER => UnRegisterBrokerRequestHeader,
        GET_ROUTEINFO_BY_TOPIC => GetRouteInfoRequestHeader,
        QUERY_DATA_VERSION => QueryDataVersionRequestHeader,
        BROKER_HEARTBEAT => BrokerHeartbeatRequestHeader,
        GET_BROKER_MEMBER_GROUP => GetBrokerMemberGroupRequestHeader,
        GET_TOPIC_STATS_INFO => GetTopicStatsInfoRequestHeader,
        GET_CONSUME_STATS => GetConsumeStatsRequestHeader,
        DELETE_TOPIC_IN_BROKER => DeleteTopicRequestHeader,
        DELETE_TOPIC_IN_NAMESRV => DeleteTopicFromNamesrvRequestHeader,
        PUSH_REPLY_MESSAGE_TO_CLIENT => ReplyMessageRequestHeader,
        PUT_KV_CONFIG => PutKVConfigRequestHeader,
        GET_KV_CONFIG => GetKVConfigRequestHeader,
        POP_MESSAGE => PopMessageRequestHeader,
        ACK_MESSAGE => AckMessageRequestHeader,
        GET_CONSUMER_CONNECTION_LIST => GetConsumerConnectionListRequestHeader,
        GET_CONSUMER_RUNNING_INFO => GetConsumerRunningInfoRequestHeader,
        INVOKE_BROKER_TO_RESET_OFFSET => ResetOffsetRequestHeader,
        GET_SUBSCRIPTIONGROUP_CONFIG => GetSubscriptionGroupConfigRequestHeader,
    }
}

fn response_header(code: i32, fields: &Fields) -> Result<bool, WireError> {
    headers! { fields, code;
        SEND_MESSAGE | SEND_MESSAGE_V2 | SEND_BATCH_MESSAGE | SEND_REPLY_MESSAGE_V2 => SendMessageResponseHeader,
        PULL_MESSAGE | LITE_PULL_MESSAGE => PullMessageResponseHeader,
        QUERY_MESSAGE => QueryMessageResponseHeader,
        QUERY_CONSUMER_OFFSET => QueryConsumerOffsetResponseHeader,
        SEARCH_OFFSET_BY_TIMESTAMP => SearchOffsetResponseHeader,
        GET_MAX_OFFSET => GetMaxOffsetResponseHeader,
        GET_MIN_OFFSET => GetMinOffsetResponseHeader,
        GET_EARLIEST_MSG_STORETIME => GetEarliestMsgStoretimeResponseHeader,
        REGISTER_BROKER => RegisterBrokerResponseHeader,
        QUERY_DATA_VERSION => QueryDataVersionResponseHeader,
    }
}

#[test]
fn every_header_structure_is_read_and_written_again() {
    let mut read = BTreeMap::new();
    for golden in golden() {
        let command = decode(&golden);
        let outcome = if golden.kind == "response" {
            if command.code != response::SUCCESS {
                continue;
            }
            response_header(golden.request, &command.fields)
        } else {
            request_header(golden.request, &command.fields)
        };
        match outcome {
            Ok(true) => *read.entry(golden.request).or_insert(0) += 1,
            Ok(false) => {}
            Err(error) => panic!("{}: {error}: {command:?}", golden.name),
        }
    }
    assert!(read.len() >= 35, "{} codes: {read:?}", read.len());
}

fn body_survives<B: Body + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> Result<(), WireError> {
    let body = B::decode(bytes)?;
    for style in [Style::PLAIN, Style::STANDARD, Style::BROWSER, Style::PRETTY] {
        let again = B::decode(&body.encode_as(style))?;
        assert_eq!(again, body);
    }
    Ok(())
}

fn typed_body(golden: &Frame, command: &Command) -> Result<bool, WireError> {
    let bytes = command.body.as_deref().unwrap_or_default();
    let read = match (golden.kind.as_str(), golden.request) {
        ("response", request::GET_ROUTEINFO_BY_TOPIC) => body_survives::<body::TopicRouteData>,
        ("response", request::GET_BROKER_CLUSTER_INFO) => body_survives::<body::ClusterInfo>,
        ("response", request::REGISTER_BROKER | request::GET_BROKER_RUNTIME_INFO) => {
            body_survives::<body::KVTable>
        }
        ("response", request::GET_CONSUMER_LIST_BY_GROUP) => {
            body_survives::<body::GetConsumerListByGroupResponseBody>
        }
        ("response", request::LOCK_BATCH_MQ) => body_survives::<body::LockBatchResponseBody>,
        ("response", request::GET_TOPIC_STATS_INFO) => body_survives::<body::TopicStatsTable>,
        ("response", request::GET_CONSUME_STATS) => body_survives::<body::ConsumeStats>,
        ("response", request::GET_ALL_TOPIC_CONFIG) => body_survives::<body::TopicConfigSerializeWrapper>,
        ("response", request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG) => {
            body_survives::<body::SubscriptionGroupWrapper>
        }
        ("response", request::GET_ALL_CONSUMER_OFFSET) => {
            body_survives::<body::ConsumerOffsetSerializeWrapper>
        }
        ("response", request::GET_CONSUMER_CONNECTION_LIST) => body_survives::<body::ConsumerConnection>,
        ("response", request::GET_CONSUMER_RUNNING_INFO) => body_survives::<body::ConsumerRunningInfo>,
        ("response", request::GET_BROKER_MEMBER_GROUP) => {
            body_survives::<body::GetBrokerMemberGroupResponseBody>
        }
        (_, request::QUERY_DATA_VERSION) => body_survives::<body::DataVersion>,
        ("response", request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER) => body_survives::<body::TopicList>,
        ("response", request::QUERY_TOPIC_CONSUME_BY_WHO) => body_survives::<body::GroupList>,
        ("response", _) => return Ok(false),
        (_, request::HEART_BEAT) => body_survives::<body::HeartbeatData>,
        (_, request::REGISTER_BROKER) => body_survives::<body::RegisterBrokerBody>,
        (_, request::LOCK_BATCH_MQ) => body_survives::<body::LockBatchRequestBody>,
        (_, request::UNLOCK_BATCH_MQ) => body_survives::<body::UnlockBatchRequestBody>,
        (_, request::CHECK_CLIENT_CONFIG) => body_survives::<body::CheckClientRequestBody>,
        (_, request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP) => body_survives::<body::SubscriptionGroupConfig>,
        _ => return Ok(false),
    };
    read(bytes)?;
    Ok(true)
}

#[test]
fn every_json_body_is_read_and_written_again() {
    let mut read = BTreeMap::new();
    let mut exact = 0;
    for golden in golden() {
        let command = decode(&golden);
        let Some(bytes) = command.body.as_deref() else {
            continue;
        };
        if golden.kind == "response" && command.code != response::SUCCESS {
            continue;
        }
        match typed_body(&golden, &command) {
            Ok(false) => continue,
            Ok(true) => *read.entry((golden.kind.clone(), golden.request)).or_insert(0) += 1,
            Err(error) => panic!("{}: {error}: {}", golden.name, String::from_utf8_lossy(bytes)),
        }
        let json = Json::parse(bytes).unwrap();
        let same = [Style::PLAIN, Style::STANDARD, Style::BROWSER]
            .into_iter()
            .any(|style| json.to_bytes(style) == bytes);
        assert!(same, "{}: {}", golden.name, String::from_utf8_lossy(bytes));
        exact += 1;
    }
    assert!(read.len() > 5 && exact > 30, "{exact} {read:?}");
    println!("{exact} {read:?}");
}

#[test]
fn a_heartbeat_is_written_as_the_java_client_writes_it() {
    let mut seen = 0;
    for golden in golden() {
        if golden.request != request::HEART_BEAT
            || golden.kind == "response"
            || !golden.name.contains("5.5.0")
        {
            continue;
        }
        let command = decode(&golden);
        let bytes = command.body.as_deref().unwrap();
        let body = body::HeartbeatData::decode(bytes).unwrap();
        // Sets come in the order of Java's hash tables, which is not ours: compare as trees with sorted arrays.
        assert_eq!(
            sorted(Json::parse(&body.encode()).unwrap()),
            sorted(Json::parse(bytes).unwrap())
        );
        seen += 1;
    }
    assert!(seen > 0);
}

fn sorted(json: Json) -> Json {
    match json {
        Json::Array(values) => {
            let mut values: Vec<_> = values.into_iter().map(sorted).collect();
            values.sort_by_key(|value| value.to_bytes(Style::PLAIN));
            Json::Array(values)
        }
        Json::Object(members) => Json::Object(
            members
                .into_iter()
                .map(|(key, value)| (key, sorted(value)))
                .collect(),
        ),
        other => other,
    }
}
