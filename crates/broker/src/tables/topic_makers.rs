//! Which user made which topic, in `config/topicMakers.json`, which Apache does not have:
//!
//! ```text
//! {"makerTable": {"orders": "bob"}}
//! ```
//! Topics have a maker only while users are checked, and retry topics have none. Invariant: a maker is in the file,
//! synced, before its topic is made; so a crash lets nobody make more topics than `maxTopicsPerUser` allows.

use crate::error::{BrokerError, Refusal};
use crate::tables::config_file::ConfigFile;
use pyrmq_remoting::body::{TopicConfig, TopicMakers as Table};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::sync::lock;
use std::collections::HashMap;
use std::sync::Mutex;

/// A topic that a request makes by using it.
#[derive(Debug, Clone)]
pub(crate) struct NewTopic {
    pub(crate) config: TopicConfig,
    /// Its maker, and how many topics that user may make, 0 for any number. `None`: nobody counts as its maker.
    pub(crate) maker: Option<(String, i32)>,
}

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

    /// Calls `make` with those of these topics, none of which exists, that their makers may make. All makers are noted
    /// with one write.
    pub(crate) fn make_all(
        &self,
        topics: Vec<NewTopic>,
        exists: impl Fn(&str) -> bool,
        make: impl FnOnce(Vec<TopicConfig>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        if topics.iter().all(|topic| topic.maker.is_none()) {
            return make(topics.into_iter().map(|topic| topic.config).collect());
        }
        let mut table = lock(&self.table);
        let mut next = table.clone();
        next.maker_table.retain(|topic, _| exists(topic));
        let mut counts: HashMap<String, usize> = HashMap::new();
        for user in next.maker_table.values() {
            *counts.entry(user.clone()).or_default() += 1;
        }
        let (mut configs, mut is_noted) = (Vec::new(), false);
        for NewTopic { config, maker } in topics {
            if let Some((user, limit)) = maker {
                let made = counts.entry(user.clone()).or_default();
                if usize::try_from(limit).is_ok_and(|limit| limit > 0 && *made >= limit) {
                    continue;
                }
                *made += 1;
                next.maker_table.insert(config.topic_name.clone(), user);
                is_noted = true;
            }
            configs.push(config);
        }
        if is_noted {
            self.file.write(&next)?;
            *table = next;
        }
        make(configs)
    }
}
