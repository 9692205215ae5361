//! Searches by key under difficult conditions: keys that very many messages share, index files that roll, an index that
//! lags.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test that cannot go on says so, and looks at files behind the store's back"
)]

mod common;

use common::{eventually, message, open, props, real, small};
use pyrmq_store::{
    FlushDiskType, KeyKind, KeyMatches, KeyQuery, MaintenanceTask, NewMessage, Options, Store,
};
use pyrmq_testkit::{FaultyDisk, SimDisk, TempDir};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

const NOW_MS: i64 = 1_800_000_000_000;
/// The keys of a message with many keys.
const MANY: usize = 8000;

fn put_with(store: &Store, key: &str, count: usize) -> i64 {
    let keys = vec![key; count].join(" ");
    let properties = props(&[("KEYS", &keys)]);
    let message = NewMessage {
        keys: Some(&keys),
        ..message("T", 0, b"body", &properties)
    };
    store.put(&message).unwrap().physical_offset
}

fn find(store: &Store, key: &str, end_ms: i64) -> KeyMatches {
    let query = KeyQuery {
        topic: "T",
        key,
        kind: KeyKind::Key,
        max_count: 64,
        begin_ms: 0,
        end_ms,
    };
    store.query(&query).unwrap()
}

fn simulated(slots: u32) -> Options {
    let mut options = small(Path::new("/data/store"));
    options.segment_bytes = 1 << 20;
    options.index_slots = slots;
    options.index_entries = 1 << 20;
    options
}

/// A store on a disk whose clock and reads the test controls.
fn on_held_disk(slots: u32) -> (SimDisk, FaultyDisk, Arc<Store>) {
    let sim = SimDisk::default();
    sim.set_now(NOW_MS);
    let disk = FaultyDisk::new(Arc::new(sim.session()));
    let store = Store::open_without_threads(simulated(slots), Arc::new(disk.clone())).unwrap();
    (sim, disk, store)
}

#[test]
fn entries_newer_than_the_search_cost_few_reads_however_many_messages_have_the_key() {
    let (sim, disk, store) = on_held_disk(200);
    put_with(&store, "hot", 1);
    sim.set_now(NOW_MS + 60_000);
    for _ in 0..20 {
        put_with(&store, "hot", MANY);
    }
    store.run(MaintenanceTask::Index).unwrap();
    let (before, _, _) = disk.counts();
    let found = find(&store, "hot", NOW_MS + 1000);
    let (after, _, _) = disk.counts();
    assert_eq!((found.count, found.is_complete), (1, true));
    assert!(
        after - before < 200,
        "{} reads for 160,000 entries",
        after - before
    );
}

#[test]
fn a_search_ends_at_the_limit_of_entries_and_reports_that_it_is_incomplete() {
    let (_sim, disk, store) = on_held_disk(1);
    for _ in 0..20 {
        put_with(&store, "oth", MANY);
    }
    store.run(MaintenanceTask::Index).unwrap();
    let (before, _, _) = disk.counts();
    let found = find(&store, "cold", i64::MAX);
    let (after, _, _) = disk.counts();
    assert_eq!((found.count, found.is_complete), (0, false));
    assert!(after - before < 200, "{} reads", after - before);
    assert!(!find(&store, "oth", i64::MAX).body.is_empty());
}

#[test]
fn a_search_that_leaves_out_messages_says_that_it_is_incomplete() {
    let dir = TempDir::new().unwrap();
    let store = Store::open_without_threads(small(dir.path()), real()).unwrap();
    for (stored, is_complete) in [(64, true), (65, false)] {
        while store.max_offset("T", 0) < stored {
            put_with(&store, "key", 1);
        }
        store.run(MaintenanceTask::Index).unwrap();
        let found = find(&store, "key", i64::MAX);
        assert_eq!((found.count, found.is_complete), (64, is_complete));
    }
    store.close().unwrap();
}

