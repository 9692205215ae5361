//! Which user created which topic, in `config/topicMakers.json`, which Apache does not have:
//!
//! ```text
//! {"makerTable": {"orders": "bob"}}
//! ```
//! Topics have a creator only while users are checked, and retry topics have none. Invariant: a creator is in the file,
//! synced, before its topic is created; so a crash lets nobody create more topics than `maxTopicsPerUser` allows.

use crate::error::{BrokerError, Refusal};
use crate::tables::config_file::ConfigFile;
use crate::tables::topics::Topics;
use pyrmq_remoting::body::{TopicConfig, TopicMakers as Table};
use pyrmq_remoting::codes::response;
use pyrmq_remoting::sync::lock;
use std::collections::HashMap;
use std::sync::Mutex;

/// A topic that a request creates by using it.
#[derive(Debug, Clone)]
pub(crate) struct NewTopic {
    pub(crate) config: TopicConfig,
    /// Its creator, and how many topics that user may create, 0 for any number. `None`: nobody counts as its creator.
    pub(crate) creator: Option<(String, i32)>,
}

/// The creators of topics.
#[derive(Debug)]
pub(crate) struct TopicCreators {
    // Guards the creators. It is not held while waiting for the disk.
    created: Mutex<Created>,
    // Serializes changes; held while topics are created, so that two requests cannot both take the last permit.
    changes: Mutex<()>,
    file: ConfigFile,
}

#[derive(Debug)]
struct Created {
    table: Table,
    counts: HashMap<String, usize>,
    /// [`Topics::removals`] when the creators of removed topics were last left out; `None`: never.
    removals: Option<u64>,
}

impl Created {
    /// Leaves out the creators of topics that do not exist any more.
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

    fn record(&mut self, creators: Vec<(String, String)>, topics: &Topics) {
        for (topic, user) in creators {
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

impl TopicCreators {
    pub(crate) fn load(file: ConfigFile) -> Result<Self, BrokerError> {
        let created = Created {
            table: file.read("makerTable")?.unwrap_or_default(),
            counts: HashMap::new(),
            removals: None,
        };
        Ok(Self {
            created: Mutex::new(created),
            changes: Mutex::new(()),
            file,
        })
    }

    /// Refuses a user who would have created more than `limit` topics, 0 for no limit, with `more` new ones. A topic
    /// that was deleted no longer counts. Those that are just being created do not count yet: [`Self::create`] checks
    /// again.
    pub(crate) fn check(
        &self,
        (user, limit): (&str, i32),
        more: usize,
        topics: &Topics,
    ) -> Result<(), Refusal> {
        let mut created = lock(&self.created);
        created.leave_out_removed(topics);
        let count = created.count(user);
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

    /// Calls `create`, which creates those of these topics that do not exist yet, if `user` has then created at most
    /// `limit` topics; 0 is no limit.
    pub(crate) fn create<T>(
        &self,
        creator: (&str, i32),
        names: &[&str],
        topics: &Topics,
        create: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let fresh = || -> Vec<&str> {
            let names = names.iter().copied();
            names.filter(|name| topics.get(name).is_none()).collect()
        };
        // A refusal does not wait until others have created theirs.
        self.check(creator, fresh().len(), topics)?;
        let _changing = lock(&self.changes);
        let fresh = fresh();
        if fresh.is_empty() {
            return create();
        }
        self.check(creator, fresh.len(), topics)?;
        let creators = fresh
            .into_iter()
            .map(|topic| (topic.to_owned(), creator.0.to_owned()));
        self.create_recorded(creators.collect(), topics, create)
    }

    /// Calls `create` with those of these topics that do not exist yet and that their creators may create. All creators
    /// are noted with one write.
    pub(crate) fn create_all(
        &self,
        wanted: Vec<NewTopic>,
        topics: &Topics,
        create: impl FnOnce(Vec<TopicConfig>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        if wanted.iter().all(|topic| topic.creator.is_none()) {
            return create(wanted.into_iter().map(|topic| topic.config).collect());
        }
        let _changing = lock(&self.changes);
        let (mut configs, mut creators) = (Vec::new(), Vec::new());
        let mut more: HashMap<String, usize> = HashMap::new();
        for NewTopic { config, creator } in wanted {
            // Another request may have created it since the caller looked.
            if topics.get(&config.topic_name).is_some() {
                continue;
            }
            if let Some((user, limit)) = creator {
                let more = more.entry(user.clone()).or_default();
                if self.check((&user, limit), *more + 1, topics).is_err() {
                    continue;
                }
                *more += 1;
                creators.push((config.topic_name.clone(), user));
            }
            configs.push(config);
        }
        self.create_recorded(creators, topics, || create(configs))
    }

    /// Writes these creators, then creates their topics. A topic that could not be created has no creator.
    fn create_recorded<T>(
        &self,
        creators: Vec<(String, String)>,
        topics: &Topics,
        create: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        if !creators.is_empty() {
            let mut next = lock(&self.created).table.clone();
            next.maker_table.extend(creators.iter().cloned());
            self.file.write(&next)?;
        }
        let created = create()?;
        lock(&self.created).record(creators, topics);
        Ok(created)
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
            creator: Some((user.to_owned(), 1)),
        }
    }

    #[test]
    fn a_topic_that_another_request_has_made_meanwhile_keeps_its_maker() {
        let dir = TempDir::new().unwrap();
        let fs: Arc<dyn Fs> = Arc::new(RealFs);
        let file = |name: &str| ConfigFile::new(fs.clone(), dir.path().join(name));
        let topics = Topics::load(&Options::default(), file("topics.json")).unwrap();
        let creators = TopicCreators::load(file("topicMakers.json")).unwrap();
        let config = TopicConfig::new("T", 1, 6);
        creators
            .create(("ann", 1), &["T"], &topics, || topics.put(config))
            .unwrap();
        let all = vec![new_topic("T", "bob"), new_topic("his", "bob")];
        let add = |configs: Vec<TopicConfig>| {
            assert_eq!(configs.len(), 1);
            topics.add_all(configs).map(drop)
        };
        creators.create_all(all, &topics, add).unwrap();
        let read: Table = file("topicMakers.json").read("makerTable").unwrap().unwrap();
        let read: Vec<_> = read.maker_table.iter().collect();
        let [t, his] = &read[..] else {
            panic!("{read:?}");
        };
        assert_eq!((t.0.as_str(), t.1.as_str()), ("T", "ann"));
        assert_eq!((his.0.as_str(), his.1.as_str()), ("his", "bob"));
        for user in ["ann", "bob"] {
            assert!(creators.check((user, 1), 1, &topics).is_err(), "{user}");
            assert!(creators.check((user, 2), 1, &topics).is_ok(), "{user}");
        }
        topics.remove("T").unwrap();
        assert!(creators.check(("ann", 1), 1, &topics).is_ok());
        assert!(creators.check(("bob", 1), 1, &topics).is_err());
    }
}
