//! A directory that the broker's user may not write: the start names it, and changes nothing.
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

use common::{again, content, open, put, real, small};
use pyrmq_store::{Store, StoreError};
use pyrmq_testkit::TempDir;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

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