/// Runs a function on another thread; its result must arrive while the disk is blocked.
fn goes_on(work: impl FnOnce() + Send + 'static) {
    let (done, answer) = mpsc::channel();
    thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    answer
        .recv_timeout(Duration::from_secs(20))
        .expect("it is held up");
}

#[test]
fn a_search_that_waits_for_the_disk_holds_up_neither_senders_nor_the_index() {
    let (_sim, disk, store) = on_held_disk(200);
    put_with(&store, "hot", MANY);
    store.run(MaintenanceTask::Index).unwrap();
    store.run(MaintenanceTask::WriteIndex).unwrap();
    let _end = EndOfHang(disk.clone());
    disk.hang_reads(true);
    let (before, _, _) = disk.counts();
    let (searching, held) = (Arc::clone(&store), disk.clone());
    let search = thread::spawn(move || find(&searching, "hot", i64::MAX).count);
    eventually(|| held.counts().0 > before);
    let putting = Arc::clone(&store);
    goes_on(move || {
        put_with(&putting, "hot", 10);
        putting.run(MaintenanceTask::Index).unwrap();
    });
    disk.hang_reads(false);
    assert_eq!(search.join().unwrap(), 1);
    assert_eq!(find(&store, "hot", i64::MAX).count, 2);
}

/// Unblocks the disk on drop, so that a store can close if a test fails.
struct EndOfHang(FaultyDisk);

impl Drop for EndOfHang {
    fn drop(&mut self) {
        self.0.hang(false);
        self.0.hang_reads(false);
    }
}

#[test]
fn an_fsync_of_an_index_file_blocks_neither_senders_nor_searches() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let mut options = small(dir.path());
    options.segment_bytes = 8 << 20;
    options.index_entries = 16_000;
    let store = Store::open_without_threads(options, Arc::new(disk.clone())).unwrap();
    // The first file exists.
    put_with(&store, "k", 1);
    store.run(MaintenanceTask::Index).unwrap();
    let _end = EndOfHang(disk.clone());
    disk.hang(true);
    for _ in 0..3 {
        put_with(&store, "k", MANY);
    }
    let indexing = Arc::clone(&store);
    let index = thread::spawn(move || indexing.run(MaintenanceTask::Index).unwrap());
    // The first file is full, and waits for its fsync.
    let is_full = |path: &Path| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes.get(36..40) == Some(&16_000_i32.to_be_bytes())
    };
    eventually(|| {
        let files = fs::read_dir(dir.path().join("index"));
        files.is_ok_and(|mut files| files.any(|file| file.is_ok_and(|file| is_full(&file.path()))))
    });
    let putting = Arc::clone(&store);
    goes_on(move || {
        // More waiting keys than senders allow without helping.
        for _ in 0..140 {
            put_with(&putting, "k", MANY);
        }
    });
    disk.hang(false);
    index.join().unwrap();
    store.run(MaintenanceTask::Index).unwrap();
    assert!(find(&store, "k", i64::MAX).count > 0);
    store.close().unwrap();
}

fn index_again(dir: &Path) {
    fs::remove_dir_all(dir.join("index")).unwrap();
}

/// A closed store of several segments, with a key for each message.
fn closed(dir: &Path, count: usize) -> Vec<i64> {
    let store = open(small(dir));
    let body = vec![b'b'; 400];
    let put = |number: usize| {
        let key = format!("key{number}");
        let properties = props(&[("KEYS", &key)]);
        let message = NewMessage {
            keys: Some(&key),
            ..message("T", 0, &body, &properties)
        };
        store.put(&message).unwrap().physical_offset
    };
    let positions = (0..count).map(put).collect();
    store.close().unwrap();
    positions
}

