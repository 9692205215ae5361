//! The consumer groups (Apache `SubscriptionGroupManager`, `config/subscriptionGroup.json`).
//!
//! Invariant as with topics: in the file, synced, before anybody is answered.

use crate::admission::{self, PRESET_GROUPS};
use crate::error::{BrokerError, Refusal};
use crate::json::{self, Read};
use crate::tables::config_file::{self, ConfigFile};
use crate::tables::unknown_fields::UnknownFields;
use crate::tables::version::DataVersion;
use pyrmq_remoting::body::Json;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// One consumer group (Apache `SubscriptionGroupConfig`).
#[expect(clippy::struct_excessive_bools, reason = "they are Apache's")]
#[derive(Debug, Clone, PartialEq)]
pub struct GroupConfig {
    /// Its name.
    pub name: String,
    /// May pull at all.
    pub consume_enable: bool,
    /// May start from the smallest offset.
    pub consume_from_min_enable: bool,
    /// May read by broadcasting.
    pub consume_broadcast_enable: bool,
    /// Orderly, by its operators' word.
    pub consume_message_orderly: bool,
    /// Queues of its retry topic.
    pub retry_queue_nums: i32,
    /// Tries before a message goes to the dead-letter topic.
    pub retry_max_times: i32,
    /// Where to read while it keeps up.
    pub broker_id: i64,
    /// Where to read while it falls behind.
    pub which_broker_when_consume_slowly: i64,
    /// Members are told of changes.
    pub notify_consumer_ids_changed_enable: bool,
    /// Told to clients as it is.
    pub group_sys_flag: i32,
    /// How long a message may be consumed.
    pub consume_timeout_minute: i32,
    /// Retry policy, kept as written.
    pub group_retry_policy: Json,
    /// Fixed subscriptions, kept as written.
    pub subscription_data_set: Option<Json>,
    /// Attributes.
    pub attributes: BTreeMap<String, String>,
    /// Settings that this version does not know.
    pub unknown_fields: UnknownFields,
}

impl GroupConfig {
    /// Apache's defaults.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            consume_enable: true,
            consume_from_min_enable: true,
            consume_broadcast_enable: true,
            consume_message_orderly: false,
            retry_queue_nums: 1,
            retry_max_times: 16,
            broker_id: 0,
            which_broker_when_consume_slowly: 1,
            notify_consumer_ids_changed_enable: true,
            group_sys_flag: 0,
            consume_timeout_minute: 15,
            group_retry_policy: config_file::customized_retry(),
            subscription_data_set: None,
            attributes: BTreeMap::new(),
            unknown_fields: UnknownFields::default(),
        }
    }
}

/// Groups by name.
pub type Table = HashMap<String, Arc<GroupConfig>>;

/// Every consumer group of this broker.
#[derive(Debug)]
pub struct Groups {
    // Guards the table. Pulls read it.
    table: RwLock<Table>,
    // Guards version and what the file has besides, and makes changes one after the other.
    unknown: Mutex<UnknownGroupFields>,
    // Guards what groups may not do. Pulls read it while there is any.
    forbidden: RwLock<Forbidden>,
    any_forbidden: AtomicBool,
    file: ConfigFile,
}

/// What a group may not do with a topic, by both names: bit 4 is reading (Apache `forbiddenTable`).
type Forbidden = BTreeMap<String, BTreeMap<String, i64>>;

/// Apache `PermName.INDEX_PERM_READ`.
const FORBIDS_READING: i64 = 1 << 2;

/// What the file has besides the groups.
#[derive(Debug, Clone, Default)]
pub struct UnknownGroupFields {
    /// Version of the whole.
    pub version: DataVersion,
    /// `forbiddenTable`, kept as written.
    pub forbidden: Option<Json>,
    /// What this version does not know.
    pub unknown_fields: UnknownFields,
}

impl Groups {
    /// Reads the file and adds the preset groups.
    pub fn load(file: ConfigFile) -> Result<Self, BrokerError> {
        let (mut table, unknown) = file.read(config_file::groups_from_json)?.unwrap_or_default();
        for name in PRESET_GROUPS {
            table.entry(name.to_owned()).or_insert_with(|| {
                Arc::new(GroupConfig {
                    // Broadcasting is on for every preset group (Apache `SubscriptionGroupManager.init`).
                    ..GroupConfig::new(name)
                })
            });
        }
        let forbidden = forbidden_of(unknown.forbidden.as_ref());
        Ok(Self {
            table: RwLock::new(table),
            any_forbidden: AtomicBool::new(!forbidden.is_empty()),
            forbidden: RwLock::new(forbidden),
            unknown: Mutex::new(unknown),
            file,
        })
    }

    /// One group.
    pub fn get(&self, name: &str) -> Option<Arc<GroupConfig>> {
        self.table
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned()
    }

