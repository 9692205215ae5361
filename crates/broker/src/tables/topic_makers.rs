//! Which user made which topic, in `config/topicMakers.json`, which Apache does not have:
//!
//! ```text
//! {"makerTable": {"orders": "bob"}}
//! ```
//! Topics have a maker only while users are checked, and retry topics have none. Invariant: a maker is in the file,
//! synced, before its topic is made; so a crash lets nobody make more topics than `maxTopicsPerUser` allows.

use crate::error::{BrokerError, Refusal};
use crate::tables::config_file::ConfigFile;
use pyrmq_remoting::body::TopicMakers as Table;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::sync::lock;
use std::sync::Mutex;

/// The makers of topics.
#[derive(Debug)]
pub(crate) struct TopicMakers {
    // Guards the table; held while a topic is made, so that two requests cannot both take the last permit.
    table: Mutex<Table>,
    file: ConfigFile,
}

impl TopicMakers {
    pub(crate) fn load(file: ConfigFile) -> Result<Self, BrokerError> {
        Ok(Self {
            table: Mutex::new(file.read("makerTable")?.unwrap_or_default()),
            file,
        })
    }

    /// Calls `make`, which makes those of these topics that do not exist yet, if `user` has then made at most `limit`
    /// topics; 0 is no limit. A topic that was deleted no longer counts.
    pub(crate) fn make<T>(
        &self,
        (user, limit): (&str, i32),
        topics: &[&str],
        exists: impl Fn(&str) -> bool,
        make: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let mut table = lock(&self.table);
        let fresh: Vec<&str> = topics.iter().copied().filter(|topic| !exists(topic)).collect();
        if fresh.is_empty() {
            return make();
        }
        let mut next = table.clone();
        next.maker_table.retain(|topic, _| exists(topic));
        let made = next.maker_table.values().filter(|maker| *maker == user).count();
        if usize::try_from(limit).is_ok_and(|limit| limit > 0 && made + fresh.len() > limit) {
            return Err(Refusal::new(
                response::NO_PERMISSION,
                format!(
                    "user {user} has made {made} topics and may make {limit} (maxTopicsPerUser): delete some, or ask \
                     an administrator to make this one"
                ),
            ));
        }
        let makers = fresh.iter().map(|topic| ((*topic).to_owned(), user.to_owned()));
        next.maker_table.extend(makers);
        self.file.write(&next)?;
        *table = next;
        make()
    }
}
