//! What name servers must learn: the topics, what has changed since they last heard, and how to wait until they know.

use crate::tables::topics::Topic;
use pyrmq_remoting::body::{DataVersion, TopicConfig, TopicConfigAndMappingSerializeWrapper};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// What has changed, and which name servers know it.
#[derive(Debug)]
pub struct Announcements {
    /// The number of the last change.
    pub(super) changes: watch::Sender<u64>,
    /// For each name server the last change that it knows; `None` while it cannot be reached.
    pub(super) acknowledged: watch::Sender<Vec<Option<u64>>>,
    /// How many name servers have answered the first registration or could not be reached for it.
    pub(super) attempted: watch::Sender<usize>,
    /// Changes when a connection to a name server was lost.
    pub(super) lost: watch::Sender<u64>,
}

impl Announcements {
    /// State for `name_servers` name servers, none of which knows this broker yet.
    pub fn new(name_servers: usize) -> Self {
        Self {
            changes: watch::Sender::new(1),
            acknowledged: watch::Sender::new(vec![None; name_servers]),
            attempted: watch::Sender::new(0),
            lost: watch::Sender::new(0),
        }
    }

    /// Records that topics changed, which makes every registration task announce them at once.
    pub fn changed(&self) {
        self.changes.send_modify(|change| *change += 1);
    }

    /// How many name servers know this broker, and how many there are.
    pub fn known_by(&self) -> (usize, usize) {
        let acknowledged = self.acknowledged.borrow();
        (acknowledged.iter().flatten().count(), acknowledged.len())
    }

    /// Waits until every reachable name server knows all changes so far, for at most `limit`.
    pub async fn settle(&self, limit: Duration) {
        let change = *self.changes.borrow();
        let mut acknowledged = self.acknowledged.subscribe();
        let known =
            acknowledged.wait_for(|acknowledged| acknowledged.iter().flatten().all(|known| *known >= change));
        drop(timeout(limit, known).await);
    }

    /// Waits until the first registration has succeeded or failed at every name server, for at most `limit`.
    pub async fn first_round(&self, limit: Duration) {
        let all = self.acknowledged.borrow().len();
        let mut attempted = self.attempted.subscribe();
        drop(timeout(limit, attempted.wait_for(|attempted| *attempted >= all)).await);
    }

    pub(super) fn acknowledge(&self, at: usize, known: Option<u64>) {
        self.acknowledged
            .send_if_modified(|acknowledged| match acknowledged.get_mut(at) {
                Some(entry) if *entry != known => {
                    *entry = known;
                    true
                }
                _ => false,
            });
    }
}

/// The topics with their version, as request 103 and the response to 21 carry them. `perm_mask` limits each topic's
/// permissions.
pub(crate) fn announced(
    topics: &[Arc<Topic>],
    data_version: DataVersion,
    perm_mask: i32,
) -> TopicConfigAndMappingSerializeWrapper {
    let masked = |topic: &Arc<Topic>| {
        let perm = topic.perm & perm_mask;
        let config = TopicConfig {
            perm,
            ..TopicConfig::clone(topic)
        };
        (topic.topic_name.clone(), config)
    };
    TopicConfigAndMappingSerializeWrapper {
        data_version,
        topic_config_table: topics.iter().map(masked).collect(),
        ..TopicConfigAndMappingSerializeWrapper::default()
    }
}
