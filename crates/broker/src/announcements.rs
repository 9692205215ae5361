//! What name servers are to know: the topics, what has changed since they last heard, and how to wait until they have.

use crate::tables::topics::Topic;
use pyrmq_remoting::body::{DataVersion, TopicConfig, TopicConfigAndMappingSerializeWrapper};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// What has changed, and which name server knows.
#[derive(Debug)]
pub struct Announcements {
    /// Number of the last change.
    pub(super) changes: watch::Sender<u64>,
    /// By name server: the last change that it knows; `None` while it is away.
    pub(super) acknowledged: watch::Sender<Vec<Option<u64>>>,
    /// How many name servers have answered the first registration, or could not be reached for it.
    pub(super) attempted: watch::Sender<usize>,
    /// Woken when a connection to a name server was lost.
    pub(super) lost: watch::Sender<u64>,
}

impl Announcements {
    /// For this many name servers, none of which knows us yet.
    pub fn new(name_servers: usize) -> Self {
        Self {
            changes: watch::Sender::new(1),
            acknowledged: watch::Sender::new(vec![None; name_servers]),
            attempted: watch::Sender::new(0),
            lost: watch::Sender::new(0),
        }
    }

    /// Topics changed: every name server is told at once.
    pub fn changed(&self) {
        self.changes.send_modify(|change| *change += 1);
    }

    /// Name servers that know us now, of all.
    pub fn known_by(&self) -> (usize, usize) {
        let acknowledged = self.acknowledged.borrow();
        (acknowledged.iter().flatten().count(), acknowledged.len())
    }

    /// Waits until every name server that answers knows of all changes so far, at most `limit`.
    pub async fn settle(&self, limit: Duration) {
        let change = *self.changes.borrow();
        let mut acknowledged = self.acknowledged.subscribe();
        let known =
            acknowledged.wait_for(|acknowledged| acknowledged.iter().flatten().all(|known| *known >= change));
        drop(timeout(limit, known).await);
    }

    /// Waits until the first registration has ended at every name server, well or not, at most `limit`.
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

/// Topics with their version, as 103 and the answer to 21 have them. `perm_mask` limits what each topic permits.
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
