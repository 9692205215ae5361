//! The rights that each request code needs (docs/decisions/0008-who-may-what.md, Apache
//! `DefaultAuthorizationContextBuilder` and its annotations `RocketMQAction`).
//!
//! A request is served if its user has each right that it needs. A request without the fields or the body that name its
//! resources, and an unknown code, need the right to change the cluster: nothing is open by omission.

use crate::resource::{Action, Resource, ResourceType};
use pyrmq_remoting::body::{Body, HeartbeatData, Json, LockBatchRequestBody};
use pyrmq_remoting::codes::request;
use pyrmq_remoting::names::{group_of_retry, is_retry};
use pyrmq_remoting::{Command, WireError};
use std::fmt;

/// A right that a request needs: to any of these actions on a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    /// The resource.
    pub resource: Resource,
    /// The right to any one of these is enough.
    pub actions: &'static [Action],
}

/// Where a request has the name of a resource.
#[derive(Debug, Clone, Copy)]
enum At {
    /// A topic in a field; a retry topic stands for its group.
    Topic(&'static str),
    /// A topic in a field, and the group in another that uses it: the group's own retry topic needs no further right.
    TopicOf(&'static str, &'static str),
    /// A topic and a group like [`At::TopicOf`], for popped messages: they may also come from the group's retry topic
    /// of POP.
    PoppedOf(&'static str, &'static str),
    /// A group in a field.
    Group(&'static str),
    /// Topics or groups in the body, by the path of members to their names; a retry topic stands for its group.
    Body(ResourceType, &'static [&'static str]),
    /// Further topics in the body, by the path of members to their names; a request may have no body.
    Further(&'static [&'static str]),
    /// Topics and the group that uses them, in objects of the body: the path to the objects, the member with the group,
    /// the path to the topics.
    BodyTopicsOf(&'static [&'static str], &'static str, &'static [&'static str]),
    /// The cluster.
    Cluster,
}

/// How to find the rights that a request code needs.
#[derive(Debug, Clone, Copy)]
enum Rights {
    /// One of these actions on each resource that is named at these places.
    On(&'static [Action], &'static [At]),
    /// Reading a consumer group, in the heartbeat's body.
    Heartbeat,
    /// Reading the queues of the body.
    Locks,
    /// One of these actions on each resource that is named at these places; a request that names none needs no right,
    /// since older clients name none.
    IfNamed(&'static [Action], &'static [At]),
}

use Action::{Create, Delete, Get, List, Pub, Sub, Update};
use At::{Body as InBody, BodyTopicsOf, Cluster, Further, Group, PoppedOf, Topic, TopicOf};
use ResourceType::{Group as Groups, Topic as Topics};

/// Codes with the rights that they need.
const RIGHTS: &[(&[i32], Rights)] = &[
    (
        &[request::GET_ROUTEINFO_BY_TOPIC],
        Rights::On(&[Pub, Sub, Get], &[Topic("topic")]),
    ),
    (
        &[
            request::SEND_MESSAGE,
            request::SEND_REPLY_MESSAGE,
            request::RECALL_MESSAGE,
        ],
        Rights::On(&[Pub], &[Topic("topic")]),
    ),
    (
        &[
            request::SEND_MESSAGE_V2,
            request::SEND_BATCH_MESSAGE,
            request::SEND_REPLY_MESSAGE_V2,
        ],
        Rights::On(&[Pub], &[Topic("b")]),
    ),
    (
        &[request::END_TRANSACTION],
        Rights::IfNamed(&[Pub], &[Topic("topic")]),
    ),
    (&[request::HEART_BEAT], Rights::Heartbeat),
    (
        &[request::UNREGISTER_CLIENT],
        Rights::IfNamed(&[Sub], &[Group("consumerGroup")]),
    ),
    (
        &[request::CHECK_CLIENT_CONFIG],
        Rights::On(
            &[Sub],
            &[BodyTopicsOf(&[], "group", &["subscriptionData", "topic"])],
        ),
    ),
    (
        &[
            request::PULL_MESSAGE,
            request::LITE_PULL_MESSAGE,
            request::POP_MESSAGE,
            request::PEEK_MESSAGE,
            request::NOTIFICATION,
            request::POP_LITE_MESSAGE,
        ],
        Rights::On(&[Sub], &[TopicOf("topic", "consumerGroup")]),
    ),
    (
        &[request::ACK_MESSAGE, request::CHANGE_MESSAGE_INVISIBLETIME],
        Rights::On(&[Sub], &[PoppedOf("topic", "consumerGroup")]),
    ),
    (
        &[request::BATCH_ACK_MESSAGE],
        Rights::On(&[Sub], &[BodyTopicsOf(&["acks"], "c", &["t"])]),
    ),
    (
        &[request::QUERY_ASSIGNMENT],
        Rights::On(&[Sub], &[BodyTopicsOf(&[], "consumerGroup", &["topic"])]),
    ),
    (
        &[request::CONSUMER_SEND_MSG_BACK],
        Rights::On(&[Sub], &[TopicOf("originTopic", "group")]),
    ),
    (&[request::LOCK_BATCH_MQ, request::UNLOCK_BATCH_MQ], Rights::Locks),
    (
        &[request::QUERY_CONSUMER_OFFSET],
        Rights::On(&[Sub, Get], &[TopicOf("topic", "consumerGroup")]),
    ),
    (
        &[request::UPDATE_CONSUMER_OFFSET],
        Rights::On(&[Sub, Update], &[TopicOf("topic", "consumerGroup")]),
    ),
    (
        &[request::GET_CONSUMER_LIST_BY_GROUP],
        Rights::On(&[Sub, Get], &[Group("consumerGroup")]),
    ),
    (
        &[request::QUERY_MESSAGE],
        Rights::On(&[Sub, Get], &[Topic("topic")]),
    ),
    // Reads of one topic.
    (
        &[
            request::SEARCH_OFFSET_BY_TIMESTAMP,
            request::GET_MAX_OFFSET,
            request::GET_MIN_OFFSET,
            request::GET_EARLIEST_MSG_STORETIME,
            request::GET_TOPIC_CONFIG,
            request::QUERY_TOPIC_CONSUME_BY_WHO,
            request::QUERY_CONSUME_QUEUE,
            request::CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
            request::GET_LITE_TOPIC_INFO,
            request::GET_PARENT_TOPIC_INFO,
        ],
        Rights::On(&[Get], &[Topic("topic")]),
    ),
    (
        &[request::GET_TOPIC_STATS_INFO],
        Rights::On(&[Get], &[Topic("topic"), Further(&["topics"])]),
    ),
    // Reads of one group.
    (
        &[
            request::GET_SUBSCRIPTIONGROUP_CONFIG,
            request::QUERY_TOPICS_BY_CONSUMER,
        ],
        Rights::On(&[Get], &[Group("group")]),
    ),
    (
        &[
            request::GET_CONSUMER_CONNECTION_LIST,
            request::GET_CONSUME_STATS,
            request::GET_CONSUMER_RUNNING_INFO,
        ],
        Rights::On(&[Get], &[Group("consumerGroup")]),
    ),
    (
        &[request::POLLING_INFO],
        Rights::On(&[Get], &[TopicOf("topic", "consumerGroup")]),
    ),
    (
        &[
            request::QUERY_CONSUME_TIME_SPAN,
            request::QUERY_SUBSCRIPTION_BY_CONSUMER,
            request::INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        ],
        Rights::On(&[Get], &[TopicOf("topic", "group")]),
    ),
    (
        &[request::QUERY_CORRECTION_OFFSET],
        Rights::On(&[Get], &[TopicOf("topic", "compareGroup")]),
    ),
    (
        &[request::CONSUME_MESSAGE_DIRECTLY],
        // The broker passes on a message that is named by its offset, of whatever topic.
        Rights::On(&[Update], &[Cluster]),
    ),
    // Changes of topics and groups.
    (
        &[request::UPDATE_AND_CREATE_TOPIC],
        Rights::On(&[Create], &[Topic("topic")]),
    ),
    (
        &[request::UPDATE_AND_CREATE_TOPIC_LIST],
        Rights::On(&[Create], &[InBody(Topics, &["topicConfigList", "topicName"])]),
    ),
    (
        &[request::DELETE_TOPIC_IN_BROKER],
        Rights::On(&[Delete], &[Topic("topic")]),
    ),
    (
        &[request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP],
        Rights::On(&[Create], &[InBody(Groups, &["groupName"])]),
    ),
    (
        &[request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST],
        Rights::On(&[Create], &[InBody(Groups, &["groupConfigList", "groupName"])]),
    ),
    (
        &[request::DELETE_SUBSCRIPTIONGROUP],
        Rights::On(&[Delete], &[Group("groupName")]),
    ),
    (
        &[
            request::UPDATE_AND_GET_GROUP_FORBIDDEN,
            request::INVOKE_BROKER_TO_RESET_OFFSET,
        ],
        Rights::On(&[Update], &[TopicOf("topic", "group")]),
    ),
    (
        &[request::CLONE_GROUP_OFFSET],
        Rights::On(&[Update], &[Group("srcGroup"), Group("destGroup")]),
    ),
    (
        &[request::SET_MESSAGE_REQUEST_MODE],
        Rights::On(&[Update], &[InBody(Groups, &["consumerGroup"])]),
    ),
    // Lists of everything.
    (
        &[
            request::GET_ALL_TOPIC_CONFIG,
            request::GET_TOPIC_CONFIG_LIST,
            request::GET_TOPIC_NAME_LIST,
            request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            request::GET_TOPICS_BY_CLUSTER,
            request::GET_SYSTEM_TOPIC_LIST_FROM_NS,
            request::GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
            request::GET_UNIT_TOPIC_LIST,
            request::GET_HAS_UNIT_SUB_TOPIC_LIST,
            request::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            request::GET_ALL_CONSUMER_OFFSET,
            request::GET_ALL_DELAY_OFFSET,
            request::GET_ALL_PRODUCER_INFO,
            request::GET_ALL_MESSAGE_REQUEST_MODE,
        ],
        Rights::On(&[List, Get], &[Cluster]),
    ),
    // Reads of the cluster. A message by its offset may be of any topic.
    (
        &[
            request::VIEW_MESSAGE_BY_ID,
            request::QUERY_BROKER_OFFSET,
            request::GET_BROKER_CONFIG,
            request::GET_BROKER_RUNTIME_INFO,
            request::GET_CLIENT_CONFIG,
            request::GET_BROKER_CLUSTER_ACL_INFO,
            request::GET_BROKER_CLUSTER_ACL_CONFIG,
            request::GET_TIMER_CHECK_POINT,
            request::GET_TIMER_METRICS,
            request::GET_KV_CONFIG,
            request::GET_BROKER_CLUSTER_INFO,
            request::GET_PRODUCER_CONNECTION_LIST,
            request::GET_KVLIST_BY_NAMESPACE,
            request::WHO_CONSUME_THE_MESSAGE,
            request::VIEW_BROKER_STATS_DATA,
            request::GET_BROKER_CONSUME_STATS,
            request::GET_NAMESRV_CONFIG,
            request::QUERY_DATA_VERSION,
            request::GET_BROKER_MEMBER_GROUP,
            request::GET_BROKER_HA_STATUS,
            request::EXPORT_ROCKSDB_CONFIG_TO_JSON,
            request::CONTROLLER_GET_REPLICA_INFO,
            request::CONTROLLER_GET_METADATA_INFO,
            request::CONTROLLER_GET_SYNC_STATE_DATA,
            request::GET_BROKER_EPOCH_CACHE,
            request::GET_CONTROLLER_CONFIG,
            request::CONTROLLER_GET_NEXT_BROKER_ID,
            request::GET_BROKER_LIVE_INFO_REQUEST,
            request::GET_SYNC_STATE_DATA_REQUEST,
            request::GET_COLD_DATA_FLOW_CTR_INFO,
            request::AUTH_GET_USER,
            request::AUTH_LIST_USER,
            request::AUTH_GET_ACL,
            request::AUTH_LIST_ACL,
            request::GET_BROKER_LITE_INFO,
            request::GET_LITE_CLIENT_INFO,
            request::GET_LITE_GROUP_INFO,
            STATUS,
        ],
        Rights::On(&[Get], &[Cluster]),
    ),
    // Changes of the cluster, and what servers ask of clients: no client sends that to a server.
    (
        &[
            request::UPDATE_BROKER_CONFIG,
            request::TRIGGER_DELETE_FILES,
            request::CHECK_TRANSACTION_STATE,
            request::NOTIFY_CONSUMER_IDS_CHANGED,
            request::UPDATE_AND_CREATE_ACL_CONFIG,
            request::DELETE_ACL_CONFIG,
            request::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
            request::PUT_KV_CONFIG,
            request::DELETE_KV_CONFIG,
            request::REGISTER_BROKER,
            request::UNREGISTER_BROKER,
            request::WIPE_WRITE_PERM_OF_BROKER,
            request::SUSPEND_CONSUMER,
            request::RESUME_CONSUMER,
            request::RESET_CONSUMER_OFFSET_IN_CONSUMER,
            request::RESET_CONSUMER_OFFSET_IN_BROKER,
            request::ADJUST_CONSUMER_THREAD_POOL,
            request::DELETE_TOPIC_IN_NAMESRV,
            request::REGISTER_TOPIC_IN_NAMESRV,
            request::RESET_CONSUMER_CLIENT_OFFSET,
            request::GET_CONSUMER_STATUS_FROM_CLIENT,
            request::REGISTER_FILTER_SERVER,
            request::REGISTER_MESSAGE_FILTER_CLASS,
            request::CLEAN_EXPIRED_CONSUMEQUEUE,
            request::CLEAN_UNUSED_TOPIC,
            request::UPDATE_NAMESRV_CONFIG,
            request::RESUME_CHECK_HALF_MESSAGE,
            request::PUSH_REPLY_MESSAGE_TO_CLIENT,
            request::ADD_WRITE_PERM_OF_BROKER,
            request::DELETE_EXPIRED_COMMITLOG,
            request::UPDATE_AND_CREATE_STATIC_TOPIC,
            request::ADD_BROKER,
            request::REMOVE_BROKER,
            request::BROKER_HEARTBEAT,
            request::NOTIFY_MIN_BROKER_ID_CHANGE,
            request::EXCHANGE_BROKER_HA_INFO,
            request::RESET_MASTER_FLUSH_OFFSET,
            request::CONTROLLER_ALTER_SYNC_STATE_SET,
            request::CONTROLLER_ELECT_MASTER,
            request::CONTROLLER_REGISTER_BROKER,
            request::NOTIFY_BROKER_ROLE_CHANGED,
            request::UPDATE_CONTROLLER_CONFIG,
            request::CLEAN_BROKER_DATA,
            request::CONTROLLER_APPLY_BROKER_ID,
            request::BROKER_CLOSE_CHANNEL_REQUEST,
            request::CHECK_NOT_ACTIVE_BROKER_REQUEST,
            request::RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
            request::UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
            request::REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
            request::SET_COMMITLOG_READ_MODE,
            request::AUTH_CREATE_USER,
            request::AUTH_UPDATE_USER,
            request::AUTH_DELETE_USER,
            request::AUTH_CREATE_ACL,
            request::AUTH_UPDATE_ACL,
            request::AUTH_DELETE_ACL,
            request::SWITCH_TIMER_ENGINE,
            request::POP_ROLLBACK,
            request::LITE_SUBSCRIPTION_CTL,
            request::ACK_LITE_MESSAGE,
            request::NOTIFY_UNSUBSCRIBE_LITE,
            request::TRIGGER_LITE_DISPATCH,
        ],
        Rights::On(&[Update], &[Cluster]),
    ),
];

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(topic) => write!(f, "topic `{topic}`"),
            Self::TopicOf(topic, group) | Self::PoppedOf(topic, group) => {
                write!(f, "topic `{topic}` and group `{group}`")
            }
            Self::Group(group) => write!(f, "group `{group}`"),
            Self::Body(Groups, path) => write!(f, "each group `{}` of the body", path.join(".")),
            Self::Body(_, path) => write!(f, "each topic `{}` of the body", path.join(".")),
            Self::Further(path) => write!(f, "each topic of `{}` in the body", path.join(".")),
            Self::BodyTopicsOf(path, group, topics) => {
                let at = |end: &[&str]| [*path, end].concat().join(".");
                write!(
                    f,
                    "each group `{}` and topic `{}` of the body",
                    at(&[*group]),
                    at(topics)
                )
            }
            Self::Cluster => f.write_str("the cluster"),
        }
    }
}

