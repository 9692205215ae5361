//! A seeded run over a simulated disk, and the history of its acknowledgements.

use crate::known::{FAILING, FULL_CALLS, NUL_IN_PROPERTIES};
use crate::puts;
use crate::sent::Sent;
use pyrmq_store::{FlushDiskType, MaintenanceTask, Options, Store, StoreError, Stored, config_file};
use pyrmq_testkit::sim::{Faults, Session};
use pyrmq_testkit::{Random, SimDisk};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) const ROOT: &str = "/data/store";
/// The topic that is deleted now and then.
pub(crate) const DOOMED: &str = "Doomed";
pub(crate) const TOPICS: [&str; 3] = ["A", "B", DOOMED];
const CONFIGS: [&str; 2] = ["topics.json", "subscriptionGroup.json"];
pub(crate) const NEVER: usize = usize::MAX;

pub(crate) type Outcome<T> = Result<T, String>;

/// The conditions of a seed's run.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub(crate) struct Kind {
    /// Over two hundred queues, so that one fsync of the file system covers them.
    pub(crate) is_wide: bool,
    /// Calls sometimes fail.
    pub(crate) has_faults: bool,
    /// Zero bytes in keys, tags and properties.
    pub(crate) has_nul: bool,
    /// The disk does not support an fsync of the whole file system, so no start makes everything durable as a side
    /// effect.
    pub(crate) syncs_all: bool,
}

impl Kind {
    pub(crate) fn of(seed: u64) -> Self {
        let mut random = Random::of(&[seed, 4]);
        Self {
            is_wide: random.one_in(8),
            has_faults: random.one_in(3),
            has_nul: random.one_in(3) && NUL_IN_PROPERTIES,
            syncs_all: !random.one_in(3),
        }
    }

    pub(crate) fn queues(self, topic: &str) -> i32 {
        if self.is_wide && topic != "B" { 100 } else { 2 }
    }
}

/// A record, with the steps of the disk at which its put began and was acknowledged.
#[derive(Debug, Clone)]
pub(crate) struct Put {
    pub(crate) sent: Arc<Sent>,
    pub(crate) position: i64,
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) index: i64,
    /// How often the topic had been deleted.
    pub(crate) life: usize,
    pub(crate) began: usize,
    pub(crate) in_memory: usize,
    pub(crate) durable: Arc<AtomicUsize>,
}

impl Put {
    pub(crate) fn is_durable(&self, steps: usize) -> bool {
        self.durable.load(Ordering::Relaxed) <= steps
    }
}

/// A failed put.
#[derive(Debug, Clone)]
pub(crate) struct Unknown {
    pub(crate) sent: Arc<Sent>,
    pub(crate) life: usize,
    pub(crate) began: usize,
    /// After this step the record certainly does not exist. If the disk was full, that holds once the next message is
    /// stored: before that is written, the remains of the failed one are durably zeroed.
    pub(crate) until: usize,
}

/// An action, from one step of the disk to another.
#[derive(Debug, Clone)]
pub(crate) struct Span<T> {
    pub(crate) what: T,
    pub(crate) began: usize,
    /// [`NEVER`] for a failed action, which may have taken effect.
    pub(crate) done: usize,
}

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) puts: Vec<Put>,
    /// Failed puts while the disk failed, by unique key: the record may exist.
    pub(crate) unknown: BTreeMap<String, Unknown>,
    /// The topic, and its life that ended.
    pub(crate) deletions: Vec<Span<(String, usize)>>,
    /// The log's start after a retention round.
    pub(crate) starts: Vec<Span<i64>>,
    /// Log positions of the deletions of [`DOOMED`] where its puts race with them: a record's position then decides how
    /// often the topic had been deleted. Empty in a run of one thread.
    pub(crate) deleted_at: Vec<i64>,
    /// File and its text.
    pub(crate) configs: Vec<Span<(String, String)>>,
    /// The actions, with the steps at which they began.
    pub(crate) events: Vec<(usize, String)>,
}

