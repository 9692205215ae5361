//! The table of request codes: one list for the processor table, the refusals and docs/compat.md.

use crate::context::{Meters, NameServerContext};
use crate::processor::{
    Function, InSet, Native, Register, SetFunction, Unregister, liveness, registration, route,
};
use pyrmq_remoting::codes::request;
use pyrmq_remoting::meter::Meter;
use pyrmq_remoting::net::table::{Kind, RowInfo};
use pyrmq_remoting::net::{Processor, ProcessorTable, Requests};
use std::sync::Arc;

/// Answered at once on the connection's task: code, function, meter, note.
const NATIVE: &[(i32, Function, Measured, &str)] = &[
    (
        request::REGISTER_TOPIC_IN_NAMESRV,
        registration::register_topic,
        |meters| &meters.register_topic,
        "an unknown broker is an error",
    ),
    (
        request::QUERY_DATA_VERSION,
        liveness::data_version,
        |meters| &meters.data_version,
        "counts as a heartbeat",
    ),
    (
        request::BROKER_HEARTBEAT,
        liveness::heartbeat,
        |meters| &meters.heartbeat,
        "",
    ),
];

/// Answered at once, with the addresses of the listener's set: code, function, meter, note.
const IN_SET: &[(i32, SetFunction, Measured, &str)] = &[
    (
        request::GET_ROUTEINFO_BY_TOPIC,
        route::route,
        |meters| &meters.route,
        "both JSON forms, acting master, zones, address sets",
    ),
    (
        request::GET_BROKER_CLUSTER_INFO,
        route::cluster_info,
        |meters| &meters.cluster_info,
        "address sets",
    ),
    (
        request::GET_BROKER_MEMBER_GROUP,
        route::member_group,
        |meters| &meters.member_group,
        "address sets",
    ),
];

/// Answered by the queue's thread.
const QUEUED: &[(i32, &str)] = &[
    (
        request::REGISTER_BROKER,
        "plain and compressed, checksum; one without changes is not parsed",
    ),
    (request::UNREGISTER_BROKER, "in force before the answer"),
];

type Measured = fn(&Meters) -> &Meter;

const PYTHON: &[(i32, &str)] = &[
    (request::PUT_KV_CONFIG, "on disk before the answer"),
    (request::GET_KV_CONFIG, ""),
    (request::DELETE_KV_CONFIG, "on disk before the answer"),
    (request::WIPE_WRITE_PERM_OF_BROKER, ""),
    (request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER, ""),
    (request::DELETE_TOPIC_IN_NAMESRV, ""),
    (request::GET_KVLIST_BY_NAMESPACE, ""),
    (request::GET_TOPICS_BY_CLUSTER, ""),
    (request::GET_SYSTEM_TOPIC_LIST_FROM_NS, ""),
    (request::GET_UNIT_TOPIC_LIST, ""),
    (request::GET_HAS_UNIT_SUB_TOPIC_LIST, ""),
    (request::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, ""),
    (
        request::UPDATE_NAMESRV_CONFIG,
        "wrong values are ignored; changes are written to the file of -c",
    ),
    (request::GET_NAMESRV_CONFIG, ""),
    (request::ADD_WRITE_PERM_OF_BROKER, ""),
];

/// Apache serves these with its controller inside the name server (`enableControllerInNamesrv`).
const CONTROLLER: &[i32] = &[
    request::CONTROLLER_ALTER_SYNC_STATE_SET,
    request::CONTROLLER_ELECT_MASTER,
    request::CONTROLLER_REGISTER_BROKER,
    request::CONTROLLER_GET_REPLICA_INFO,
    request::CONTROLLER_GET_METADATA_INFO,
    request::CONTROLLER_GET_SYNC_STATE_DATA,
    request::UPDATE_CONTROLLER_CONFIG,
    request::GET_CONTROLLER_CONFIG,
    request::CLEAN_BROKER_DATA,
    request::CONTROLLER_GET_NEXT_BROKER_ID,
    request::CONTROLLER_APPLY_BROKER_ID,
];
const NO_CONTROLLER: &str = "this name server has no controller inside";
const NO_PYTHON: &str = "the Python part that serves it does not run here";

/// Every row of the name server, by code. A code without a row is answered REQUEST_CODE_NOT_SUPPORTED.
pub fn rows() -> Vec<RowInfo> {
    let row = |code, kind, note| RowInfo { code, kind, note };
    let native = NATIVE
        .iter()
        .map(|(code, _, _, note)| (code, note))
        .chain(IN_SET.iter().map(|(code, _, _, note)| (code, note)))
        .chain(QUEUED.iter().map(|(code, note)| (code, note)))
        .map(|(code, note)| row(*code, Kind::Native, *note));
    let python = PYTHON.iter().map(|(code, note)| row(*code, Kind::Python, *note));
    let controller = CONTROLLER
        .iter()
        .map(|code| row(*code, Kind::Refused, NO_CONTROLLER));
    let mut rows: Vec<RowInfo> = native.chain(python).chain(controller).collect();
    rows.sort_by_key(|row| row.code);
    rows
}

/// The table of one port; `set` is the address set that it answers with, if it has one.
pub(crate) fn table(
    context: &Arc<NameServerContext>,
    python: Option<&Arc<Requests>>,
    python_codes: &[i32],
    set: Option<&str>,
) -> ProcessorTable {
    let mut table = ProcessorTable::new();
    for (code, function, meter, _) in NATIVE {
        let processor: Arc<dyn Processor> = Arc::new(Native {
            context: context.clone(),
            function: *function,
            meter: *meter,
        });
        table.native(&[*code], &processor);
    }
    for (code, function, meter, _) in IN_SET {
        let processor: Arc<dyn Processor> = Arc::new(InSet {
            context: context.clone(),
            set: set.map(str::to_owned),
            function: *function,
            meter: *meter,
        });
        table.native(&[*code], &processor);
    }
    let register: Arc<dyn Processor> = Arc::new(Register(context.clone()));
    let unregister: Arc<dyn Processor> = Arc::new(Unregister(context.clone()));
    table.native(&[request::REGISTER_BROKER], &register);
    table.native(&[request::UNREGISTER_BROKER], &unregister);
    if let Some(requests) = python {
        table.python(python_codes, requests);
    }
    let without_python = PYTHON.iter().map(|(code, _)| (*code, NO_PYTHON));
    let controller = CONTROLLER.iter().map(|code| (*code, NO_CONTROLLER));
    for (code, why) in without_python.chain(controller) {
        if table.get(code).is_none() {
            table.refused(code, why);
        }
    }
    table
}
