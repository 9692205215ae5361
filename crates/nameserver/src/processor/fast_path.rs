//! Reads the usual form of a plain registration without building a tree: several times as fast, which matters because
//! each registration has thousands of topics.
//!
//! It accepts only what brokers write: known members, each once, texts without escapes, integers. For anything else it
//! returns `None`, and the lenient reader decides. Both readers agree on everything that this one accepts.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::string_slice
)]

use pyrmq_remoting::body::{DataVersion, TopicConfig, TopicFilterType, TopicQueueMappingInfo};
use pyrmq_routing::table::{RegisteredTopic, RegisteredTopics};
use std::collections::BTreeMap;

/// A registration, its topics borrowed from its bytes and sorted by name.
#[derive(Debug, Default)]
pub(super) struct BorrowedRegistration<'a> {
    version: DataVersion,
    topics: Vec<RegisteredTopic<'a>>,
    // Always empty: the lenient reader handles static topics.
    mappings: BTreeMap<String, TopicQueueMappingInfo>,
    pub(super) filter_servers: Vec<String>,
}

impl RegisteredTopics for BorrowedRegistration<'_> {
    fn version(&self) -> &DataVersion {
        &self.version
    }

    fn count(&self) -> usize {
        self.topics.len()
    }

    fn has(&self, topic: &str) -> bool {
        self.topics
            .binary_search_by(|known| known.name.cmp(topic))
            .is_ok()
    }

    fn each(&self, visit: &mut dyn FnMut(RegisteredTopic<'_>)) {
        self.topics.iter().copied().for_each(visit);
    }

    fn mappings(&self) -> &BTreeMap<String, TopicQueueMappingInfo> {
        &self.mappings
    }
}

/// Returns the version at the beginning of a registration of the usual form, and the bytes before and after it.
pub(super) fn version_of(bytes: &[u8]) -> Option<(DataVersion, &[u8], &[u8])> {
    let mut scan = Scan { rest: bytes };
    let name = |scan: &mut Scan<'_>, wanted: &str| {
        (scan.text()? == wanted).then_some(())?;
        scan.take(b':')
    };
    scan.take(b'{')?;
    name(&mut scan, "filterServerList")?;
    scan.texts()?;
    scan.take(b',')?;
    name(&mut scan, "topicConfigSerializeWrapper")?;
    scan.take(b'{')?;
    name(&mut scan, "dataVersion")?;
    let before = bytes.len().checked_sub(scan.rest.len())?;
    let version = version(&mut scan)?;
    Some((version, bytes.get(..before)?, scan.rest))
}

/// Reads a registration of the usual form.
pub(super) fn read(bytes: &[u8]) -> Option<BorrowedRegistration<'_>> {
    let mut scan = Scan { rest: bytes };
    let mut body = BorrowedRegistration::default();
    let mut visited = VisitedNames::default();
    scan.object(|scan, name| {
        visited.first(match name {
            "filterServerList" => {
                body.filter_servers = scan.texts()?;
                0
            }
            "topicConfigSerializeWrapper" => {
                wrapper(scan, &mut body)?;
                1
            }
            _ => return None,
        })
    })?;
    scan.blanks();
    scan.rest.is_empty().then_some(body)
}

fn wrapper<'a>(scan: &mut Scan<'a>, body: &mut BorrowedRegistration<'a>) -> Option<()> {
    let mut visited = VisitedNames::default();
    scan.object(|scan, name| {
        visited.first(match name {
            "dataVersion" => {
                body.version = version(scan)?;
                0
            }
            "mappingDataVersion" => {
                version(scan)?;
                1
            }
            "topicConfigTable" => {
                body.topics = topics(scan)?;
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
    })
}

fn version(scan: &mut Scan<'_>) -> Option<DataVersion> {
    let mut version = DataVersion::default();
    let mut visited = VisitedNames::default();
    scan.object(|scan, name| {
        let (field, at) = match name {
            "counter" => (&mut version.counter, 0),
            "stateVersion" => (&mut version.state_version, 1),
            "timestamp" => (&mut version.timestamp, 2),
            _ => return None,
        };
        *field = scan.int()?;
        visited.first(at)
    })?;
    Some(version)
}

fn topics<'a>(scan: &mut Scan<'a>) -> Option<Vec<RegisteredTopic<'a>>> {
    let mut topics = Vec::new();
    scan.object(|scan, name| {
        topics.push(topic(scan, name)?);
        Some(())
    })?;
    topics.sort_unstable_by_key(|topic| topic.name);
    let each_once = topics
        .iter()
        .zip(topics.iter().skip(1))
        .all(|(one, next)| one.name != next.name);
    each_once.then_some(topics)
}