pub(crate) fn options(seed: u64) -> Options {
    let mut random = Random::of(&[seed, 1]);
    let mut options = Options::new(ROOT);
    options.segment_bytes = *random.choose(&[8192, 10_000, 16_384]).unwrap();
    options.queue_file_bytes = *random.choose(&[200, 1000, 2000]).unwrap();
    options.index_slots = 20;
    options.index_entries = *random.choose(&[20, 60, 300]).unwrap();
    options.max_query_count = 10_000;
    options.file_reserved_hours = 0;
    // On a busy machine, a test's thread may wait for long.
    (options.busy_ms, options.send_wait_ms) = (600_000, 600_000);
    // Never depend on the duration of an fsync: two runs of one seed must be equal.
    options.flush_inline_below_us = 0;
    if random.one_in(2) {
        options.flush = FlushDiskType::Sync;
    }
    if random.one_in(2) {
        // As with a log that is too large for it: the notes must show it.
        options.compare_bytes = 0;
    }
    if random.one_in(2) {
        options.flush_inline_below_us = u64::MAX;
    }
    options
}

/// Chooses calls that fail.
pub(crate) fn faults(random: &mut Random) -> Faults {
    let calls = if random.one_in(3) {
        FAILING.to_vec()
    } else {
        vec![*random.choose(FAILING).unwrap()]
    };
    let is_full = FULL_CALLS && random.one_in(3);
    Faults {
        calls,
        one_in: *random.choose(&[1, 2, 5, 20]).unwrap(),
        kind: if is_full {
            ErrorKind::StorageFull
        } else {
            ErrorKind::Other
        },
        random: Random::new(random.next()),
    }
}

pub(crate) fn describe(faults: &Faults) -> String {
    format!(
        "{:?} fail, one in {} ({:?})",
        faults.calls, faults.one_in, faults.kind
    )
}

pub(crate) fn open(disk: &SimDisk, options: &Options) -> (Session, Result<Arc<Store>, StoreError>) {
    let session = disk.session();
    let store = Store::open_without_threads(options.clone(), Arc::new(session.clone()));
    (session, store)
}

pub(crate) struct Run {
    pub(crate) disk: SimDisk,
    pub(crate) options: Options,
    pub(crate) history: History,
    pub(crate) kind: Kind,
    random: Random,
    session: Session,
    store: Arc<Store>,
    lives: BTreeMap<String, usize>,
    number: usize,
    /// Calls fail, or the disk is full: an error is not a test failure.
    may_fail: bool,
    /// Keys of messages for which there was no space.
    cleared: Vec<String>,
    /// A deletion failed and must be retried before its topic accepts messages.
    is_half_deleted: bool,
}

impl Run {
    /// Opens a store on an empty disk.
    pub(crate) fn new(seed: u64, kind: Kind, disk: SimDisk) -> Self {
        let options = options(seed);
        disk.set_now(1_800_000_000_000);
        disk.set_syncs_all(kind.syncs_all);
        let (session, store) = open(&disk, &options);
        Self {
            store: store.expect("an empty disk"),
            disk,
            options,
            history: History::default(),
            kind,
            random: Random::of(&[seed, 2]),
            session,
            lives: BTreeMap::new(),
            number: 0,
            may_fail: false,
            cleared: Vec::new(),
            is_half_deleted: false,
        }
    }

    /// Performs this many actions.
    pub(crate) fn go(&mut self, count: usize) -> Outcome<()> {
        for _ in 0..count {
            self.move_clock();
            let done = if self.random.one_in(40) {
                self.fill_disk()
            } else if self.kind.has_faults && self.random.one_in(30) {
                self.fail_calls()
            } else {
                self.one()
            };
            done.map_err(|what| format!("while it ran: {what}\n{}", self.history.last_told(NEVER)))?;
        }
        Ok(())
    }

