//! A seeded run over a simulated disk, and what was acknowledged when.

use crate::common::{host, props};
use pyrmq_remoting::message::{java_hash, sys_flag};
use pyrmq_store::{Batch, BatchItem, Chore, FlushDiskType, Message, Options, Store, Stored, config_file};
use pyrmq_testkit::sim::Session;
use pyrmq_testkit::{Random, SimDisk};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) const ROOT: &str = "/data/store";
pub(crate) const QUEUES: i32 = 2;
const CONFIGS: [&str; 2] = ["topics.json", "subscriptionGroup.json"];
pub(crate) const NEVER: usize = usize::MAX;

/// A record that was put, with the steps of the disk at which that began and was acknowledged.
#[derive(Debug, Clone)]
pub(crate) struct Put {
    pub(crate) position: i64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) topic: String,
    pub(crate) queue: i32,
    pub(crate) index: i64,
    /// How often the topic had been deleted.
    pub(crate) life: usize,
    pub(crate) is_hidden: bool,
    pub(crate) key: String,
    pub(crate) began: usize,
    pub(crate) in_memory: usize,
    pub(crate) durable: Arc<AtomicUsize>,
}

impl Put {
    pub(crate) fn is_durable(&self, steps: usize) -> bool {
        self.durable.load(Ordering::Relaxed) <= steps
    }
}

/// Something that took from one step of the disk to another.
#[derive(Debug, Clone)]
pub(crate) struct Span<T> {
    pub(crate) what: T,
    pub(crate) began: usize,
    pub(crate) done: usize,
}

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) puts: Vec<Put>,
    /// Topic and the life that ended.
    pub(crate) deletions: Vec<Span<(String, usize)>>,
    /// The log's start after a retention round.
    pub(crate) starts: Vec<Span<i64>>,
    /// File and its text.
    pub(crate) configs: Vec<Span<(String, String)>>,
    /// What was done, with the step at which it began.
    pub(crate) told: Vec<(usize, String)>,
}

pub(crate) fn options(seed: u64) -> Options {
    let mut random = Random::of(&[seed, 1]);
    let mut options = Options::new(ROOT);
    options.segment_bytes = *random.choose(&[8192, 10_000, 16_384]).unwrap();
    options.queue_file_bytes = *random.choose(&[200, 1000, 2000]).unwrap();
    options.index_slots = 20;
    options.index_entries = *random.choose(&[20, 60, 300]).unwrap();
    options.file_reserved_hours = 0;
    if random.one_in(2) {
        options.flush = FlushDiskType::Sync;
    }
    if random.one_in(2) {
        // As with a log that is too large for it: what is noted has to tell.
        options.compare_bytes = 0;
    }
    options
}

pub(crate) fn open(
    disk: &SimDisk,
    options: &Options,
) -> (Session, Result<Arc<Store>, pyrmq_store::StoreError>) {
    let session = disk.session();
    let store = Store::open_without_threads(options.clone(), Arc::new(session.clone()));
    (session, store)
}

pub(crate) struct Run {
    pub(crate) disk: SimDisk,
    pub(crate) options: Options,
    pub(crate) history: History,
    random: Random,
    session: Session,
    store: Arc<Store>,
    lives: BTreeMap<String, usize>,
    number: usize,
}

impl Run {
    /// Opens a store on an empty disk.
    pub(crate) fn new(seed: u64, disk: SimDisk) -> Self {
        let options = options(seed);
        disk.set_now(1_800_000_000_000);
        let (session, store) = open(&disk, &options);
        Self {
            store: store.expect("an empty disk"),
            disk,
            options,
            history: History::default(),
            random: Random::of(&[seed, 2]),
            session,
            lives: BTreeMap::new(),
            number: 0,
        }
    }

    /// Does so many things.
    pub(crate) fn go(&mut self, count: usize) {
        for _ in 0..count {
            self.one();
        }
    }

    fn tell(&mut self, what: impl Into<String>) {
        self.history.told.push((self.disk.steps(), what.into()));
    }

    fn one(&mut self) {
        self.move_clock();
        if self.random.one_in(40) {
            return self.fill_disk();
        }
        match self.random.below(100) {
            0..34 => self.put(),
            34..40 => self.burst(),
            40..50 => self.put_batch(),
            50..62 => self.chore(Chore::Flush),
            62..68 => self.chore(Chore::WriteQueues),
            68..72 => self.chore(Chore::SyncQueues),
            72..76 => self.chore(Chore::SaveCheckpoint),
            76..82 => self.chore(Chore::Index),
            82..84 => self.chore(Chore::WriteIndex),
            84..88 => self.chore(Chore::PrepareSegment),
            88..90 => self.retain(),
            90..93 => self.save_config(),
            93..95 => self.delete_topic(),
            95 => self.chore(Chore::Rest),
            96..98 => self.kill(),
            _ => self.close(),
        }
    }

