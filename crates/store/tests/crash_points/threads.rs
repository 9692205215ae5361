//! Two threads put while others write, fsync, index, delete old files and delete a topic. One seed decides which thread
//! runs when.

use crate::sent::Sent;
use crate::workload::{History, Kind, NEVER, Outcome, Put, ROOT, Span, TOPICS, Unknown, open, options};
use pyrmq_store::{MaintenanceTask, Options, Store, Stored};
use pyrmq_testkit::sim::Session;
use pyrmq_testkit::{Random, SimDisk, schedule};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Starts of the store in one run.
const STARTS: usize = 3;
/// Actions of one thread between two starts.
const DONE: usize = 25;
const DOOMED: &str = "Doomed";

/// State shared by the threads.
struct Site {
    disk: SimDisk,
    session: Session,
    store: Arc<Store>,
    kind: Kind,
    history: Mutex<History>,
    number: AtomicUsize,
    /// Log positions of the deletions, in order.
    deleted_at: Mutex<Vec<i64>>,
    /// Keys and positions of messages that retention deleted before they were checked.
    expired: Mutex<Vec<(String, i64)>>,
    failed: Mutex<Option<String>>,
}

/// A run whose history can be checked.
pub(crate) struct Threaded {
    pub(crate) disk: SimDisk,
    pub(crate) options: Options,
    pub(crate) kind: Kind,
    pub(crate) history: History,
}

fn held<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the threads of a seed.
pub(crate) fn run(seed: u64, disk: SimDisk) -> Outcome<Threaded> {
    pyrmq_store::schedule_by(schedule::point);
    let (options, kind) = (options(seed), Kind::of(seed));
    disk.set_now(1_800_000_000_000);
    disk.set_syncs_all(kind.syncs_all);
    let mut random = Random::of(&[seed, 5]);
    let (mut history, mut deleted_at, mut number) = (History::default(), Vec::new(), 0);
    let mut expired = Vec::new();
    for start in 0..STARTS {
        let (session, store) = open(&disk, &options);
        let store = store.map_err(|error| format!("start {start}: {error}\n{}", history.last_told(NEVER)))?;
        let site = Site {
            disk: disk.clone(),
            session,
            store,
            kind,
            history: Mutex::new(history),
            number: AtomicUsize::new(number),
            deleted_at: Mutex::new(deleted_at),
            expired: Mutex::new(expired),
            failed: Mutex::default(),
        };
        site.tell("start");
        let mut random = || Random::new(random.next());
        let (one, other, house, index, cleaner) = (random(), random(), random(), random(), random());
        schedule::run(
            Random::of(&[seed, start as u64]).next(),
            vec![
                Box::new(|| site.repeat(one, Site::put)),
                Box::new(|| site.repeat(other, Site::put)),
                Box::new(|| site.repeat(house, Site::keep_house)),
                Box::new(|| site.repeat(index, Site::index)),
                Box::new(|| site.repeat(cleaner, Site::clean)),
            ],
        );
        if random().one_in(2) {
            site.tell("stop");
            let closed = site.store.close();
            closed.map_err(|error| format!("stop: {error}"))?;
        } else {
            site.tell("kill");
            site.session.kill();
        }
        history = std::mem::take(&mut *held(&site.history));
        deleted_at = std::mem::take(&mut *held(&site.deleted_at));
        expired = std::mem::take(&mut *held(&site.expired));
        number = site.number.load(Ordering::Relaxed);
        if let Some(failed) = held(&site.failed).take() {
            return Err(format!("{failed}\n{}", history.last_told(NEVER)));
        }
    }
    // A record's position decides to which life of the topic it belongs.
    let life = |position: i64| deleted_at.iter().filter(|at| **at <= position).count();
    for put in history.puts.iter_mut().filter(|put| put.sent.topic == DOOMED) {
        put.life = life(put.position);
    }
    for (key, position) in &expired {
        if let Some(unknown) = history.unknown.get_mut(key) {
            unknown.life = life(*position);
        }
    }
    history.puts.sort_by_key(|put| put.position);
    Ok(Threaded {
        disk,
        options,
        kind,
        history,
    })
}

impl Site {
    fn tell(&self, what: impl Into<String>) {
        held(&self.history).events.push((self.disk.steps(), what.into()));
    }

    fn repeat(&self, mut random: Random, work: fn(&Self, &mut Random) -> Outcome<()>) {
        for _ in 0..DONE {
            if held(&self.failed).is_some() {
                return;
            }
            if let Err(what) = work(self, &mut random) {
                *held(&self.failed) = Some(what);
            }
        }
    }