    fn tell(&mut self, what: impl Into<String>) {
        self.history.events.push((self.disk.steps(), what.into()));
    }

    /// Returns a call's result; `None` if it failed and was allowed to.
    fn done<T>(&mut self, what: &str, result: Result<T, StoreError>) -> Outcome<Option<T>> {
        match result {
            Ok(done) => Ok(Some(done)),
            Err(error) if self.may_fail => {
                self.tell(format!("{what} failed: {error}"));
                Ok(None)
            }
            Err(error) => Err(format!("{what}: {error}")),
        }
    }

    fn one(&mut self) -> Outcome<()> {
        match self.random.below(100) {
            0..34 => self.put(),
            34..40 => self.append_batch(),
            40..50 => self.put_batch(),
            50..62 => self.task(MaintenanceTask::Flush),
            62..68 => self.task(MaintenanceTask::WriteQueues),
            68..72 => self.task(MaintenanceTask::SyncQueues),
            72..76 => self.task(MaintenanceTask::SaveCheckpoint),
            76..82 => self.task(MaintenanceTask::Index),
            82..84 => self.task(MaintenanceTask::WriteIndex),
            84..88 => self.task(MaintenanceTask::PrepareSegment),
            88..90 => self.retain(),
            90..93 => self.save_config(),
            93..95 => self.delete_topic(),
            95 => self.task(MaintenanceTask::ReleaseIdle),
            96..98 => self.kill(),
            _ => self.close(),
        }
    }

    /// Makes the disk accept some more bytes and then none, also during retention, deletions, starts and stops.
    fn fill_disk(&mut self) -> Outcome<()> {
        let room = self.random.below(2500);
        self.tell(format!("the disk has {room} bytes left"));
        self.disk.set_room(Some(room));
        self.fail_some(8)?;
        self.disk.set_room(None);
        self.heal()
    }

    /// Makes calls fail for a while.
    fn fail_calls(&mut self) -> Outcome<()> {
        let faults = faults(&mut self.random);
        self.tell(describe(&faults));
        self.disk.set_faults(Some(faults));
        self.fail_some(12)?;
        self.disk.set_faults(None);
        self.heal()
    }

    fn fail_some(&mut self, most: usize) -> Outcome<()> {
        self.may_fail = true;
        for _ in 0..=self.random.below(most) {
            self.one()?;
            if self.store.has_failed() {
                break;
            }
        }
        self.may_fail = false;
        Ok(())
    }

    /// Heals the disk: a store that has failed accepts nothing until its next start; any other continues on its own.
    fn heal(&mut self) -> Outcome<()> {
        self.tell("the disk is well again");
        if !self.store.has_failed() && !self.random.one_in(3) {
            // Sends are accepted again once queues could be written and the space was checked.
            self.task(MaintenanceTask::WriteQueues)?;
            self.retain()?;
            return if self.is_half_deleted {
                self.delete_topic()
            } else {
                Ok(())
            };
        }
        if self.store.has_failed() {
            let sent = self.sent("A", 0, 30);
            if self.store.put(&sent.message()).is_ok() {
                return Err("a store that is read-only took a message".to_owned());
            }
            if self.random.one_in(2) {
                self.tell("a stop that cannot be clean");
                drop(self.store.close());
            }
        }
        self.kill()
    }

    fn move_clock(&mut self) {
        let step = match self.random.below(40) {
            0 => i64::try_from(self.random.below(8000)).unwrap(),
            1 if self.random.one_in(6) => -3_600_000,
            2..20 => 0,
            _ => 1,
        };
        self.disk.set_now(self.disk.now() + step);
    }

    fn task(&mut self, task: MaintenanceTask) -> Outcome<()> {
        self.tell(format!("{task:?}"));
        let done = self.store.run(task);
        self.done("chore", done).map(drop)
    }

