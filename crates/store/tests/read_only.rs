//! A directory that the broker's user may not write: the start names it, and changes nothing. A store whose file system
//! becomes read-only while it runs refuses puts with that reason, is read on, and has lost nothing at its next start.
//!
//! A superuser can write everywhere. If the tests run as one, this file starts itself again in a new mount namespace,
//! over a read-only mount of the same directory, and as a user who owns nothing.
#![expect(
    clippy::disallowed_methods,
    reason = "the test changes files behind the store's back"
)]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{again, bodies, content, message, open, put, real, small};
use pyrmq_store::{FlushDiskType, MaintenanceTask, Store, StoreError};
use pyrmq_testkit::TempDir;
use pyrmq_testkit::disk::{Fault, FaultyDisk, Operation};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Names the store for an inner run.
const PLACE: &str = "PYRMQ_READ_ONLY";

fn closed() -> TempDir {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    for _ in 0..200 {
        put(&store, "T", 0, b"kept");
    }
    store.close().unwrap();
    fs::create_dir_all(dir.path().join("config")).unwrap();
    fs::write(dir.path().join("config/topics.json"), "{}").unwrap();
    dir
}

fn may_write(dir: &Path) -> bool {
    fs::write(dir.join("probe"), "").is_ok_and(|()| fs::remove_file(dir.join("probe")).is_ok())
}

/// Opens a store that must not be written.
fn is_refused(root: &Path) {
    assert!(!may_write(root));
    let before = content(root);
    let error = Store::open(small(root), real()).unwrap_err();
    assert!(content(root) == before, "something was changed before: {error}");
    let text = error.to_string();
    assert!(text.contains(&root.display().to_string()), "{text}");
    assert!(
        matches!(error, StoreError::NotWritable { .. } | StoreError::Io { .. }),
        "{text}"
    );
    let why = [
        "Permission denied",
        "Read-only file system",
        "Operation not permitted",
    ];
    assert!(why.iter().any(|why| text.contains(why)), "{text}");
}

/// Runs one test of this file again as a user who owns nothing.
fn as_nobody(test: &str, place: &Path) {
    let script = r#"exec "$0" --exact "$1" --nocapture"#;
    let nobody = [
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "sh",
        "-c",
        script,
    ];
    again("setpriv", &nobody, test, (PLACE, place));
}

#[test]
fn a_read_only_mount_is_named() {
    if let Some(place) = std::env::var_os(PLACE) {
        return is_refused(&PathBuf::from(place));
    }
    let dir = closed();
    let script = r#"mount --bind "$PYRMQ_READ_ONLY" "$PYRMQ_READ_ONLY" && mount -o remount,bind,ro "$PYRMQ_READ_ONLY" || exit 77; exec "$0" --exact "$1" --nocapture"#;
    again(
        "unshare",
        &["-rm", "sh", "-c", script],
        "a_read_only_mount_is_named",
        (PLACE, dir.path()),
    );
}