/// The right that a code needs, for the documents: the actions of which any one is enough, and the resources.
pub fn described(code: i32) -> (String, String) {
    let listed = |places: &[At]| {
        let places: Vec<String> = places.iter().map(At::to_string).collect();
        places.join(", ")
    };
    let (actions, resources) = match rights_of(code).unwrap_or(&UNKNOWN) {
        Rights::On(actions, places) => (*actions, listed(places)),
        Rights::IfNamed(actions, places) => {
            (*actions, format!("{}, if the request names it", listed(places)))
        }
        Rights::Heartbeat => (
            &[Sub][..],
            "each consumer group and its topics in the body".to_owned(),
        ),
        Rights::Locks => (&[Sub][..], "the group and each topic of the body".to_owned()),
    };
    let actions: Vec<&str> = actions.iter().map(|action| action.name()).collect();
    (actions.join(", "), resources)
}

/// Request code of our own by which `pyrmq nameserver status` asks.
const STATUS: i32 = 30_001;

/// The rights that an unknown code needs: an application's own, or one that Apache adds.
const UNKNOWN: Rights = Rights::On(&[Update], &[Cluster]);

fn rights_of(code: i32) -> Option<&'static Rights> {
    let found = RIGHTS.iter().find(|(codes, _)| codes.contains(&code));
    found.map(|(_, rights)| rights)
}

