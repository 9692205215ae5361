//! Which user made which topic, in `config/topicMakers.json`, which Apache does not have:
//!
//! ```text
//! {"makerTable": {"orders": "bob"}}
//! ```
//! Topics have a maker only while users are checked, and retry topics have none. Invariant: a maker is in the file,
//! synced, before its topic is made; so a crash lets nobody make more topics than `maxTopicsPerUser` allows.

use crate::error::{BrokerError, Refusal};
use crate::tables::config_file::ConfigFile;
use crate::tables::topics::Topics;
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
    // Guards the makers. Nobody waits for the disk with it.
    made: Mutex<Made>,
    // Serializes changes; held while topics are made, so that two requests cannot both take the last permit.
    changes: Mutex<()>,
    file: ConfigFile,
}

#[derive(Debug)]
struct Made {
    table: Table,
    counts: HashMap<String, usize>,
    /// [`Topics::removals`] when the makers of removed topics were last left out; `None`: never.
    removals: Option<u64>,
}

impl Made {
    /// Leaves out the makers of topics that do not exist any more.
    fn leave_out_removed(&mut self, topics: &Topics) {
        let removals = Some(topics.removals());
        if std::mem::replace(&mut self.removals, removals) == removals {
            return;
        }
        self.table
            .maker_table
            .retain(|topic, _| topics.get(topic).is_some());
        self.counts.clear();
        for user in self.table.maker_table.values() {
            *self.counts.entry(user.clone()).or_default() += 1;
        }
    }

    fn count(&self, user: &str) -> usize {
        self.counts.get(user).copied().unwrap_or(0)
    }

    fn note(&mut self, makers: Vec<(String, String)>, topics: &Topics) {
        for (topic, user) in makers {
            if topics.get(&topic).is_none() {
                // It was removed just now.
                self.removals = None;
            }
            *self.counts.entry(user.clone()).or_default() += 1;
            if let Some(before) = self.table.maker_table.insert(topic, user)
                && let Some(count) = self.counts.get_mut(&before)
            {
                *count = count.saturating_sub(1);
            }
        }
    }
}

impl TopicMakers {
    pub(crate) fn load(file: ConfigFile) -> Result<Self, BrokerError> {
        let made = Made {
            table: file.read("makerTable")?.unwrap_or_default(),
            counts: HashMap::new(),
            removals: None,
        };
        Ok(Self {
            made: Mutex::new(made),
            changes: Mutex::new(()),
            file,
        })
    }

    /// Refuses a user who would have made more than `limit` topics, 0 for no limit, with `more` new ones. A topic that
    /// was deleted no longer counts. Those that are just being made do not count yet: [`Self::make`] looks again.
    pub(crate) fn check(
        &self,
        (user, limit): (&str, i32),
        more: usize,
        topics: &Topics,
    ) -> Result<(), Refusal> {
        let mut made = lock(&self.made);
        made.leave_out_removed(topics);
        let count = made.count(user);
        if more > 0 && is_beyond(limit, count + more) {
            return Err(Refusal::new(
                response::NO_PERMISSION,
                format!(
                    "user {user} has made {count} topics and may make {limit} (maxTopicsPerUser): delete some, or ask \
                     an administrator to make this one"
                ),
            ));
        }
        Ok(())
    }

    /// Calls `make`, which makes those of these topics that do not exist yet, if `user` has then made at most `limit`
    /// topics; 0 is no limit.
    pub(crate) fn make<T>(
        &self,
        maker: (&str, i32),
        names: &[&str],
        topics: &Topics,
        make: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let fresh = || -> Vec<&str> {
            let names = names.iter().copied();
            names.filter(|name| topics.get(name).is_none()).collect()
        };
        // A refusal does not wait until others have made theirs.
        self.check(maker, fresh().len(), topics)?;
        let _changing = lock(&self.changes);
        let fresh = fresh();
        if fresh.is_empty() {
            return make();
        }
        self.check(maker, fresh.len(), topics)?;
        let makers = fresh
            .into_iter()
            .map(|topic| (topic.to_owned(), maker.0.to_owned()));
        self.make_noted(makers.collect(), topics, make)
    }

