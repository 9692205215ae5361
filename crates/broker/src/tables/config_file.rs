//! The files below `config/` and the bodies that share their form (Apache `ConfigManager` and its wrappers).
//!
//! ```text
//! topics.json             {dataVersion, topicConfigTable: {name: TopicConfig}}
//! subscriptionGroup.json  {dataVersion, forbiddenTable, subscriptionGroupTable: {name: SubscriptionGroupConfig}}
//! consumerOffset.json     {dataVersion, groupTopicMap, offsetTable: {"topic@group": {queue: offset}}}
//! delayOffset.json        {dataVersion, offsetTable: {level: offset}}
//! ```
//! Written as fastjson writes: members sorted, tabs, whole numbers as keys without quotes. Read leniently: files of 4.9
//! lack many members, which then have Apache's defaults; members that are not known are kept.

use crate::error::{BrokerError, Refusal};
use crate::json::{self, Json, Read};
use crate::tables::groups::{self, GroupConfig, UnknownGroupFields};
use crate::tables::topics::{self, TopicConfig};
use crate::tables::unknown_fields::UnknownFields;
use crate::tables::version::DataVersion;
use pyrmq_remoting::WireError;
use pyrmq_store::{Fs, StoreError, config_file};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// One file below `config/`, with its backup.
#[derive(Debug)]
pub struct ConfigFile {
    fs: Arc<dyn Fs>,
    path: PathBuf,
}

impl ConfigFile {
    /// This file on this file system.
    pub fn new(fs: Arc<dyn Fs>, path: PathBuf) -> Self {
        Self { fs, path }
    }

    /// Reads the file, or its backup when the file itself is missing or not whole. `None`: there is neither.
    pub fn read<T>(&self, parse: fn(&Json) -> Result<T, WireError>) -> Result<Option<T>, BrokerError> {
        let whole = |text: &str| json::parse(text.as_bytes()).and_then(|tree| parse(&tree));
        let check = |text: &str| whole(text).map(drop).map_err(|error| error.to_string());
        let loaded = config_file::load(&*self.fs, &self.path, check)?;
        // Checked a moment ago.
        Ok(loaded.text().and_then(|text| whole(text).ok()))
    }

    /// Writes the file; the old one becomes the backup. On the disk when it returns.
    pub fn save(&self, text: &str) -> Result<(), StoreError> {
        config_file::save(&*self.fs, &self.path, text)
    }

    /// As [`Self::save`], for a change that a caller waits for.
    pub fn write(&self, text: &str) -> Result<(), Refusal> {
        self.save(text)
            .map_err(|error| Refusal::internal(format!("the change could not be written: {error}")))
    }
}

/// Apache `DataVersion`.
pub(crate) fn version_to_json(version: &DataVersion) -> Json {
    json::object([
        ("counter", json::number(version.counter)),
        ("stateVersion", json::number(version.state_version)),
        ("timestamp", json::number(version.timestamp_ms)),
    ])
}

fn version_of(tree: &Json) -> DataVersion {
    let version = tree.get("dataVersion");
    let number = |key| version.and_then(|version| version.number(key)).unwrap_or(0);
    DataVersion {
        state_version: number("stateVersion"),
        timestamp_ms: number("timestamp"),
        counter: number("counter"),
    }
}

/// Apache `TopicConfig`.
pub(crate) fn topic_to_json(topic: &TopicConfig) -> Json {
    topic_with_perm(topic, topic.perm)
}

fn topic_with_perm(topic: &TopicConfig, perm: i32) -> Json {
    let number = |value: i32| json::number(i64::from(value));
    topic.unknown_fields.join(json::object([
        ("attributes", string_table(&topic.attributes)),
        ("order", json::flag(topic.order)),
        ("perm", number(perm)),
        ("readQueueNums", number(topic.read_queue_nums)),
        ("topicFilterType", json::text(&topic.filter_type)),
        ("topicName", json::text(&topic.name)),
        ("topicSysFlag", number(topic.topic_sys_flag)),
        ("writeQueueNums", number(topic.write_queue_nums)),
    ]))
}

/// The inverse; members that are missing have Apache's defaults.
pub(crate) fn topic_from_json(tree: &Json) -> Result<TopicConfig, WireError> {
    let name = tree
        .text("topicName")
        .ok_or(WireError::MissingField("topicName"))?;
    let mut topic = TopicConfig {
        name: name.to_owned(),
        read_queue_nums: int(tree, "readQueueNums", 16)?,
        write_queue_nums: int(tree, "writeQueueNums", 16)?,
        perm: int(tree, "perm", 6)?,
        filter_type: tree.text("topicFilterType").unwrap_or("SINGLE_TAG").to_owned(),
        topic_sys_flag: int(tree, "topicSysFlag", 0)?,
        order: tree.flag("order").unwrap_or(false),
        attributes: strings_of(tree.get("attributes")),
        unknown_fields: UnknownFields::default(),
    };
    let known = topic_to_json(&topic);
    topic.unknown_fields = UnknownFields::of(tree, |name| known.get(name).is_some());
    Ok(topic)
}