/// The topic of a request that needs only a right to one topic, and the actions of which any one is enough. `None`: the
/// request needs other rights. The name is not copied.
pub(crate) fn one_topic(request: &Command) -> Option<(&str, &'static [Action])> {
    let Rights::On(actions, [At::Topic(field)]) = rights_of(request.code)? else {
        return None;
    };
    let topic = request.fields.get(field)?;
    (!topic.is_empty() && !is_retry(topic)).then_some((topic, *actions))
}

/// The actions that a code needs a right to; `None` for an unknown code.
pub(crate) fn actions_of(code: i32) -> Option<&'static [Action]> {
    rights_of(code).map(|rights| match rights {
        Rights::On(actions, _) | Rights::IfNamed(actions, _) => *actions,
        Rights::Heartbeat | Rights::Locks => &[Sub],
    })
}

/// Whether this module lists a request code.
pub fn knows(code: i32) -> bool {
    rights_of(code).is_some()
}

/// The rights that a request needs in a cluster of this name. None: any user may send it. An error: the body does
/// not fit the code, so it is unknown what the request does.
pub fn required_rights(request: &Command, cluster: &str) -> Result<Vec<Right>, WireError> {
    let mut found = Vec::new();
    match rights_of(request.code).unwrap_or(&UNKNOWN) {
        Rights::On(actions, places) => {
            for place in *places {
                if !add_rights(request, cluster, *place, actions, &mut found)? {
                    found.push(whole(cluster));
                }
            }
        }
        Rights::IfNamed(actions, places) => {
            for place in *places {
                add_rights(request, cluster, *place, actions, &mut found)?;
            }
        }
        Rights::Heartbeat => {
            let data = HeartbeatData::decode(request.body.as_deref().unwrap_or_default())?;
            for consumer in &data.consumer_data_set {
                let topics = consumer.subscription_data_set.iter();
                let topics = topics.map(|subscription| subscription.topic.as_str());
                subscribe(&consumer.group_name, topics, &mut found);
            }
        }
        Rights::Locks => {
            let locks = LockBatchRequestBody::decode(request.body.as_deref().unwrap_or_default())?;
            let topics = locks.mq_set.iter().map(|queue| queue.topic.as_str());
            subscribe(&locks.consumer_group, topics, &mut found);
        }
    }
    Ok(found)
}

