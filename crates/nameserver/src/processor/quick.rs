//! The usual form of a plain registration, read without a tree in between: several times as fast, and thousands of
//! topics are read for each registration.
//!
//! Only what brokers write is known here: members by their names, each once, texts without escapes, whole numbers. For
//! anything else the answer is `None`, and the lenient reader decides. What is read here, that one reads alike.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use pyrmq_remoting::body::{
    DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigAndMappingSerializeWrapper, TopicFilterType,
};
use std::collections::BTreeMap;

/// Reads a registration of the usual form.
pub(super) fn read(bytes: &[u8]) -> Option<RegisterBrokerBody> {
    let mut scan = Scan { rest: bytes };
    let mut body = RegisterBrokerBody::default();
    let mut seen = Seen::default();
    scan.object(|scan, name| {
        seen.first(match name {
            "filterServerList" => {
                body.filter_server_list = scan.texts()?;
                0
            }
            "topicConfigSerializeWrapper" => {
                body.topic_config_serialize_wrapper = wrapper(scan)?;
                1
            }
            _ => return None,
        })
    })?;
    scan.blanks();
    scan.rest.is_empty().then_some(body)
}

fn wrapper(scan: &mut Scan<'_>) -> Option<TopicConfigAndMappingSerializeWrapper> {
    let mut wrapper = TopicConfigAndMappingSerializeWrapper::default();
    let mut seen = Seen::default();
    scan.object(|scan, name| {
        seen.first(match name {
            "dataVersion" => {
                wrapper.data_version = version(scan)?;
                0
            }
            "mappingDataVersion" => {
                wrapper.mapping_data_version = version(scan)?;
                1
            }
            "topicConfigTable" => {
                wrapper.topic_config_table = topics(scan)?;
                2
            }
            "topicQueueMappingDetailMap" => {
                scan.object(|_, _| None)?;
                3
            }
            "topicQueueMappingInfoMap" => {
                scan.object(|_, _| None)?;
                4
            }
            _ => return None,
        })
    })?;
    Some(wrapper)
}

fn version(scan: &mut Scan<'_>) -> Option<DataVersion> {
    let mut version = DataVersion::default();
    let mut seen = Seen::default();
    scan.object(|scan, name| {
        let (field, at) = match name {
            "counter" => (&mut version.counter, 0),
            "stateVersion" => (&mut version.state_version, 1),
            "timestamp" => (&mut version.timestamp, 2),
            _ => return None,
        };
        *field = scan.int()?;
        seen.first(at)
    })?;
    Some(version)
}

fn topics(scan: &mut Scan<'_>) -> Option<BTreeMap<String, TopicConfig>> {
    let mut topics = BTreeMap::new();
    scan.object(|scan, name| {
        let before = topics.insert(name.to_owned(), topic(scan)?);
        before.is_none().then_some(())
    })?;
    Some(topics)
}

fn topic(scan: &mut Scan<'_>) -> Option<TopicConfig> {
    let mut config = TopicConfig::default();
    let mut seen = Seen::default();
    scan.object(|scan, name| {
        let mut int = |field: &mut i32| {
            *field = i32::try_from(scan.int()?).ok()?;
            Some(())
        };
        seen.first(match name {
            "perm" => {
                int(&mut config.perm)?;
                0
            }
            "readQueueNums" => {
                int(&mut config.read_queue_nums)?;
                1
            }
            "writeQueueNums" => {
                int(&mut config.write_queue_nums)?;
                2
            }
            "topicSysFlag" => {
                int(&mut config.topic_sys_flag)?;
                3
            }
            "topicName" => {
                scan.text()?.clone_into(&mut config.topic_name);
                4
            }
            "order" => {
                config.order = scan.bool()?;
                5
            }
            "topicFilterType" => {
                config.topic_filter_type = TopicFilterType::from_name(scan.text()?)?;
                6
            }
            "attributes" => {
                config.attributes = scan.text_table()?;
                7
            }
            _ => return None,
        })
    })?;
    Some(config)
}

/// Which members came already.
#[derive(Default)]
struct Seen(u8);

impl Seen {
    fn first(&mut self, at: u32) -> Option<()> {
        let bit = 1_u8.checked_shl(at)?;
        let again = self.0 & bit != 0;
        self.0 |= bit;
        (!again).then_some(())
    }
}

struct Scan<'a> {
    rest: &'a [u8],
}

impl<'a> Scan<'a> {
    fn blanks(&mut self) {
        while let Some((b' ' | b'\n' | b'\r' | b'\t', tail)) = self.rest.split_first() {
            self.rest = tail;
        }
    }

    /// The next byte behind blanks, if it is this one.
    fn take(&mut self, wanted: u8) -> Option<()> {
        self.blanks();
        let (byte, tail) = self.rest.split_first()?;
        (*byte == wanted).then(|| self.rest = tail)
    }

    /// Members in braces; `read` gets each name, and reads the value.
    fn object(&mut self, mut read: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.take(b'{')?;
        if self.take(b'}').is_some() {
            return Some(());
        }
        loop {
            let name = self.text()?;
            // References and type names of fastjson are the lenient reader's.
            if name.starts_with(['$', '@']) {
                return None;
            }
            self.take(b':')?;
            read(self, name)?;
            if self.take(b',').is_none() {
                return self.take(b'}');
            }
        }
    }

