//! A broker's registration (request 103), plain or compressed.
//!
//! ```text
//! plain       {"filterServerList":[],"topicConfigSerializeWrapper":{...}}
//! compressed  zlib of:
//!   4 + n  DataVersion as JSON
//!   4      number of topics, then 4 + n each: `name readQueues writeQueues perm filterType {attributes}`
//!   4 + n  list of filter servers as JSON
//!   4      number of static topics, then 4 + n each as JSON; only from 5.0.0 on
//! ```
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use crate::body::codec::value::body;
use crate::body::{Body, BodyValue, DataVersion, Json, Style, TopicConfig, Writer};
use crate::body::{TopicConfigAndMappingSerializeWrapper, TopicQueueMappingInfo};
use crate::command::V5_0_0;
use crate::error::WireError;
use crate::message::compress::{Codec, compress, decompress};

/// Maximum size of a decompressed registration: twice the largest frame.
const LIMIT: usize = 32 * 1024 * 1024;
/// The strongest level, with which Apache compresses registrations.
const LEVEL: u32 = 9;

body! {
    /// What a broker announces (Apache `RegisterBrokerBody`).
    pub struct RegisterBrokerBody {
        /// Filter servers.
        pub filter_server_list: Vec<String> => "filterServerList",
        /// Topics with their version.
        pub topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper => "topicConfigSerializeWrapper",
    }
}

impl RegisterBrokerBody {
    /// Reads the body of a broker of this version, compressed or not.
    pub fn decode_form(bytes: &[u8], compressed: bool, version: i32) -> Result<Self, WireError> {
        if compressed {
            Self::decode_compressed(bytes, version)
        } else {
            Self::decode(bytes)
        }
    }

    fn decode_compressed(bytes: &[u8], version: i32) -> Result<Self, WireError> {
        let plain = decompress(Codec::Zlib, bytes, LIMIT)?;
        let mut rest = Remaining(&plain);
        let mut body = Self::default();
        let wrapper = &mut body.topic_config_serialize_wrapper;
        wrapper.data_version = DataVersion::decode(rest.block("data version")?)?;
        for _ in 0..rest.count("topics")? {
            let line =
                std::str::from_utf8(rest.block("topic")?).map_err(|_| WireError::Utf8 { what: "topic" })?;
            let topic = TopicConfig::from_line(line)?;
            wrapper.topic_config_table.insert(topic.topic_name.clone(), topic);
        }
        let servers = Json::parse(rest.block("filter servers")?)?;
        body.filter_server_list = match servers {
            Json::Null => Vec::new(),
            servers => BodyValue::read(servers, "filterServerList")?,
        };
        if version >= V5_0_0 {
            for _ in 0..rest.count("static topics")? {
                let info = TopicQueueMappingInfo::decode(rest.block("static topic")?)?;
                wrapper
                    .topic_queue_mapping_info_map
                    .insert(info.topic.clone().unwrap_or_default(), info);
            }
        }
        Ok(body)
    }

    /// Writes the compressed form, including the static topics: readers before 5.0.0 stop before them.
    pub fn encode_compressed(&self) -> Result<Vec<u8>, WireError> {
        let wrapper = &self.topic_config_serialize_wrapper;
        let mut out = Vec::new();
        push_block(&wrapper.data_version.encode(), &mut out)?;
        push_length(wrapper.topic_config_table.len(), &mut out)?;
        for topic in wrapper.topic_config_table.values() {
            push_block(topic.to_line().as_bytes(), &mut out)?;
        }
        let mut servers = Writer::new(Style::PLAIN);
        BodyValue::write(&self.filter_server_list, &mut servers);
        push_block(&servers.finish(), &mut out)?;
        push_length(wrapper.topic_queue_mapping_info_map.len(), &mut out)?;
        for info in wrapper.topic_queue_mapping_info_map.values() {
            push_block(&info.encode(), &mut out)?;
        }
        compress(Codec::Zlib, LEVEL, &out)
    }
}

struct Remaining<'a>(&'a [u8]);

impl<'a> Remaining<'a> {
    fn count(&mut self, what: &'static str) -> Result<usize, WireError> {
        let (word, tail) = self.0.split_first_chunk::<4>().ok_or(WireError::Truncated {
            what,
            needed: 4,
            left: self.0.len(),
        })?;
        self.0 = tail;
        let length = i32::from_be_bytes(*word);
        usize::try_from(length).map_err(|_| WireError::Length {
            what,
            length: length.into(),
        })
    }

    fn block(&mut self, what: &'static str) -> Result<&'a [u8], WireError> {
        let length = self.count(what)?;
        let (block, tail) = self.0.split_at_checked(length).ok_or(WireError::Truncated {
            what,
            needed: length,
            left: self.0.len(),
        })?;
        self.0 = tail;
        Ok(block)
    }
}

fn push_length(length: usize, out: &mut Vec<u8>) -> Result<(), WireError> {
    let word = i32::try_from(length).map_err(|_| WireError::TooLarge {
        what: "registration",
        length,
        limit: i32::MAX.unsigned_abs() as usize,
    })?;
    out.extend_from_slice(&word.to_be_bytes());
    Ok(())
}

fn push_block(block: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
    push_length(block.len(), out)?;
    out.extend_from_slice(block);
    Ok(())
}
