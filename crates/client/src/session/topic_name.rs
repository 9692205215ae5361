//! Which names a topic may have.

use crate::error::ClientError;
use pyrmq_remoting::names::{NOT_ALLOWED_SEND_TOPICS, TOPIC_LIMIT, is_legal, is_retry};

/// Refuses topics that no broker takes from a client.
pub fn check_topic(topic: &str) -> Result<(), ClientError> {
    check_name(topic)?;
    let reason = if topic.len() > TOPIC_LIMIT && !is_retry(topic) {
        "it is longer than 127 characters"
    } else if NOT_ALLOWED_SEND_TOPICS.contains(&topic) {
        "only brokers write to it"
    } else {
        return Ok(());
    };
    Err(illegal(topic, reason))
}

/// Refuses what no topic is called.
pub fn check_name(topic: &str) -> Result<(), ClientError> {
    let reason = if topic.is_empty() {
        "it is empty"
    } else if !is_legal(topic) {
        "only the characters a-z A-Z 0-9 % | _ - may stand in it"
    } else {
        return Ok(());
    };
    Err(illegal(topic, reason))
}

fn illegal(topic: &str, reason: &'static str) -> ClientError {
    ClientError::Topic {
        topic: topic.to_owned(),
        reason,
    }
}