#[test]
fn a_search_says_that_it_is_incomplete_without_an_index_and_until_one_is_made_again() {
    let dir = TempDir::new().unwrap();
    closed(dir.path(), 600);
    let search = |store: &Store, key: &str| {
        let found = find(store, key, i64::MAX);
        (found.count, found.is_complete)
    };
    index_again(dir.path());
    let store = Store::open_without_threads(small(dir.path()), real()).unwrap();
    assert_eq!(search(&store, "key0"), (0, false));
    // A message that is stored meanwhile waits for those before it.
    put_with(&store, "new", 1);
    assert!(!search(&store, "new").1);
    store.run(MaintenanceTask::Index).unwrap();
    assert_eq!(search(&store, "key0"), (1, true));
    assert_eq!(search(&store, "new"), (1, true));
    assert_eq!(search(&store, "none"), (0, true));
    store.close().unwrap();
    drop(store);
    let mut without_index = small(dir.path());
    without_index.index = false;
    let store = Store::open_without_threads(without_index, real()).unwrap();
    assert_eq!(search(&store, "key0"), (0, false));
}

#[test]
fn an_index_that_is_made_again_goes_on_behind_damage() {
    let dir = TempDir::new().unwrap();
    let positions = closed(dir.path(), 600);
    index_again(dir.path());
    let damaged = u64::try_from(positions[200]).unwrap();
    let name = format!("commitlog/{:020}", damaged / 65536 * 65536);
    let file = fs::OpenOptions::new()
        .write(true)
        .open(dir.path().join(name))
        .unwrap();
    file.write_all_at(&[0; 8], damaged % 65536).unwrap();
    let store = Store::open_without_threads(small(dir.path()), real()).unwrap();
    store.run(MaintenanceTask::Index).unwrap();
    let found = |number: usize| find(&store, &format!("key{number}"), i64::MAX).count;
    assert_eq!((found(199), found(200), found(201), found(599)), (1, 0, 1, 1));
}

#[test]
fn an_index_that_is_made_again_goes_on_where_retention_was_faster() {
    let dir = TempDir::new().unwrap();
    closed(dir.path(), 900);
    index_again(dir.path());
    let disk = FaultyDisk::default();
    let mut options = small(dir.path());
    options.file_reserved_hours = 0;
    let store = Store::open_without_threads(options, Arc::new(disk.clone())).unwrap();
    let _end = EndOfHang(disk.clone());
    disk.hang_reads(true);
    let (before, _, _) = disk.counts();
    let indexing = Arc::clone(&store);
    let index = thread::spawn(move || indexing.run(MaintenanceTask::Index).unwrap());
    eventually(|| disk.counts().0 > before);
    let cleaning = Arc::clone(&store);
    let clean = thread::spawn(move || cleaning.delete_expired().unwrap());
    eventually(|| store.health().min_physical_offset > 3 * 65536);
    disk.hang_reads(false);
    index.join().unwrap();
    clean.join().unwrap();
    assert_eq!(find(&store, "key899", i64::MAX).count, 1);
    assert!(find(&store, "key899", i64::MAX).is_complete);
}

#[test]
fn with_sync_flush_neither_a_key_nor_an_id_shows_what_is_not_durable() {
    let dir = TempDir::new().unwrap();
    let mut options = small(dir.path());
    options.flush = FlushDiskType::Sync;
    let store = Store::open_without_threads(options.clone(), real()).unwrap();
    let position = put_with(&store, "k", 1);
    store.run(MaintenanceTask::Index).unwrap();
    assert_eq!(find(&store, "k", i64::MAX).count, 0);
    assert!(store.readable_at(position).unwrap().is_none());
    store.flush().unwrap();
    assert_eq!(find(&store, "k", i64::MAX).count, 1);
    assert!(store.readable_at(position).unwrap().is_some());
    // The log after a kill is made durable before a search shows it.
    put_with(&store, "k", 1);
    let copy = TempDir::copy_of(dir.path()).unwrap();
    options.root = copy.path().to_owned();
    let again = Store::open_without_threads(options, real()).unwrap();
    let health = again.health();
    assert_eq!(health.flushed_offset, health.max_physical_offset);
    assert_eq!(again.max_offset("T", 0), 2);
}

