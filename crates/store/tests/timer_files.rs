//! The timer's files byte for byte, and starts with files that were damaged or written by others.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test that looks into files and damages them"
)]

mod common;

use common::{message, props, real, small};
use proptest::prelude::*;
use pyrmq_remoting::clock;
use pyrmq_remoting::names::TIMER_TOPIC;
use pyrmq_store::{FlushDiskType, Options, Store, StoreError, TIMER_QUEUE, TimerStore, TimerUnit};
use pyrmq_testkit::TempDir;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Slots of the wheel.
const SLOTS: i64 = 2 * 7 * 86_400;

fn options(root: &Path) -> Options {
    let mut options = small(root);
    options.index = false;
    options.flush = FlushDiskType::Sync;
    options.timer.log_file_bytes = 4096;
    options
}

fn open(root: &Path) -> (Arc<Store>, TimerStore) {
    let store = Store::open(options(root), real()).unwrap();
    let timers = TimerStore::open(&store, &real()).unwrap();
    (store, timers)
}

fn now_ms() -> i64 {
    clock::now_ms() / 1000 * 1000
}

/// Stores a message due at a time and adds its unit.
fn add(store: &Store, timers: &mut TimerStore, due_ms: i64, magic: i32) -> TimerUnit {
    add_to_slot(store, timers, due_ms, due_ms, magic)
}

/// Stores a message due at a time and adds a unit that waits until another.
fn add_to_slot(store: &Store, timers: &mut TimerStore, slot_ms: i64, due_ms: i64, magic: i32) -> TimerUnit {
    let text = props(&[("TIMER_OUT_MS", &due_ms.to_string()), ("REAL_TOPIC", "T")]);
    let stored = store
        .put(&message(TIMER_TOPIC, TIMER_QUEUE, b"x", &text))
        .unwrap();
    let unit = TimerUnit {
        previous: -1,
        magic,
        written_ms: now_ms(),
        delay_ms: i32::try_from(slot_ms - now_ms()).unwrap_or(i32::MAX),
        position: stored.physical_offset,
        size: i32::try_from(stored.end_position - stored.physical_offset).unwrap(),
        topic_hash: 84,
    };
    timers.add(&unit, due_ms).unwrap();
    timers.set_queue_offset(stored.queue_offset + 1);
    unit
}

fn save(timers: &mut TimerStore) {
    let progress = timers.progress();
    timers.save(&progress).unwrap();
}

fn long(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(*bytes[at..].first_chunk().unwrap())
}

fn int(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(*bytes[at..].first_chunk().unwrap())
}

#[test]
fn files_have_apaches_layout() {
    let dir = TempDir::new().unwrap();
    let (store, mut timers) = open(dir.path());
    let due_ms = now_ms() + 5000;
    assert!(
        !dir.path().join("timerwheel").exists(),
        "nothing is made before the first message"
    );
    let units: Vec<TimerUnit> = (0..79).map(|_| add(&store, &mut timers, due_ms, 1)).collect();
    let taken_back = add(&store, &mut timers, due_ms, 1 | TimerUnit::DELETE);
    save(&mut timers);
    let log = fs::read(dir.path().join("timerlog").join("00000000000000000000")).unwrap();
    assert_eq!(log.len(), 4096);
    let unit = &log[52..104];
    assert_eq!((int(unit, 0), long(unit, 4), int(unit, 12)), (52, 0, 1));
    assert_eq!(long(unit, 16) + i64::from(int(unit, 24)), due_ms);
    assert_eq!(
        (long(unit, 28), int(unit, 36)),
        (units[1].position, units[1].size)
    );
    assert_eq!((int(unit, 40), long(unit, 44)), (84, 0));
    // 78 units and a blank that holds the number of remaining bytes.
    let blank = &log[78 * 52..];
    assert_eq!((int(blank, 0), long(blank, 4)), (40, 0));
    assert_eq!(int(blank, 12), 0xCBD4_3194_u32.cast_signed());
    let next = fs::read(dir.path().join("timerlog").join("00000000000000004096")).unwrap();
    assert_eq!((int(&next, 0), long(&next, 4)), (52, 77 * 52));
    assert_eq!((int(&next, 52 + 12), long(&next, 52 + 4)), (5, 4096));
    assert_eq!(long(&next, 52 + 28), taken_back.position);
    let wheel = fs::read(dir.path().join("timerwheel")).unwrap();
    assert_eq!(i64::try_from(wheel.len()).unwrap(), SLOTS * 32);
    let step = due_ms / 1000;
    let slot = &wheel[usize::try_from(step % SLOTS).unwrap() * 32..][..32];
    assert_eq!(
        (long(slot, 0), long(slot, 8), long(slot, 16)),
        (step, 0, 4096 + 52)
    );
    assert_eq!((int(slot, 24), int(slot, 28)), (78, 0));
    let check = fs::read(dir.path().join("config").join("timercheck")).unwrap();
    assert_eq!(check.len(), 4096);
    assert_eq!(long(&check, 0), timers.read_ms());
    assert_eq!(
        (long(&check, 8), long(&check, 16), long(&check, 24)),
        (4096 + 104, 80, 80)
    );
    assert_eq!((long(&check, 32), long(&check, 48)), (0, 1));
    assert_eq!(timers.checkpoint_bytes(), check[..56]);
    store.close().unwrap();
}