/// The right to change the cluster.
fn whole(cluster: &str) -> Right {
    Right {
        resource: Resource::cluster(cluster),
        actions: &[Update],
    }
}

/// Adds the rights of a group that reads these topics.
fn subscribe<'t>(group: &str, topics: impl Iterator<Item = &'t str>, found: &mut Vec<Right>) {
    let actions = &[Sub];
    found.push(Right {
        resource: Resource::group(group),
        actions,
    });
    found.extend(topics.filter_map(|topic| topic_right(topic, Some(group), actions)));
}

/// The right to a topic that a group uses, in addition to the right to the group; `None` for the group's own retry
/// topic.
///
/// The name of a retry topic of POP without `enableRetryTopicV2` is ambiguous: `%RETRY%a_b` is that of group `a` and
/// topic `b`, or the plain one of group `a_b`. It counts as the latter, so that no group reads the retries of another
/// whose name begins with its own.
fn topic_right(topic: &str, group: Option<&str>, actions: &'static [Action]) -> Option<Right> {
    let resource = match after_group(topic, group) {
        _ if !is_retry(topic) => Resource::topic(topic),
        Some(rest) if rest.is_empty() || rest.starts_with('+') => return None,
        _ => Resource::group(topic),
    };
    Some(Right { resource, actions })
}

