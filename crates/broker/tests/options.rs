//! Settings: what is read, what is refused and how.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pyrmq_broker::Options;

fn refusal(key: &str, value: &str) -> String {
    Options::read([(key, value)]).unwrap_err().to_string()
}

#[test]
fn a_broker_conf_reads_with_apaches_keys() {
    let (options, unknown) = Options::read([
        ("brokerName", "b1"),
        ("listenPort", "0"),
        ("autoCreateTopicEnable", "FALSE"),
        ("mappedFileSizeCommitLog", "1048576"),
        ("maxMessageSize", "65536"),
        ("storePathRootDir", "/tmp/x"),
        ("brokrName", "typo"),
    ])
    .unwrap();
    assert_eq!(options.broker_name, "b1");
    assert!(!options.auto_create_topic_enable);
    assert_eq!(options.store.segment_bytes, 1 << 20);
    assert_eq!(options.store.root.to_str(), Some("/tmp/x"));
    assert_eq!(unknown, ["brokrName"]);
}

#[test]
fn a_wrong_value_is_refused_with_key_value_and_range() {
    for (key, value, words) in [
        ("listenPort", "70000", ["listenPort", "70000", "0 to 65535"]),
        ("listenPort", "2", ["listenPort", "2", "3 to 65535"]),
        ("listenPort", "ten", ["listenPort", "ten", "0 to 65535"]),
        (
            "autoCreateTopicEnable",
            "yes",
            ["autoCreateTopicEnable", "yes", "true or false"],
        ),
        ("brokerName", "a b", ["brokerName", "a b", "1 to 127"]),
        ("brokerId", "1", ["brokerId", "1", "slaves"]),
        (
            "namesrvAddr",
            "localhost",
            ["namesrvAddr", "localhost", "host:port"],
        ),
        (
            "messageDelayLevel",
            "1s 5x",
            ["messageDelayLevel", "5x", "numbers with"],
        ),
        (
            "flushDiskType",
            "SOMETIMES",
            ["flushDiskType", "SOMETIMES", "SYNC_FLUSH"],
        ),
        (
            "registerNameServerPeriod",
            "5",
            ["registerNameServerPeriod", "5", "10000 to 60000"],
        ),
    ] {
        let text = refusal(key, value);
        for word in words {
            assert!(text.contains(word), "{text} lacks {word}");
        }
    }
}

#[test]
fn every_setting_shows_its_default_and_reads_back() {
    let mut options = Options::default();
    for setting in Options::default().settings() {
        assert_eq!(setting.value, setting.default, "{}", setting.key);
        assert!(
            options.set(setting.key, &setting.value).unwrap(),
            "{}",
            setting.key
        );
    }
    assert_eq!(options, Options::default());
}

#[test]
fn delay_levels_are_milliseconds_in_order() {
    let levels = Options::default().delay_levels().unwrap();
    assert_eq!(levels.len(), 18);
    assert_eq!((levels[0], levels[4], levels[17]), (1000, 60_000, 7_200_000));
}