/// Searches on a disk whose reads wait again and again until a sender has put a message. Returns the result, the number
/// of reads, and the number of puts that ended before the search did.
fn find_beside_a_sender(store: &Arc<Store>, disk: &FaultyDisk, end_ms: i64) -> (KeyMatches, u64, u32) {
    let _end = EndOfHang(disk.clone());
    let reads = || disk.counts().0;
    let before = reads();
    disk.hang_reads(true);
    let searching = Arc::clone(store);
    let search = thread::spawn(move || find(&searching, "hot", end_ms));
    eventually(|| reads() > before);
    let mut puts = 0;
    while !search.is_finished() {
        // The search continues after the put, so a put that waited for it would never end.
        put_with(store, "cold", 1);
        store.run(MaintenanceTask::Index).unwrap();
        puts += 1;
        let seen = reads();
        disk.hang_reads(false);
        eventually(|| reads() > seen || search.is_finished());
        disk.hang_reads(true);
    }
    (search.join().unwrap(), reads() - before, puts)
}

#[test]
fn a_key_of_a_million_entries_costs_few_reads_and_no_put_waits_for_them() {
    let (sim, disk, store) = on_held_disk(200);
    put_with(&store, "hot", 1);
    sim.set_now(NOW_MS + 60_000);
    for _ in 0..125 {
        put_with(&store, "hot", MANY);
    }
    store.run(MaintenanceTask::Index).unwrap();
    store.run(MaintenanceTask::WriteIndex).unwrap();
    for end_ms in [i64::MAX, NOW_MS + 1000] {
        let (found, reads, puts) = find_beside_a_sender(&store, &disk, end_ms);
        assert!(found.count > 0);
        assert!(reads < 300, "{reads} reads");
        assert!(puts > 0, "the search waited for nothing");
    }
}

/// Puts messages with keys `key0` and so on into an index of ten keys a file. Returns their positions.
fn in_many_files(disk: &FaultyDisk, root: &Path, count: usize) -> (Arc<Store>, Vec<i64>) {
    let mut options = small(root);
    options.index_entries = 11;
    let store = Store::open_without_threads(options, Arc::new(disk.clone())).unwrap();
    let put = |number: usize| put_with(&store, &format!("key{number}"), 1);
    let positions = (0..count).map(put).collect();
    store.run(MaintenanceTask::Index).unwrap();
    store.run(MaintenanceTask::WriteIndex).unwrap();
    (store, positions)
}

#[test]
fn an_index_file_that_somebody_deletes_makes_searches_incomplete() {
    let dir = TempDir::new().unwrap();
    // More than stay open.
    let (store, positions) = in_many_files(&FaultyDisk::default(), dir.path(), 1000);
    let search = |key: &str| {
        let found = find(&store, key, i64::MAX);
        (found.count, found.is_complete)
    };
    assert_eq!((search("key0"), search("key999")), ((1, true), (1, true)));
    let mut files: Vec<_> = fs::read_dir(dir.path().join("index")).unwrap().collect();
    files.sort_by_key(|file| file.as_ref().unwrap().file_name());
    fs::remove_file(files[0].as_ref().unwrap().path()).unwrap();
    assert_eq!(search("key0"), (0, false), "it may be in the file that is gone");
    assert_eq!(
        search("key999"),
        (1, false),
        "an older one may have this key, too"
    );
    let query = KeyQuery {
        topic: "T",
        key: "key999",
        kind: KeyKind::Key,
        max_count: 64,
        begin_ms: 0,
        end_ms: i64::MAX,
    };
    let found = store.query_from(&query, positions[500]).unwrap();
    assert_eq!((found.count, found.is_complete), (1, true), "the file is older");
}

#[test]
fn an_index_file_that_is_gone_does_not_stop_retention() {
    let dir = TempDir::new().unwrap();
    let mut options = small(dir.path());
    options.file_reserved_hours = 0;
    options.index_entries = 11;
    let store = Store::open_without_threads(options, real()).unwrap();
    for number in 0..1000 {
        put_with(&store, &format!("key{number}"), 1);
    }
    store.run(MaintenanceTask::Index).unwrap();
    store.flush().unwrap();
    let files = || fs::read_dir(dir.path().join("index")).unwrap();
    let oldest = files().map(|file| file.unwrap().path()).min().unwrap();
    fs::remove_file(oldest).unwrap();
    let before = files().count();
    store.delete_expired().unwrap();
    assert!(files().count() < before, "younger ones stay");
    let found = find(&store, "key999", i64::MAX);
    assert_eq!((found.count, found.is_complete), (1, true));
}