/// What follows a group's name in the name of a retry topic; `None` if that is of another group.
fn after_group<'t>(topic: &'t str, group: Option<&str>) -> Option<&'t str> {
    group_of_retry(topic)?.strip_prefix(group?)
}

/// Adds the rights to what a request names at a place. Returns false if the request names nothing there.
fn add_rights(
    request: &Command,
    cluster: &str,
    place: At,
    actions: &'static [Action],
    found: &mut Vec<Right>,
) -> Result<bool, WireError> {
    let field = |name| request.fields.get(name).filter(|text| !text.is_empty());
    let body = || Json::parse(request.body.as_deref().unwrap_or_default());
    let mut add = |resource, actions| found.push(Right { resource, actions });
    match place {
        At::Cluster => add(Resource::cluster(cluster), actions),
        At::Group(name) => match field(name) {
            Some(group) => add(Resource::group(group), actions),
            None => return Ok(false),
        },
        At::Topic(name) => match field(name) {
            // To send to a retry topic is what its consumers do.
            Some(topic) if is_retry(topic) && actions == [Pub] => add(Resource::group(topic), &[Sub]),
            Some(topic) => found.extend(topic_right(topic, None, actions)),
            None => return Ok(false),
        },
        At::TopicOf(topic, group) | At::PoppedOf(topic, group) => {
            let (topic, group) = (field(topic), field(group));
            // Acknowledging reads nothing, and clients name the retry topic of POP there.
            let popped = topic.filter(|_| matches!(place, At::PoppedOf(..)));
            let popped = popped.and_then(|topic| after_group(topic, group)?.strip_prefix('_'));
            match (popped, topic) {
                (Some(topic), _) => add(Resource::topic(topic), actions),
                (None, Some(topic)) => found.extend(topic_right(topic, group, actions)),
                (None, None) => return Ok(false),
            }
            let Some(group) = group else { return Ok(false) };
            found.push(Right {
                resource: Resource::group(group),
                actions,
            });
        }
        At::Body(kind, path) => return Ok(add_rights_to_names(&body()?, kind, path, actions, found)),
        At::Further(path) => {
            if request.body.as_deref().is_some_and(|body| !body.is_empty()) {
                let json = body()?;
                let names = texts(&json, path);
                found.extend(names.iter().filter_map(|name| topic_right(name, None, actions)));
            }
        }
        At::BodyTopicsOf(path, group, topics) => {
            return Ok(add_rights_to_subscriptions(
                &body()?,
                path,
                (group, topics),
                actions,
                found,
            ));
        }
    }
    Ok(true)
}

