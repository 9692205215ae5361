//! Timer messages over a simulated disk: every message acknowledged at its level is delivered, whenever the machine
//! stops.
//!
//! The loop is the broker's: messages are put into the timer's topic, moved to the wheel, delivered when their step is
//! over, and progress is saved once the commit log is durable up to that point.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so"
)]

mod common;

use common::message;
use pyrmq_remoting::message::java_hash;
use pyrmq_remoting::message::record::records;
use pyrmq_remoting::names::TIMER_TOPIC;
use pyrmq_store::{
    Durability, Fs, GetMessage, MaintenanceTask, Options, Store, StoreError, TIMER_QUEUE, TagFilter,
    TimerProgress, TimerStore, TimerUnit,
};
use pyrmq_testkit::fault_points::{Part, Runs};
use pyrmq_testkit::sim::{Loss, Session, Swallow};
use pyrmq_testkit::{Random, SimDisk};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const START_MS: i64 = 1_800_000_000_000;
const STEP_MS: i64 = 1000;
const OUT: &str = "Out";

fn options() -> Options {
    let mut options = common::small(Path::new("/store"));
    options.index = false;
    options.timer.log_file_bytes = 4096;
    options
}

/// A broker's timer, as far as the store is concerned.
struct Site {
    disk: SimDisk,
    session: Session,
    store: Arc<Store>,
    timers: TimerStore,
    log_end: i64,
    pending: Option<(TimerProgress, i64)>,
}

impl Site {
    fn open(disk: &SimDisk) -> Result<Self, StoreError> {
        let session = disk.session();
        let fs: Arc<dyn Fs> = Arc::new(session.clone());
        let store = Store::open_without_threads(options(), fs.clone())?;
        let timers = TimerStore::open(&store, &fs)?;
        Ok(Self {
            disk: disk.clone(),
            session,
            store,
            timers,
            log_end: 0,
            pending: None,
        })
    }

    fn put(&mut self, number: usize, due_ms: i64) -> i64 {
        let text = common::props(&[("TIMER_OUT_MS", &due_ms.to_string()), ("REAL_TOPIC", OUT)]);
        let body = number.to_string();
        let stored = self
            .store
            .put(&message(TIMER_TOPIC, TIMER_QUEUE, body.as_bytes(), &text));
        stored.unwrap().end_position
    }

    fn step_ms(&self) -> i64 {
        self.timers.options().floor_ms(self.disk.now())
    }

    fn take_in(&mut self) {
        while self.timers.queue_offset() < self.store.max_offset(TIMER_TOPIC, TIMER_QUEUE) {
            let got = self
                .store
                .get(&GetMessage {
                    topic: TIMER_TOPIC,
                    queue_id: TIMER_QUEUE,
                    offset: self.timers.queue_offset(),
                    max_count: 32,
                    max_bytes: 1 << 20,
                    tags: TagFilter::All,
                })
                .unwrap();
            for record in records(&got.body) {
                let record = record.unwrap();
                let due_ms: i64 = record.properties.get("TIMER_OUT_MS").unwrap().parse().unwrap();
                let size = i32::try_from(record.size).unwrap();
                self.log_end = self.log_end.max(record.physical_offset + i64::from(size));
                if due_ms < self.timers.read_ms() {
                    self.deliver_one(record.body);
                } else {
                    let now_ms = self.step_ms();
                    let unit = TimerUnit {
                        previous: -1,
                        magic: TimerUnit::DEFAULT,
                        written_ms: now_ms,
                        delay_ms: i32::try_from(due_ms - now_ms).unwrap(),
                        position: record.physical_offset,
                        size,
                        topic_hash: java_hash::hash(OUT),
                    };
                    self.timers.add(&unit, due_ms).unwrap();
                }
                self.timers.set_queue_offset(record.queue_offset + 1);
            }
        }
        self.timers.write_out().unwrap();
    }

    fn deliver_one(&mut self, body: &[u8]) {
        let stored = self.store.put(&message(OUT, 0, body, "")).unwrap();
        self.log_end = self.log_end.max(stored.end_position);
    }

    fn deliver(&mut self) {
        while let Some(time_ms) = self.timers.next_ms().filter(|next_ms| *next_ms < self.step_ms()) {
            for unit in self.timers.slot(time_ms).unwrap() {
                let bytes = self
                    .store
                    .record_at(unit.position)
                    .unwrap()
                    .expect("its message is there");
                let record = pyrmq_remoting::message::Record::decode(&bytes).unwrap();
                assert_eq!(record.topic, TIMER_TOPIC);
                self.deliver_one(record.body);
            }
            self.timers.done(time_ms);
        }
        self.timers.read_to(self.step_ms());
    }

    fn save(&mut self) {
        if let Some((progress, end)) = &self.pending
            && self.store.durability(*end) == Durability::Local
        {
            self.timers.save(progress).unwrap();
            self.pending = None;
        }
        if self.pending.is_none() && self.timers.is_behind() {
            self.pending = Some((self.timers.progress(), self.log_end));
        }
    }

    /// Returns how often each message was delivered.
    fn delivered(&self) -> BTreeMap<usize, usize> {
        let mut found = BTreeMap::new();
        for body in common::bodies(&self.store, OUT, 0) {
            let number = String::from_utf8(body).unwrap().parse().unwrap();
            *found.entry(number).or_default() += 1;
        }
        found
    }

    /// Advances the clock past all messages.
    fn settle(&mut self) {
        self.take_in();
        self.disk.set_now(self.disk.now() + 100 * STEP_MS);
        self.deliver();
        assert_eq!(self.timers.count(), 0);
    }
}

