//! Topics whose share could not be computed, and when that is tried again.

use crate::error::ClientError;
use pyrmq_remoting::names;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Pause before the first repeated check.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// While a master is unreachable, the pause is doubled at most this often: to 8 s.
const MAX_DOUBLINGS: u32 = 3;

/// Topics whose last rebalance failed.
#[derive(Debug, Default)]
pub(super) struct FailedTopics {
    /// Whether the topic has queues that wait for their master, and nothing else is missing.
    topics: BTreeMap<Arc<str>, bool>,
    /// Number of checks in a row after which queues still waited for their masters.
    waits: u32,
}

impl FailedTopics {
    /// The time until the next check, if the next check of all topics is due after `rest`. Checks for unreachable
    /// masters become less and less frequent.
    pub(super) fn pause(&self, rest: Duration) -> Duration {
        if self.topics.is_empty() {
            return rest;
        }
        let waits_for_masters = self.topics.values().all(|waits| *waits);
        let doublings = if waits_for_masters {
            self.waits.min(MAX_DOUBLINGS)
        } else {
            0
        };
        (FIRST_PAUSE * 2_u32.saturating_pow(doublings)).min(rest)
    }

    /// The topics whose last check failed.
    pub(super) fn topics(&self) -> Vec<Arc<str>> {
        self.topics.keys().cloned().collect()
    }

    /// Another round of checks begins.
    pub(super) fn next_round(&mut self) {
        self.waits = if self.topics.values().any(|waits| *waits) {
            self.waits.saturating_add(1)
        } else {
            0
        };
    }

    /// The share of a topic is known.
    pub(super) fn forget(&mut self, topic: &str) {
        self.topics.remove(topic);
    }

    /// The check of a topic has failed. A master that stays unreachable is reported once.
    pub(super) fn note(&mut self, topic: &Arc<str>, error: &ClientError) {
        let waits = matches!(error, ClientError::NoMaster { .. });
        let has_waited = self.topics.insert(topic.clone(), waits) == Some(true);
        if names::is_retry(topic) && matches!(error, ClientError::NoTopic { .. }) {
            // Brokers create it when they learn of the group.
            tracing::debug!(topic = &**topic, %error, "retry topic not there yet");
        } else if waits && has_waited {
            tracing::debug!(topic = &**topic, %error, "some queues wait for their master still");
        } else {
            tracing::warn!(topic = &**topic, %error, "share of the queues not known");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, ClientError, Duration, FailedTopics};

    #[test]
    fn masters_that_are_away_are_looked_for_less_and_less_often() {
        let rest = Duration::from_secs(20);
        let no_master = ClientError::NoMaster {
            broker: "b".to_owned(),
        };
        let (waiting, other): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut failed = FailedTopics::default();
        assert_eq!(failed.pause(rest), rest);
        let mut pauses = Vec::new();
        for _ in 0..5 {
            failed.next_round();
            failed.note(&waiting, &no_master);
            pauses.push(failed.pause(rest).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 8]);
        assert_eq!(failed.pause(Duration::from_secs(3)).as_secs(), 3);
        failed.note(&other, &ClientError::Closed { what: "a test" });
        assert_eq!(failed.pause(rest).as_secs(), 1);
        assert_eq!(failed.topics().len(), 2);
        failed.forget(&other);
        failed.forget(&waiting);
        failed.next_round();
        assert_eq!(failed.pause(rest), rest);
    }
}