/// Adds the rights to the topics or groups whose names are at a path of a body. Returns false if there are none.
fn add_rights_to_names(
    body: &Json,
    kind: ResourceType,
    path: &[&str],
    actions: &'static [Action],
    found: &mut Vec<Right>,
) -> bool {
    let names = texts(body, path);
    for name in &names {
        match kind {
            ResourceType::Topic => found.extend(topic_right(name, None, actions)),
            _ => found.push(Right {
                resource: Resource::group(name),
                actions,
            }),
        }
    }
    !names.is_empty()
}

/// Adds the rights to the group and the topics of each object at a path of a body. Returns false if there is no object
/// or one lacks either.
fn add_rights_to_subscriptions(
    body: &Json,
    path: &[&str],
    (group, topics): (&str, &[&str]),
    actions: &'static [Action],
    found: &mut Vec<Right>,
) -> bool {
    let mut objects = Vec::new();
    walk(body, path, &mut objects);
    let mut is_whole = !objects.is_empty();
    for object in objects {
        let (groups, topics) = (texts(object, &[group]), texts(object, topics));
        is_whole &= !groups.is_empty() && !topics.is_empty();
        found.extend(groups.iter().map(|group| Right {
            resource: Resource::group(group),
            actions,
        }));
        let own = match groups.as_slice() {
            [group] => Some(*group),
            _ => None,
        };
        found.extend(topics.iter().filter_map(|topic| topic_right(topic, own, actions)));
    }
    is_whole
}

