//! The request codes that a broker knows but does not serve. Each reason appears in the response's remark and in
//! docs/compat.md.

use pyrmq_remoting::codes::request;

/// Codes, and why they are not served.
pub(super) const REFUSALS: &[(&[i32], &str)] = &[
    (
        &[
            request::POP_LITE_MESSAGE,
            request::LITE_SUBSCRIPTION_CTL,
            request::ACK_LITE_MESSAGE,
            request::GET_BROKER_LITE_INFO,
            request::GET_PARENT_TOPIC_INFO,
            request::GET_LITE_TOPIC_INFO,
            request::GET_LITE_CLIENT_INFO,
            request::GET_LITE_GROUP_INFO,
            request::TRIGGER_LITE_DISPATCH,
        ],
        "lite topics are not built yet",
    ),
    (
        &[request::GET_TIMER_METRICS],
        "numbers of timer messages by topic are not kept; slaves, which ask for them, are not built yet",
    ),
    (
        &[
            request::EXCHANGE_BROKER_HA_INFO,
            request::GET_BROKER_EPOCH_CACHE,
            request::NOTIFY_BROKER_ROLE_CHANGED,
            request::NOTIFY_MIN_BROKER_ID_CHANGE,
        ],
        "replication is not built yet",
    ),
    (
        &[request::UPDATE_AND_CREATE_STATIC_TOPIC],
        "static topics are not built yet",
    ),
    (
        &[
            request::PUT_KV_CONFIG,
            request::GET_KV_CONFIG,
            request::DELETE_KV_CONFIG,
            request::REGISTER_BROKER,
            request::UNREGISTER_BROKER,
            request::GET_ROUTEINFO_BY_TOPIC,
            request::GET_BROKER_CLUSTER_INFO,
            request::WIPE_WRITE_PERM_OF_BROKER,
            request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            request::DELETE_TOPIC_IN_NAMESRV,
            request::REGISTER_TOPIC_IN_NAMESRV,
            request::GET_KVLIST_BY_NAMESPACE,
            request::GET_TOPICS_BY_CLUSTER,
            request::GET_SYSTEM_TOPIC_LIST_FROM_NS,
            request::GET_UNIT_TOPIC_LIST,
            request::GET_HAS_UNIT_SUB_TOPIC_LIST,
            request::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            request::UPDATE_NAMESRV_CONFIG,
            request::GET_NAMESRV_CONFIG,
            request::QUERY_DATA_VERSION,
            request::ADD_WRITE_PERM_OF_BROKER,
            request::GET_BROKER_MEMBER_GROUP,
            request::BROKER_HEARTBEAT,
        ],
        "name servers answer this, a broker does not",
    ),
    (
        &[
            request::CHECK_TRANSACTION_STATE,
            request::NOTIFY_CONSUMER_IDS_CHANGED,
            request::RESET_CONSUMER_CLIENT_OFFSET,
            request::GET_CONSUMER_STATUS_FROM_CLIENT,
            request::PUSH_REPLY_MESSAGE_TO_CLIENT,
            request::NOTIFY_UNSUBSCRIBE_LITE,
        ],
        "brokers send this to clients, a broker does not answer it",
    ),
    (
        &[
            request::QUERY_BROKER_OFFSET,
            request::GET_TOPIC_CONFIG_LIST,
            request::GET_TOPIC_NAME_LIST,
            request::TRIGGER_DELETE_FILES,
            request::GET_CLIENT_CONFIG,
            request::SUSPEND_CONSUMER,
            request::RESUME_CONSUMER,
            request::RESET_CONSUMER_OFFSET_IN_CONSUMER,
            request::RESET_CONSUMER_OFFSET_IN_BROKER,
            request::ADJUST_CONSUMER_THREAD_POOL,
            request::WHO_CONSUME_THE_MESSAGE,
            request::REGISTER_MESSAGE_FILTER_CLASS,
        ],
        "Apache numbers it, but no server from 4.6 to 5.5 serves it",
    ),
    (
        &[request::REGISTER_FILTER_SERVER],
        "filter servers, which 5.0 removed, are not built",
    ),
    (
        &[
            request::CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
            request::EXPORT_ROCKSDB_CONFIG_TO_JSON,
            request::SWITCH_TIMER_ENGINE,
        ],
        "there is no RocksDB store here",
    ),
    (
        &[request::ADD_BROKER, request::REMOVE_BROKER],
        "broker containers are not built: start a broker for each",
    ),
    (
        &[
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
            request::BROKER_CLOSE_CHANNEL_REQUEST,
            request::CHECK_NOT_ACTIVE_BROKER_REQUEST,
            request::GET_BROKER_LIVE_INFO_REQUEST,
            request::GET_SYNC_STATE_DATA_REQUEST,
            request::RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
        ],
        "controllers answer this, a broker does not; there is no controller here",
    ),
    (
        &[
            request::UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
            request::REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
            request::GET_COLD_DATA_FLOW_CTR_INFO,
            request::SET_COMMITLOG_READ_MODE,
        ],
        "limits on reading cold data are not built: cold reads have threads of their own",
    ),
];
