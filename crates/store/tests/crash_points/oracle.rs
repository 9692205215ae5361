//! The rules for a store after a crash, which `docs/store.md` documents:
//!
//! 1. It opens.
//! 2. Nothing is invented: every record was put, with its bytes, at its position; or its put failed because the disk
//!    did, and it may exist or not.
//! 3. Everything acknowledged as durable exists; after a kill, everything acknowledged.
//! 4. No record before the end is missing, and no segment is gone that retention did not delete.
//! 5. Each queue has exactly its records of the log, in order, and continues after the newest acknowledged index. A
//!    topic does not come back after an acknowledged deletion; a deletion in progress took all of its queues once it
//!    was noted, otherwise none. If somebody deleted or shortened a queue's files after the crash, all of this still
//!    holds, except the next index of a queue without records. A reader that filters gets exactly the records with its
//!    tag.
//! 6. The key index finds each record once by its unique key, and by each of its keys and its tag.
//! 7. A configuration file has the last saved text, or the one that was being saved.
//! 8. New messages can be put, and a second start, clean or not, finds all of the above again.

use crate::common::props;
use crate::sent::Sent;
use crate::workload::{History, Kind, NEVER, Outcome, Put, ROOT, Span, TOPICS, Unknown, open};
use pyrmq_remoting::message::record::records;
use pyrmq_remoting::message::{Record, java_hash};
use pyrmq_store::{
    Fs, GetMessage, GetStatus, KeyKind, KeyQuery, MaintenanceTask, Options, Store, TagFilter, config_file,
};
use pyrmq_testkit::sim::{Loss, Session};
use pyrmq_testkit::{Random, SimDisk};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The moment of a history at which the disk stopped.
pub(crate) struct Crash<'h> {
    pub(crate) history: &'h History,
    pub(crate) steps: usize,
    /// True if only the process ended.
    pub(crate) is_kill: bool,
    pub(crate) options: &'h Options,
    pub(crate) kind: Kind,
    /// A queue whose files were deleted or shortened afterwards.
    pub(crate) harmed: Option<(String, i32)>,
    /// The disk's notes of deleted topics: their records before a position are gone.
    pub(crate) noted: BTreeMap<String, i64>,
}

/// A disk's notes of deleted topics before the store opens.
pub(crate) fn deletions(disk: &SimDisk) -> BTreeMap<String, i64> {
    let (session, mut noted, mut at) = (disk.session(), BTreeMap::new(), 0);
    let bytes = session
        .read(&Path::new(ROOT).join("deletedTopics"))
        .unwrap_or_default();
    while let Some(entry) = bytes.get(at..).filter(|rest| rest.len() > 14) {
        let end = 2 + usize::from(u16::from_be_bytes([entry[0], entry[1]])) + 8;
        let Some((entry, crc)) = entry.split_at_checked(end).filter(|(_, rest)| rest.len() >= 4) else {
            break;
        };
        let sealed = [b"PYRMQ-T1", (at as u64).to_be_bytes().as_slice(), entry].concat();
        if crc32fast::hash(&sealed).to_be_bytes() != crc[..4] {
            break;
        }
        let topic = String::from_utf8(entry[2..end - 8].to_vec()).expect("a topic");
        let position = i64::from_be_bytes(entry[end - 8..].try_into().unwrap());
        let newest = noted.entry(topic).or_insert(position);
        *newest = position.max(*newest);
        at += end + 4;
    }
    noted
}

macro_rules! ensure {
    ($holds:expr, $($text:tt)*) => {
        if !$holds {
            return Err(format!($($text)*));
        }
    };
}

