//! The topics (Apache `TopicConfigManager`, `config/topics.json`).
//!
//! Invariant: a change is in the file, and synced, before it is in the table and any request is answered with it.

use crate::error::{BrokerError, Refusal};
use crate::options::Options;
use crate::stats::traffic::TopicTraffic;
use crate::tables::config_file::ConfigFile;
use pyrmq_remoting::body::{DataVersion, TopicConfig, TopicConfigSerializeWrapper, UnknownMembers};
use pyrmq_remoting::clock;
use pyrmq_remoting::hash::NameMap;
use pyrmq_remoting::names::{self, PERM_INHERIT, PERM_READ, PERM_WRITE, SCHEDULE_TOPIC, TEMPLATE_TOPIC};
use pyrmq_remoting::sync::{lock, read, write};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

type Table = NameMap<String, Arc<Topic>>;

/// A topic of this broker: its row in the file, and its counters, which survive changes of the row.
#[derive(Debug, Clone, Default)]
pub struct Topic {
    config: TopicConfig,
    /// The topic's traffic counters.
    pub traffic: Arc<TopicTraffic>,
}

impl Topic {
    fn new(config: TopicConfig) -> Self {
        Self {
            config,
            traffic: Arc::default(),
        }
    }

    /// Whether both are the same topic, perhaps changed, rather than a deleted topic and a new one with its name.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.traffic, &other.traffic)
    }
}

impl Deref for Topic {
    type Target = TopicConfig;

    fn deref(&self) -> &TopicConfig {
        &self.config
    }
}

/// Every topic of this broker.
#[derive(Debug)]
pub struct Topics {
    // Guards the table; sends and pulls read it.
    table: RwLock<Table>,
    // Guards the version; held while the table is replaced, so that readers get a table with its version.
    version: Mutex<DataVersion>,
    // Serializes changes. Only they wait for the disk: no reader takes it.
    changes: Mutex<()>,
    /// How many topics were removed.
    removals: AtomicU64,
    system: BTreeSet<String>,
    /// Members of the file that this version does not know.
    unknown_members: UnknownMembers,
    file: ConfigFile,
}

impl Topics {
    /// Reads the file and adds the system topics.
    pub fn load(options: &Options, file: ConfigFile) -> Result<Self, BrokerError> {
        let read: TopicConfigSerializeWrapper = file.read("topicConfigTable")?.unwrap_or_default();
        let mut table: Table = read.topic_config_table.into_iter().map(named).collect();
        let as_read = rows(&table);
        let mut system = BTreeSet::new();
        for topic in system_topics(options) {
            system.insert(topic.topic_name.clone());
            // As in Apache, the file overrides what the settings would create.
            table
                .entry(topic.topic_name.clone())
                .or_insert_with(|| Arc::new(Topic::new(topic)));
        }
        if !options.auto_create_topic_enable {
            set_inherit(&mut table, false);
        }
        // Name servers that remember the table of an earlier run compare only versions.
        let version = if rows(&table) == as_read {
            read.data_version
        } else {
            next(&read.data_version)
        };
        Ok(Self {
            table: RwLock::new(table),
            version: Mutex::new(version),
            changes: Mutex::new(()),
            removals: AtomicU64::new(0),
            system,
            unknown_members: read.unknown_members,
            file,
        })
    }

    /// One topic.
    pub fn get(&self, name: &str) -> Option<Arc<Topic>> {
        read(&self.table).get(name).cloned()
    }

    /// Counts a message that a system topic has until its time comes or its transaction ends.
    pub(crate) fn count_waiting(&self, topic: &str, bytes: u64) {
        if let Some(topic) = self.get(topic) {
            topic.traffic.count_put(1, bytes);
        }
    }

    /// The number of topics.
    pub fn count(&self) -> usize {
        read(&self.table).len()
    }

    /// Creates the missing ones of these topics, all with one write. False: none was missing.
    pub fn add_all(&self, topics: Vec<TopicConfig>) -> Result<bool, Refusal> {
        self.change(|table| {
            let before = table.len();
            for topic in topics {
                table
                    .entry(topic.topic_name.clone())
                    .or_insert_with(|| Arc::new(Topic::new(topic)));
            }
            table.len() > before
        })
    }

