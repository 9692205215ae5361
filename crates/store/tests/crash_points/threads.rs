//! Two threads put while others write, fsync, index, delete old files and delete a topic; in some runs, calls fail for
//! a while. One seed decides which thread runs when, and which calls fail.

use crate::oracle::deletions;
use crate::puts;
use crate::sent::Sent;
use crate::workload::{
    DOOMED, History, Kind, NEVER, Outcome, Put, Span, TOPICS, Unknown, describe, faults, open, options,
};
use pyrmq_store::{MaintenanceTask, Options, Store, StoreError, Stored};
use pyrmq_testkit::sim::Session;
use pyrmq_testkit::{Random, SimDisk, schedule};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Starts of the store in one run.
const STARTS: usize = 3;
/// Actions of one thread between two starts.
const DONE: usize = 25;
/// How often calls fail for a while between two starts.
const TROUBLES: usize = 3;

/// What is known of a run so far.
#[derive(Default)]
struct Book {
    history: History,
    /// Number of messages.
    number: usize,
    /// Keys of messages for which there was no space, and the newest action at that time.
    cleared: Vec<(String, usize)>,
}

/// The actions between two starts.
#[derive(Default)]
struct Actions {
    newest: usize,
    under_way: BTreeSet<usize>,
}

/// State shared by the threads between two starts.
struct Site {
    disk: SimDisk,
    session: Session,
    store: Arc<Store>,
    kind: Kind,
    book: Mutex<Book>,
    actions: Mutex<Actions>,
    /// An odd number while calls fail or an earlier failure may still have consequences.
    trouble: AtomicUsize,
    /// Held by the thread that deletes the topic, so that it knows which note is its own.
    deleting: Mutex<()>,
    /// A deletion failed and must be retried before its topic accepts messages.
    is_half_deleted: AtomicBool,
    failed: Mutex<Option<String>>,
}

/// A run whose history can be checked.
pub(crate) struct Threaded {
    pub(crate) disk: SimDisk,
    pub(crate) options: Options,
    pub(crate) history: History,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the threads of a seed.
pub(crate) fn run(seed: u64, kind: Kind, disk: SimDisk) -> Outcome<Threaded> {
    pyrmq_store::schedule_by(schedule::point);
    let options = options(seed);
    disk.set_now(1_800_000_000_000);
    disk.set_syncs_all(kind.syncs_all);
    let (mut random, mut book) = (Random::of(&[seed, 5]), Book::default());
    for start in 0..STARTS {
        let (session, store) = open(&disk, &options);
        let store =
            store.map_err(|error| format!("start {start}: {error}\n{}", book.history.last_told(NEVER)))?;
        let site = Site {
            disk: disk.clone(),
            session,
            store,
            kind,
            book: Mutex::new(book),
            actions: Mutex::default(),
            trouble: AtomicUsize::new(0),
            deleting: Mutex::default(),
            is_half_deleted: AtomicBool::new(false),
            failed: Mutex::default(),
        };
        site.tell("start");
        let work: &[fn(&Site, &mut Random) -> Outcome<()>] = &[
            Site::put,
            Site::put,
            Site::keep_house,
            Site::index,
            Site::clean,
            Site::delete,
        ];
        let mut jobs: Vec<Box<dyn FnOnce() + Send + '_>> = Vec::new();
        for work in work {
            let (site, random) = (&site, Random::new(random.next()));
            jobs.push(Box::new(move || site.repeat(DONE, random, *work)));
        }
        if kind.has_faults {
            let (site, random) = (&site, Random::new(random.next()));
            jobs.push(Box::new(move || site.repeat(TROUBLES, random, Site::fail_calls)));
        }
        schedule::run(Random::of(&[seed, start as u64]).next(), jobs);
        let ended = site.end(random.one_in(2));
        book = std::mem::take(&mut *held(&site.book));
        let failed = held(&site.failed).take();
        if let Some(failed) = failed.or(ended.err()) {
            return Err(format!("{failed}\n{}", book.history.last_told(NEVER)));
        }
    }
    let mut history = book.history;
    let mut puts = std::mem::take(&mut history.puts);
    for put in &mut puts {
        put.life = history.life_of(&put.sent.topic, put.position);
    }
    puts.sort_by_key(|put| put.position);
    Ok(Threaded {
        disk,
        options,
        history: History { puts, ..history },
    })
}

/// An action under way.
struct Action<'s> {
    site: &'s Site,
    number: usize,
    trouble: usize,
    began: usize,
}