    /// The disk takes some more bytes and then none: what fails now is answered with an error and leaves nothing behind.
    fn fill_disk(&mut self) {
        self.tell("the disk is full");
        let room = self.random.below(2500);
        self.disk.set_room(Some(room));
        for _ in 0..3 {
            let body = self.body();
            let (properties, key) = self.properties();
            let began = self.disk.steps();
            if let Ok(stored) = self.store.put(&message("A", 0, &body, &properties, &key)) {
                self.note(&stored, ("A", 0, false), &[key], began);
            }
            for chore in [Chore::WriteQueues, Chore::Index, Chore::WriteIndex, Chore::Flush] {
                if self.random.one_in(3) {
                    drop(self.store.run(chore));
                }
            }
        }
        self.disk.set_room(None);
        // Sends are let in again once queues could be written.
        self.store.run(Chore::WriteQueues).unwrap();
        if self.random.one_in(3) {
            self.kill();
        } else {
            // Sees that there is space again.
            self.retain();
        }
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

    fn chore(&mut self, chore: Chore) {
        self.tell(format!("{chore:?}"));
        self.store.run(chore).expect("the disk never fails here");
    }

    fn topic(&mut self) -> String {
        (*self.random.choose(&["A", "B", "Doomed"]).unwrap()).to_owned()
    }

    fn body(&mut self) -> Vec<u8> {
        let size = match self.random.below(10) {
            0 => 0,
            1..5 => self.random.below(60),
            5..9 => self.random.below(900),
            _ => self.random.below(3000),
        };
        // Zero bytes look like what a lost sector leaves.
        let fill = if self.random.one_in(8) { 0 } else { b'a' };
        vec![fill; size]
    }

    fn properties(&mut self) -> (String, String) {
        self.number += 1;
        let key = format!("key{}", self.number);
        let most = if self.random.one_in(5) { 1200 } else { 30 };
        let long = "v".repeat(self.random.below(most));
        let mut pairs = vec![("UNIQ_KEY", key.as_str()), ("TAGS", "t")];
        if !long.is_empty() {
            pairs.push(("user", long.as_str()));
        }
        (props(&pairs), key)
    }

    fn put(&mut self) {
        let (topic, queue) = (self.topic(), i32::try_from(self.random.below(2)).unwrap());
        let (body, (properties, key)) = (self.body(), self.properties());
        let is_hidden = self.random.one_in(12);
        let began = self.disk.steps();
        self.tell(format!("put {topic}-{queue} {key}"));
        let mut message = message(&topic, queue, &body, &properties, &key);
        if is_hidden {
            message.sys_flag = sys_flag::TRANSACTION_PREPARED;
        }
        let stored = self.store.put(&message).expect("stored");
        self.note(&stored, (&topic, queue, is_hidden), &[key], began);
    }

    /// Several puts in one write: none of them has a place before the end.
    fn burst(&mut self) {
        let count = 1 + self.random.below(6);
        let began = self.disk.steps();
        self.tell(format!("burst of {count}"));
        let told = Arc::new(Mutex::new(Vec::new()));
        let mut puts = Vec::new();
        for _ in 0..count {
            let (topic, queue) = (self.topic(), i32::try_from(self.random.below(2)).unwrap());
            let (body, (properties, key)) = (self.body(), self.properties());
            let is_hidden = self.random.one_in(12);
            let mut message = message(&topic, queue, &body, &properties, &key);
            if is_hidden {
                message.sys_flag = sys_flag::TRANSACTION_PREPARED;
            }
            let done = Arc::clone(&told);
            let done = Box::new(move |stored| {
                done.lock().unwrap().push(stored);
                None
            });
            self.store.put_in_burst(&message, done);
            puts.push((topic, queue, is_hidden, key));
        }
        self.store.end_burst();
        let told = std::mem::take(&mut *told.lock().unwrap());
        assert_eq!(told.len(), puts.len(), "each is told");
        for (stored, (topic, queue, is_hidden, key)) in told.into_iter().zip(puts) {
            let stored: Stored = stored.expect("stored");
            self.note(&stored, (&topic, queue, is_hidden), &[key], began);
        }
    }

    fn put_batch(&mut self) {
        let (topic, queue) = (self.topic(), i32::try_from(self.random.below(2)).unwrap());
        let count = 2 + self.random.below(5);
        let parts: Vec<_> = (0..count)
            .map(|_| {
                let mut body = self.body();
                body.truncate(700);
                let (mut properties, key) = self.properties();
                if properties.len() > 200 {
                    properties = props(&[("UNIQ_KEY", &key)]);
                }
                (body, properties, key)
            })
            .collect();
        let items: Vec<_> = parts
            .iter()
            .map(|(body, properties, key)| BatchItem {
                flag: 0,
                body,
                properties,
                tags_code: 0,
                unique_key: Some(key),
                keys: None,
                tag: None,
            })
            .collect();
        let began = self.disk.steps();
        self.tell(format!("batch of {count} to {topic}-{queue}"));
        let batch = Batch {
            topic: &topic,
            queue_id: queue,
            sys_flag: 0,
            born_timestamp_ms: 1,
            born_host: host("127.0.0.1:1"),
            store_host: host("127.0.0.1:2"),
            reconsume_times: 0,
            items: &items,
        };
        let stored = self.store.put_batch(&batch).expect("stored");
        let keys: Vec<_> = parts.iter().map(|part| part.2.clone()).collect();
        self.note(&stored, (&topic, queue, false), &keys, began);
    }

    fn note(
        &mut self,
        stored: &Stored,
        (topic, queue, is_hidden): (&str, i32, bool),
        keys: &[String],
        began: usize,
    ) {
        let durable = Arc::new(AtomicUsize::new(NEVER));
        let in_memory = self.disk.steps();
        let life = self.lives.get(topic).copied().unwrap_or_default();
        for ((position, key), index) in stored
            .physical_offsets()
            .iter()
            .zip(keys)
            .zip(stored.queue_offset..)
        {
            let bytes = self
                .store
                .record_at(*position)
                .unwrap()
                .expect("what was put is there");
            self.history.puts.push(Put {
                position: *position,
                bytes: bytes.to_vec(),
                topic: topic.to_owned(),
                queue,
                index: if is_hidden { 0 } else { index },
                life,
                is_hidden,
                key: key.clone(),
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
    }

    fn retain(&mut self) {
        let began = self.disk.steps();
        self.tell("retention");
        self.store.delete_expired().expect("deleted");
        self.history.starts.push(Span {
            what: self.store.health().min_physical_offset,
            began,
            done: self.disk.steps(),
        });
    }

    fn save_config(&mut self) {
        let name = (*self.random.choose(&CONFIGS).unwrap()).to_owned();
        self.number += 1;
        let text = format!(
            "{{\"version\":{}, \"filler\":\"{}\"}}",
            self.number,
            "x".repeat(self.random.below(1200))
        );
        let began = self.disk.steps();
        self.tell(format!("save {name}"));
        config_file::save(&self.session, &Path::new(ROOT).join("config").join(&name), &text).expect("saved");
        self.history.configs.push(Span {
            what: (name, text),
            began,
            done: self.disk.steps(),
        });
    }

    fn delete_topic(&mut self) {
        let began = self.disk.steps();
        self.tell("delete Doomed");
        self.store.delete_topic("Doomed").expect("deleted");
        let life = self.lives.entry("Doomed".to_owned()).or_default();
        self.history.deletions.push(Span {
            what: ("Doomed".to_owned(), *life),
            began,
            done: self.disk.steps(),
        });
        *life += 1;
    }

    fn kill(&mut self) {
        self.tell("kill -9 and start");
        self.session.kill();
        self.again();
    }

    fn close(&mut self) {
        self.tell("stop and start");
        self.store.close().expect("a clean stop");
        self.again();
    }

    fn again(&mut self) {
        let (session, store) = open(&self.disk, &self.options);
        self.session = session;
        self.store = store.unwrap_or_else(|error| {
            panic!("{error}\n{}", self.history.last_told(usize::MAX));
        });
    }
}

impl History {
    /// The last things done before a step.
    pub(crate) fn last_told(&self, steps: usize) -> String {
        let before: Vec<_> = self.told.iter().filter(|(step, _)| *step <= steps).collect();
        let last = before.iter().rev().take(12).rev();
        let lines: Vec<_> = last.map(|(step, what)| format!("  {step:6} {what}")).collect();
        lines.join("\n")
    }
}

pub(crate) fn message<'a>(
    topic: &'a str,
    queue: i32,
    body: &'a [u8],
    properties: &'a str,
    key: &'a str,
) -> Message<'a> {
    Message {
        topic,
        queue_id: queue,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: 1_700_000_000_000,
        born_host: host("127.0.0.1:40000"),
        store_host: host("127.0.0.1:10911"),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties,
        tags_code: java_hash::tags_code(Some("t")),
        unique_key: Some(key),
        keys: None,
        tag: Some("t"),
    }
}
