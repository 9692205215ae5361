//! The table of request codes: the one list that defines the processor tables, the refusals and docs/compat.md.

use crate::context::BrokerContext;
use crate::processor::auto_create::AutoCreateQueue;
use crate::processor::auto_create_rules;
use crate::processor::call::Call;
use crate::processor::consumer_status::ConsumerStatus;
use crate::processor::pop::{self, Pop};
use crate::processor::pull::Pull;
use crate::processor::recall::{self, Recall};
use crate::processor::refusals::REFUSALS;
use crate::processor::reply::SendReply;
use crate::processor::send::Send;
use crate::processor::send_back::send_back;
use crate::processor::{
    Change, Changes, Function, Handler, Searches, client, group, offset, query, runtime, stats, store_admin,
    topic, transaction,
};
use pyrmq_remoting::codes::request::{self, REQUEST_CODES};
use pyrmq_remoting::net::table::{Kind, RowInfo};
use pyrmq_remoting::net::{Processor, ProcessorTable, Requests, Tracker};
use std::sync::Arc;

/// Requests that may read or delete much on the disk, on both ports.
const SEARCHES: &[(i32, Function, &str)] = &[
    (
        request::QUERY_MESSAGE,
        query::by_key,
        "by key, unique key (`_UNIQUE_KEY_QUERY`) or tag",
    ),
    (
        request::CLEAN_EXPIRED_CONSUMEQUEUE,
        store_admin::clean_expired_queues,
        "a round of retention: queues lose their oldest files with the log's",
    ),
    (
        request::CLEAN_UNUSED_TOPIC,
        store_admin::clean_unused_topics,
        "the queues of topics that do not exist",
    ),
    (
        request::GET_BROKER_CONSUME_STATS,
        stats::of_all_groups,
        "with messages in flight",
    ),
    (
        request::QUERY_CONSUME_QUEUE,
        store_admin::queue_entries,
        "at most 4,096 entries",
    ),
    (
        request::GET_TOPIC_STATS_INFO,
        topic::stats,
        "one topic, or several of at most 65,536 queues",
    ),
];

