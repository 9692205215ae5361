//! One broker on a directory: within a process and between processes.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on says so, and opens files behind the store's back"
)]

mod common;

use common::{open, real, small};
use pyrmq_store::{Store, StoreError};
use pyrmq_testkit::TempDir;
use std::fs::File;
use std::path::Path;
use std::process::Command;

const DIRECTORY: &str = "PYRMQ_LOCK_DIRECTORY";

/// The other process's part of the test. Without the variable it does nothing.
#[test]
fn child_opens_the_directory() {
    if let Ok(root) = std::env::var(DIRECTORY) {
        open(small(Path::new(&root)));
    }
}

/// Returns whether another process can open the directory.
fn is_free(root: &Path) -> bool {
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_opens_the_directory", "--test-threads=1"])
        .env(DIRECTORY, root)
        .output()
        .unwrap();
    done.status.success()
}

fn is_refused(root: &Path) {
    let error = Store::open(small(root), real()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
}

#[test]
fn a_refused_second_broker_of_a_process_leaves_the_first_one_locked() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    is_refused(dir.path());
    assert!(!is_free(dir.path()), "another process was let in");
    let link = dir.path().with_extension("link");
    std::os::unix::fs::symlink(dir.path(), &link).unwrap();
    is_refused(&link);
    std::fs::remove_file(&link).unwrap();
    assert!(!is_free(dir.path()), "another process was let in");
    drop(store);
    assert!(is_free(dir.path()), "nobody holds it");
    open(small(dir.path())).close().unwrap();
}

#[test]
fn many_threads_that_open_a_directory_leave_it_to_one_of_them() {
    let dir = TempDir::new().unwrap();
    let opened: Vec<_> = std::thread::scope(|scope| {
        let opening: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| Store::open(small(dir.path()), real()).ok()))
            .collect();
        opening
            .into_iter()
            .filter_map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(opened.len(), 1);
    assert!(!is_free(dir.path()), "another process was let in");
}

#[test]
fn code_that_opens_and_closes_the_lock_file_lets_no_other_broker_of_ours_in() {
    let dir = TempDir::new().unwrap();
    let _store = open(small(dir.path()));
    drop(File::open(dir.path().join("lock")).unwrap());
    assert!(!is_free(dir.path()), "another process was let in");
}

#[test]
fn a_lock_file_that_somebody_deletes_lets_no_other_broker_of_ours_in() {
    let dir = TempDir::new().unwrap();
    let store = open(small(dir.path()));
    std::fs::remove_file(dir.path().join("lock")).unwrap();
    assert!(!is_free(dir.path()), "another process was let in");
    is_refused(dir.path());
    assert!(
        !dir.path().join("lock").exists(),
        "a refused store left a lock file"
    );
    drop(store);
    assert!(is_free(dir.path()), "nobody holds it");
    open(small(dir.path())).close().unwrap();
}