#[test]
fn unsaved_units_are_found_in_the_log_and_the_rest_in_the_topic() {
    let dir = TempDir::new().unwrap();
    let (store, mut timers) = open(dir.path());
    let due_ms = now_ms() + 60_000;
    add(&store, &mut timers, due_ms, 1);
    save(&mut timers);
    for at in 0..200 {
        add(&store, &mut timers, due_ms + at % 3 * 1000, 1);
    }
    timers.write_out().unwrap();
    // In the topic only.
    add(&store, &mut timers, due_ms, 1);
    drop(timers);
    store.close().unwrap();
    let (store, mut timers) = open(dir.path());
    assert_eq!(timers.queue_offset(), 201);
    assert_eq!(timers.slot(due_ms).unwrap().len(), 1 + 67);
    assert_eq!(timers.count(), 201);
    assert_eq!(timers.next_ms(), Some(due_ms));
    store.close().unwrap();
}

#[test]
fn a_wheel_that_was_lost_or_points_behind_the_log_is_made_again() {
    for damage in ["timerwheel", "timerlog/00000000000000008192", "timerlog"] {
        let dir = TempDir::new().unwrap();
        let (store, mut timers) = open(dir.path());
        let due_ms = now_ms() + 60_000;
        for at in 0..200 {
            add(&store, &mut timers, due_ms + at % 2 * 1000, 1);
        }
        save(&mut timers);
        drop(timers);
        store.close().unwrap();
        let path = dir.path().join(damage);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
        let (store, mut timers) = open(dir.path());
        let found = timers.slot(due_ms).unwrap().len() + timers.slot(due_ms + 1000).unwrap().len();
        // Messages that the log lacks are read from the topic again.
        let missing = 200 - usize::try_from(timers.queue_offset()).unwrap();
        assert_eq!(found + missing, 200, "{damage}");
        assert_eq!(missing > 0, damage != "timerwheel", "{damage}");
        store.close().unwrap();
    }
}

#[test]
fn torn_bytes_behind_the_last_unit_are_no_units() {
    let dir = TempDir::new().unwrap();
    let (store, mut timers) = open(dir.path());
    let due_ms = now_ms() + 60_000;
    for _ in 0..10 {
        add(&store, &mut timers, due_ms, 1);
    }
    save(&mut timers);
    drop(timers);
    store.close().unwrap();
    let path = dir.path().join("timerlog").join("00000000000000000000");
    let mut log = fs::read(&path).unwrap();
    let unit = log[..52].to_vec();
    log[10 * 52 + 20..10 * 52 + 40].fill(0xFF);
    // A unit of an earlier life behind the torn one must not come back when the gap is filled.
    log[11 * 52..12 * 52].copy_from_slice(&unit);
    fs::write(&path, log).unwrap();
    let (store, mut timers) = open(dir.path());
    assert_eq!(timers.slot(due_ms).unwrap().len(), 10);
    add(&store, &mut timers, due_ms, 1);
    save(&mut timers);
    drop(timers);
    store.close().unwrap();
    let (store, mut timers) = open(dir.path());
    assert_eq!(timers.slot(due_ms).unwrap().len(), 11);
    assert_eq!(timers.queue_offset(), 11);
    store.close().unwrap();
}

#[test]
fn a_wheel_of_other_steps_or_length_is_named() {
    let dir = TempDir::new().unwrap();
    let (store, mut timers) = open(dir.path());
    add(&store, &mut timers, now_ms() + 60_000, 1);
    save(&mut timers);
    drop(timers);
    store.close().unwrap();
    for precision_ms in [100, 200, 500] {
        let mut other = options(dir.path());
        other.timer.precision_ms = precision_ms;
        let store = Store::open(other, real()).unwrap();
        let error = TimerStore::open(&store, &real()).unwrap_err();
        assert!(matches!(error, StoreError::TimerWheel { .. }), "{error}");
        assert!(error.to_string().contains("timerPrecisionMs"), "{error}");
        store.close().unwrap();
    }
    let mut other = options(dir.path());
    other.timer.log_file_bytes = 8192;
    let store = Store::open(other, real()).unwrap();
    let error = TimerStore::open(&store, &real()).unwrap_err().to_string();
    assert!(error.contains("mappedFileSizeTimerLog"), "{error}");
    store.close().unwrap();
    fs::write(dir.path().join("timerwheel"), [0; 64]).unwrap();
    let store = Store::open(options(dir.path()), real()).unwrap();
    let error = TimerStore::open(&store, &real()).unwrap_err().to_string();
    assert!(error.contains("64 bytes"), "{error}");
    store.close().unwrap();
}

