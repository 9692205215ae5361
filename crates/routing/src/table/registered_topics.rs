//! The topics of a registration, independent of the form of its body.

use pyrmq_remoting::body::{
    DataVersion, TopicConfig, TopicConfigAndMappingSerializeWrapper, TopicQueueMappingInfo,
};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// One topic of a broker, with the fields that routes contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisteredTopic<'a> {
    /// Name of the topic.
    pub name: &'a str,
    /// Permission bits.
    pub perm: i32,
    /// Number of readable queues.
    pub read_queues: i32,
    /// Number of writable queues.
    pub write_queues: i32,
    /// System flag bits.
    pub sys_flag: i32,
}

impl<'a> RegisteredTopic<'a> {
    /// Takes the fields from a topic's configuration.
    pub fn new(name: &'a str, config: &TopicConfig) -> Self {
        Self {
            name,
            perm: config.perm,
            read_queues: config.read_queue_nums,
            write_queues: config.write_queue_nums,
            sys_flag: config.topic_sys_flag,
        }
    }
}

/// A broker's topics. Names are unique.
pub trait RegisteredTopics: Debug {
    /// Returns the version of the topic table.
    fn version(&self) -> &DataVersion;

    /// Returns the number of topics.
    fn count(&self) -> usize;

    /// Returns true if there is a topic of this name.
    fn has(&self, topic: &str) -> bool;

    /// Visits each topic, in the order of their names.
    fn each(&self, visit: &mut dyn FnMut(RegisteredTopic<'_>));

    /// Returns the mappings of static topics, by topic.
    fn mappings(&self) -> &BTreeMap<String, TopicQueueMappingInfo>;
}

impl RegisteredTopics for TopicConfigAndMappingSerializeWrapper {
    fn version(&self) -> &DataVersion {
        &self.data_version
    }

    fn count(&self) -> usize {
        self.topic_config_table.len()
    }

    fn has(&self, topic: &str) -> bool {
        self.topic_config_table.contains_key(topic)
    }

    fn each(&self, visit: &mut dyn FnMut(RegisteredTopic<'_>)) {
        for (name, config) in &self.topic_config_table {
            visit(RegisteredTopic::new(name, config));
        }
    }

    fn mappings(&self) -> &BTreeMap<String, TopicQueueMappingInfo> {
        &self.topic_queue_mapping_info_map
    }
}