fn topic<'a>(scan: &mut Scan<'a>, name: &'a str) -> Option<RegisteredTopic<'a>> {
    let mut topic = RegisteredTopic::new(name, &TopicConfig::default());
    let mut visited = VisitedNames::default();
    scan.object(|scan, name| {
        let mut int = |field: &mut i32| {
            *field = i32::try_from(scan.int()?).ok()?;
            Some(())
        };
        visited.first(match name {
            "perm" => {
                int(&mut topic.perm)?;
                0
            }
            "readQueueNums" => {
                int(&mut topic.read_queues)?;
                1
            }
            "writeQueueNums" => {
                int(&mut topic.write_queues)?;
                2
            }
            "topicSysFlag" => {
                int(&mut topic.sys_flag)?;
                3
            }
            "topicName" => {
                scan.text()?;
                4
            }
            "order" => {
                scan.bool()?;
                5
            }
            "topicFilterType" => {
                TopicFilterType::from_name(scan.text()?)?;
                6
            }
            "attributes" => {
                scan.text_table()?;
                7
            }
            _ => return None,
        })
    })?;
    Some(topic)
}

/// The members seen so far.
#[derive(Default)]
struct VisitedNames(u8);

impl VisitedNames {
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

    /// Consumes the next byte after blanks, if it is `wanted`.
    fn take(&mut self, wanted: u8) -> Option<()> {
        self.blanks();
        let (byte, tail) = self.rest.split_first()?;
        (*byte == wanted).then(|| self.rest = tail)
    }

    /// Reads members in braces; `read` receives each name and reads the value.
    fn object(&mut self, mut read: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.take(b'{')?;
        if self.take(b'}').is_some() {
            return Some(());
        }
        loop {
            let name = self.text()?;
            // The lenient reader handles fastjson's references and type names.
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

    /// Reads texts by name, and only checks that they are well formed.
    fn text_table(&mut self) -> Option<()> {
        self.object(|scan, _| scan.text().map(drop))
    }

    /// Reads a text without escapes and control characters.
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
    use pyrmq_remoting::body::{Body, RegisterBrokerBody, Style};

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
                    ..TopicConfig::default()
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

    /// Summarises what a reader returned, for comparison.
    fn summary(body: &dyn RegisteredTopics, servers: &[String]) -> String {
        let mut topics = Vec::new();
        body.each(&mut |topic| topics.push(format!("{topic:?}")));
        let has = topics.len() == body.count();
        format!(
            "{:?} {topics:?} {has} {:?} {servers:?}",
            body.version(),
            body.mappings()
        )
    }

    fn quickly(bytes: &[u8]) -> Option<String> {
        read(bytes).map(|read| summary(&read, &read.filter_servers))
    }

    fn leniently(bytes: &[u8]) -> Option<String> {
        let body = RegisterBrokerBody::decode(bytes).ok()?;
        Some(summary(
            &body.topic_config_serialize_wrapper,
            &body.filter_server_list,
        ))
    }

    #[test]
    fn registrations_of_real_brokers_are_read_here() {
        let mut body = RegisterBrokerBody::default();
        let wrapper = &mut body.topic_config_serialize_wrapper;
        for name in ["TBW102", "%RETRY%group", "\u{fc}n\u{ef}c\u{f8}d\u{e9}"] {
            let mut config = TopicConfig::new(name, 8, 6);
            config.attributes.insert("+message.type".into(), "NORMAL".into());
            wrapper.topic_config_table.insert(name.into(), config);
        }
        for style in [Style::PLAIN, Style::STANDARD, Style::PRETTY] {
            let bytes = body.encode_as(style);
            assert!(read(&bytes).is_some_and(|read| read.has("TBW102") && !read.has("TBW")));
            assert_eq!(quickly(&bytes), leniently(&bytes));
        }
        // As 4.6.1 and 5.5.0 write it.
        let old = br#"{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":0,"timestamp":17},"topicConfigTable":{"TBW102":{"order":false,"perm":7,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"TBW102","topicSysFlag":0,"writeQueueNums":8}}}}"#;
        let new = br#"{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":17},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":18},"topicConfigTable":{"TBW102":{"attributes":{},"order":false,"perm":7,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"TBW102","topicSysFlag":0,"writeQueueNums":8}},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}"#;
        for bytes in [&old[..], &new[..]] {
            assert!(read(bytes).is_some());
            assert_eq!(quickly(bytes), leniently(bytes));
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
            if let Some(read) = quickly(&bytes) {
                prop_assert_eq!(Some(read), leniently(&bytes));
            }
        }
    }
}