    /// One group, made with the defaults when it is missing.
    pub fn get_or_make(&self, name: &str) -> Result<Arc<GroupConfig>, Refusal> {
        if let Some(known) = self.get(name) {
            return Ok(known);
        }
        self.make_all(&[name])?;
        self.get(name).ok_or_else(|| Refusal::no_group(name))
    }

    /// Makes those that are missing with the defaults, all with one write.
    pub fn make_all(&self, names: &[&str]) -> Result<(), Refusal> {
        names.iter().try_for_each(|name| admission::group_name(name))?;
        self.change(|table| {
            let before = table.len();
            for name in names {
                table
                    .entry((*name).to_owned())
                    .or_insert_with(|| Arc::new(GroupConfig::new(name)));
            }
            table.len() > before
        })
        .map(drop)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.table.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Makes or replaces groups, all with one write.
    pub fn put(&self, groups: Vec<GroupConfig>) -> Result<(), Refusal> {
        for group in &groups {
            admission::group_name(&group.name)?;
        }
        self.change(|table| {
            let mut changed = false;
            for mut group in groups {
                if let Some(known) = table.get(&group.name) {
                    group.unknown_fields.keep(&known.unknown_fields);
                }
                if table.get(&group.name).is_none_or(|known| **known != group) {
                    table.insert(group.name.clone(), Arc::new(group));
                    changed = true;
                }
            }
            changed
        })
        .map(drop)
    }

    /// Forgets a group and what it may not do. Answers false when it was not there.
    pub fn remove(&self, name: &str) -> Result<bool, Refusal> {
        self.change_with(|table, forbidden| {
            let had_rules = forbidden.remove(name).is_some();
            table.remove(name).is_some() || had_rules
        })
    }

    /// Whether a group may not read a topic.
    pub fn is_forbidden(&self, group: &str, topic: &str) -> bool {
        if !self.any_forbidden.load(Ordering::Acquire) {
            return false;
        }
        let forbidden = self.forbidden.read().unwrap_or_else(PoisonError::into_inner);
        let bits = forbidden.get(group).and_then(|topics| topics.get(topic));
        bits.is_some_and(|bits| *bits > 0 && bits & FORBIDS_READING != 0)
    }

    /// Forbids a group to read a topic, or allows it again.
    pub fn forbid(&self, group: &str, topic: &str, forbidden: bool) -> Result<(), Refusal> {
        self.change_with(|_, rules| {
            let topics = rules.entry(group.to_owned()).or_default();
            let bits = topics.entry(topic.to_owned()).or_default();
            let unknown_fields = (*bits).max(0) & !FORBIDS_READING;
            *bits = if forbidden {
                unknown_fields | FORBIDS_READING
            } else {
                unknown_fields
            };
            topics.retain(|_, bits| *bits > 0);
            rules.retain(|_, topics| !topics.is_empty());
            true
        })
        .map(drop)
    }

    /// The file's text, as 201 answers it too.
    pub fn to_json(&self, pretty: bool) -> String {
        let unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        config_file::groups_to_json(&table, &unknown, pretty)
    }

    fn change(&self, edit: impl FnOnce(&mut Table) -> bool) -> Result<bool, Refusal> {
        self.change_with(|table, _| edit(table))
    }

    fn change_with(&self, edit: impl FnOnce(&mut Table, &mut Forbidden) -> bool) -> Result<bool, Refusal> {
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        let mut table = self.table.read().unwrap_or_else(PoisonError::into_inner).clone();
        let known = self
            .forbidden
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut forbidden = known.clone();
        if !edit(&mut table, &mut forbidden) {
            return Ok(false);
        }
        let mut next = UnknownGroupFields {
            version: unknown.version.next(),
            ..unknown.clone()
        };
        if forbidden != known {
            next.forbidden = Some(forbidden_to_json(&forbidden));
        }
        self.file
            .write(&config_file::groups_to_json(&table, &next, true))?;
        *unknown = next;
        self.any_forbidden.store(!forbidden.is_empty(), Ordering::Release);
        *self.forbidden.write().unwrap_or_else(PoisonError::into_inner) = forbidden;
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = table;
        Ok(true)
    }
}

fn forbidden_of(tree: Option<&Json>) -> Forbidden {
    let topics_of = |topics: &Json| {
        let members = topics.members();
        let bits = members.filter_map(|(topic, bits)| Some((topic.into_owned(), bits.as_i64()?)));
        bits.collect()
    };
    let groups = tree.into_iter().flat_map(Read::members);
    groups
        .map(|(group, topics)| (group.into_owned(), topics_of(topics)))
        .collect()
}

fn forbidden_to_json(forbidden: &Forbidden) -> Json {
    let topics_of = |topics: &BTreeMap<String, i64>| {
        json::table(
            topics
                .iter()
                .map(|(topic, bits)| (topic.clone(), json::number(*bits))),
        )
    };
    json::table(
        forbidden
            .iter()
            .map(|(group, topics)| (group.clone(), topics_of(topics))),
    )
}
