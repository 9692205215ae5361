//! Entries of delayed messages have their due time, by the configured levels, whichever code writes them.
#![allow(
    clippy::disallowed_methods,
    reason = "the test changes files behind the store's back"
)]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{message, open, props, small};
use pyrmq_remoting::names::DELAY_LEVELS;
use pyrmq_store::{Options, parse_levels};
use pyrmq_testkit::TempDir;
use std::fs;
use std::path::Path;

const TOPIC: &str = "SCHEDULE_TOPIC_XXXX";

fn options(root: &Path) -> Options {
    let mut options = small(root);
    options.delay_levels_ms = parse_levels("2s 7m 1d").unwrap();
    options
}

fn codes(root: &Path) -> Vec<i64> {
    let file = root.join(format!("consumequeue/{TOPIC}/0/00000000000000000000"));
    let bytes = fs::read(file).unwrap();
    let units = bytes.as_chunks::<20>().0.iter();
    units
        .map(|unit| i64::from_be_bytes(unit[12..].try_into().unwrap()))
        .take_while(|code| *code != 0)
        .collect()
}

#[test]
fn configured_levels_count_for_puts_and_for_recovery() {
    let dir = TempDir::new().unwrap();
    let store = open(options(dir.path()));
    let mut expected = Vec::new();
    // The last two levels do not exist: Apache uses the highest one for the first, a tag's hash for the second.
    let levels = [
        ("1", Some(2000)),
        ("2", Some(420_000)),
        ("3", Some(86_400_000)),
        ("9", Some(86_400_000)),
        ("0", None),
    ];
    for (level, delay_ms) in levels {
        let properties = props(&[("DELAY", level), ("TAGS", "a")]);
        let stored = store.put(&message(TOPIC, 0, b"x", &properties)).unwrap();
        expected.push(delay_ms.map_or(97, |delay_ms| stored.store_timestamp_ms + delay_ms));
    }
    store.run(pyrmq_store::MaintenanceTask::WriteQueues).unwrap();
    let crash = TempDir::copy_of(dir.path()).unwrap();
    store.close().unwrap();
    drop(store);
    assert_eq!(codes(dir.path()), expected);
    for root in [crash.path(), dir.path()] {
        drop(open(options(root)));
        assert_eq!(codes(root), expected, "kept");
        fs::remove_dir_all(root.join("consumequeue")).unwrap();
        drop(open(options(root)));
        assert_eq!(codes(root), expected, "made again");
    }
}

#[test]
fn levels_are_read_as_apache_does() {
    let default = parse_levels(DELAY_LEVELS).unwrap();
    assert_eq!(default.len(), 18);
    assert_eq!((default[0], default[4], default[17]), (1000, 60_000, 7_200_000));
    assert_eq!(parse_levels(" 3s  1d "), Some(vec![3000, 86_400_000]));
    for text in ["", "1", "s", "1x", "1s,2s", "-1s", "9223372036854775807d"] {
        assert_eq!(parse_levels(text), None, "{text}");
    }
}