/// An acknowledged message: in memory from a step of the disk on, on disk from a later one.
#[derive(Debug, Clone, Copy)]
struct Sent {
    end: i64,
    stored_at: usize,
    durable_at: Option<usize>,
}

/// A run of random steps.
fn work(seed: u64, swallow: Option<Swallow>) -> (SimDisk, Vec<Sent>) {
    let disk = SimDisk::default();
    if let Some(what) = swallow {
        disk.swallow(what);
    }
    disk.set_now(START_MS);
    let mut random = Random::of(&[seed]);
    let mut sent: Vec<Sent> = Vec::new();
    let mut site = Site::open(&disk).unwrap();
    for _ in 0..150 {
        match random.below(12) {
            0..=4 => {
                let due_ms = site.step_ms() + STEP_MS * i64::try_from(random.below(12)).unwrap();
                let end = site.put(sent.len(), due_ms);
                sent.push(Sent {
                    end,
                    stored_at: disk.steps(),
                    durable_at: None,
                });
            }
            5 | 6 => site.take_in(),
            7 => {
                site.take_in();
                disk.set_now(disk.now() + STEP_MS);
                site.deliver();
            }
            8 | 9 => {
                site.store.run(MaintenanceTask::Flush).unwrap();
                for one in &mut sent {
                    if one.durable_at.is_none() && site.store.durability(one.end) == Durability::Local {
                        one.durable_at = Some(disk.steps());
                    }
                }
            }
            10 => site.save(),
            _ => {
                for task in [
                    MaintenanceTask::WriteQueues,
                    MaintenanceTask::SyncQueues,
                    MaintenanceTask::SaveCheckpoint,
                ] {
                    site.store.run(task).unwrap();
                }
            }
        }
    }
    // Like a kill: nothing is closed.
    site.session.kill();
    (disk, sent)
}

/// Crashes at random points. Returns what was lost, if anything.
fn check(seed: u64, points: usize, swallow: Option<Swallow>) -> Result<(), String> {
    let (disk, sent) = work(seed, swallow);
    let mut random = Random::of(&[seed, 7]);
    for _ in 0..points {
        let steps = random.below(disk.steps() + 1);
        let loss = *random.choose(&Loss::ALL).unwrap();
        let after = disk.crash(steps, loss, random.next());
        after.set_now(disk.now());
        let about = format!(
            "seed {seed}, behind step {steps} of {}, {loss:?} lost",
            disk.steps()
        );
        let mut site = Site::open(&after).map_err(|error| format!("{about}: {error}"))?;
        site.settle();
        let found = site.delivered();
        for (number, one) in sent.iter().enumerate() {
            let acknowledged = match loss {
                Loss::Nothing => one.stored_at <= steps,
                _ => one.durable_at.is_some_and(|at| at <= steps),
            };
            if acknowledged && !found.contains_key(&number) {
                return Err(format!("{about}: {number} is lost: {one:?}"));
            }
        }
        if found.keys().any(|number| *number >= sent.len()) {
            return Err(format!("{about}: invented: {found:?}"));
        }
        site.store.close().unwrap();
    }
    Ok(())
}

#[test]
fn nothing_that_was_acknowledged_is_lost_at_any_crash() {
    for seed in 0..2 {
        check(seed, 8, None).unwrap();
    }
}

#[test]
fn a_wheel_that_is_not_flushed_is_noticed() {
    let swallow = Some(Swallow::File("timerwheel"));
    let lost = (5..25).find_map(|seed| check(seed, 8, swallow).err());
    assert!(lost.is_some());
}

#[test]
fn a_timer_log_that_is_not_flushed_is_noticed() {
    let found = (5..25).find_map(|seed| check(seed, 8, Some(Swallow::File("timerlog"))).err());
    assert!(
        found.unwrap().contains("timerlog"),
        "its file has lost its length"
    );
}

/// With an older checkpoint, more of the log and of the queue is read again.
#[test]
fn a_timer_checkpoint_that_is_not_flushed_loses_nothing() {
    for seed in 5..7 {
        check(seed, 8, Some(Swallow::File("timercheck"))).unwrap();
    }
}

#[test]
#[ignore = "make faults: some minutes"]
fn nothing_is_lost_at_many_crash_points() {
    // Each point makes disks with a wheel of 38 MB: a thousand of them take more than a minute of one core.
    let runs = Runs {
        points: 25,
        failed_once: &[],
    };
    runs.take_new(Part::Timer, |seed, points| check(seed, points, None));
}

#[test]
fn without_a_crash_each_is_delivered_once() {
    let disk = SimDisk::default();
    disk.set_now(START_MS);
    let mut random = Random::of(&[1]);
    let mut sent = 0;
    for _ in 0..8 {
        let mut site = Site::open(&disk).unwrap();
        for _ in 0..random.below(30) {
            site.put(
                sent,
                site.step_ms() + STEP_MS * i64::try_from(random.below(12)).unwrap(),
            );
            sent += 1;
            if random.one_in(3) {
                site.take_in();
                disk.set_now(disk.now() + STEP_MS);
                site.deliver();
            }
        }
        // Saves progress as the broker does at a stop.
        site.store.run(MaintenanceTask::Flush).unwrap();
        let progress = site.timers.progress();
        site.timers.save(&progress).unwrap();
        site.store.close().unwrap();
        disk.set_now(disk.now() + STEP_MS * i64::try_from(random.below(5)).unwrap());
    }
    let mut site = Site::open(&disk).unwrap();
    site.settle();
    let wanted: BTreeMap<usize, usize> = (0..sent).map(|number| (number, 1)).collect();
    assert_eq!(site.delivered(), wanted);
}