#[test]
fn a_message_that_waits_in_a_later_slot_than_its_own_is_not_read_before_that_slot() {
    let dir = TempDir::new().unwrap();
    let (store, mut timers) = open(dir.path());
    let (yesterday_ms, tomorrow_ms) = (now_ms() - 86_400_000, now_ms() + 86_400_000);
    add(&store, &mut timers, tomorrow_ms - 1000, 1);
    timers.done(tomorrow_ms - 1000);
    assert_eq!(timers.read_ms(), tomorrow_ms);
    add(&store, &mut timers, tomorrow_ms, 1);
    assert!(timers.is_read(yesterday_ms));
    // The clock was set back by two days: a message that is due yesterday waits until tomorrow.
    add_to_slot(&store, &mut timers, tomorrow_ms, yesterday_ms, 1);
    assert!(!timers.is_read(yesterday_ms));
    assert!(timers.is_read(yesterday_ms - 1000));
    save(&mut timers);
    drop(timers);
    store.close().unwrap();

    // The files have no due times, so after a start the slot may hold any.
    let (store, mut timers) = open(dir.path());
    assert!(!timers.is_read(yesterday_ms - 1000));
    timers.done(tomorrow_ms);
    assert!(timers.is_read(yesterday_ms));
    store.close().unwrap();
}

#[test]
fn log_files_go_with_their_messages() {
    let dir = TempDir::new().unwrap();
    let (store, mut timers) = open(dir.path());
    let units: Vec<TimerUnit> = (0..200)
        .map(|at| add(&store, &mut timers, now_ms() + 60_000 + at, 1))
        .collect();
    save(&mut timers);
    assert_eq!(timers.clean(units[77].position).unwrap(), 0);
    assert_eq!(timers.clean(units[78].position).unwrap(), 1);
    assert_eq!(timers.clean(i64::MAX).unwrap(), 1, "the newest stays");
    let left: Vec<_> = fs::read_dir(dir.path().join("timerlog")).unwrap().collect();
    assert_eq!(left.len(), 1);
    store.close().unwrap();
}

/// An action of a model test.
#[derive(Debug, Clone)]
enum Act {
    Add(u8),
    Deliver(u8),
    Save,
    Reopen,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        8 => (0..40_u8).prop_map(Act::Add),
        2 => (0..40_u8).prop_map(Act::Deliver),
        1 => Just(Act::Save),
        1 => Just(Act::Reopen),
    ];
    proptest::collection::vec(act, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wheel_and_log_hold_what_a_map_of_lists_holds(acts in acts()) {
        let dir = TempDir::new().unwrap();
        let (mut store, mut timers) = open(dir.path());
        let base_ms = now_ms() + 600_000;
        let mut model: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        let mut read_to = base_ms;
        for act in acts {
            match act {
                Act::Add(step) => {
                    let due_ms = base_ms + i64::from(step) * 1000;
                    if due_ms >= read_to {
                        let unit = add(&store, &mut timers, due_ms, 1);
                        model.entry(due_ms).or_default().push(unit.position);
                    }
                }
                Act::Deliver(step) => {
                    let to_ms = base_ms + i64::from(step) * 1000;
                    while let Some(next_ms) = timers.next_ms().filter(|next_ms| *next_ms < to_ms) {
                        let (wanted_ms, wanted) = model.pop_first().unwrap();
                        let found = timers.slot(next_ms).unwrap();
                        let found: Vec<i64> = found.iter().map(|unit| unit.position).collect();
                        prop_assert_eq!((next_ms, found), (wanted_ms, wanted));
                        timers.done(next_ms);
                        read_to = read_to.max(next_ms + 1000);
                    }
                    prop_assert!(model.keys().all(|due_ms| *due_ms >= to_ms));
                }
                Act::Save => save(&mut timers),
                Act::Reopen => {
                    save(&mut timers);
                    drop(timers);
                    store.close().unwrap();
                    (store, timers) = open(dir.path());
                }
            }
            let count: usize = model.values().map(Vec::len).sum();
            prop_assert_eq!(timers.count(), i64::try_from(count).unwrap());
        }
        store.close().unwrap();
    }
}