fn string_table(table: &BTreeMap<String, String>) -> Json {
    json::table(table.iter().map(|(key, value)| (key.clone(), json::text(value))))
}

fn strings_of(tree: Option<&Json>) -> BTreeMap<String, String> {
    let members = tree.into_iter().flat_map(Read::members);
    members
        .filter_map(|(key, value)| Some((key.into_owned(), value.as_str()?.to_owned())))
        .collect()
}

fn int(tree: &Json, key: &'static str, default: i32) -> Result<i32, WireError> {
    let Some(number) = tree.number(key) else {
        return Ok(default);
    };
    i32::try_from(number).map_err(|_| WireError::BadField {
        field: key,
        expected: "a 32 bit number",
        value: number.to_string(),
    })
}

/// topics.json.
pub(crate) fn topics_to_json(
    table: &topics::Table,
    version: &DataVersion,
    unknown_fields: &UnknownFields,
) -> String {
    let sorted: BTreeMap<_, _> = table.iter().collect();
    let topics = sorted
        .into_iter()
        .map(|(name, topic)| (name.clone(), topic_to_json(topic)));
    json::pretty(&unknown_fields.join(json::object([
        ("dataVersion", version_to_json(version)),
        ("topicConfigTable", json::table(topics)),
    ])))
}

/// The inverse.
pub(crate) fn topics_from_json(
    tree: &Json,
) -> Result<(topics::Table, DataVersion, UnknownFields), WireError> {
    let mut table = topics::Table::default();
    let topics = tree
        .get("topicConfigTable")
        .ok_or(WireError::MissingField("topicConfigTable"))?;
    for (name, topic) in topics.members() {
        table.insert(name.into_owned(), Arc::new(topic_from_json(topic)?));
    }
    let unknown_fields = UnknownFields::of(tree, |name| matches!(name, "dataVersion" | "topicConfigTable"));
    Ok((table, version_of(tree), unknown_fields))
}

fn wrapper(topics: &[Arc<TopicConfig>], version: &DataVersion, perm_mask: i32) -> Json {
    let topics = topics
        .iter()
        .map(|topic| (topic.name.clone(), topic_with_perm(topic, topic.perm & perm_mask)));
    json::object([
        ("dataVersion", version_to_json(version)),
        ("mappingDataVersion", version_to_json(&DataVersion::default())),
        ("topicConfigTable", json::table(topics)),
        ("topicQueueMappingDetailMap", json::object([])),
        ("topicQueueMappingInfoMap", json::object([])),
    ])
}

/// Body of 21 (Apache `TopicConfigAndMappingSerializeWrapper`).
pub(crate) fn topics_wrapper(topics: &[Arc<TopicConfig>], version: &DataVersion) -> String {
    json::compact(&wrapper(topics, version, -1))
}

/// Body of 103 (Apache `RegisterBrokerBody`). The broker's own permission limits that of each topic.
pub(crate) fn register_body(topics: &[Arc<TopicConfig>], version: &DataVersion, perm_mask: i32) -> String {
    json::compact(&json::object([
        ("filterServerList", json::list([])),
        ("topicConfigSerializeWrapper", wrapper(topics, version, perm_mask)),
    ]))
}

/// Apache `GroupRetryPolicy` as a new group has it.
pub(crate) fn customized_retry() -> Json {
    json::object([("type", json::text("CUSTOMIZED"))])
}

/// Apache `SubscriptionGroupConfig`.
pub(crate) fn group_to_json(group: &GroupConfig) -> Json {
    let number = |value: i32| json::number(i64::from(value));
    let mut fields = vec![
        ("attributes", string_table(&group.attributes)),
        ("brokerId", json::number(group.broker_id)),
        (
            "consumeBroadcastEnable",
            json::flag(group.consume_broadcast_enable),
        ),
        ("consumeEnable", json::flag(group.consume_enable)),
        ("consumeFromMinEnable", json::flag(group.consume_from_min_enable)),
        ("consumeMessageOrderly", json::flag(group.consume_message_orderly)),
        ("consumeTimeoutMinute", number(group.consume_timeout_minute)),
        ("groupName", json::text(&group.name)),
        ("groupRetryPolicy", group.group_retry_policy.clone()),
        ("groupSysFlag", number(group.group_sys_flag)),
        (
            "notifyConsumerIdsChangedEnable",
            json::flag(group.notify_consumer_ids_changed_enable),
        ),
        ("retryMaxTimes", number(group.retry_max_times)),
        ("retryQueueNums", number(group.retry_queue_nums)),
    ];
    if let Some(data) = &group.subscription_data_set {
        fields.push(("subscriptionDataSet", data.clone()));
    }
    fields.push((
        "whichBrokerWhenConsumeSlowly",
        json::number(group.which_broker_when_consume_slowly),
    ));
    group.unknown_fields.join(json::object(fields))
}

