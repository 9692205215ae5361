//! The senders of each request code, and which codes are administrative changes. Both follow from the code's rights in
//! [`requests`](crate::requests), so that each code of both servers has an answer.

use crate::requests::actions_of;
use crate::resource::Action;
use pyrmq_remoting::codes::request::{self, REQUEST_CODES};
use pyrmq_remoting::net::CodeSet;

/// The senders of a request code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Producers and consumers.
    Clients,
    /// Brokers and name servers.
    Servers,
    /// Administrators and their tools.
    Administrators,
}

/// Codes of clients that need neither the right to send nor that to receive.
const CLIENTS: &[i32] = &[
    request::SEARCH_OFFSET_BY_TIMESTAMP,
    request::GET_MAX_OFFSET,
    request::GET_MIN_OFFSET,
    request::GET_EARLIEST_MSG_STORETIME,
    request::VIEW_MESSAGE_BY_ID,
    request::GET_TOPIC_CONFIG,
    request::GET_TOPIC_STATS_INFO,
    request::GET_SUBSCRIPTIONGROUP_CONFIG,
    request::GET_BROKER_CLUSTER_INFO,
    request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    request::GET_KV_CONFIG,
    request::POLLING_INFO,
    request::LITE_SUBSCRIPTION_CTL,
    request::ACK_LITE_MESSAGE,
];

/// Codes of brokers and name servers: registrations, what a slave copies, notices to clients, controllers.
const SERVERS: &[i32] = &[
    request::REGISTER_BROKER,
    request::UNREGISTER_BROKER,
    request::BROKER_HEARTBEAT,
    request::QUERY_DATA_VERSION,
    request::REGISTER_TOPIC_IN_NAMESRV,
    request::GET_BROKER_MEMBER_GROUP,
    request::NOTIFY_MIN_BROKER_ID_CHANGE,
    request::REGISTER_FILTER_SERVER,
    request::REGISTER_MESSAGE_FILTER_CLASS,
    request::GET_ALL_TOPIC_CONFIG,
    request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    request::GET_ALL_CONSUMER_OFFSET,
    request::GET_ALL_DELAY_OFFSET,
    request::GET_ALL_MESSAGE_REQUEST_MODE,
    request::GET_TIMER_CHECK_POINT,
    request::GET_TIMER_METRICS,
    request::EXCHANGE_BROKER_HA_INFO,
    request::CHECK_TRANSACTION_STATE,
    request::NOTIFY_CONSUMER_IDS_CHANGED,
    request::RESET_CONSUMER_CLIENT_OFFSET,
    request::GET_CONSUMER_STATUS_FROM_CLIENT,
    request::PUSH_REPLY_MESSAGE_TO_CLIENT,
    request::NOTIFY_UNSUBSCRIBE_LITE,
    request::NOTIFY_BROKER_ROLE_CHANGED,
    request::CONTROLLER_ALTER_SYNC_STATE_SET,
    request::CONTROLLER_REGISTER_BROKER,
    request::CONTROLLER_GET_REPLICA_INFO,
    request::CONTROLLER_GET_NEXT_BROKER_ID,
    request::CONTROLLER_APPLY_BROKER_ID,
    request::BROKER_CLOSE_CHANNEL_REQUEST,
    request::CHECK_NOT_ACTIVE_BROKER_REQUEST,
    request::GET_BROKER_LIVE_INFO_REQUEST,
    request::GET_SYNC_STATE_DATA_REQUEST,
    request::RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
];

/// The senders of a code; `None` for an unknown code, which may be an application's own.
pub fn audience(code: i32) -> Option<Audience> {
    let actions = actions_of(code)?;
    let sends_or_receives = actions
        .iter()
        .any(|action| matches!(action, Action::Pub | Action::Sub));
    Some(if sends_or_receives || CLIENTS.contains(&code) {
        Audience::Clients
    } else if SERVERS.contains(&code) {
        Audience::Servers
    } else {
        Audience::Administrators
    })
}

/// The codes of administrators.
pub fn administrative() -> CodeSet {
    codes().filter(|code| is_administrative(*code)).collect()
}

/// The codes of administrators that change something.
pub(crate) fn changes() -> CodeSet {
    codes().filter(|code| is_change(*code)).collect()
}

fn codes() -> impl Iterator<Item = i32> {
    REQUEST_CODES.iter().map(|(_, code)| *code)
}

fn is_administrative(code: i32) -> bool {
    audience(code) == Some(Audience::Administrators)
}

fn is_change(code: i32) -> bool {
    let changes = |action: &Action| matches!(action, Action::Create | Action::Update | Action::Delete);
    is_administrative(code) && actions_of(code).is_some_and(|actions| actions.iter().all(changes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_of_a_list_belongs_there() {
        for code in CLIENTS.iter().chain(SERVERS) {
            let actions = actions_of(*code);
            assert!(actions.is_some(), "{code} is unknown");
        }
        assert!(CLIENTS.iter().all(|code| !SERVERS.contains(code)));
    }

    #[test]
    fn what_clients_and_brokers_need_is_not_administrative() {
        for code in [10, 11, 14, 15, 30, 34, 36, 37, 41, 103, 105, 200_050, 322, 904] {
            assert!(!is_administrative(code), "{code}");
        }
        for code in [17, 25, 26, 28, 100, 203, 206 + 10, 318, 3001, 3010] {
            assert!(is_administrative(code), "{code}");
        }
        assert!(
            [17, 25, 100, 215, 318, 222, 3001, 3008]
                .into_iter()
                .all(is_change)
        );
        assert!(![26, 28, 203, 319, 3004, 3010].into_iter().any(is_change));
        assert_eq!(audience(999_999), None);
    }
}
