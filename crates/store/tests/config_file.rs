//! Configuration files survive partial writes.
#![allow(
    clippy::disallowed_methods,
    reason = "the test changes files behind the store's back"
)]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

use pyrmq_store::config_file::{Loaded, load, save};
use pyrmq_store::{RealFs, StoreError};
use pyrmq_testkit::TempDir;
use pyrmq_testkit::disk::{Fault, FaultyDisk, Operation};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

fn whole(text: &str) -> Result<(), String> {
    if text.trim_end().ends_with('}') {
        Ok(())
    } else {
        Err("cut off".to_owned())
    }
}

fn write(path: &Path, text: &str) {
    fs::File::create(path)
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
}

#[test]
fn the_old_content_becomes_the_backup() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("config/topics.json");
    assert_eq!(load(&RealFs, &path, whole).unwrap(), Loaded::Missing);
    save(&RealFs, &path, "{1}").unwrap();
    save(&RealFs, &path, "{2}").unwrap();
    assert_eq!(
        load(&RealFs, &path, whole).unwrap(),
        Loaded::Main("{2}".to_owned())
    );
    assert_eq!(
        fs::read_to_string(dir.path().join("config/topics.json.bak")).unwrap(),
        "{1}"
    );
    assert_eq!(fs::read_dir(dir.path().join("config")).unwrap().count(), 2);
}

#[test]
fn half_a_file_falls_back_and_says_why() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("topics.json");
    save(&RealFs, &path, "{1}").unwrap();
    save(&RealFs, &path, "{2}").unwrap();
    for (text, expected) in [("{\"half", "cut off"), ("", "empty"), (" \n", "empty")] {
        write(&path, text);
        match load(&RealFs, &path, whole).unwrap() {
            Loaded::Backup { text, reason } => {
                assert_eq!((text.as_str(), reason.as_str()), ("{1}", expected));
            }
            other => panic!("{other:?}"),
        }
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(load(&RealFs, &path, whole).unwrap().text(), Some("{1}"));
    write(&path, "{");
    write(&dir.path().join("topics.json.bak"), "");
    assert!(matches!(
        load(&RealFs, &path, whole),
        Err(StoreError::BadConfigFile { .. })
    ));
}

#[test]
fn at_every_failure_one_whole_file_is_left() {
    let operations = [
        Operation::Open,
        Operation::Write,
        Operation::Sync,
        Operation::Rename,
        Operation::SyncDirectory,
    ];
    for operation in operations {
        for skip in 0..3 {
            let dir = TempDir::new().unwrap();
            let path = dir.path().join("topics.json");
            save(&RealFs, &path, "{old}").unwrap();
            let disk = FaultyDisk::default();
            disk.fail(operation, "", skip, Fault::Error(ErrorKind::Other));
            let saved = save(&disk, &path, "{new}").is_ok();
            let loaded = load(&RealFs, &path, whole).unwrap();
            let text = loaded.text().unwrap();
            assert!(
                text == "{new}" || (!saved && text == "{old}"),
                "{operation:?} {skip}: {text}"
            );
        }
    }
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("topics.json");
    save(&RealFs, &path, "{old}").unwrap();
    let disk = FaultyDisk::default();
    disk.fail(Operation::Write, "topics", 0, Fault::Torn(2, ErrorKind::Other));
    save(&disk, &path, "{new}").unwrap_err();
    assert_eq!(load(&RealFs, &path, whole).unwrap().text(), Some("{old}"));
}
