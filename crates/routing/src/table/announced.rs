//! What a registration says of the broker's topics, in whichever form its body was read.

use pyrmq_remoting::body::{
    DataVersion, TopicConfig, TopicConfigAndMappingSerializeWrapper, TopicQueueMappingInfo,
};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// One topic of a broker, as far as routes show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnnouncedTopic<'a> {
    /// Its name.
    pub name: &'a str,
    /// Permission bits.
    pub perm: i32,
    /// Queues that are read.
    pub read_queues: i32,
    /// Queues that are written.
    pub write_queues: i32,
    /// System flag bits.
    pub sys_flag: i32,
}

impl<'a> AnnouncedTopic<'a> {
    /// What a whole configuration says.
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

/// A broker's topics. Each name comes once.
pub trait Announced: Debug {
    /// What the table of the topics stands at.
    fn version(&self) -> &DataVersion;

    /// How many topics there are.
    fn count(&self) -> usize;

    /// True if there is a topic of this name.
    fn has(&self, topic: &str) -> bool;

    /// Shows each topic, in the order of their names.
    fn each(&self, visit: &mut dyn FnMut(AnnouncedTopic<'_>));

    /// What it says of static topics, by topic.
    fn mappings(&self) -> &BTreeMap<String, TopicQueueMappingInfo>;
}

impl Announced for TopicConfigAndMappingSerializeWrapper {
    fn version(&self) -> &DataVersion {
        &self.data_version
    }

    fn count(&self) -> usize {
        self.topic_config_table.len()
    }

    fn has(&self, topic: &str) -> bool {
        self.topic_config_table.contains_key(topic)
    }

    fn each(&self, visit: &mut dyn FnMut(AnnouncedTopic<'_>)) {
        for (name, config) in &self.topic_config_table {
            visit(AnnouncedTopic::new(name, config));
        }
    }

    fn mappings(&self) -> &BTreeMap<String, TopicQueueMappingInfo> {
        &self.topic_queue_mapping_info_map
    }
}
