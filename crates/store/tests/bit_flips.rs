//! Single flipped bits in every kind of file, after a clean stop and after a kill: the damage is reported or harmless,
//! nothing panics, and no message comes back with a wrong body. A table in docs/store.md has the outcomes.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::{message, props, small, try_get};
use pyrmq_remoting::message::record::records;
use pyrmq_remoting::message::{Record, java_hash};
use pyrmq_remoting::names::TIMER_TOPIC;
use pyrmq_store::fs::{File, Fs};
use pyrmq_store::{
    GetStatus, KeyKind, KeyQuery, MaintenanceTask, Options, Store, StoreError, TIMER_QUEUE, TimerStore,
    TimerUnit,
};
use pyrmq_testkit::sim::{Loss, Session};
use pyrmq_testkit::{Random, SimDisk};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MESSAGES: usize = 200;
/// In every ninth message, properties end with a zero byte, which needs a note in `nulRecords`.
const NUL_EVERY: usize = 9;
/// Flips in each kind of file, after each kind of stop.
const FLIPS: u64 = 50;

const DELETED: &str = "Deleted";

fn body(number: usize) -> String {
    format!("{number:0width$}", width = 20 + number % 100)
}

fn options() -> Options {
    let mut options = small(Path::new("/store"));
    options.segment_bytes = 16 << 10;
    options.queue_file_bytes = 1000;
    options
}

/// Builds a disk with messages in several segments, queue and index files.
fn filled(clean: bool) -> SimDisk {
    let disk = SimDisk::default();
    disk.set_now(1_800_000_000_000);
    let session = disk.session();
    let store = Store::open_without_threads(options(), Arc::new(session.clone())).unwrap();
    for number in 0..5 {
        store
            .put(&message(DELETED, 0, body(number).as_bytes(), ""))
            .unwrap();
    }
    store.delete_topic(DELETED).unwrap();
    for number in 0..MESSAGES {
        let mut properties = props(&[("UNIQ_KEY", &format!("U{number}"))]);
        if number % NUL_EVERY == 0 {
            properties.push_str("note\u{1}\0");
        }
        store
            .put(&message(
                "T",
                i32::try_from(number % 3).unwrap(),
                body(number).as_bytes(),
                &properties,
            ))
            .unwrap();
        disk.set_now(disk.now() + 100);
        if number == MESSAGES / 2 {
            // Up to here log and queues are durable, after it only the log.
            store.run(MaintenanceTask::Flush).unwrap();
            store.run(MaintenanceTask::SyncQueues).unwrap();
        }
    }
    for task in [
        MaintenanceTask::Flush,
        MaintenanceTask::Index,
        MaintenanceTask::WriteIndex,
        MaintenanceTask::WriteQueues,
        MaintenanceTask::SaveCheckpoint,
    ] {
        store.run(task).unwrap();
    }
    if clean {
        store.close().unwrap();
    }
    session.kill();
    disk
}

fn files(fs: &dyn Fs, directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs.list(directory).unwrap() {
        let path = directory.join(&entry.name);
        if entry.is_directory {
            files(fs, &path, found);
        } else if entry.length > 0 {
            found.push(path);
        }
    }
}

