//! Shared by the store's tests.
#![allow(dead_code, reason = "each test file uses a part of this")]
#![allow(
    clippy::disallowed_methods,
    reason = "the tests look at files behind the store's back"
)]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot go on says so"
)]

use pyrmq_remoting::message::record::{Records, records};
use pyrmq_remoting::message::{java_hash, properties};
use pyrmq_store::fs::RealFs;
use pyrmq_store::{
    Fs, GetMessage, GetMessageResult, GetStatus, NewMessage, Options, Store, StoreError, Stored, TagFilter,
};
use pyrmq_testkit::TempDir;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Options with small files, so that a test uses several of them.
pub(crate) fn small(root: &Path) -> Options {
    let mut options = Options::new(root);
    options.segment_bytes = 64 * 1024;
    options.queue_file_bytes = 2000;
    options.index_slots = 200;
    options.index_entries = 1000;
    options
}

pub(crate) fn real() -> Arc<dyn Fs> {
    Arc::new(RealFs)
}

pub(crate) fn open(options: Options) -> Arc<Store> {
    Store::open(options, real()).expect("the store opens")
}

pub(crate) fn host(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

pub(crate) fn message<'a>(
    topic: &'a str,
    queue_id: i32,
    body: &'a [u8],
    properties: &'a str,
) -> NewMessage<'a> {
    let view = properties::Properties::new(properties);
    let tag = view.get("TAGS");
    NewMessage {
        topic,
        queue_id,
        flag: 7,
        sys_flag: 0,
        born_timestamp_ms: 1_700_000_000_000,
        born_host: host("127.0.0.1:40000"),
        store_host: host("127.0.0.1:10911"),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties: properties.into(),
        tags_code: java_hash::tags_code(tag),
        unique_key: view.get("UNIQ_KEY"),
        keys: view.get("KEYS"),
        tag,
    }
}

/// Properties in wire form.
pub(crate) fn props(pairs: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        properties::append(&mut text, name, value);
    }
    text
}

pub(crate) fn put(store: &Store, topic: &str, queue_id: i32, body: &[u8]) -> Stored {
    store
        .put(&message(topic, queue_id, body, ""))
        .expect("the message is stored")
}

pub(crate) fn get(store: &Store, topic: &str, queue_id: i32, offset: i64) -> GetMessageResult {
    try_get(store, topic, queue_id, offset).expect("the pull is answered")
}

pub(crate) fn try_get(
    store: &Store,
    topic: &str,
    queue_id: i32,
    offset: i64,
) -> Result<GetMessageResult, StoreError> {
    store.get(&GetMessage {
        topic,
        queue_id,
        offset,
        max_count: 32,
        max_bytes: 1 << 20,
        tags: TagFilter::All,
    })
}

/// Returns all bodies of a queue from its oldest message on, and checks the indexes.
pub(crate) fn bodies(store: &Store, topic: &str, queue_id: i32) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut offset = store.min_offset(topic, queue_id);
    loop {
        let got = get(store, topic, queue_id, offset);
        if got.status != GetStatus::Found {
            assert_eq!(
                offset,
                store.max_offset(topic, queue_id),
                "{:?} at {offset}",
                got.status
            );
            return all;
        }
        let start = offset;
        for (number, record) in decoded(&got.body).enumerate() {
            let record = record.expect("a sound record");
            record.check_body().expect("a sound body");
            assert_eq!(record.queue_offset, start + i64::try_from(number).unwrap());
            assert_eq!((record.topic, record.queue_id), (topic, queue_id));
            all.push(record.body.to_vec());
        }
        offset = got.next_offset;
    }
}

pub(crate) fn decoded(body: &[u8]) -> Records<'_> {
    records(body)
}

/// Waits until a condition holds.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < std::time::Duration::from_secs(20),
            "it never came"
        );
        std::thread::yield_now();
    }
}

/// Returns every file below a directory with its bytes, except the lock.
pub(crate) fn content(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.file_name().unwrap() != "lock" {
                let bytes = std::fs::read(&path).unwrap();
                all.insert(path, bytes);
            }
        }
    }
    all
}

/// A test lacks something of this machine. That is a failure in CI, which has it: a test that is skipped in silence
/// proves nothing.
pub(crate) fn skip(why: &str) {
    let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!is_ci, "nothing may be skipped with CI=true: {why}");
    eprintln!("skipped: {why}");
}

/// Runs one test of a file again under a system command, if that is allowed here, with a variable for the inner run.
/// The program is in a place that everybody may read. The command exits with 77 if it lacks a permission.
pub(crate) fn again(program: &str, arguments: &[&str], test: &str, (variable, place): (&str, &Path)) {
    let home = TempDir::new().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = home.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let output = Command::new(program)
        .args(arguments)
        .args([copy.as_os_str(), test.as_ref()])
        .env(variable, place)
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => return skip(&format!("there is no {program} here: {error}")),
    };
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) || text.starts_with(program) {
        return skip(&format!("this system does not let {program} do it: {text}"));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}\n{text}"
    );
}
