//! The consumer groups (Apache `SubscriptionGroupManager`, `config/subscriptionGroup.json`).
//!
//! Invariant, as for topics: a change is in the file, and synced, before any request is answered with it.

use crate::admission::{self, PRESET_GROUPS};
use crate::error::{BrokerError, Refusal};
use crate::tables::attributes;
use crate::tables::config_file::ConfigFile;
use pyrmq_remoting::body::{DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper, UnknownMembers};
use pyrmq_remoting::clock;
use pyrmq_remoting::sync::{lock, read, write};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};

/// Groups by name.
pub type Table = HashMap<String, Arc<SubscriptionGroupConfig>>;

/// Every consumer group of this broker.
#[derive(Debug)]
pub struct Groups {
    // Guards the table; pulls read it.
    table: RwLock<Table>,
    // Guards the version; held while the tables are replaced, so that readers get tables with their version.
    version: Mutex<DataVersion>,
    // Serializes changes. Only they wait for the disk: no reader takes it.
    changes: Mutex<()>,
    // Guards what groups may not do; pulls read it while it is not empty.
    forbidden: RwLock<Forbidden>,
    any_forbidden: AtomicBool,
    /// Members of the file that this version does not know.
    unknown_members: UnknownMembers,
    file: ConfigFile,
}

/// What a group may not do with a topic, by group and topic; bit 4 is reading (Apache `forbiddenTable`).
type Forbidden = BTreeMap<String, BTreeMap<String, i32>>;

/// Apache `PermName.INDEX_PERM_READ`.
const FORBIDS_READING: i32 = 1 << 2;

impl Groups {
    /// Reads the file and adds the preset groups.
    pub fn load(file: ConfigFile) -> Result<Self, BrokerError> {
        let read: SubscriptionGroupWrapper = file.read("subscriptionGroupTable")?.unwrap_or_default();
        let mut table: Table = read.subscription_group_table.into_iter().map(named).collect();
        for name in PRESET_GROUPS {
            // Every preset group may broadcast (Apache `SubscriptionGroupManager.init`), which is the default.
            table
                .entry(name.to_owned())
                .or_insert_with(|| Arc::new(SubscriptionGroupConfig::new(name)));
        }
        let forbidden = read.forbidden_table;
        Ok(Self {
            table: RwLock::new(table),
            any_forbidden: AtomicBool::new(!forbidden.is_empty()),
            forbidden: RwLock::new(forbidden),
            version: Mutex::new(read.data_version),
            changes: Mutex::new(()),
            unknown_members: read.unknown_members,
            file,
        })
    }

    /// One group.
    pub fn get(&self, name: &str) -> Option<Arc<SubscriptionGroupConfig>> {
        read(&self.table).get(name).cloned()
    }

    /// Whether a group is there.
    pub fn contains(&self, name: &str) -> bool {
        read(&self.table).contains_key(name)
    }

    /// Finds a group, or creates it with the defaults.
    pub fn get_or_create(&self, name: &str) -> Result<Arc<SubscriptionGroupConfig>, Refusal> {
        if let Some(known) = self.get(name) {
            return Ok(known);
        }
        self.create_all(&[name])?;
        self.get(name).ok_or_else(|| Refusal::no_group(name))
    }

    /// Creates the missing ones of these groups with the defaults, all with one write.
    pub fn create_all(&self, names: &[&str]) -> Result<(), Refusal> {
        names.iter().try_for_each(|name| admission::group_name(name))?;
        self.change(|table| {
            let before = table.len();
            for name in names {
                table
                    .entry((*name).to_owned())
                    .or_insert_with(|| Arc::new(SubscriptionGroupConfig::new(*name)));
            }
            table.len() > before
        })
        .map(drop)
    }