#[test]
fn the_newest_index_files_stay_open_and_a_search_from_a_position_opens_no_older_one() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let (store, _) = in_many_files(&disk, dir.path(), 200);
    let opens = || disk.opens("/index/");
    let before = opens();
    assert_eq!(find(&store, "key160", i64::MAX).count, 1);
    assert_eq!(opens(), before, "each of 20 files was opened");
    store.close().unwrap();
    drop(store);

    let dir = TempDir::new().unwrap();
    let (store, positions) = in_many_files(&disk, dir.path(), 1000);
    let query = |key| KeyQuery {
        topic: "T",
        key,
        kind: KeyKind::Key,
        max_count: 64,
        begin_ms: 0,
        end_ms: i64::MAX,
    };
    let before = opens();
    for (key, count) in [("key998", 1), ("key995", 1), ("key994", 0), ("none", 0)] {
        let found = store.query_from(&query(key), positions[995]).unwrap();
        assert_eq!((found.count, found.is_complete), (count, true), "{key}");
    }
    assert_eq!(opens(), before);
    assert_eq!(find(&store, "key994", i64::MAX).count, 1);
    assert!(opens() > before, "more files than stay open");
    let at = |position| store.offset_by_position("T", 0, position).unwrap();
    assert_eq!((at(0), at(positions[7]), at(positions[7] + 1)), (0, 7, 8));
    assert_eq!(at(i64::MAX), 1000);
    store.close().unwrap();
}