    /// All topics, sorted by name, and the version of the table.
    pub fn all(&self) -> (Vec<Arc<Topic>>, DataVersion) {
        let version = lock(&self.version);
        let table = read(&self.table);
        let mut topics: Vec<_> = table.values().cloned().collect();
        topics.sort_unstable_by(|a, b| a.topic_name.cmp(&b.topic_name));
        (topics, *version)
    }

    /// Whether only the broker creates topics of this name.
    pub fn is_system(&self, name: &str) -> bool {
        self.system.contains(name) || name.starts_with(names::SYSTEM_PREFIX)
    }

    /// The system topics, sorted.
    pub fn system(&self) -> impl Iterator<Item = &str> {
        self.system.iter().map(String::as_str)
    }

    /// Creates or replaces a topic. False: it was the same already.
    pub fn put(&self, topic: TopicConfig) -> Result<bool, Refusal> {
        self.put_all(vec![topic])
    }

    /// Creates or replaces topics, all with one write. False: all were the same already.
    pub fn put_all(&self, topics: Vec<TopicConfig>) -> Result<bool, Refusal> {
        self.change(|table| {
            let mut changed = false;
            for mut topic in topics {
                let known = table.get(&topic.topic_name);
                if let Some(known) = known {
                    topic.unknown_members.keep(&known.unknown_members);
                }
                if known.is_none_or(|known| known.config != topic) {
                    let traffic = known.map(|known| known.traffic.clone()).unwrap_or_default();
                    let name = topic.topic_name.clone();
                    table.insert(
                        name,
                        Arc::new(Topic {
                            config: topic,
                            traffic,
                        }),
                    );
                    changed = true;
                }
            }
            changed
        })
    }

    /// Finds a topic, or creates it with `make`. The flag says whether it was created.
    pub fn get_or_put(
        &self,
        name: &str,
        make: impl FnOnce() -> TopicConfig,
    ) -> Result<(Arc<Topic>, bool), Refusal> {
        if let Some(known) = self.get(name) {
            return Ok((known, false));
        }
        let made = self.change(|table| {
            let missing = !table.contains_key(name);
            if missing {
                table.insert(name.to_owned(), Arc::new(Topic::new(make())));
            }
            missing
        })?;
        let topic = self.get(name).ok_or_else(|| Refusal::no_topic(name))?;
        Ok((topic, made))
    }

    /// The topic that a send to an unknown topic makes from a template (Apache `createTopicInSendMessageMethod`).
    /// `None`: the template does not exist or may not be used.
    pub fn from_template(
        &self,
        name: &str,
        template: &str,
        queues: i32,
        topic_sys_flag: i32,
    ) -> Option<TopicConfig> {
        let template = self
            .get(template)
            .filter(|template| template.perm & PERM_INHERIT != 0)?;
        Some(TopicConfig {
            topic_filter_type: template.topic_filter_type.clone(),
            topic_sys_flag,
            ..TopicConfig::new(
                name,
                queues.min(template.write_queue_nums).max(0),
                template.perm & !PERM_INHERIT,
            )
        })
    }

    /// Applies changed options to the table, with one write: whether sends may create topics from the template topic,
    /// and a topic that must exist. With `anew` the table gets a new version even if nothing changed.
    pub fn reconfigure(
        &self,
        open: bool,
        queues: i32,
        wanted: Option<TopicConfig>,
        anew: bool,
    ) -> Result<(), Refusal> {
        self.change(|table| {
            let mut changed = anew;
            if open && !table.contains_key(TEMPLATE_TOPIC) {
                let template = TopicConfig::new(TEMPLATE_TOPIC, queues, PERM_READ | PERM_WRITE);
                table.insert(template.topic_name.clone(), Arc::new(Topic::new(template)));
                changed = true;
            }
            changed |= set_inherit(table, open);
            if let Some(topic) = wanted.filter(|topic| !table.contains_key(&topic.topic_name)) {
                table.insert(topic.topic_name.clone(), Arc::new(Topic::new(topic)));
                changed = true;
            }
            changed
        })
        .map(drop)
    }