    fn place(&mut self) -> (&'static str, i32) {
        let topic = *self.random.choose(&TOPICS).unwrap();
        let queues = usize::try_from(self.kind.queues(topic)).unwrap();
        (topic, i32::try_from(self.random.below(queues)).unwrap())
    }

    fn sent(&mut self, topic: &str, queue: i32, most: usize) -> Sent {
        self.number += 1;
        Sent::any(
            &mut self.random,
            (topic, queue),
            (self.number, most),
            self.kind.has_nul,
        )
    }

    fn sent_anywhere(&mut self) -> Sent {
        let (topic, queue) = self.place();
        let mut sent = self.sent(topic, queue, 3000);
        sent.is_hidden = self.random.one_in(12);
        sent
    }

    fn put(&mut self) -> Outcome<()> {
        let sent = self.sent_anywhere();
        let began = self.disk.steps();
        self.tell(format!("put {}-{} {}", sent.topic, sent.queue, sent.key));
        let stored = self.store.put(&sent.message());
        self.note(stored, vec![sent], began)
    }

    /// Several puts in one write: none of them has a position before the end.
    fn append_batch(&mut self) -> Outcome<()> {
        let sent: Vec<Sent> = if self.kind.is_wide && self.random.one_in(3) {
            // Enough queues that they are fsynced together.
            let topic = *self.random.choose(&["A", DOOMED]).unwrap();
            (0..100).map(|queue| self.sent(topic, queue, 100)).collect()
        } else {
            (0..=self.random.below(6)).map(|_| self.sent_anywhere()).collect()
        };
        let began = self.disk.steps();
        self.tell(format!("burst of {}", sent.len()));
        let outcomes = puts::append_together(&self.store, &sent)?;
        for (stored, sent) in outcomes.into_iter().zip(sent) {
            self.note(stored, vec![sent], began)?;
        }
        Ok(())
    }

    fn put_batch(&mut self) -> Outcome<()> {
        let (topic, queue) = self.place();
        let sent = (0..2 + self.random.below(5)).map(|_| self.sent(topic, queue, 700));
        let sent = puts::fitting(sent.collect());
        let began = self.disk.steps();
        self.tell(format!("batch of {} to {topic}-{queue}", sent.len()));
        let stored = puts::put_batch(&self.store, &sent);
        self.note(stored, sent, began)
    }

    /// Records the outcome of a put: one message or a batch.
    fn note(&mut self, stored: Result<Stored, StoreError>, sent: Vec<Sent>, began: usize) -> Outcome<()> {
        let life = sent
            .first()
            .and_then(|sent| self.lives.get(&sent.topic))
            .copied()
            .unwrap_or_default();
        if stored.as_ref().is_err_and(|error| !puts::is_refused(error)) {
            for sent in &sent {
                let unknown = Unknown {
                    sent: Arc::new(sent.clone()),
                    life,
                    began,
                    until: NEVER,
                };
                self.history.unknown.insert(sent.key.clone(), unknown);
                if !self.store.has_failed() {
                    self.cleared.push(sent.key.clone());
                }
            }
        }
        if self.store.has_failed() {
            self.cleared.clear();
        }
        let Some(stored) = self.done("put", stored)? else {
            return Ok(());
        };
        let durable = Arc::new(AtomicUsize::new(NEVER));
        let in_memory = self.disk.steps();
        for key in self.cleared.drain(..) {
            if let Some(unknown) = self.history.unknown.get_mut(&key) {
                unknown.until = in_memory;
            }
        }
        for ((position, sent), index) in stored
            .physical_offsets()
            .iter()
            .zip(sent)
            .zip(stored.queue_offset..)
        {
            let bytes = self.store.record_at(*position);
            let bytes = bytes.ok().flatten().ok_or("what was put is not there")?;
            self.history.puts.push(Put {
                position: *position,
                bytes: bytes.to_vec().into(),
                index: if sent.is_hidden { 0 } else { index },
                sent: Arc::new(sent),
                life,
                began,
                in_memory,
                durable: Arc::clone(&durable),
            });
        }
        let disk = self.disk.clone();
        self.store.when_durable(stored.end_position, move |result| {
            if result.is_ok() {
                durable.store(disk.steps(), Ordering::Relaxed);
            }
        });
        Ok(())
    }

