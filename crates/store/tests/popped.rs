//! A store with popped messages in RocksDB is refused by name, untouched.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and plays another broker's store"
)]

mod common;

use common::{real, small};
use pyrmq_store::{Store, StoreError};
use pyrmq_testkit::TempDir;
use std::fs;
use std::path::Path;

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