    fn put(&self, random: &mut Random) -> Outcome<()> {
        let count = if random.one_in(4) { 2 + random.below(4) } else { 1 };
        let sent: Vec<Sent> = (0..count)
            .map(|_| {
                let topic = *random.choose(&TOPICS).unwrap();
                let queues = usize::try_from(self.kind.queues(topic)).unwrap();
                let queue = i32::try_from(random.below(queues)).unwrap();
                let number = self.number.fetch_add(1, Ordering::Relaxed);
                let mut sent = Sent::any(random, (topic, queue), (number, 900), self.kind.has_nul);
                sent.is_hidden = random.one_in(12);
                sent
            })
            .collect();
        let began = self.disk.steps();
        self.tell(format!("put of {count} from {}", sent[0].key));
        let outcomes = Arc::new(Mutex::new(Vec::new()));
        let mut puts = self.store.append_batch();
        for sent in &sent {
            let done = Arc::clone(&outcomes);
            puts.stage(
                &sent.message(),
                Box::new(move |stored| {
                    held(&done).push(stored);
                    None
                }),
            );
        }
        puts.commit();
        let outcomes = std::mem::take(&mut *held(&outcomes));
        if outcomes.len() != sent.len() {
            return Err(format!(
                "{} of a burst of {} were told",
                outcomes.len(),
                sent.len()
            ));
        }
        for (stored, sent) in outcomes.into_iter().zip(sent) {
            self.note(&stored.map_err(|error| format!("put: {error}"))?, sent, began)?;
        }
        Ok(())
    }

    fn note(&self, stored: &Stored, sent: Sent, began: usize) -> Outcome<()> {
        let sent = Arc::new(sent);
        let position = *stored
            .physical_offsets()
            .first()
            .ok_or("a put without a position")?;
        let bytes = self
            .store
            .record_at(position)
            .map_err(|error| error.to_string())?;
        let Some(bytes) = bytes else {
            // Retention was faster; after an earlier crash, the message still exists.
            let gone = self.store.health().min_physical_offset > position;
            let key = sent.key.clone();
            held(&self.expired).push((key.clone(), position));
            let unknown = Unknown {
                sent,
                life: 0,
                began,
                until: NEVER,
            };
            held(&self.history).unknown.insert(key, unknown);
            return gone.then_some(()).ok_or("what was put is not there".to_owned());
        };
        let durable = Arc::new(AtomicUsize::new(NEVER));
        held(&self.history).puts.push(Put {
            position,
            bytes: bytes.to_vec().into(),
            index: if sent.is_hidden { 0 } else { stored.queue_offset },
            sent,
            life: 0,
            began,
            in_memory: self.disk.steps(),
            durable: Arc::clone(&durable),
        });
        let disk = self.disk.clone();
        self.store.when_durable(stored.end_position, move |result| {
            if result.is_ok() {
                durable.store(disk.steps(), Ordering::Relaxed);
            }
        });
        Ok(())
    }

    fn task(&self, task: MaintenanceTask) -> Outcome<()> {
        self.tell(format!("{task:?}"));
        self.store.run(task).map_err(|error| format!("{task:?}: {error}"))
    }

    fn keep_house(&self, random: &mut Random) -> Outcome<()> {
        self.disk.set_now(self.disk.now() + 1);
        self.task(match random.below(12) {
            0..4 => MaintenanceTask::Flush,
            4..6 => MaintenanceTask::WriteQueues,
            6..8 => MaintenanceTask::SyncQueues,
            8 => MaintenanceTask::SaveCheckpoint,
            9 => MaintenanceTask::ReleaseIdle,
            _ => MaintenanceTask::PrepareSegment,
        })
    }

    fn index(&self, random: &mut Random) -> Outcome<()> {
        self.task(match random.below(4) {
            0 => MaintenanceTask::WriteIndex,
            1 => MaintenanceTask::Flush,
            _ => MaintenanceTask::Index,
        })
    }

    fn clean(&self, random: &mut Random) -> Outcome<()> {
        match random.below(6) {
            0 => self.delete_topic(),
            1 => self.task(MaintenanceTask::SyncQueues),
            _ => self.retain(),
        }
    }

    fn retain(&self) -> Outcome<()> {
        let began = self.disk.steps();
        self.tell("retention");
        self.store
            .delete_expired()
            .map_err(|error| format!("retention: {error}"))?;
        let what = self.store.health().min_physical_offset;
        let done = self.disk.steps();
        held(&self.history).starts.push(Span { what, began, done });
        Ok(())
    }

    fn delete_topic(&self) -> Outcome<()> {
        let began = self.disk.steps();
        self.tell("delete Doomed");
        let before = self.noted();
        self.store
            .delete_topic(DOOMED)
            .map_err(|error| format!("deletion: {error}"))?;
        let Some(position) = self.noted().filter(|position| Some(*position) != before) else {
            // There was no queue of it.
            return Ok(());
        };
        let mut deleted_at = held(&self.deleted_at);
        held(&self.history).deletions.push(Span {
            what: (DOOMED.to_owned(), deleted_at.len()),
            began,
            done: self.disk.steps(),
        });
        deleted_at.push(position);
        Ok(())
    }

    /// Returns the position of the last deletion, as the store noted it.
    fn noted(&self) -> Option<i64> {
        use pyrmq_store::Fs;
        let bytes = self.session.read(&Path::new(ROOT).join("deletedTopics")).ok()?;
        let entry = 2 + DOOMED.len() + 8 + 4;
        let entries = bytes.chunks_exact(entry);
        entries
            .map(|entry| entry[2 + DOOMED.len()..][..8].try_into().map(i64::from_be_bytes))
            .filter_map(Result::ok)
            .max()
    }
}