impl Drop for Action<'_> {
    fn drop(&mut self) {
        held(&self.site.actions).under_way.remove(&self.number);
    }
}

impl Action<'_> {
    /// Returns a call's result; `None` if it failed and was allowed to.
    fn done<T>(&self, what: &str, result: Result<T, StoreError>) -> Outcome<Option<T>> {
        match result {
            Ok(done) => Ok(Some(done)),
            Err(error) if self.may_fail() => {
                self.site.tell(format!("{what} failed: {error}"));
                Ok(None)
            }
            Err(error) => Err(format!("{what}: {error}")),
        }
    }

    /// Calls failed since the action began, or the store does not work any more because calls failed before that.
    fn may_fail(&self) -> bool {
        let now = self.site.trouble.load(Ordering::Relaxed);
        now % 2 == 1 || now != self.trouble || now > 0 && self.site.store.has_failed()
    }

    fn span<T>(&self, what: T, is_done: bool) -> Span<T> {
        Span {
            what,
            began: self.began,
            done: if is_done { self.site.disk.steps() } else { NEVER },
        }
    }
}

impl Site {
    fn tell(&self, what: impl Into<String>) {
        let event = (self.disk.steps(), what.into());
        held(&self.book).history.events.push(event);
    }

    fn begin(&self, what: impl Into<String>) -> Action<'_> {
        self.tell(what);
        let mut actions = held(&self.actions);
        actions.newest += 1;
        let number = actions.newest;
        actions.under_way.insert(number);
        Action {
            site: self,
            number,
            trouble: self.trouble.load(Ordering::Relaxed),
            began: self.disk.steps(),
        }
    }

    fn repeat(&self, count: usize, mut random: Random, work: fn(&Self, &mut Random) -> Outcome<()>) {
        for _ in 0..count {
            if held(&self.failed).is_some() {
                return;
            }
            if let Err(what) = work(self, &mut random) {
                *held(&self.failed) = Some(what);
            }
        }
    }

    /// Ends the process once its threads are done.
    fn end(&self, is_stop: bool) -> Outcome<()> {
        // Every action of the next start is later than those of this one.
        held(&self.book)
            .cleared
            .iter_mut()
            .for_each(|(_, action)| *action = 0);
        if is_stop {
            let action = self.begin("stop");
            let closed = self.store.close();
            if action.done("stop", closed)?.is_some() {
                return Ok(());
            }
        }
        self.tell("kill");
        self.session.kill();
        Ok(())
    }

    fn sent(&self, random: &mut Random, place: (&str, i32), most: usize) -> Sent {
        let number = {
            let mut book = held(&self.book);
            book.number += 1;
            book.number
        };
        Sent::any(random, place, (number, most), self.kind.has_nul)
    }

    fn place(&self, random: &mut Random) -> (&'static str, i32) {
        let topic = *random.choose(&TOPICS).unwrap();
        let queues = usize::try_from(self.kind.queues(topic)).unwrap();
        (topic, i32::try_from(random.below(queues)).unwrap())
    }

    fn sent_anywhere(&self, random: &mut Random) -> Sent {
        let place = self.place(random);
        let mut sent = self.sent(random, place, 900);
        sent.is_hidden = random.one_in(12);
        sent
    }

    fn put(&self, random: &mut Random) -> Outcome<()> {
        match random.below(10) {
            0..4 => {
                let sent = self.sent_anywhere(random);
                let action = self.begin(format!("put {}-{} {}", sent.topic, sent.queue, sent.key));
                let stored = self.store.put(&sent.message());
                self.note(&action, stored, vec![sent])
            }
            4..8 => {
                let sent: Vec<Sent> = if self.kind.is_wide && random.one_in(4) {
                    // Enough queues that they are fsynced together.
                    let topic = *random.choose(&["A", DOOMED]).unwrap();
                    (0..100)
                        .map(|queue| self.sent(random, (topic, queue), 100))
                        .collect()
                } else {
                    (0..=random.below(5))
                        .map(|_| self.sent_anywhere(random))
                        .collect()
                };
                let action = self.begin(format!("append batch of {} from {}", sent.len(), sent[0].key));
                let outcomes = puts::append_together(&self.store, &sent)?;
                for (stored, sent) in outcomes.into_iter().zip(sent) {
                    self.note(&action, stored, vec![sent])?;
                }
                Ok(())
            }
            _ => {
                let place = self.place(random);
                let sent = (0..2 + random.below(4)).map(|_| self.sent(random, place, 700));
                let sent = puts::fitting(sent.collect());
                let action = self.begin(format!("batch of {} from {}", sent.len(), sent[0].key));
                let stored = puts::put_batch(&self.store, &sent);
                self.note(&action, stored, sent)
            }
        }
    }

    /// Records the outcome of a put: one message or a batch.
    fn note(&self, action: &Action<'_>, stored: Result<Stored, StoreError>, sent: Vec<Sent>) -> Outcome<()> {
        if stored.as_ref().is_err_and(|error| !puts::is_refused(error)) {
            for sent in &sent {
                self.note_unknown(action, Arc::new(sent.clone()));
            }
            let (mut book, newest) = (held(&self.book), held(&self.actions).newest);
            book.cleared
                .extend(sent.iter().map(|sent| (sent.key.clone(), newest)));
        }
        if self.store.has_failed() {
            held(&self.book).cleared.clear();
        }
        let Some(stored) = action.done("put", stored)? else {
            return Ok(());
        };
        self.note_cleared(action);
        let durable = Arc::new(AtomicUsize::new(NEVER));
        let records = stored
            .physical_offsets()
            .iter()
            .zip(sent)
            .zip(stored.queue_offset..);
        for ((position, sent), index) in records {
            self.note_record(action, (*position, index), Arc::new(sent), &durable)?;
        }
        let disk = self.disk.clone();
        self.store.when_durable(stored.end_position, move |result| {
            if result.is_ok() {
                durable.store(disk.steps(), Ordering::Relaxed);
            }
        });
        Ok(())
    }

    /// The message may exist. Its position will tell to which life of its topic it belongs; until then, it counts for
    /// the newest one, which a deletion under way may have begun.
    fn note_unknown(&self, action: &Action<'_>, sent: Arc<Sent>) {
        let mut book = held(&self.book);
        let unknown = Unknown {
            life: book.history.deleted_at.len() + 1,
            began: action.began,
            until: NEVER,
            sent,
        };
        book.history.unknown.insert(unknown.sent.key.clone(), unknown);
    }

    /// A message was stored. What is left of those that found no space before it is gone.
    fn note_cleared(&self, action: &Action<'_>) {
        let (mut book, steps) = (held(&self.book), self.disk.steps());
        let Book { history, cleared, .. } = &mut *book;
        cleared.retain(|(key, newest)| {
            let is_gone = *newest < action.number;
            if is_gone && let Some(unknown) = history.unknown.get_mut(key) {
                unknown.until = steps;
            }
            !is_gone
        });
    }

    fn note_record(
        &self,
        action: &Action<'_>,
        (position, index): (i64, i64),
        sent: Arc<Sent>,
        durable: &Arc<AtomicUsize>,
    ) -> Outcome<()> {
        let bytes = self
            .store
            .record_at(position)
            .map_err(|error| error.to_string())?;
        let Some(bytes) = bytes else {
            // Retention was faster; after an earlier crash, the message still exists.
            let is_gone = self.store.health().min_physical_offset > position;
            self.note_unknown(action, sent);
            return is_gone
                .then_some(())
                .ok_or("what was put is not there".to_owned());
        };
        let put = Put {
            position,
            bytes: bytes.to_vec().into(),
            index: if sent.is_hidden { 0 } else { index },
            sent,
            life: 0,
            began: action.began,
            in_memory: self.disk.steps(),
            durable: Arc::clone(durable),
        };
        held(&self.book).history.puts.push(put);
        Ok(())
    }

    fn task(&self, task: MaintenanceTask) -> Outcome<()> {
        let action = self.begin(format!("{task:?}"));
        action.done("chore", self.store.run(task)).map(drop)
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
            0 => self.task(MaintenanceTask::SyncQueues),
            1 => {
                pause(random);
                Ok(())
            }
            _ => self.retain().map(drop),
        }
    }

    fn delete(&self, random: &mut Random) -> Outcome<()> {
        match random.below(4) {
            0 => self.delete_topic().map(drop),
            1 => self.task(MaintenanceTask::SyncQueues),
            _ => {
                pause(random);
                Ok(())
            }
        }
    }

    /// Returns whether retention succeeded.
    fn retain(&self) -> Outcome<bool> {
        let action = self.begin("retention");
        let deleted = self.store.delete_expired();
        let start = action.span(self.store.health().min_physical_offset, true);
        held(&self.book).history.starts.push(start);
        Ok(action.done("retention", deleted)?.is_some())
    }

    /// Returns whether the deletion succeeded.
    fn delete_topic(&self) -> Outcome<bool> {
        let _deleting = self.deleting();
        let action = self.begin("delete Doomed");
        let before = self.noted();
        let deleted = action.done("deletion", self.store.delete_topic(DOOMED))?;
        let (is_done, noted) = (deleted.is_some(), self.noted());
        let mut book = held(&self.book);
        let History {
            deletions,
            deleted_at,
            ..
        } = &mut book.history;
        if let Some(position) = noted.filter(|position| Some(*position) != before) {
            deletions.push(action.span((DOOMED.to_owned(), deleted_at.len()), is_done));
            deleted_at.push(position);
        } else if is_done && noted.is_some() && noted == deleted_at.last().copied() {
            // There was no queue of it, or this completed a deletion that had failed.
            if let Some(last) = deletions.last_mut().filter(|last| last.done == NEVER) {
                last.done = self.disk.steps();
            }
        }
        // Without a note, nothing was deleted.
        let is_half = !is_done && noted.is_some() && noted == deleted_at.last().copied();
        self.is_half_deleted.store(is_half, Ordering::Relaxed);
        Ok(is_done)
    }

    fn deleting(&self) -> MutexGuard<'_, ()> {
        loop {
            if let Ok(guard) = self.deleting.try_lock() {
                return guard;
            }
            schedule::point(true);
        }
    }

    /// Returns the position of the last deletion, as the store noted it.
    fn noted(&self) -> Option<i64> {
        deletions(&self.disk).get(DOOMED).copied()
    }

    /// Makes calls fail, or the disk full, for a while. What another thread has begun by then may fail, too.
    fn fail_calls(&self, random: &mut Random) -> Outcome<()> {
        for _ in 0..random.below(10) {
            pause(random);
        }
        if self.store.has_failed() {
            return Ok(());
        }
        self.trouble.fetch_add(1, Ordering::Relaxed);
        if random.one_in(4) {
            let room = random.below(2500);
            self.tell(format!("the disk has {room} bytes left"));
            self.disk.set_room(Some(room));
        } else {
            let faults = faults(random);
            self.tell(describe(&faults));
            self.disk.set_faults(Some(faults));
        }
        pause(random);
        self.disk.set_faults(None);
        self.disk.set_room(None);
        self.tell("the disk is well again");
        self.wait_for_actions();
        self.heal(random)
    }

    /// Waits until all actions that are under way have ended.
    fn wait_for_actions(&self) {
        let newest = held(&self.actions).newest;
        let has_earlier = |actions: &Actions| actions.under_way.first().is_some_and(|first| *first <= newest);
        while has_earlier(&held(&self.actions)) {
            schedule::point(true);
        }
    }

    /// The disk works again: a store that has failed accepts nothing until its next start; any other one works once its
    /// queues are written, the space was checked and a deletion that failed was tried again.
    fn heal(&self, random: &mut Random) -> Outcome<()> {
        if self.store.has_failed() {
            let sent = self.sent(random, ("A", 0), 30);
            return match self.store.put(&sent.message()) {
                Ok(_) => Err("a store that is read-only took a message".to_owned()),
                Err(_) => Ok(()),
            };
        }
        let written = self.store.run(MaintenanceTask::WriteQueues);
        written.map_err(|error| format!("the disk is well, queues: {error}"))?;
        if !self.retain()? || self.is_half_deleted.load(Ordering::Relaxed) && !self.delete_topic()? {
            return Err("the disk is well, and the store is not".to_owned());
        }
        self.tell("the store is well again");
        self.trouble.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Lets other threads run for a while.
fn pause(random: &mut Random) {
    for _ in 0..=random.below(6) {
        schedule::point(true);
    }
}