/// Requests that are answered at once, on both ports.
const PLAIN: &[(i32, Function, &str)] = &[
    (
        request::QUERY_CONSUMER_OFFSET,
        offset::query,
        "0 for a new group on a queue that still has its first message, as Apache answers",
    ),
    (
        request::UPDATE_CONSUMER_OFFSET,
        offset::update,
        "stored every flushConsumerOffsetInterval",
    ),
    (
        request::GET_ALL_TOPIC_CONFIG,
        topic::all,
        "whole table, not split",
    ),
    (
        request::GET_BROKER_RUNTIME_INFO,
        runtime::runtime,
        "every key; 0 for parts that are not built",
    ),
    (
        request::SEARCH_OFFSET_BY_TIMESTAMP,
        query::by_time,
        "LOWER and UPPER",
    ),
    (request::GET_MAX_OFFSET, query::max_offset, ""),
    (request::GET_MIN_OFFSET, query::min_offset, ""),
    (request::GET_EARLIEST_MSG_STORETIME, query::earliest_time, ""),
    (request::VIEW_MESSAGE_BY_ID, query::by_id, ""),
    (request::HEART_BEAT, client::heartbeat, "both forms"),
    (request::UNREGISTER_CLIENT, client::unregister, ""),
    (
        request::CONSUMER_SEND_MSG_BACK,
        send_back,
        "retry by delay level, dead-letter topic",
    ),
    (request::GET_CONSUMER_LIST_BY_GROUP, client::members, ""),
    (request::LOCK_BATCH_MQ, client::lock, "this broker only"),
    (request::UNLOCK_BATCH_MQ, client::unlock, "this broker only"),
    (request::GET_ALL_CONSUMER_OFFSET, offset::all, ""),
    (request::GET_ALL_DELAY_OFFSET, offset::all_delays, ""),
    (
        request::CHECK_CLIENT_CONFIG,
        client::check_config,
        "SQL92 needs enablePropertyFilter",
    ),
    (
        request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        group::all,
        "whole table, not split",
    ),
    (
        request::GET_CONSUMER_CONNECTION_LIST,
        client::consumer_connections,
        "",
    ),
    (
        request::GET_PRODUCER_CONNECTION_LIST,
        client::producer_connections,
        "",
    ),
    (request::GET_CONSUME_STATS, stats::of_group, ""),
    (request::QUERY_TOPIC_CONSUME_BY_WHO, topic::consumed_by, ""),
    (request::GET_SYSTEM_TOPIC_LIST_FROM_BROKER, topic::system, ""),
    (request::GET_ALL_PRODUCER_INFO, client::all_producers, ""),
    (request::QUERY_CONSUME_TIME_SPAN, group::time_span, ""),
    (request::QUERY_TOPICS_BY_CONSUMER, group::topics, ""),
    (request::QUERY_SUBSCRIPTION_BY_CONSUMER, group::subscription, ""),
    (request::GET_TOPIC_CONFIG, topic::config, ""),
    (
        request::DELETE_EXPIRED_COMMITLOG,
        store_admin::delete_expired,
        "what is older than fileReservedTime, at any hour",
    ),
    (request::GET_SUBSCRIPTIONGROUP_CONFIG, group::config, ""),
    (request::GET_TIMER_CHECK_POINT, recall::checkpoint, ""),
    (request::QUERY_CORRECTION_OFFSET, offset::correction, ""),
    (request::GET_ALL_MESSAGE_REQUEST_MODE, pop::all_request_modes, ""),
    (
        request::POP_ROLLBACK,
        pop::rollback,
        "nothing to do, as in a broker without RocksDB",
    ),
    (
        request::VIEW_BROKER_STATS_DATA,
        stats::counter,
        "puts by topic; gets by topic, group and queue; send-backs, dead letters, pop check points and acknowledgements by topic and group",
    ),
    (
        request::GET_BROKER_HA_STATUS,
        store_admin::replication,
        "a master without slaves",
    ),
    (
        request::RESET_MASTER_FLUSH_OFFSET,
        store_admin::reset_master_flush,
        "nothing to do: only slaves keep one",
    ),
];

/// Requests that wait until a file or the log is synced, on both ports.
const CHANGES: &[(i32, Function, &str)] = &[
    (
        request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        group::put,
        "written and synced before the answer",
    ),
    (
        request::UPDATE_AND_GET_GROUP_FORBIDDEN,
        group::forbid,
        "as in Apache, checked only for pulls that carry no subscription",
    ),
    (request::DELETE_SUBSCRIPTIONGROUP, group::delete, ""),
    (
        request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        group::put_list,
        "",
    ),
    (
        request::SET_MESSAGE_REQUEST_MODE,
        pop::set_request_mode,
        "written and synced before the answer",
    ),
    (
        request::CLONE_GROUP_OFFSET,
        offset::copy,
        "one topic, or all that the group has offsets on",
    ),
];

/// Changes that may wait for minutes: for a pop that hangs, or for a search of the whole log. They have threads of
/// their own.
const LONG_CHANGES: &[(i32, Function, &str)] = &[
    (
        request::INVOKE_BROKER_TO_RESET_OFFSET,
        offset::reset,
        "by the group's members (220), unless useServerSideResetOffset is set",
    ),
    (
        request::RESUME_CHECK_HALF_MESSAGE,
        transaction::resume,
        "only what lies in TRANS_CHECK_MAX_TIME_TOPIC",
    ),
];

/// Requests that are answered at once, on the main port only.
const PEEKS: &[(i32, Function, &str)] = &[
    (request::PEEK_MESSAGE, pop::peek, "main port only"),
    (request::POLLING_INFO, pop::polling_info, "main port only"),
];

/// Requests that are answered once the name servers know the change.
const ANNOUNCED: &[(i32, Function, &str)] = &[
    (
        request::UPDATE_AND_CREATE_TOPIC,
        topic::create,
        "written, synced and announced to the name servers before the answer",
    ),
    (request::UPDATE_AND_CREATE_TOPIC_LIST, topic::create_list, "as 17"),
    (request::DELETE_TOPIC_IN_BROKER, topic::delete, ""),
];