/// The inverse; members that are missing have Apache's defaults.
pub(crate) fn group_from_json(tree: &Json) -> Result<GroupConfig, WireError> {
    let name = tree
        .text("groupName")
        .ok_or(WireError::MissingField("groupName"))?;
    let defaults = GroupConfig::new(name);
    let mut group = GroupConfig {
        consume_enable: tree.flag("consumeEnable").unwrap_or(defaults.consume_enable),
        consume_from_min_enable: tree
            .flag("consumeFromMinEnable")
            .unwrap_or(defaults.consume_from_min_enable),
        consume_broadcast_enable: tree
            .flag("consumeBroadcastEnable")
            .unwrap_or(defaults.consume_broadcast_enable),
        consume_message_orderly: tree
            .flag("consumeMessageOrderly")
            .unwrap_or(defaults.consume_message_orderly),
        retry_queue_nums: int(tree, "retryQueueNums", defaults.retry_queue_nums)?,
        retry_max_times: int(tree, "retryMaxTimes", defaults.retry_max_times)?,
        broker_id: tree.number("brokerId").unwrap_or(defaults.broker_id),
        which_broker_when_consume_slowly: tree
            .number("whichBrokerWhenConsumeSlowly")
            .unwrap_or(defaults.which_broker_when_consume_slowly),
        notify_consumer_ids_changed_enable: tree
            .flag("notifyConsumerIdsChangedEnable")
            .unwrap_or(defaults.notify_consumer_ids_changed_enable),
        group_sys_flag: int(tree, "groupSysFlag", defaults.group_sys_flag)?,
        consume_timeout_minute: int(tree, "consumeTimeoutMinute", defaults.consume_timeout_minute)?,
        group_retry_policy: tree
            .get("groupRetryPolicy")
            .cloned()
            .unwrap_or(defaults.group_retry_policy),
        subscription_data_set: tree.get("subscriptionDataSet").cloned(),
        attributes: strings_of(tree.get("attributes")),
        unknown_fields: UnknownFields::default(),
        name: defaults.name,
    };
    let known = group_to_json(&group);
    group.unknown_fields = UnknownFields::of(tree, |name| known.get(name).is_some());
    Ok(group)
}

/// subscriptionGroup.json, and the body of 201.
pub(crate) fn groups_to_json(table: &groups::Table, unknown: &UnknownGroupFields, pretty: bool) -> String {
    let sorted: BTreeMap<_, _> = table.iter().collect();
    let groups = sorted
        .into_iter()
        .map(|(name, group)| (name.clone(), group_to_json(group)));
    let tree = unknown.unknown_fields.join(json::object([
        ("dataVersion", version_to_json(&unknown.version)),
        (
            "forbiddenTable",
            unknown.forbidden.clone().unwrap_or_else(|| json::object([])),
        ),
        ("subscriptionGroupTable", json::table(groups)),
    ]));
    if pretty {
        json::pretty(&tree)
    } else {
        json::compact(&tree)
    }
}

/// The inverse.
pub(crate) fn groups_from_json(tree: &Json) -> Result<(groups::Table, UnknownGroupFields), WireError> {
    let groups = tree
        .get("subscriptionGroupTable")
        .ok_or(WireError::MissingField("subscriptionGroupTable"))?;
    let mut table = groups::Table::new();
    for (name, group) in groups.members() {
        table.insert(name.into_owned(), Arc::new(group_from_json(group)?));
    }
    let unknown = UnknownGroupFields {
        version: version_of(tree),
        forbidden: tree.get("forbiddenTable").cloned(),
        unknown_fields: UnknownFields::of(tree, |name| {
            matches!(name, "dataVersion" | "forbiddenTable" | "subscriptionGroupTable")
        }),
    };
    Ok((table, unknown))
}

/// What consumerOffset.json has besides the offsets of groups.
#[derive(Debug, Default)]
pub(crate) struct UnknownOffsetFields {
    version: DataVersion,
    unknown_fields: UnknownFields,
    /// Rows that are of no topic and group.
    rows: UnknownFields,
}