/// Checks the disk after a crash, continues from there, and checks the disk after a second end.
pub(crate) fn check(crash: &Crash<'_>, disk: &SimDisk, random: &mut Random) -> Outcome<()> {
    let (session, store) = open(disk, crash.options);
    let store = store.map_err(|error| format!("the store does not open: {error}"))?;
    let found = crash.read_back(&session, &store, true)?;
    let mut history = crash.after(found);
    go_on(&store, disk, crash.kind, &mut history)?;
    let (is_kill, steps, next) = match random.below(4) {
        0 => {
            store
                .close()
                .map_err(|error| format!("it does not close: {error}"))?;
            let open_again = open(disk, crash.options).1;
            let again =
                open_again.map_err(|error| format!("it does not open after a clean stop: {error}"))?;
            ensure!(
                !again.health().recovered_from_crash,
                "a clean stop is taken for a crash"
            );
            let again = Crash {
                history: &history,
                steps: disk.steps(),
                is_kill: true,
                options: crash.options,
                kind: crash.kind,
                harmed: None,
                noted: deletions(disk),
            };
            drop(store);
            return again.look_again(disk);
        }
        1 => (true, disk.steps(), disk.clone()),
        _ => {
            let steps = random.below(disk.steps() + 1);
            let loss = *random.choose(&Loss::ALL).unwrap();
            (
                loss == Loss::Nothing,
                steps,
                disk.crash(steps, loss, random.next()),
            )
        }
    };
    session.kill();
    drop(store);
    let second = Crash {
        history: &history,
        steps,
        is_kill,
        options: crash.options,
        kind: crash.kind,
        harmed: None,
        noted: deletions(&next),
    };
    let (session, store) = open(&next, crash.options);
    let store = store.map_err(|error| format!("the second start fails: {error}"))?;
    second
        .read_back(&session, &store, false)
        .map_err(|text| format!("after the second start (step {steps} of it, kill: {is_kill}): {text}"))?;
    session.kill();
    Ok(())
}

/// Puts a message into every queue, flushes, and records that in the history.
fn go_on(store: &Store, disk: &SimDisk, kind: Kind, history: &mut History) -> Outcome<()> {
    for topic in TOPICS {
        for queue in 0..kind.queues(topic) {
            let expected = store.max_offset(topic, queue);
            let end = store.health().max_physical_offset;
            let key = format!("new-{topic}-{queue}");
            let sent = Sent {
                topic: topic.to_owned(),
                queue,
                body: b"new".to_vec(),
                properties: props(&[("UNIQ_KEY", &key), ("TAGS", "t"), ("KEYS", "k1")]),
                key,
                is_hidden: false,
            };
            let began = disk.steps();
            let stored = store
                .put(&sent.message())
                .map_err(|error| format!("nothing can be put: {error}"))?;
            ensure!(
                stored.queue_offset == expected,
                "{topic}-{queue} goes on at {} instead of {expected}",
                stored.queue_offset
            );
            ensure!(
                stored.physical_offset >= end,
                "a new record at {} in front of {end}",
                stored.physical_offset
            );
            let durable = Arc::new(AtomicUsize::new(NEVER));
            let bytes = store.record_at(stored.physical_offset).ok().flatten();
            history.puts.push(Put {
                sent: Arc::new(sent),
                position: stored.physical_offset,
                bytes: bytes.ok_or("a new record cannot be read")?.to_vec().into(),
                index: expected,
                life: NEVER,
                began,
                in_memory: disk.steps(),
                durable: Arc::clone(&durable),
            });
            let disk = disk.clone();
            store.when_durable(stored.end_position, move |result| {
                if result.is_ok() {
                    durable.store(disk.steps(), Ordering::Relaxed);
                }
            });
        }
    }
    for task in [
        MaintenanceTask::Flush,
        MaintenanceTask::WriteQueues,
        MaintenanceTask::Index,
        MaintenanceTask::SyncQueues,
        MaintenanceTask::PrepareSegment,
    ] {
        store.run(task).map_err(|error| format!("{task:?}: {error}"))?;
    }
    Ok(())
}