const SENDS: &[(i32, &str)] = &[
    (
        request::SEND_MESSAGE,
        "delay levels, timer messages, transactions; inner batches are refused",
    ),
    (request::SEND_MESSAGE_V2, "as 10"),
    (request::SEND_BATCH_MESSAGE, "one write"),
];

const ENDS: &[(i32, &str)] = &[(
    request::END_TRANSACTION,
    "the op message is written at once; the check sends 39",
)];

const RECALLS: &[(i32, &str)] = &[(request::RECALL_MESSAGE, "needs recallMessageEnable")];

const REPLIES: &[(i32, &str)] = &[
    (request::SEND_REPLY_MESSAGE, "pushed to the requester by 326"),
    (request::SEND_REPLY_MESSAGE_V2, "as 324"),
];

const STATUS: &[(i32, &str)] = &[(
    request::INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    "requests it from the members by 221",
)];

const CALLS: &[(i32, &str)] = &[
    (request::GET_CONSUMER_RUNNING_INFO, "passed on to the consumer"),
    (
        request::CONSUME_MESSAGE_DIRECTLY,
        "passed on to the consumer with the message",
    ),
];

/// Main port only.
const POPS: &[(i32, &str)] = &[
    (
        request::POP_MESSAGE,
        "main port only; the client's clock has no effect",
    ),
    (request::NOTIFICATION, "as 200050"),
];

const ACKS: &[(i32, &str)] = &[
    (request::ACK_MESSAGE, "expired and used handles have no effect"),
    (
        request::BATCH_ACK_MESSAGE,
        "entries that cannot be acknowledged are skipped, as Apache does",
    ),
    (request::CHANGE_MESSAGE_INVISIBLETIME, "0 ms to timerMaxDelaySec"),
    (
        request::QUERY_ASSIGNMENT,
        "AVG and AVG_BY_CIRCLE; asks a name server for the route",
    ),
];

/// Main port only.
const PULLS: &[(i32, &str)] = &[
    (
        request::PULL_MESSAGE,
        "main port only; long polling; SQL92 needs enablePropertyFilter",
    ),
    (request::LITE_PULL_MESSAGE, "as 11"),
];

const ACL: &str = "needs aclEnable and an administrator; kept in the files that have the accounts";
const AUTH: &str = "needs authenticationEnabled; kept in the file of authConfigPath";

/// Requests that Python serves: they concern options and files that Python reads and writes.
const PYTHON: &[(i32, &str)] = &[
    (
        request::UPDATE_BROKER_CONFIG,
        "wrong values and those that need a new start are refused",
    ),
    (request::GET_BROKER_CONFIG, ""),
    (request::UPDATE_AND_CREATE_ACL_CONFIG, ACL),
    (request::DELETE_ACL_CONFIG, ACL),
    (request::GET_BROKER_CLUSTER_ACL_INFO, "needs aclEnable"),
    (request::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, ACL),
    (request::GET_BROKER_CLUSTER_ACL_CONFIG, ACL),
    (request::AUTH_CREATE_USER, AUTH),
    (request::AUTH_UPDATE_USER, AUTH),
    (request::AUTH_DELETE_USER, AUTH),
    (request::AUTH_GET_USER, AUTH),
    (request::AUTH_LIST_USER, AUTH),
    (request::AUTH_CREATE_ACL, AUTH),
    (request::AUTH_UPDATE_ACL, AUTH),
    (request::AUTH_DELETE_ACL, AUTH),
    (request::AUTH_GET_ACL, AUTH),
    (request::AUTH_LIST_ACL, AUTH),
];
const NO_PYTHON: &str = "the Python part that serves it does not run here";

const NOT_SERVED: &str = "this broker does not serve this request";

/// Every known request code and how this broker serves it, in ascending order.
pub fn rows() -> Vec<RowInfo> {
    REQUEST_CODES.iter().map(|(_, code)| row(*code)).collect()
}