/// consumerOffset.json, and the body of 43. `groupTopicMap` follows from the offsets; Apache writes it too.
pub(crate) fn offsets_to_json(
    rows: &BTreeMap<String, BTreeMap<i32, i64>>,
    unknown: &UnknownOffsetFields,
    pretty: bool,
) -> String {
    let mut topics_of: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for key in rows.keys() {
        if let Some((topic, group)) = key.split_once('@') {
            topics_of
                .entry(group.to_owned())
                .or_default()
                .insert(topic.to_owned());
        }
    }
    let group_topics = topics_of
        .into_iter()
        .map(|(group, topics)| (group, json::list(topics.iter().map(|topic| json::text(topic)))));
    let offsets = rows.iter().map(|(key, queues)| (key.clone(), numbers(queues)));
    let tree = unknown.unknown_fields.join(json::object([
        ("dataVersion", version_to_json(&unknown.version.next())),
        ("groupTopicMap", json::table(group_topics)),
        ("offsetTable", unknown.rows.join(json::table(offsets))),
    ]));
    if pretty {
        json::pretty(&tree)
    } else {
        json::compact(&tree)
    }
}

/// Rows of consumerOffset.json: `topic@group`, and queue to offset.
pub(crate) type OffsetRows = Vec<(String, BTreeMap<i32, i64>)>;

/// The inverse. `pullOffsetTable` is what a running 5.x broker was last asked for: it does not read it again.
pub(crate) fn offsets_from_json(tree: &Json) -> Result<(OffsetRows, UnknownOffsetFields), WireError> {
    let table = tree
        .get("offsetTable")
        .ok_or(WireError::MissingField("offsetTable"))?;
    let is_row = |key: &str| key.contains('@');
    let rows: Result<OffsetRows, WireError> = table
        .members()
        .filter(|(key, _)| is_row(key))
        .map(|(key, queues)| Ok((key.into_owned(), numbers_of(queues)?)))
        .collect();
    let is_known = |name: &str| {
        matches!(
            name,
            "dataVersion" | "groupTopicMap" | "offsetTable" | "pullOffsetTable"
        )
    };
    let unknown = UnknownOffsetFields {
        version: version_of(tree),
        unknown_fields: UnknownFields::of(tree, is_known),
        rows: UnknownFields::of(table, is_row),
    };
    Ok((rows?, unknown))
}

/// delayOffset.json, and the body of 45.
pub(crate) fn delays_to_json(
    offsets: &BTreeMap<i32, i64>,
    version: &DataVersion,
    unknown_fields: &UnknownFields,
    pretty: bool,
) -> String {
    let tree = unknown_fields.join(json::object([
        ("dataVersion", version_to_json(version)),
        ("offsetTable", numbers(offsets)),
    ]));
    if pretty {
        json::pretty(&tree)
    } else {
        json::compact(&tree)
    }
}

/// The inverse.
pub(crate) fn delays_from_json(
    tree: &Json,
) -> Result<(BTreeMap<i32, i64>, DataVersion, UnknownFields), WireError> {
    let table = tree
        .get("offsetTable")
        .ok_or(WireError::MissingField("offsetTable"))?;
    let unknown_fields = UnknownFields::of(tree, |name| matches!(name, "dataVersion" | "offsetTable"));
    Ok((numbers_of(table)?, version_of(tree), unknown_fields))
}

/// Body of 222 (Apache `ResetOffsetBody`).
pub(crate) fn queue_offsets_to_json(topic: &str, broker: &str, offsets: &[(i32, i64)]) -> String {
    let entries = offsets
        .iter()
        .map(|(queue, offset)| (json::queue(topic, broker, *queue), json::number(*offset)));
    json::compact(&json::object([("offsetTable", json::keyed_by_objects(entries))]))
}

fn numbers(table: &BTreeMap<i32, i64>) -> Json {
    json::keyed_by_numbers(
        table
            .iter()
            .map(|(key, value)| (i64::from(*key), json::number(*value))),
    )
}

fn numbers_of(tree: &Json) -> Result<BTreeMap<i32, i64>, WireError> {
    let bad = |field: &'static str, value: &str| WireError::BadField {
        field,
        expected: "a whole number",
        value: value.to_owned(),
    };
    let mut table = BTreeMap::new();
    for (key, value) in tree.members() {
        let number = value.as_i64().ok_or_else(|| bad("offset", &key))?;
        table.insert(key.parse().map_err(|_| bad("queue", &key))?, number);
    }
    Ok(table)
}