/// Returns the texts at the end of a path of members. Anything but a text counts as an empty name, which only the right
/// to everything covers.
fn texts<'a>(json: &'a Json, path: &[&str]) -> Vec<&'a str> {
    let mut found = Vec::new();
    walk(json, path, &mut found);
    found
        .iter()
        .map(|json| json.as_str().unwrap_or_default())
        .collect()
}

/// Collects the values at the end of a path of members; an array on the way stands for each of its items.
fn walk<'a>(json: &'a Json, path: &[&str], found: &mut Vec<&'a Json>) {
    match (json, path) {
        (Json::Array(items), _) => items.iter().for_each(|item| walk(item, path, found)),
        (json, [member, rest @ ..]) => {
            if let Some(json) = json.get(member) {
                walk(json, rest, found);
            }
        }
        (json, []) => found.push(json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrmq_remoting::codes::request::REQUEST_CODES;

    #[test]
    fn one_topic_is_the_only_right_of_its_requests() {
        let mut seen = 0;
        for (_, code) in REQUEST_CODES {
            for topic in ["orders", "", "%RETRY%kitchen", "%DLQ%kitchen"] {
                let request = Command::request(*code)
                    .with_field("topic", topic)
                    .with_field("b", topic);
                let Some((name, actions)) = one_topic(&request) else {
                    continue;
                };
                seen += 1;
                let right = Right {
                    resource: Resource::topic(name),
                    actions,
                };
                assert_eq!(
                    required_rights(&request, "main").ok(),
                    Some(vec![right]),
                    "{code}"
                );
            }
        }
        assert!(seen > 20, "{seen}");
    }
}
