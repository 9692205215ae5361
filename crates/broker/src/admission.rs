//! Checks that admit a request: names, sizes and permissions, each with the response code that Apache sends, and a
//! remark that begins with Apache's words (`TopicValidator`, `AbstractSendMessageProcessor`, `HookUtils`).

use crate::error::Refusal;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::message::properties::MAX_BYTES as PROPERTIES_LIMIT;
use pyrmq_remoting::names::{
    DLQ_PREFIX, FILTER_SERVER_GROUP, GROUP_LIMIT, NOT_ALLOWED_SEND_TOPICS, ONS_API_OWNER_GROUP,
    ONS_API_PERMISSION_GROUP, ONS_API_PULL_GROUP, ONS_HTTP_PROXY_GROUP, PERM_READ, PERM_WRITE,
    RETRY_TOPIC_LIMIT, REVIVE_GROUP, REVIVE_TOPIC, SELF_TEST_GROUP, TIMER_TOPIC, TOOLS_GROUP, TOPIC_LIMIT,
    TRANSACTION_GROUP, is_legal, is_retry, shortened,
};

/// What Apache says of a name with other characters (`TopicValidator`).
const ILLEGAL: &str = "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$";

/// Groups that always exist (Apache `SubscriptionGroupManager.init`).
pub const PRESET_GROUPS: [&str; 8] = [
    TOOLS_GROUP,
    FILTER_SERVER_GROUP,
    SELF_TEST_GROUP,
    ONS_HTTP_PROXY_GROUP,
    ONS_API_PULL_GROUP,
    ONS_API_PERMISSION_GROUP,
    ONS_API_OWNER_GROUP,
    TRANSACTION_GROUP,
];

/// Refuses an invalid topic name.
pub fn topic_name(topic: &str) -> Result<(), Refusal> {
    let (name, length) = (shortened(topic), topic.len());
    let is_of_group = is_retry(topic) || topic.starts_with(DLQ_PREFIX);
    let reason = if topic.trim().is_empty() {
        "The specified topic is blank. Its name must not be empty".to_owned()
    } else if !is_legal(topic) {
        format!("The specified topic: {name}, {ILLEGAL}")
    } else if is_of_group && length > RETRY_TOPIC_LIMIT {
        format!(
            "The specified topic is DLQ or Retry topic: {name}, and it's longer than topic max length: \
             {RETRY_TOPIC_LIMIT}. It has {length} characters"
        )
    } else if !is_of_group && length > TOPIC_LIMIT {
        format!(
            "The specified topic: {name}, is longer than topic max length: {TOPIC_LIMIT}. It has {length} characters"
        )
    } else {
        return Ok(());
    };
    Err(Refusal::new(response::INVALID_PARAMETER, reason))
}

/// Refuses an invalid group name.
pub fn group_name(group: &str) -> Result<(), Refusal> {
    let (name, length) = (shortened(group), group.len());
    let reason = if group.trim().is_empty() {
        "The specified group is blank. Its name must not be empty".to_owned()
    } else if !is_legal(group) {
        format!("The specified group: {name}, {ILLEGAL}")
    } else if length > GROUP_LIMIT {
        format!(
            "The specified group: {name}, is longer than group max length: {GROUP_LIMIT}. It has {length} characters"
        )
    } else {
        return Ok(());
    };
    Err(Refusal::new(response::INVALID_PARAMETER, reason))
}

/// Refuses a send to a topic that only the broker may write.
pub fn open_to_clients(topic: &str) -> Result<(), Refusal> {
    if NOT_ALLOWED_SEND_TOPICS.contains(&topic) || topic == TIMER_TOPIC || topic.starts_with(REVIVE_TOPIC) {
        return Err(Refusal::new(
            response::NO_PERMISSION,
            format!("Sending message to topic[{topic}] is forbidden. Only the broker writes to it"),
        ));
    }
    Ok(())
}

/// Refuses a commit for one of the broker's own groups: its offsets say which transactions or pop check points are
/// done.
pub fn open_to_commits(group: &str) -> Result<(), Refusal> {
    if matches!(group, TRANSACTION_GROUP | REVIVE_GROUP) {
        return Err(Refusal::new(
            response::NO_PERMISSION,
            format!("only the broker commits offsets of its group: {group}"),
        ));
    }
    Ok(())
}

/// Refuses a topic name that is too long for a message that is not a retry (Apache `HookUtils.checkBeforePutMessage`).
pub fn storable(topic: &str, body_limit: usize) -> Result<(), Refusal> {
    if topic.len() <= TOPIC_LIMIT || is_retry(topic) {
        return Ok(());
    }
    let name = shortened(topic);
    let reason = format!("Messages go to topics of at most {TOPIC_LIMIT} characters: {name}");
    Err(illegal_message(body_limit, &reason))
}

/// A message that no record can hold.
fn illegal_message(body_limit: usize, reason: &str) -> Refusal {
    let text = format!(
        "the message is illegal, maybe msg body or properties length not matched. msg body length limit \
         {body_limit}B, msg properties length limit 32KB. {reason}"
    );
    Refusal::new(response::MESSAGE_ILLEGAL, text)
}

/// Refuses bodies and properties over the limits.
pub fn sizes(body: usize, body_limit: usize, properties: usize) -> Result<(), Refusal> {
    let reason = if body == 0 {
        "The message has no body".to_owned()
    } else if body > body_limit {
        format!("The message body has {body} bytes, maxMessageSize is {body_limit}")
    } else if properties > PROPERTIES_LIMIT {
        format!("The properties have {properties} bytes, at most {PROPERTIES_LIMIT} are allowed")
    } else {
        return Ok(());
    };
    Err(illegal_message(body_limit, &reason))
}

/// Whether the permission bits allow reading.
pub fn is_readable(perm: i32) -> bool {
    perm & PERM_READ != 0
}

/// Whether the permission bits allow writing.
pub fn is_writeable(perm: i32) -> bool {
    perm & PERM_WRITE != 0
}
