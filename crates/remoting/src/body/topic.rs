//! Topics and their settings (`topics.json`, requests 17, 18, 21, 103, 351).

use crate::body::codec::value::body;
use crate::body::{
    BodyValue, DataVersion, Json, Style, TopicQueueMappingDetail, TopicQueueMappingInfo, Writer,
};
use crate::error::WireError;
use crate::message::sys_flag;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// How tags of a topic's messages are counted (Apache `TopicFilterType`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TopicFilterType {
    /// A message has one tag.
    #[default]
    SingleTag,
    /// A message may have several tags.
    MultiTag,
    /// A name that this version does not know. It counts as one tag and is written back unchanged.
    Unknown(String),
}

impl TopicFilterType {
    /// Apache's name.
    pub fn name(&self) -> &str {
        match self {
            Self::SingleTag => "SINGLE_TAG",
            Self::MultiTag => "MULTI_TAG",
            Self::Unknown(name) => name,
        }
    }

    /// From Apache's name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "SINGLE_TAG" => Some(Self::SingleTag),
            "MULTI_TAG" => Some(Self::MultiTag),
            _ => None,
        }
    }
}

impl BodyValue for TopicFilterType {
    fn read(json: Json, what: &'static str) -> Result<Self, WireError> {
        // fastjson also reads an enum's ordinal.
        match json {
            Json::Int(0) => return Ok(Self::SingleTag),
            Json::Int(1) => return Ok(Self::MultiTag),
            _ => {}
        }
        let name = String::read(json, what)?;
        Ok(Self::from_name(&name).unwrap_or(Self::Unknown(name)))
    }
    fn write(&self, writer: &mut Writer) {
        writer.string(self.name());
    }
}

body! {
    /// The user that made each topic (`topicMakers.json`; Apache has none).
    pub struct TopicMakers {
        /// Users by topic.
        pub maker_table: BTreeMap<String, String> => "makerTable",
    }

    /// Settings of a topic (Apache `TopicConfig`).
    pub struct TopicConfig {
        /// Attributes by name.
        pub attributes: BTreeMap<String, String> => "attributes",
        /// Whether the topic is ordered.
        pub order: bool => "order",
        /// Permission bits: 4 read, 2 write, 1 inherit.
        pub perm: i32 => "perm" = 6,
        /// Queues that may be read.
        pub read_queue_nums: i32 => "readQueueNums" = 16,
        /// `SINGLE_TAG` or `MULTI_TAG`.
        pub topic_filter_type: TopicFilterType => "topicFilterType",
        /// Topic name.
        pub topic_name: String => "topicName",
        /// System flag of the topic.
        pub topic_sys_flag: i32 => "topicSysFlag",
        /// Queues that may be written.
        pub write_queue_nums: i32 => "writeQueueNums" = 16,
        ..unknown_members
    }

    /// All topics with their version (Apache `TopicConfigSerializeWrapper`).
    pub struct TopicConfigSerializeWrapper {
        /// Version of the table.
        pub data_version: DataVersion => "dataVersion",
        /// Topics by name.
        pub topic_config_table: BTreeMap<String, TopicConfig> => "topicConfigTable",
        ..unknown_members
    }

    /// All topics and static topics with their versions, as 5.x sends them (Apache
    /// `TopicConfigAndMappingSerializeWrapper`).
    pub struct TopicConfigAndMappingSerializeWrapper {
        /// Version of the table.
        pub data_version: DataVersion => "dataVersion",
        /// Version of the mappings.
        pub mapping_data_version: DataVersion => "mappingDataVersion",
        /// Topics by name.
        pub topic_config_table: BTreeMap<String, TopicConfig> => "topicConfigTable",
        /// Static topics hosted here, by name.
        pub topic_queue_mapping_detail_map: BTreeMap<String, TopicQueueMappingDetail> => "topicQueueMappingDetailMap",
        /// What the name server knows of static topics, by name.
        pub topic_queue_mapping_info_map: BTreeMap<String, TopicQueueMappingInfo> => "topicQueueMappingInfoMap",
    }

    /// Several topics (Apache `CreateTopicListRequestBody`).
    pub struct CreateTopicListRequestBody {
        /// Topics.
        pub topic_config_list: Vec<TopicConfig> => "topicConfigList",
    }
}

impl TopicConfig {
    /// A topic with the same number of queues for reading and writing, and default settings.
    pub fn new(topic_name: impl Into<String>, queues: i32, perm: i32) -> Self {
        Self {
            topic_name: topic_name.into(),
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm,
            ..Self::default()
        }
    }

    /// Number of queues that exist for producers or consumers.
    pub fn queue_nums(&self) -> i32 {
        self.read_queue_nums.max(self.write_queue_nums)
    }

    /// The system flag bits that every message of the topic has.
    pub fn message_sys_flag(&self) -> i32 {
        match self.topic_filter_type {
            TopicFilterType::MultiTag => sys_flag::MULTI_TAGS,
            _ => 0,
        }
    }

    /// The line of a compressed registration: `name readQueues writeQueues perm filterType {attributes}`.
    pub fn to_line(&self) -> String {
        let mut line = self.topic_name.clone();
        let filter = self.topic_filter_type.name();
        // Writing into a String cannot fail.
        write!(
            line,
            " {} {} {} {filter} ",
            self.read_queue_nums, self.write_queue_nums, self.perm
        )
        .unwrap_or_default();
        let mut writer = Writer::new(Style::PLAIN);
        BodyValue::write(&self.attributes, &mut writer);
        line.push_str(&String::from_utf8_lossy(&writer.finish()));
        line
    }

    /// Parses a line of [`Self::to_line`]. Attributes that cannot be read are skipped, as in Apache.
    pub fn from_line(line: &str) -> Result<Self, WireError> {
        let mut parts = line.splitn(6, ' ');
        let mut part = |field| parts.next().ok_or(WireError::MissingField(field));
        let topic_name = part("topicName")?.to_owned();
        let read_queue_nums = number(part("readQueueNums")?, "readQueueNums")?;
        let write_queue_nums = number(part("writeQueueNums")?, "writeQueueNums")?;
        let perm = number(part("perm")?, "perm")?;
        let topic_filter_type = TopicFilterType::from_name(part("topicFilterType")?).unwrap_or_default();
        let attributes = part("attributes")
            .and_then(|text| Json::parse(text.as_bytes()))
            .and_then(|json| BodyValue::read(json, "attributes"))
            .unwrap_or_default();
        Ok(Self {
            attributes,
            perm,
            read_queue_nums,
            topic_filter_type,
            topic_name,
            write_queue_nums,
            ..Self::default()
        })
    }
}

fn number(text: &str, field: &'static str) -> Result<i32, WireError> {
    BodyValue::read(Json::Str(text.into()), field)
}