    fn retain(&mut self) -> Outcome<()> {
        let began = self.disk.steps();
        self.tell("retention");
        let deleted = self.store.delete_expired();
        self.history.starts.push(Span {
            what: self.store.health().min_physical_offset,
            began,
            done: self.disk.steps(),
        });
        self.done("retention", deleted).map(drop)
    }

    fn save_config(&mut self) -> Outcome<()> {
        let name = (*self.random.choose(&CONFIGS).unwrap()).to_owned();
        self.number += 1;
        let text = format!(
            "{{\"version\":{}, \"filler\":\"{}\"}}",
            self.number,
            "x".repeat(self.random.below(1200))
        );
        let began = self.disk.steps();
        self.tell(format!("save {name}"));
        let saved = config_file::save(&self.session, &Path::new(ROOT).join("config").join(&name), &text);
        let saved = self.done("save", saved)?;
        self.history.configs.push(Span {
            what: (name, text),
            began,
            done: saved.map_or(NEVER, |()| self.disk.steps()),
        });
        Ok(())
    }

    fn delete_topic(&mut self) -> Outcome<()> {
        let began = self.disk.steps();
        self.tell("delete Doomed");
        let deleted = self.store.delete_topic(DOOMED);
        let deleted = self.done("deletion", deleted)?;
        self.is_half_deleted = deleted.is_none();
        let life = self.lives.entry(DOOMED.to_owned()).or_default();
        self.history.deletions.push(Span {
            what: (DOOMED.to_owned(), *life),
            began,
            done: deleted.map_or(NEVER, |()| self.disk.steps()),
        });
        *life += 1;
        Ok(())
    }

    fn kill(&mut self) -> Outcome<()> {
        self.tell("kill -9 and start");
        self.session.kill();
        self.again()
    }

    fn close(&mut self) -> Outcome<()> {
        self.tell("stop and start");
        let closed = self.store.close();
        if self.done("stop", closed)?.is_none() {
            self.session.kill();
        }
        self.again()
    }

    fn again(&mut self) -> Outcome<()> {
        self.is_half_deleted = false;
        let (session, store) = open(&self.disk, &self.options);
        self.session = session;
        self.store = if let Some(store) = self.done("start", store)? {
            store
        } else {
            // The obstacle is gone: now it must open.
            self.tell("the disk is well, start");
            self.session.kill();
            self.disk.set_faults(None);
            self.disk.set_room(None);
            let (session, store) = open(&self.disk, &self.options);
            self.session = session;
            store.map_err(|error| format!("start: {error}"))?
        };
        Ok(())
    }
}

impl History {
    /// How often a record's topic had been deleted, in a run of several threads.
    pub(crate) fn life_of(&self, topic: &str, position: i64) -> usize {
        let deleted_at = if topic == DOOMED {
            &self.deleted_at[..]
        } else {
            &[]
        };
        deleted_at.iter().filter(|at| **at <= position).count()
    }

    /// Returns the last actions before a step.
    pub(crate) fn last_told(&self, steps: usize) -> String {
        let before: Vec<_> = self.events.iter().filter(|(step, _)| *step <= steps).collect();
        // A replayed seed shows more.
        let most = if std::env::var_os("PYRMQ_FAULT_SEED").is_some() {
            300
        } else {
            12
        };
        let last = before.iter().rev().take(most).rev();
        let lines: Vec<_> = last.map(|(step, what)| format!("  {step:6} {what}")).collect();
        lines.join("\n")
    }
}