    /// Calls `make` with those of these topics that do not exist yet and that their makers may make. All makers are
    /// noted with one write.
    pub(crate) fn make_all(
        &self,
        wanted: Vec<NewTopic>,
        topics: &Topics,
        make: impl FnOnce(Vec<TopicConfig>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        if wanted.iter().all(|topic| topic.maker.is_none()) {
            return make(wanted.into_iter().map(|topic| topic.config).collect());
        }
        let _changing = lock(&self.changes);
        let (mut configs, mut makers) = (Vec::new(), Vec::new());
        let mut more: HashMap<String, usize> = HashMap::new();
        for NewTopic { config, maker } in wanted {
            // Another request may have made it since the caller looked.
            if topics.get(&config.topic_name).is_some() {
                continue;
            }
            if let Some((user, limit)) = maker {
                let more = more.entry(user.clone()).or_default();
                if self.check((&user, limit), *more + 1, topics).is_err() {
                    continue;
                }
                *more += 1;
                makers.push((config.topic_name.clone(), user));
            }
            configs.push(config);
        }
        self.make_noted(makers, topics, || make(configs))
    }

    /// Writes these makers, then makes their topics. A topic that could not be made has no maker.
    fn make_noted<T>(
        &self,
        makers: Vec<(String, String)>,
        topics: &Topics,
        make: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        if !makers.is_empty() {
            let mut next = lock(&self.made).table.clone();
            next.maker_table.extend(makers.iter().cloned());
            self.file.write(&next)?;
        }
        let made = make()?;
        lock(&self.made).note(makers, topics);
        Ok(made)
    }
}

/// Whether a number of topics is beyond a limit; 0 is none.
fn is_beyond(limit: i32, count: usize) -> bool {
    usize::try_from(limit).is_ok_and(|limit| limit > 0 && count > limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use pyrmq_store::{Fs, RealFs};
    use pyrmq_testkit::TempDir;
    use std::sync::Arc;

    fn new_topic(name: &str, user: &str) -> NewTopic {
        NewTopic {
            config: TopicConfig::new(name, 1, 6),
            maker: Some((user.to_owned(), 1)),
        }
    }

    #[test]
    fn a_topic_that_another_request_has_made_meanwhile_keeps_its_maker() {
        let dir = TempDir::new().unwrap();
        let fs: Arc<dyn Fs> = Arc::new(RealFs);
        let file = |name: &str| ConfigFile::new(fs.clone(), dir.path().join(name));
        let topics = Topics::load(&Options::default(), file("topics.json")).unwrap();
        let makers = TopicMakers::load(file("topicMakers.json")).unwrap();
        let config = TopicConfig::new("T", 1, 6);
        makers
            .make(("ann", 1), &["T"], &topics, || topics.put(config))
            .unwrap();
        let all = vec![new_topic("T", "bob"), new_topic("his", "bob")];
        let add = |configs: Vec<TopicConfig>| {
            assert_eq!(configs.len(), 1);
            topics.add_all(configs).map(drop)
        };
        makers.make_all(all, &topics, add).unwrap();
        let read: Table = file("topicMakers.json").read("makerTable").unwrap().unwrap();
        let read: Vec<_> = read.maker_table.iter().collect();
        let [t, his] = &read[..] else {
            panic!("{read:?}");
        };
        assert_eq!((t.0.as_str(), t.1.as_str()), ("T", "ann"));
        assert_eq!((his.0.as_str(), his.1.as_str()), ("his", "bob"));
        for user in ["ann", "bob"] {
            assert!(makers.check((user, 1), 1, &topics).is_err(), "{user}");
            assert!(makers.check((user, 2), 1, &topics).is_ok(), "{user}");
        }
        topics.remove("T").unwrap();
        assert!(makers.check(("ann", 1), 1, &topics).is_ok());
        assert!(makers.check(("bob", 1), 1, &topics).is_err());
    }
}
