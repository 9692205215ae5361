//! How much of the log stays in the page cache: seen by reads of the real files that may not wait for the disk.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{get, open, put, real, small};
use pyrmq_store::{GetStatus, Options, Store};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SEGMENT: u64 = 4 << 20;
const WINDOW: u64 = 16 << 20;
const BODY: usize = 1 << 20;
const MESSAGES: u8 = 64;

/// A directory on a disk: all of a file in /tmp may be in memory whatever is done.
struct OnDisk(PathBuf);

impl OnDisk {
    fn new(name: &str) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn filled(directory: &Path, change: impl FnOnce(&mut Options)) -> Arc<Store> {
    let mut options = small(directory);
    options.segment_bytes = SEGMENT;
    options.flush_interval_ms = 20;
    options.index = false;
    change(&mut options);
    let store = open(options);
    for number in 0..MESSAGES {
        put(&store, "T", 0, &vec![number; BODY]);
    }
    store
}

/// True if the first part of a segment is in memory.
fn is_in_memory(directory: &Path, segment: u64) -> bool {
    let path = directory
        .join("commitlog")
        .join(format!("{:020}", segment * SEGMENT));
    let file = real().open_read(&path).unwrap();
    file.read_cached(&mut vec![0; 1 << 16], 1 << 16)
        .unwrap()
        .is_some()
}

fn wait_for(what: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !what() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

#[test]
fn what_lies_behind_the_window_leaves_memory_and_is_read_from_the_disk() {
    let directory = OnDisk::new("hot-window");
    let store = filled(&directory.0, |options| options.hot_log_bytes = WINDOW);
    assert!(
        wait_for(|| !is_in_memory(&directory.0, 0)),
        "the oldest segment stayed in memory"
    );
    // A segment has room for three records, as each is a little longer than its body.
    let last = u64::from(MESSAGES) / 3;
    assert!(is_in_memory(&directory.0, last), "the newest segment left memory");
    let got = get(&store, "T", 0, 0);
    assert_eq!(got.status, GetStatus::Found);
    assert!(
        is_in_memory(&directory.0, 0),
        "what a pull has read stays for others"
    );
    // Reading the rest of the backlog pushes it out.
    for offset in 0..i64::from(MESSAGES) - 20 {
        assert_eq!(get(&store, "T", 0, offset).status, GetStatus::Found);
    }
    assert!(
        wait_for(|| !is_in_memory(&directory.0, 0)),
        "a cold read stayed in memory"
    );
    store.close().unwrap();
}

#[test]
fn zero_leaves_the_log_to_the_system() {
    let directory = OnDisk::new("no-hot-window");
    let store = filled(&directory.0, |options| options.hot_log_bytes = 0);
    store.flush().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(is_in_memory(&directory.0, 0));
    store.close().unwrap();
}