    /// All names, sorted.
    pub fn names(&self) -> Vec<String> {
        let table = read(&self.table);
        let mut names: Vec<String> = table.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// The number of groups.
    pub fn count(&self) -> usize {
        read(&self.table).len()
    }

    /// Creates or replaces groups, all with one write. Their attributes are changes (`attributes.rs`).
    pub fn put(&self, groups: Vec<SubscriptionGroupConfig>) -> Result<(), Refusal> {
        for group in &groups {
            admission::group_name(&group.group_name)?;
        }
        let mut refused = Ok(());
        self.change(|table| {
            let mut changed = false;
            for mut group in groups {
                let known = table.get(&group.group_name);
                let current = known.map(|known| &known.attributes);
                match attributes::altered(attributes::OF_GROUPS, current, &group.attributes) {
                    Ok(altered) => group.attributes = altered,
                    Err(refusal) => {
                        refused = Err(refusal);
                        return false;
                    }
                }
                if let Some(known) = known {
                    group.unknown_members.keep(&known.unknown_members);
                }
                if known.is_none_or(|known| **known != group) {
                    table.insert(group.group_name.clone(), Arc::new(group));
                    changed = true;
                }
            }
            changed
        })?;
        refused
    }

    /// Removes a group and its prohibitions. False: it did not exist.
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
        let forbidden = read(&self.forbidden);
        let bits = forbidden.get(group).and_then(|topics| topics.get(topic));
        bits.is_some_and(|bits| *bits > 0 && bits & FORBIDS_READING != 0)
    }

    /// Forbids a group to read a topic, or allows it again.
    pub fn forbid(&self, group: &str, topic: &str, forbidden: bool) -> Result<(), Refusal> {
        self.change_with(|_, rules| {
            let topics = rules.entry(group.to_owned()).or_default();
            let bits = topics.entry(topic.to_owned()).or_default();
            let others = (*bits).max(0) & !FORBIDS_READING;
            *bits = if forbidden {
                others | FORBIDS_READING
            } else {
                others
            };
            topics.retain(|_, bits| *bits > 0);
            rules.retain(|_, topics| !topics.is_empty());
            true
        })
        .map(drop)
    }

    /// The whole table, as the file and the response to 201 have it.
    pub fn to_body(&self) -> SubscriptionGroupWrapper {
        let version = lock(&self.version);
        let table = read(&self.table);
        let forbidden = read(&self.forbidden);
        self.body(&table, &forbidden, *version)
    }

    fn body(
        &self,
        table: &Table,
        forbidden: &Forbidden,
        data_version: DataVersion,
    ) -> SubscriptionGroupWrapper {
        let copied = |(name, group): (&String, &Arc<SubscriptionGroupConfig>)| {
            (name.clone(), SubscriptionGroupConfig::clone(group))
        };
        SubscriptionGroupWrapper {
            data_version,
            forbidden_table: forbidden.clone(),
            subscription_group_table: table.iter().map(copied).collect(),
            unknown_members: self.unknown_members.clone(),
        }
    }

    fn change(&self, edit: impl FnOnce(&mut Table) -> bool) -> Result<bool, Refusal> {
        self.change_with(|table, _| edit(table))
    }

    fn change_with(&self, edit: impl FnOnce(&mut Table, &mut Forbidden) -> bool) -> Result<bool, Refusal> {
        let _changing = lock(&self.changes);
        let mut table = read(&self.table).clone();
        let mut forbidden = read(&self.forbidden).clone();
        if !edit(&mut table, &mut forbidden) {
            return Ok(false);
        }
        let version = *lock(&self.version);
        let next = version.next(clock::now_ms(), version.state_version);
        self.file.write(&self.body(&table, &forbidden, next))?;
        let mut version = lock(&self.version);
        *version = next;
        self.any_forbidden.store(!forbidden.is_empty(), Ordering::Release);
        *write(&self.forbidden) = forbidden;
        *write(&self.table) = table;
        Ok(true)
    }
}

/// A group from the file. It takes the name of its row if it has none.
fn named((name, mut group): (String, SubscriptionGroupConfig)) -> (String, Arc<SubscriptionGroupConfig>) {
    if group.group_name.is_empty() {
        group.group_name.clone_from(&name);
    }
    (name, Arc::new(group))
}