impl Crash<'_> {
    fn look_again(&self, disk: &SimDisk) -> Outcome<()> {
        let (session, store) = open(disk, self.options);
        // The first store is still open: the directory is locked.
        drop(store);
        session.kill();
        let (session, store) = open(disk, self.options);
        let store = store.map_err(|error| format!("the second start fails: {error}"))?;
        self.read_back(&session, &store, false)
            .map_err(|text| format!("after a clean stop: {text}"))?;
        session.kill();
        Ok(())
    }

    /// Checks everything and returns the existing records.
    fn read_back(&self, session: &Session, store: &Store, is_first: bool) -> Outcome<Vec<Put>> {
        let found = self.log(store)?;
        self.acknowledged(store, &found)?;
        let mut queues: BTreeMap<(&str, i32), Vec<&Put>> = BTreeMap::new();
        for put in found.iter().filter(|put| !put.sent.is_hidden) {
            let queue = (put.sent.topic.as_str(), put.sent.queue);
            queues.entry(queue).or_default().push(put);
        }
        for topic in TOPICS {
            for queue in 0..self.kind.queues(topic) {
                let put = queues.get(&(topic, queue)).map_or(&[][..], Vec::as_slice);
                self.queue(store, put, (topic, queue), is_first)?;
            }
        }
        if is_first {
            keys(store, &found)?;
        }
        self.configs(session)?;
        Ok(found)
    }

    /// Returns every record from the log's start to its end.
    fn log(&self, store: &Store) -> Outcome<Vec<Put>> {
        let known: BTreeMap<i64, &Put> = self
            .history
            .puts
            .iter()
            .filter(|put| put.began < self.steps || put.in_memory <= self.steps)
            .map(|put| (put.position, put))
            .collect();
        let health = store.health();
        let segment = i64::try_from(self.options.segment_bytes).unwrap();
        let (mut at, mut found) = (health.min_physical_offset, Vec::new());
        while at < health.max_physical_offset {
            let Some(bytes) = store.record_at(at).map_err(|error| error.to_string())? else {
                ensure!(at % segment != 0, "the log has a segment without records at {at}");
                at = (at / segment + 1) * segment;
                continue;
            };
            let put = match known.get(&at) {
                Some(put) if bytes == *put.bytes => (*put).clone(),
                put => match self.of_failed_put(at, &bytes) {
                    Some(put) => put,
                    None => {
                        return Err(match put {
                            Some(put) => {
                                format!("the record at {at} ({}) is not what was put", put.sent.key)
                            }
                            None => format!("invented: a record at {at} that was never put there"),
                        });
                    }
                },
            };
            found.push(put);
            at += i64::try_from(bytes.len()).unwrap();
        }
        Ok(found)
    }

    /// The record of a failed put, which may still exist.
    fn of_failed_put(&self, position: i64, bytes: &[u8]) -> Option<Put> {
        let record = Record::decode(bytes).ok()?;
        let key = record.properties.get("UNIQ_KEY")?;
        let Unknown {
            sent,
            life,
            began,
            until,
        } = self.history.unknown.get(key)?;
        let is_it = record.body == sent.body.as_slice()
            && record.properties.as_bytes() == sent.properties.as_bytes()
            && (record.topic, record.queue_id) == (sent.topic.as_str(), sent.queue)
            && record.physical_offset == position
            && (*began..*until).contains(&self.steps.saturating_sub(1));
        is_it.then(|| Put {
            sent: Arc::clone(sent),
            position,
            bytes: bytes.into(),
            index: record.queue_offset,
            life: match self.history.deleted_at[..] {
                [] => *life,
                _ => self.history.life_of(record.topic, position),
            },
            began: *began,
            in_memory: NEVER,
            durable: Arc::new(AtomicUsize::new(NEVER)),
        })
    }

    fn acknowledged(&self, store: &Store, found: &[Put]) -> Outcome<()> {
        let start = store.health().min_physical_offset;
        let began = |span: &&Span<i64>| span.began < self.steps || span.done <= self.steps;
        let deleted_to = self
            .history
            .starts
            .iter()
            .filter(began)
            .map(|span| span.what)
            .max();
        ensure!(
            start <= deleted_to.unwrap_or(0),
            "the log begins at {start}, but retention went to {deleted_to:?}"
        );
        let there: std::collections::HashSet<i64> = found.iter().map(|put| put.position).collect();
        for put in &self.history.puts {
            let level = if put.is_durable(self.steps) {
                "durable"
            } else if self.is_kill && put.in_memory <= self.steps {
                "stored"
            } else {
                continue;
            };
            ensure!(
                put.position < start || there.contains(&put.position),
                "lost: {} {}-{} index {} at {} was acknowledged as {level}; the log is {start}..{}",
                put.sent.key,
                put.sent.topic,
                put.sent.queue,
                put.index,
                put.position,
                store.health().max_physical_offset
            );
        }
        Ok(())
    }

    fn queue(
        &self,
        store: &Store,
        found: &[&Put],
        (topic, queue): (&str, i32),
        is_first: bool,
    ) -> Outcome<()> {
        let mut expected: Vec<&Put> = Vec::new();
        for put in found {
            if put.index == 0 {
                expected.clear();
            }
            expected.push(put);
        }
        let name = format!("{topic}-{queue}");
        // Records of an acknowledged deletion never come back.
        let last = |which: fn(&Span<(String, usize)>) -> usize| {
            let spans = self.history.deletions.iter();
            let spans = spans.filter(|span| span.what.0 == topic && which(span) <= self.steps);
            spans.map(|span| span.what.1).max()
        };
        let done = last(|span| span.done);
        // A later start may have completed a failed deletion, and its note is removed with its last record.
        let failed = last(|span| if span.done == NEVER { span.began } else { NEVER });
        let is_left = |put: &Put, deletion: Option<usize>| deletion.is_none_or(|life| put.life > life);
        let (min, max) = (store.min_offset(topic, queue), store.max_offset(topic, queue));
        let actual = read(store, topic, queue, TagFilter::All)?;
        for (index, bytes) in &actual {
            let put = found
                .iter()
                .find(|put| *put.bytes == **bytes && put.index == *index);
            let Some(put) = put else {
                return Err(format!("{name} has at index {index} what is not in the log"));
            };
            ensure!(
                is_left(put, done),
                "came back: {name} has at index {index} what an acknowledged deletion took"
            );
        }
        let is_made_again =
            |put: &Put| put.sent.topic == topic && is_left(put, done) && put.began <= self.steps;
        let is_made_by_failed = || {
            let mut unknown = self.history.unknown.values();
            unknown.any(|put| {
                put.sent.topic == topic && done.is_none_or(|done| put.life > done) && put.began <= self.steps
            })
        };
        // Later checks know only the puts that were found: a lost put may have created the topic again.
        ensure!(
            !is_first
                || done.is_none()
                || max == 0
                || self.history.puts.iter().any(is_made_again)
                || is_made_by_failed(),
            "came back: {name} was deleted and ends at {max}"
        );
        // A deletion takes the records before its note, whether it was acknowledged or in progress.
        let noted = self.noted.get(topic).copied().unwrap_or(0);
        expected.retain(|put| put.position >= noted);
        if let Some(put) = expected.iter().find(|put| !is_left(put, done)) {
            return Err(format!(
                "came back: an acknowledged deletion took {} at {}, the note says {noted}",
                put.sent.key, put.position
            ));
        }
        let life = expected.last().map(|put| put.life);
        let positions = |list: &[&Put]| {
            list.iter()
                .map(|put| (put.index, put.position))
                .collect::<Vec<_>>()
        };
        ensure!(
            actual.len() == expected.len()
                && actual
                    .iter()
                    .zip(&expected)
                    .all(|(actual, put)| actual.0 == put.index && actual.1 == *put.bytes),
            "{name} has indexes {:?} ({min}..{max}), the log has {:?}",
            actual.iter().map(|unit| unit.0).collect::<Vec<_>>(),
            positions(&expected)
        );
        let next = self
            .history
            .puts
            .iter()
            .filter(|put| put.sent.topic == topic && put.sent.queue == queue && !put.sent.is_hidden)
            .filter(|put| put.position >= noted && is_left(put, done.max(failed)))
            .filter(|put| put.life >= life.unwrap_or(0) && put.is_durable(self.steps))
            .map(|put| put.index + 1)
            .max();
        // Only its files knew the next index of a queue without records.
        let is_forgotten = expected.is_empty()
            && self
                .harmed
                .as_ref()
                .is_some_and(|harmed| (harmed.0.as_str(), harmed.1) == (topic, queue));
        ensure!(
            is_forgotten || max >= next.unwrap_or(0),
            "{name} goes on at {max} although index {next:?} was reached"
        );
        tags(store, (topic, queue), &expected)
    }

    fn configs(&self, session: &Session) -> Outcome<()> {
        let mut files: BTreeMap<&str, Vec<&Span<(String, String)>>> = BTreeMap::new();
        for save in self.history.configs.iter().filter(|save| save.began < self.steps) {
            files.entry(&save.what.0).or_default().push(save);
        }
        for (name, saves) in files {
            let path = Path::new(ROOT).join("config").join(name);
            let check = |text: &str| {
                text.ends_with("\"}")
                    .then_some(())
                    .ok_or_else(|| "cut off".to_owned())
            };
            let loaded = config_file::load(session, &path, check).map_err(|error| error.to_string())?;
            let done = saves.iter().rposition(|save| save.done <= self.steps);
            let allowed = saves.get(done.unwrap_or(0)..).unwrap_or_default();
            ensure!(
                loaded.text().map_or(done.is_none(), |text| allowed
                    .iter()
                    .any(|save| save.what.1 == text)),
                "lost: {name} does not have the text that was saved last"
            );
        }
        Ok(())
    }

    /// Returns the history of the disk as found: what exists is durable.
    fn after(&self, found: Vec<Put>) -> History {
        let puts = found.into_iter().map(|put| Put {
            began: 0,
            in_memory: 0,
            durable: Arc::default(),
            ..put
        });
        let now = |began: usize| if began <= self.steps { 0 } else { NEVER };
        History {
            puts: puts.collect(),
            unknown: BTreeMap::new(),
            deletions: self
                .history
                .deletions
                .iter()
                .map(|span| Span {
                    began: now(span.began),
                    done: now(span.done),
                    ..span.clone()
                })
                .collect(),
            starts: self
                .history
                .starts
                .iter()
                .filter(|span| span.began < self.steps)
                .map(|span| Span {
                    what: span.what,
                    began: 0,
                    done: 0,
                })
                .collect(),
            deleted_at: Vec::new(),
            configs: Vec::new(),
            events: Vec::new(),
        }
    }
}