/// Flips one bit among the first bytes that are not all zero.
fn flip(file: &dyn File, random: &mut Random) -> u64 {
    let mut bytes = vec![0; usize::try_from(file.length().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let used = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(1, |last| last + 1);
    let at = random.below(used);
    bytes[at] ^= 1 << random.below(8);
    file.write_all_at(&bytes[at..=at], at as u64).unwrap();
    at as u64
}

/// Reads everything that can be read, and returns the number of messages whose body is right and wrong by its checksum;
/// `None` if a record cannot be decoded.
fn read_all(store: &Store) -> Result<Option<(usize, usize)>, StoreError> {
    let (mut count, mut damaged) = (0, 0);
    for queue in 0..3 {
        let mut offset = store.min_offset("T", queue);
        loop {
            let got = try_get(store, "T", queue, offset)?;
            if got.status != GetStatus::Found {
                let is_end = matches!(
                    got.status,
                    GetStatus::OffsetOverflowOne | GetStatus::NoMatchedLogicQueue
                );
                assert!(is_end, "{:?} at {offset} of queue {queue}", got.status);
                break;
            }
            for record in records(&got.body) {
                let Ok(record) = record else {
                    return Ok(None);
                };
                if record.check_body().is_err() {
                    // Its reader sees that too.
                    damaged += 1;
                    continue;
                }
                let text = std::str::from_utf8(record.body).expect("text");
                let number: usize = text.parse().expect("a number");
                assert_eq!(text, body(number), "a body that was not put");
                count += 1;
            }
            offset = got.next_offset;
        }
    }
    Ok(Some((count, damaged)))
}

/// What came of a flip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// All messages are there.
    Harmless,
    /// The start is refused with the file's name.
    Refused,
    /// A read is refused, and the next start rebuilds the queues.
    Healed,
    /// The read of one record is refused, also after the next start, which goes on.
    Unreadable,
    /// One body fails its checksum, which its reader checks.
    BadChecksum,
    /// The client that reads a record refuses it.
    Undecodable,
    /// The newest messages are cut off, with a warning.
    Cut,
    /// A deleted topic is back.
    TopicIsBack,
}

impl Outcome {
    fn text(self) -> &'static str {
        match self {
            Self::Harmless => "harmless",
            Self::Refused => "start refused",
            Self::Healed => "read refused, then rebuilt",
            Self::Unreadable => "read of one record refused",
            Self::BadChecksum => "wrong checksum of a body",
            Self::Undecodable => "record not decodable",
            Self::Cut => "newest messages cut",
            Self::TopicIsBack => "deleted topic is back",
        }
    }
}

/// Opens a store with a flipped bit and reads everything; panics where a message comes back wrong.
fn outcome(session: &Session, place: &str) -> Outcome {
    let open = || Store::open_without_threads(options(), Arc::new(session.clone()));
    let store = match open() {
        Ok(store) => store,
        Err(error @ (StoreError::Damaged { .. } | StoreError::Newer { .. })) => {
            assert!(error.to_string().contains("/store/"), "{place}: {error}");
            return Outcome::Refused;
        }
        Err(error) => panic!("{place}: {error}"),
    };
    check_keys(&store, place);
    match read_all(&store) {
        Ok(None) => Outcome::Undecodable,
        Ok(Some((MESSAGES, 0))) if store.max_offset(DELETED, 0) > 0 => Outcome::TopicIsBack,
        Ok(Some((MESSAGES, 0))) => Outcome::Harmless,
        Ok(Some((sound, 1))) if sound == MESSAGES - 1 => Outcome::BadChecksum,
        Ok(Some((sound, 0))) if sound < MESSAGES => Outcome::Cut,
        Ok(counts) => panic!("{place}: {counts:?}"),
        Err(StoreError::QueueMismatch { .. }) => {
            store.close().unwrap();
            let damage = store.health().damage;
            drop(store);
            let again = open().unwrap_or_else(|error| panic!("{place}: {error}"));
            match read_all(&again) {
                Ok(healed) => {
                    assert_eq!(healed, Some((MESSAGES, 0)), "{place}: the next start heals");
                    assert_eq!(damage, None, "{place}");
                    Outcome::Healed
                }
                // The record is damaged, not the queue.
                Err(StoreError::QueueMismatch { .. }) => {
                    assert!(damage.is_some(), "{place}: it is reported");
                    Outcome::Unreadable
                }
                Err(error) => panic!("{place}: {error}"),
            }
        }
        Err(error) => panic!("{place}: {error}"),
    }
}

/// Searches by unique key: wrong entries find nothing; they never find another message.
fn check_keys(store: &Store, place: &str) {
    for number in (0..MESSAGES).step_by(17) {
        let key = format!("U{number}");
        let found = store.query(&KeyQuery {
            topic: "T",
            key: &key,
            kind: KeyKind::Unique,
            max_count: 4,
            begin_ms: 0,
            end_ms: i64::MAX,
        });
        for record in records(&found.unwrap().body).flatten() {
            assert_eq!(record.properties.get("UNIQ_KEY"), Some(key.as_str()), "{place}");
            assert!(
                record.check_body().is_err() || record.body == body(number).as_bytes(),
                "{place}"
            );
        }
    }
}