    fn texts(&mut self) -> Option<Vec<String>> {
        let mut texts = Vec::new();
        self.take(b'[')?;
        if self.take(b']').is_some() {
            return Some(texts);
        }
        loop {
            texts.push(self.text()?.to_owned());
            if self.take(b',').is_none() {
                self.take(b']')?;
                return Some(texts);
            }
        }
    }

    fn text_table(&mut self) -> Option<BTreeMap<String, String>> {
        let mut table = BTreeMap::new();
        self.object(|scan, name| {
            let before = table.insert(name.to_owned(), scan.text()?.to_owned());
            before.is_none().then_some(())
        })?;
        Some(table)
    }

    /// A text without escapes and control characters.
    fn text(&mut self) -> Option<&'a str> {
        self.take(b'"')?;
        let end = self
            .rest
            .iter()
            .position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))?;
        let (text, tail) = self.rest.split_at_checked(end)?;
        let (b'"', tail) = tail.split_first()? else {
            return None;
        };
        self.rest = tail;
        std::str::from_utf8(text).ok()
    }

    fn int(&mut self) -> Option<i64> {
        self.blanks();
        let digits = self
            .rest
            .iter()
            .position(|byte| !matches!(byte, b'-' | b'0'..=b'9'))?;
        let (number, tail) = self.rest.split_at_checked(digits)?;
        // What follows must end the number: no fraction, no exponent, no letter.
        if !matches!(tail.first(), Some(b',' | b'}' | b' ' | b'\n' | b'\r' | b'\t')) {
            return None;
        }
        let number = std::str::from_utf8(number).ok()?;
        let plain = number.strip_prefix('-').unwrap_or(number);
        if plain.len() > 1 && plain.starts_with('0') {
            return None;
        }
        self.rest = tail;
        number.parse().ok()
    }

    fn bool(&mut self) -> Option<bool> {
        self.blanks();
        for (word, value) in [(&b"false"[..], false), (&b"true"[..], true)] {
            if let Some(tail) = self.rest.strip_prefix(word) {
                self.rest = tail;
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use pyrmq_remoting::body::{Body, Style};

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![4 => "[a-zA-Z0-9%_-]{0,12}", 1 => "\\PC{0,6}", 1 => Just("$ref".to_owned())]
    }

    fn config() -> impl Strategy<Value = TopicConfig> {
        let numbers = (any::<i32>(), 0..99_i32, 0..99_i32, 0..4_i32);
        let attributes = proptest::collection::btree_map(text(), text(), 0..3);
        (text(), numbers, any::<(bool, bool)>(), attributes).prop_map(
            |(name, (perm, read, write, flag), (order, many), attributes)| {
                let filter = if many {
                    TopicFilterType::MultiTag
                } else {
                    TopicFilterType::SingleTag
                };
                TopicConfig {
                    attributes,
                    order,
                    perm,
                    read_queue_nums: read,
                    topic_filter_type: filter,
                    topic_name: name,
                    topic_sys_flag: flag,
                    write_queue_nums: write,
                }
            },
        )
    }

    fn body() -> impl Strategy<Value = RegisterBrokerBody> {
        let topics = proptest::collection::btree_map(text(), config(), 0..5);
        let servers = proptest::collection::vec(text(), 0..3);
        (topics, servers, any::<(i64, i64, i64)>()).prop_map(
            |(topics, servers, (counter, state_version, timestamp))| {
                let mut body = RegisterBrokerBody {
                    filter_server_list: servers,
                    ..RegisterBrokerBody::default()
                };
                let wrapper = &mut body.topic_config_serialize_wrapper;
                wrapper.topic_config_table = topics;
                wrapper.data_version = DataVersion {
                    counter,
                    state_version,
                    timestamp,
                };
                body
            },
        )
    }

    #[test]
    fn what_brokers_write_is_read_here() {
        let mut body = RegisterBrokerBody::default();
        let wrapper = &mut body.topic_config_serialize_wrapper;
        for name in ["TBW102", "%RETRY%group", "\u{fc}n\u{ef}c\u{f8}d\u{e9}"] {
            let mut config = TopicConfig::new(name, 8, 6);
            config.attributes.insert("+message.type".into(), "NORMAL".into());
            wrapper.topic_config_table.insert(name.into(), config);
        }
        for style in [Style::PLAIN, Style::STANDARD, Style::PRETTY] {
            assert_eq!(read(&body.encode_as(style)), Some(body.clone()));
        }
        // As 4.6.1 and as 5.5.0 write it.
        let old = br#"{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":0,"timestamp":17},"topicConfigTable":{"TBW102":{"order":false,"perm":7,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"TBW102","topicSysFlag":0,"writeQueueNums":8}}}}"#;
        let new = br#"{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":17},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":18},"topicConfigTable":{"TBW102":{"attributes":{},"order":false,"perm":7,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"TBW102","topicSysFlag":0,"writeQueueNums":8}},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}"#;
        for bytes in [&old[..], &new[..]] {
            assert!(read(bytes).is_some());
            assert_eq!(read(bytes), RegisterBrokerBody::decode(bytes).ok());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
        #[test]
        fn what_is_read_here_is_what_the_lenient_reader_reads(
            body in body(),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 0..3),
        ) {
            let mut bytes = body.encode();
            for (at, byte, insert) in changes {
                let at = at.index(bytes.len());
                if insert { bytes.insert(at, byte) } else { bytes[at] = byte }
            }
            if let Some(read) = read(&bytes) {
                prop_assert_eq!(Ok(read), RegisterBrokerBody::decode(&bytes));
            }
        }
    }
}
