//! A store with popped messages that were not acknowledged is refused by name, untouched.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and plays another broker's store"
)]

mod common;

use common::{open, put, real, small};
use pyrmq_store::{Store, StoreError};
use pyrmq_testkit::TempDir;
use std::fs;
use std::path::Path;

const TOPIC: &str = "rmq_sys_REVIVE_LOG_DefaultCluster";

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn is_refused(root: &Path, place: &str) -> bool {
    match Store::open(small(root), real()) {
        Ok(store) => {
            store.close().unwrap();
            false
        }
        Err(StoreError::Foreign { path, what }) => {
            assert!(what.contains("POP messages in flight"), "{what}");
            assert!(path.ends_with(place), "{}", path.display());
            true
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn check_points_that_nobody_has_read_refuse_a_store() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    // More than a file of the queue has.
    for _ in 0..150 {
        put(&store, TOPIC, 3, b"check point");
    }
    store.close().unwrap();
    let place = format!("consumequeue/{TOPIC}/3");
    assert!(is_refused(dir.path(), &place));
    let offsets =
        |done: i64| format!(r#"{{"offsetTable":{{"{TOPIC}@CID_RMQ_SYS_REVIVE_GROUP":{{3:{done}}}}}}}"#);
    write(dir.path(), "config/consumerOffset.json", &offsets(149));
    assert!(is_refused(dir.path(), &place));
    write(dir.path(), "config/consumerOffset.json", &offsets(150));
    assert!(!is_refused(dir.path(), &place));
}

#[test]
fn orderly_messages_that_are_out_refuse_a_store() {
    let orders = |done: u64| {
        format!(
            r#"{{"table":{{"T@G":{{0:{{"a":"x","cm":{done},"i":60000,"l":1,"o":[7,1,1],"popTime":1}}}}}}}}"#
        )
    };
    for (done, refused) in [(0b111, false), (0b101, true), (0, true)] {
        let dir = TempDir::new().unwrap();
        write(dir.path(), "config/consumerOrderInfo.json", &orders(done));
        assert_eq!(
            is_refused(dir.path(), "consumerOrderInfo.json"),
            refused,
            "{done}"
        );
    }
    let dir = TempDir::new().unwrap();
    write(dir.path(), "config/consumerOrderInfo.json", r#"{"table":{}}"#);
    assert!(!is_refused(dir.path(), ""));
}

#[test]
fn a_database_of_popped_messages_refuses_a_store() {
    for (file, text, refused) in [
        ("kvStore/000012.sst", "", true),
        ("kvStore/000004.log", "popped", true),
        ("kvStore/000004.log", "", false),
        ("kvStore/CURRENT", "MANIFEST-000005", false),
    ] {
        let dir = TempDir::new().unwrap();
        write(dir.path(), file, text);
        assert_eq!(is_refused(dir.path(), "kvStore"), refused, "{file}");
        assert_eq!(dir.path().join("commitlog").exists(), !refused, "{file}");
    }
}