fn row(code: i32) -> RowInfo {
    let functions = PLAIN
        .iter()
        .chain(CHANGES)
        .chain(LONG_CHANGES)
        .chain(SEARCHES)
        .chain(ANNOUNCED)
        .chain(PEEKS)
        .map(|(code, _, note)| (*code, *note));
    let others = SENDS
        .iter()
        .chain(ENDS)
        .chain(RECALLS)
        .chain(REPLIES)
        .chain(CALLS)
        .chain(STATUS)
        .chain(PULLS)
        .chain(POPS)
        .chain(ACKS)
        .copied();
    let native = functions.chain(others).find(|(native, _)| *native == code);
    if let Some((_, note)) = native {
        return RowInfo {
            code,
            kind: Kind::Native,
            note,
        };
    }
    if let Some((_, note)) = PYTHON.iter().find(|(python, _)| *python == code) {
        return RowInfo {
            code,
            kind: Kind::Python,
            note,
        };
    }
    let refused = REFUSALS.iter().find(|(codes, _)| codes.contains(&code));
    RowInfo {
        code,
        kind: Kind::Refused,
        note: refused.map_or(NOT_SERVED, |(_, note)| note),
    }
}

/// The table of one port. `python_codes` without a native row go to Python.
pub(crate) fn table(
    (context, pull): (&Arc<BrokerContext>, &Arc<Pull>),
    tasks: &Tracker,
    auto_create: &AutoCreateQueue,
    fast: bool,
    python: Option<&Arc<Requests>>,
    python_codes: &[i32],
) -> ProcessorTable {
    let mut table = ProcessorTable::new();
    let mut native = |codes: &[i32], row: Arc<dyn Processor>| {
        for code in codes {
            let row = auto_create_rules::wrap(*code, row.clone(), auto_create);
            table.native(&[*code], &row);
        }
    };
    for (code, function, _) in PLAIN {
        native(&[*code], Handler::row(context, *function));
    }
    let (changes, long_changes) = (Changes::new(context, tasks), Changes::new(context, tasks));
    for (code, function, _) in CHANGES {
        native(&[*code], Change::row(&changes, *function));
    }
    for (code, function, _) in LONG_CHANGES {
        native(&[*code], Change::row(&long_changes, *function));
    }
    let searches = Searches::new(context, tasks);
    for (code, function, _) in SEARCHES {
        native(&[*code], searches.row(*function));
    }
    for (code, function, _) in ANNOUNCED {
        native(&[*code], Change::announced(&changes, *function));
    }
    native(
        &codes(ENDS),
        Arc::new(transaction::End::new(context.clone(), tasks.clone())),
    );
    native(&codes(REPLIES), Arc::new(SendReply::new(context.clone())));
    native(&codes(RECALLS), Arc::new(Recall::new(context.clone())));
    native(&codes(CALLS), Arc::new(Call::new(context.clone())));
    native(&codes(STATUS), Arc::new(ConsumerStatus::new(context.clone())));
    for (code, processor) in pop::rows(context) {
        native(&[code], processor);
    }
    if !fast {
        native(&codes(POPS), Arc::new(Pop::new(context.clone())));
        for (code, function, _) in PEEKS {
            native(&[*code], Handler::row(context, *function));
        }
        native(&codes(PULLS), pull.clone());
    }
    let sends = Send::new(context.clone(), auto_create.clone());
    table.batched(&codes(SENDS), Arc::new(sends));
    if let Some(requests) = python {
        table.python(python_codes, requests);
    }
    for (_, code) in REQUEST_CODES {
        if table.get(*code).is_none() {
            table.refused(*code, reason_of_refusal(*code, fast));
        }
    }
    table
}

/// Why a port without a row for this code refuses it.
fn reason_of_refusal(code: i32, fast: bool) -> &'static str {
    if fast && is_main_only(code) {
        return "the fast port does not serve pulls and pops, use the main port";
    }
    let row = row(code);
    if row.kind == Kind::Python {
        return NO_PYTHON;
    }
    row.note
}

fn is_main_only(code: i32) -> bool {
    let peeks = PEEKS.iter().any(|(peek, _, _)| *peek == code);
    peeks || PULLS.iter().chain(POPS).any(|(main, _)| *main == code)
}

fn codes(rows: &[(i32, &str)]) -> Vec<i32> {
    rows.iter().map(|(code, _)| *code).collect()
}