/// Sets the permissions of a directory and everything below it.
fn allow(root: &Path, mode: u32) {
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        let is_directory = path.is_dir();
        if is_directory {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let mode = if is_directory { mode | 0o111 } else { mode };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

#[test]
fn a_directory_without_the_right_to_write_is_named() {
    if let Some(place) = std::env::var_os(PLACE) {
        return is_refused(&PathBuf::from(place));
    }
    let dir = closed();
    allow(dir.path(), 0o444);
    if may_write(dir.path()) {
        as_nobody("a_directory_without_the_right_to_write_is_named", dir.path());
    } else {
        is_refused(dir.path());
    }
    allow(dir.path(), 0o644);
}

/// Opens a store of which only the log must not be written.
fn is_refused_by_its_log(root: &Path) {
    assert!(may_write(root) && !may_write(&root.join("commitlog")));
    let error = Store::open(small(root), real()).unwrap_err().to_string();
    assert!(
        error.contains("commitlog") && error.contains("Permission denied"),
        "{error}"
    );
}

#[test]
fn a_log_without_the_right_to_write_is_named() {
    if let Some(place) = std::env::var_os(PLACE) {
        return is_refused_by_its_log(&PathBuf::from(place));
    }
    let dir = closed();
    allow(dir.path(), 0o666);
    allow(&dir.path().join("commitlog"), 0o444);
    if may_write(&dir.path().join("commitlog")) {
        as_nobody("a_log_without_the_right_to_write_is_named", dir.path());
    } else {
        is_refused_by_its_log(dir.path());
    }
    allow(dir.path(), 0o644);
}

const EROFS: i32 = 30;
const READ_ONLY: &str = "Read-only file system";

fn puts_until_refused(store: &Store) -> (usize, StoreError) {
    for number in 0..100 {
        if let Err(error) = store.put(&message("T", 0, &[7; 10_000], "")) {
            return (number, error);
        }
    }
    panic!("a store of read-only files took a megabyte");
}

/// Runs a store whose directory is mounted read-only over itself meanwhile. Files that are open stay writable: nobody
/// but the system can take that from a process, and the other test does it.
fn runs_on_a_mount_that_turns_read_only(root: &Path) {
    let mount = |arguments: &[&str]| {
        let mount = Command::new("mount").args(arguments).arg(root).output();
        mount.unwrap().status.success()
    };
    let store = open(small(root));
    assert!(
        !mount(&["-o", "remount,ro"]),
        "the system lets nobody remount what is being written"
    );
    put(&store, "T", 0, b"before");
    let place = root.to_str().unwrap();
    assert!(mount(&["--bind", place]) && mount(&["-o", "remount,bind,ro"]));
    assert!(!may_write(root));
    let (taken, error) = puts_until_refused(&store);
    let text = error.to_string();
    assert!(text.contains(READ_ONLY) && text.contains(place), "{text}");
    let health = store.health().read_only.expect("health names it");
    assert!(health.contains(READ_ONLY), "{health}");
    assert_eq!(bodies(&store, "T", 0).len(), taken + 1, "reading goes on");
    drop(store);
    assert!(Command::new("umount").arg(root).status().unwrap().success());
    let store = open(small(root));
    assert_eq!(bodies(&store, "T", 0).len(), taken + 1);
    put(&store, "T", 0, b"after");
    store.close().unwrap();
}

#[test]
fn a_mount_that_turns_read_only_while_the_store_runs_loses_nothing() {
    if let Some(place) = std::env::var_os(PLACE) {
        return runs_on_a_mount_that_turns_read_only(&PathBuf::from(place));
    }
    let dir = TempDir::new().unwrap();
    let script = r#"mount -t tmpfs tmpfs "$PYRMQ_READ_ONLY" || exit 77; exec "$0" --exact "$1" --nocapture"#;
    again(
        "unshare",
        &["-rm", "sh", "-c", script],
        "a_mount_that_turns_read_only_while_the_store_runs_loses_nothing",
        (PLACE, dir.path()),
    );
}

/// As when the system makes a file system read-only after an error of the disk: open files cannot be written either.
#[test]
fn a_file_system_that_the_system_makes_read_only_loses_nothing() {
    for flush in [FlushDiskType::Async, FlushDiskType::Sync] {
        let dir = TempDir::new().unwrap();
        let disk = FaultyDisk::default();
        let mut options = small(dir.path());
        options.flush = flush;
        let store = Store::open(options.clone(), Arc::new(disk.clone())).unwrap();
        for _ in 0..100 {
            put(&store, "T", 0, b"before");
        }
        store.run(MaintenanceTask::Flush).unwrap();
        for operation in [
            Operation::Write,
            Operation::Clear,
            Operation::Rename,
            Operation::Remove,
        ] {
            disk.fail(operation, "", 0, Fault::System(EROFS));
        }
        let first = store.put(&message("T", 0, b"refused", "")).unwrap_err();
        assert!(first.to_string().contains(READ_ONLY), "{first}");
        let second = store.put(&message("T", 0, b"refused", "")).unwrap_err();
        assert!(matches!(second, StoreError::ReadOnly { .. }), "{second}");
        assert!(second.to_string().contains(READ_ONLY), "{second}");
        let (answer, flushed) = mpsc::channel();
        store.when_durable(i64::MAX, move |done| answer.send(done).unwrap());
        let flushed = flushed.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(flushed.unwrap_err().to_string().contains(READ_ONLY));
        assert_eq!(bodies(&store, "T", 0).len(), 100, "reading goes on");
        store.close().unwrap_err();
        drop(store);
        disk.heal();
        let store = Store::open(options, Arc::new(disk)).unwrap();
        assert_eq!(bodies(&store, "T", 0).len(), 100);
        put(&store, "T", 0, b"after");
        store.close().unwrap();
    }
}