/// Flips a bit in one of the files below a path, once for each seed, and counts the outcomes.
fn flip_each(below: &str, is_clean: bool) -> BTreeMap<Outcome, u64> {
    let whole = filled(is_clean);
    let mut outcomes = BTreeMap::new();
    for seed in 0..FLIPS {
        let mut random = Random::of(&[seed, u64::from(is_clean)]);
        let disk = whole.crash(whole.steps(), Loss::Nothing, 0);
        let session = disk.session();
        let mut all = Vec::new();
        files(&session, Path::new("/store"), &mut all);
        all.retain(|path| path.starts_with(Path::new("/store").join(below)));
        if all.is_empty() {
            return outcomes;
        }
        let path = random.choose(&all).unwrap().clone();
        let at = flip(session.open(&path).unwrap().as_ref(), &mut random);
        let place = format!("seed {seed}, clean {is_clean}: byte {at} of {}", path.display());
        *outcomes.entry(outcome(&session, &place)).or_default() += 1;
        session.kill();
    }
    outcomes
}

/// A row of the table in docs/store.md: how often each outcome came after a clean stop, and after a kill.
fn row<O: Ord>(file: &str, text: impl Fn(&O) -> &'static str, outcomes: &[BTreeMap<O, u64>; 2]) -> String {
    let cell = |outcomes: &BTreeMap<O, u64>| {
        let parts = outcomes
            .iter()
            .map(|(outcome, count)| format!("{count} {}", text(outcome)));
        parts.collect::<Vec<_>>().join(", ")
    };
    let [clean, killed] = outcomes;
    format!("| `{file}` | {} | {} |\n", cell(clean), cell(killed))
}

fn assert_documented(rows: &str) {
    assert!(
        include_str!("../../../docs/store.md").contains(rows),
        "docs/store.md has other rows, these are true:\n{rows}"
    );
}

#[test]
fn one_flipped_bit_is_found_or_harmless_and_never_a_wrong_message() {
    use Outcome::{BadChecksum, Cut, Harmless, Healed, Refused, Undecodable, Unreadable};
    let kinds: [(&str, &[Outcome]); 8] = [
        (
            "commitlog",
            &[Harmless, Refused, BadChecksum, Undecodable, Unreadable, Cut],
        ),
        ("consumequeue", &[Harmless, Healed]),
        ("index", &[Harmless]),
        ("checkpoint", &[Harmless]),
        ("abort", &[Harmless]),
        ("queueEnds", &[Harmless]),
        ("deletedTopics", &[Harmless]),
        ("nulRecords", &[Harmless]),
    ];
    let mut rows = String::new();
    for (below, allowed) in kinds {
        let outcomes = [true, false].map(|is_clean| flip_each(below, is_clean));
        for outcome in outcomes.iter().flat_map(BTreeMap::keys) {
            assert!(allowed.contains(outcome), "{below}: {outcomes:?}");
        }
        rows += &row(below, |outcome: &Outcome| outcome.text(), &outcomes);
    }
    assert_documented(&rows);
}

const TIMER_MESSAGES: usize = 160;
const TIMER_START_MS: i64 = 1_800_000_000_000;
/// The wheel takes 38 MB of the simulated disk, so there are fewer flips.
const TIMER_FLIPS: u64 = 12;

/// Due times of the timer's messages: four to a step.
fn due_ms(number: usize) -> i64 {
    TIMER_START_MS + 1000 * (5 + i64::try_from(number / 4).unwrap())
}

fn timer_options() -> Options {
    let mut options = options();
    options.index = false;
    options.timer.log_file_bytes = 4096;
    options
}