    /// Removes a topic. False: it did not exist.
    pub fn remove(&self, name: &str) -> Result<bool, Refusal> {
        let removed = self.change(|table| table.remove(name).is_some())?;
        // A reader that sees the new number does not see the topic.
        self.removals.fetch_add(u64::from(removed), Ordering::Release);
        Ok(removed)
    }

    /// How many topics were removed since the start.
    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }

    /// Changes a copy, writes and syncs it, then puts it in place.
    fn change(&self, edit: impl FnOnce(&mut Table) -> bool) -> Result<bool, Refusal> {
        let _changing = lock(&self.changes);
        let mut table = read(&self.table).clone();
        if !edit(&mut table) {
            return Ok(false);
        }
        let next = next(&lock(&self.version));
        self.file.write(&TopicConfigSerializeWrapper {
            data_version: next,
            topic_config_table: rows(&table),
            unknown_members: self.unknown_members.clone(),
        })?;
        let mut version = lock(&self.version);
        *version = next;
        *write(&self.table) = table;
        Ok(true)
    }
}

/// A topic from the file. It takes the name of its row if it has none.
fn named((name, mut topic): (String, TopicConfig)) -> (String, Arc<Topic>) {
    if topic.topic_name.is_empty() {
        topic.topic_name.clone_from(&name);
    }
    (name, Arc::new(Topic::new(topic)))
}

/// The rows of the file.
fn rows(table: &Table) -> BTreeMap<String, TopicConfig> {
    let copied = |(name, topic): (&String, &Arc<Topic>)| (name.clone(), topic.config.clone());
    table.iter().map(copied).collect()
}

/// The version after one more change now.
fn next(version: &DataVersion) -> DataVersion {
    version.next(clock::now_ms(), version.state_version)
}

/// Sets the inherit bit of the template, with which clients may create topics from it. False: it was the same already.
fn set_inherit(table: &mut Table, open: bool) -> bool {
    let Some(template) = table.get_mut(TEMPLATE_TOPIC) else {
        return false;
    };
    let perm = if open {
        template.perm | PERM_INHERIT
    } else {
        template.perm & !PERM_INHERIT
    };
    let changed = template.perm != perm;
    if changed {
        Arc::make_mut(template).config.perm = perm;
    }
    changed
}

/// The topics of Apache's `TopicConfigManager.init`.
fn system_topics(options: &Options) -> Vec<TopicConfig> {
    const BOTH: i32 = PERM_READ | PERM_WRITE;
    let opened = |open: bool| if open { PERM_INHERIT | BOTH } else { PERM_INHERIT };
    let cluster = &options.broker_cluster_name;
    let broker = &options.broker_name;
    let mut topics = vec![
        TopicConfig::new(names::SELF_TEST_TOPIC, 1, BOTH),
        TopicConfig::new(names::BENCHMARK_TOPIC, 1024, BOTH),
        TopicConfig::new(cluster, 16, opened(options.cluster_topic_enable)),
        TopicConfig::new(broker, 1, opened(options.broker_topic_enable)),
        TopicConfig::new(names::OFFSET_MOVED_TOPIC, 1, BOTH),
        TopicConfig::new(SCHEDULE_TOPIC, 18, BOTH),
        TopicConfig::new(format!("{cluster}_REPLY_TOPIC"), 1, BOTH),
        TopicConfig::new(format!("{}{cluster}", names::REVIVE_TOPIC), 8, BOTH),
        TopicConfig::new(
            format!("{}{broker}", names::SYNC_BROKER_MEMBER_PREFIX),
            1,
            PERM_INHERIT,
        ),
        TopicConfig::new(names::HALF_TOPIC, 1, BOTH),
        TopicConfig::new(names::OP_HALF_TOPIC, 1, BOTH),
        TopicConfig::new(names::TIMER_TOPIC, 1, BOTH),
    ];
    if options.auto_create_topic_enable {
        topics.push(TopicConfig::new(
            TEMPLATE_TOPIC,
            options.default_topic_queue_nums,
            PERM_INHERIT | BOTH,
        ));
    }
    if options.trace_topic_enable {
        topics.push(TopicConfig::new(&options.msg_trace_topic_name, 1, BOTH));
    }
    topics
}