fn read(store: &Store, topic: &str, queue: i32, tags: TagFilter<'_>) -> Outcome<Vec<(i64, Vec<u8>)>> {
    let (mut all, mut offset) = (Vec::new(), store.min_offset(topic, queue));
    loop {
        let got = store
            .get(&GetMessage {
                topic,
                queue_id: queue,
                offset,
                max_count: 32,
                max_bytes: 1 << 20,
                tags,
            })
            .map_err(|error| format!("{topic}-{queue} at {offset}: {error}"))?;
        if got.status == GetStatus::NoMatchedMessage && got.next_offset > offset {
            offset = got.next_offset;
            continue;
        }
        if got.status != GetStatus::Found {
            ensure!(
                offset == store.max_offset(topic, queue),
                "{topic}-{queue}: {:?} at {offset} in front of {}",
                got.status,
                store.max_offset(topic, queue)
            );
            return Ok(all);
        }
        let mut from = 0;
        for record in records(&got.body) {
            let record = record.map_err(|error| format!("{topic}-{queue}: {error}"))?;
            all.push((record.queue_offset, got.body[from..from + record.size].to_vec()));
            from += record.size;
        }
        offset = got.next_offset;
    }
}

/// Checks that a reader that filters gets the records with its tag, by the codes in the queue.
fn tags(store: &Store, (topic, queue): (&str, i32), expected: &[&Put]) -> Outcome<()> {
    let mut by_code: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
    for put in expected {
        let tag = put.sent.property("TAGS");
        let code = java_hash::tags_code(tag.as_deref());
        by_code
            .entry(i32::try_from(code).unwrap())
            .or_default()
            .push(put.index);
    }
    for (code, expected) in by_code {
        let got = read(store, topic, queue, TagFilter::Codes(&[code]))?;
        let got: Vec<i64> = got.iter().map(|(index, _)| *index).collect();
        ensure!(
            got == expected,
            "{topic}-{queue}: the filter {code} lets indexes {got:?} through instead of {expected:?}"
        );
    }
    Ok(())
}