/// Builds a disk with messages that wait in the timer, in several files of its log.
fn waiting(is_clean: bool) -> SimDisk {
    let disk = SimDisk::default();
    disk.set_now(TIMER_START_MS);
    let session = disk.session();
    let fs: Arc<dyn Fs> = Arc::new(session.clone());
    let store = Store::open_without_threads(timer_options(), Arc::clone(&fs)).unwrap();
    let mut timers = TimerStore::open(&store, &fs).unwrap();
    for number in 0..TIMER_MESSAGES {
        let due = due_ms(number).to_string();
        let properties = props(&[("TIMER_OUT_MS", &due), ("REAL_TOPIC", "T")]);
        let text = body(number);
        let stored = store
            .put(&message(TIMER_TOPIC, TIMER_QUEUE, text.as_bytes(), &properties))
            .unwrap();
        let unit = TimerUnit {
            previous: -1,
            magic: TimerUnit::DEFAULT,
            written_ms: TIMER_START_MS,
            delay_ms: i32::try_from(due_ms(number) - TIMER_START_MS).unwrap(),
            position: stored.physical_offset,
            size: i32::try_from(stored.end_position - stored.physical_offset).unwrap(),
            topic_hash: java_hash::hash("T"),
        };
        timers.add(&unit, due_ms(number)).unwrap();
        timers.set_queue_offset(stored.queue_offset + 1);
    }
    store.run(MaintenanceTask::Flush).unwrap();
    let progress = timers.progress();
    timers.save(&progress).unwrap();
    if is_clean {
        store.close().unwrap();
    }
    session.kill();
    disk
}

/// Opens the timer with a flipped bit and takes out everything that is due, as the broker does. Returns how many
/// messages are missing, or `None` if the start was refused.
fn missing(session: &Session, place: &str) -> Option<usize> {
    let fs: Arc<dyn Fs> = Arc::new(session.clone());
    let store = Store::open_without_threads(timer_options(), Arc::clone(&fs)).unwrap();
    let mut timers = match TimerStore::open(&store, &fs) {
        Ok(timers) => timers,
        Err(error) => {
            assert!(error.to_string().contains("/store/"), "{place}: {error}");
            return None;
        }
    };
    let mut found = BTreeSet::new();
    // What the log of the timer lacks is still in its queue.
    for offset in timers.queue_offset()..store.max_offset(TIMER_TOPIC, TIMER_QUEUE) {
        found.insert(usize::try_from(offset).unwrap());
    }
    let mut steps = 0;
    while let Some(time_ms) = timers.next_ms() {
        for unit in timers.slot(time_ms).unwrap() {
            let Some(bytes) = store.record_at(unit.position).unwrap() else {
                continue;
            };
            let record = Record::decode(&bytes).unwrap();
            record.check_body().unwrap();
            assert_eq!(record.topic, TIMER_TOPIC, "{place}");
            let number: usize = std::str::from_utf8(record.body).unwrap().parse().unwrap();
            assert_eq!(record.body, body(number).as_bytes(), "{place}");
            found.insert(number);
        }
        timers.done(time_ms);
        steps += 1;
        assert!(steps <= TIMER_MESSAGES, "{place}: the wheel goes round and round");
    }
    Some(TIMER_MESSAGES - found.len())
}

/// Flips a bit in one of the timer's files below a path, once for each seed, and counts how many messages are missing.
fn flip_each_of_timer(below: &str, is_clean: bool) -> BTreeMap<Option<usize>, u64> {
    let whole = waiting(is_clean);
    let mut outcomes = BTreeMap::new();
    for seed in 0..TIMER_FLIPS {
        let mut random = Random::of(&[seed, u64::from(is_clean)]);
        let disk = whole.crash(whole.steps(), Loss::Nothing, 0);
        let session = disk.session();
        let mut all = Vec::new();
        files(&session, Path::new("/store"), &mut all);
        all.retain(|path| path.starts_with(Path::new("/store").join(below)));
        let path = random.choose(&all).unwrap().clone();
        let at = flip(session.open(&path).unwrap().as_ref(), &mut random);
        let place = format!("seed {seed}, clean {is_clean}: byte {at} of {}", path.display());
        *outcomes.entry(missing(&session, &place)).or_default() += 1;
        session.kill();
    }
    outcomes
}

#[test]
fn one_flipped_bit_in_the_timers_files_costs_one_message_at_most() {
    let mut rows = String::new();
    for below in ["timerlog", "timerwheel", "config/timercheck"] {
        let outcomes = [true, false].map(|is_clean| flip_each_of_timer(below, is_clean));
        for missing in outcomes.iter().flat_map(BTreeMap::keys) {
            assert!(missing.is_none_or(|count| count <= 1), "{below}: {outcomes:?}");
        }
        let text = |missing: &Option<usize>| match missing {
            None => "start refused",
            Some(0) => "harmless",
            Some(_) => "one message not delivered",
        };
        rows += &row(below, text, &outcomes);
    }
    assert_documented(&rows);
}