/// The index files, oldest first.
fn index_files(root: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(root.join("index")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn an_index_file_that_is_gone_is_built_again_at_the_next_start() {
    let whole = TempDir::new().unwrap();
    let (store, _) = in_many_files(&FaultyDisk::default(), whole.path(), 500);
    store.close().unwrap();
    drop(store);
    let files = index_files(whole.path());
    assert_eq!(files.len(), 50);
    let reopen = |root: &Path| {
        let mut options = small(root);
        options.index_entries = 11;
        Store::open_without_threads(options, real()).unwrap()
    };
    for gone in [0, 1, 25, 48, 49] {
        let dir = TempDir::copy_of(whole.path()).unwrap();
        let name = files[gone].file_name().unwrap();
        fs::remove_file(dir.path().join("index").join(name)).unwrap();
        let store = reopen(dir.path());
        let search = |key: &str| {
            let found = find(&store, key, i64::MAX);
            (found.count, found.is_complete)
        };
        let lost = format!("key{}", gone * 10 + 5);
        // What lies near the log's end is built at once.
        assert!(matches!(search(&lost), (0, false) | (1, true)), "file {gone}");
        store.run(MaintenanceTask::Index).unwrap();
        for key in ["key0", lost.as_str(), "key499"] {
            assert_eq!(search(key), (1, true), "file {gone}: {key}");
        }
    }
}

#[test]
fn index_files_stay_where_messages_between_them_have_no_key_or_are_gone() {
    let dir = TempDir::new().unwrap();
    let mut options = small(dir.path());
    options.index_entries = 11;
    let store = Store::open_without_threads(options.clone(), real()).unwrap();
    for number in 0..900 {
        // Ten keys fill a file, so these stand between two files.
        if number % 10 == 0 {
            let tagged = props(&[("TAGS", "")]);
            store.put(&message("T", 0, b"no key", "")).unwrap();
            store.put(&message("T", 0, b"an empty tag", &tagged)).unwrap();
        }
        put_with(&store, &format!("key{number}"), 1);
    }
    store.run(MaintenanceTask::Index).unwrap();
    store.close().unwrap();
    drop(store);
    let check = |is_gone: bool| {
        let before = index_files(dir.path());
        let inodes = |files: &[PathBuf]| -> Vec<u64> {
            let inode = |file: &PathBuf| fs::metadata(file).unwrap().ino();
            files.iter().map(inode).collect()
        };
        let inodes_before = inodes(&before);
        let store = Store::open_without_threads(options.clone(), real()).unwrap();
        let found = find(&store, "key899", i64::MAX);
        assert_eq!((found.count, found.is_complete), (1, true));
        assert_eq!(find(&store, "key0", i64::MAX).count, usize::from(!is_gone));
        store.close().unwrap();
        let after = index_files(dir.path());
        assert_eq!(inodes(&after), inodes_before, "is gone: {is_gone}");
    };
    check(false);
    // With this segment go all records of the oldest files and some of another one.
    fs::remove_file(dir.path().join("commitlog/00000000000000000000")).unwrap();
    check(true);
}

/// Closes a store with three full index files and a fourth one. Between the first two lie messages without keys, more
/// than a start reads.
fn closed_with_a_gap(root: &Path) -> Options {
    let mut options = small(root);
    options.segment_bytes = 1 << 20;
    options.index_entries = 11;
    let store = Store::open_without_threads(options.clone(), real()).unwrap();
    for number in 0..35 {
        if number == 10 {
            let body = vec![b'x'; 16 << 10];
            for _ in 0..160 {
                store.put(&message("T", 0, &body, "")).unwrap();
            }
        }
        put_with(&store, &format!("key{number}"), 1);
    }
    store.run(MaintenanceTask::Index).unwrap();
    store.close().unwrap();
    assert_eq!(index_files(root).len(), 4);
    options
}

#[test]
fn an_index_file_that_is_gone_is_noticed_behind_messages_without_keys() {
    for damage in [false, true] {
        let dir = TempDir::new().unwrap();
        let options = closed_with_a_gap(dir.path());
        fs::remove_file(&index_files(dir.path())[1]).unwrap();
        if damage {
            // The head of a record among those without keys.
            let segment = dir.path().join("commitlog/00000000000000000000");
            let file = fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(segment)
                .unwrap();
            let mut bytes = vec![0; 1 << 20];
            file.read_exact_at(&mut bytes, 0).unwrap();
            let body = bytes.windows(100).position(|part| part == [b'x'; 100]).unwrap();
            file.write_all_at(&[0xEE; 84], u64::try_from(body).unwrap() - 88)
                .unwrap();
        }
        let store = Store::open_without_threads(options.clone(), real()).unwrap();
        let search = |store: &Store, key: &str| {
            let found = find(store, key, i64::MAX);
            (found.count, found.is_complete)
        };
        assert_eq!(search(&store, "key15"), (0, false), "the gap is not read yet");
        for _ in 0..2 {
            store.run(MaintenanceTask::Index).unwrap();
        }
        let all = |store: &Store| {
            for number in 0..35 {
                assert_eq!(
                    search(store, &format!("key{number}")),
                    (1, true),
                    "{number}, {damage}"
                );
            }
        };
        all(&store);
        store.close().unwrap();
        drop(store);
        let store = open(options);
        eventually(|| search(&store, "key15") == (1, true));
        all(&store);
    }
}

#[test]
fn messages_without_keys_between_index_files_are_read_after_the_start() {
    let dir = TempDir::new().unwrap();
    let options = closed_with_a_gap(dir.path());
    let inodes = || -> Vec<u64> {
        let inode = |file: &PathBuf| fs::metadata(file).unwrap().ino();
        index_files(dir.path()).iter().map(inode).collect()
    };
    let before = inodes();
    let store = Store::open_without_threads(options, real()).unwrap();
    let found = find(&store, "key15", i64::MAX);
    assert_eq!(
        (found.count, found.is_complete),
        (1, false),
        "a file may be missing"
    );
    store.run(MaintenanceTask::Index).unwrap();
    let found = find(&store, "key15", i64::MAX);
    assert_eq!((found.count, found.is_complete), (1, true));
    store.close().unwrap();
    assert_eq!(inodes(), before, "no file is built again");
}