/// A key by which a record is found.
const KINDS: [KeyKind; 3] = [KeyKind::Unique, KeyKind::Key, KeyKind::Tag];

/// Checks that every record is found once by each of its keys.
fn keys(store: &Store, found: &[Put]) -> Outcome<()> {
    store
        .run(MaintenanceTask::Index)
        .map_err(|error| format!("the index: {error}"))?;
    let mut wanted: BTreeMap<(&str, usize, String), BTreeSet<i64>> = BTreeMap::new();
    for put in found {
        let topic = put.sent.topic.as_str();
        let mut has = |kind, key: String| {
            let places = wanted.entry((topic, kind, key)).or_default();
            places.insert(put.position);
        };
        has(0, put.sent.key.clone());
        let keys = put.sent.property("KEYS").unwrap_or_default();
        for key in keys.split(' ').filter(|key| !key.is_empty()) {
            has(1, key.to_owned());
        }
        if let Some(tag) = put.sent.property("TAGS") {
            has(2, tag);
        }
    }
    for ((topic, kind, key), expected) in wanted {
        let hits = store
            .query(&KeyQuery {
                topic,
                key: &key,
                kind: KINDS[kind],
                max_count: 10_000,
                begin_ms: 0,
                end_ms: i64::MAX,
            })
            .map_err(|error| format!("the index: {error}"))?;
        let mut got: Vec<i64> = records(&hits.body)
            .map(|record| record.map(|record| record.physical_offset))
            .collect::<Result<_, _>>()
            .map_err(|error| format!("the index: {error}"))?;
        got.sort_unstable();
        ensure!(
            got.iter().eq(&expected),
            "the index finds records at {got:?} for {:?} {key:?} of {topic} instead of {expected:?}",
            KINDS[kind]
        );
    }
    Ok(())
}
