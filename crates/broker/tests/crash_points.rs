//! A broker over a simulated disk that stops anywhere: progress in its files is never ahead of the messages, and each
//! file is either the old or the new one.
//!
//! The broker is complete, with its threads, so two runs of a seed differ. Its disk records every step, and the test
//! stops it at many steps of one run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::crashes::{self, Crash, Outcome, config, ensure, name_of, runtime, simulated};
use common::{LIMIT, Site, create, number, properties, send};
use pyrmq_broker::{Broker, Options};
use pyrmq_remoting::Command;
use pyrmq_remoting::body::Json;
use pyrmq_remoting::codes::request;
use pyrmq_remoting::message::Record;
use pyrmq_remoting::message::id::OffsetId;
use pyrmq_remoting::net::{Peer, Refused, RequestCheck, Security};
use pyrmq_store::Fs;
use pyrmq_testkit::fault_points::{Part, Runs};
use pyrmq_testkit::sim::{Loss, Session, Swallow};
use pyrmq_testkit::{Random, SimDisk};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

const HALVES: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
const OPS: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
const GIVEN_UP: &str = "TRANS_CHECK_MAX_TIME_TOPIC";
const SCHEDULE: &str = "SCHEDULE_TOPIC_XXXX";
const CHECKER: &str = "CID_RMQ_SYS_TRANS";
const DELAYS: &str = "delayOffset.json";
const OFFSETS: &str = "consumerOffset.json";
const CREATORS: &str = "topicMakers.json";
const QUEUES: i32 = 2;
/// Actions of one run.
const DONE_A_RUN: usize = 300;

/// An action, from one step of the disk to another.
struct Span<T> {
    what: T,
    began: usize,
    done: usize,
}

#[derive(Default)]
struct History {
    /// The numbers of queues that topic V had, in order.
    topics: Vec<Span<i64>>,
    /// The retry limits that group W had, in order.
    groups: Vec<Span<i64>>,
    /// Queue of topic Doomed, how often the topic had been deleted, and the offset.
    commits: Vec<Span<(i32, usize, i64)>>,
    /// The topics that users created, each with its creator.
    created: Vec<Span<(String, &'static str)>>,
    deletions: Vec<Span<usize>>,
    /// Keys of committed transactions.
    committed: BTreeSet<String>,
    /// The content of a file when it was read.
    seen: BTreeMap<&'static str, Vec<(usize, Rows)>>,
}

/// Offsets by their owner, and queue or level.
type Rows = BTreeMap<(String, i32), i64>;

/// Lets every request pass; some name a user.
#[derive(Debug)]
struct Users;

impl RequestCheck for Users {
    fn check(&self, _request: &Command, _peer: &Peer) -> Option<Refused> {
        None
    }

    fn user<'r>(&self, request: &'r Command) -> Option<&'r str> {
        request.fields.get("AccessKey")
    }

    fn may(&self, _user: &str, _request: &Command, _source: IpAddr) -> bool {
        true
    }
}

/// One seed in three has only delayed messages: nothing else makes their delivered copies durable.
fn has_only_delays(seed: u64) -> bool {
    seed % 3 == 1
}

fn small(seed: u64) -> Options {
    Options {
        message_delay_level: "0s 0s".to_owned(),
        flush_delay_offset_interval: 100,
        transaction_time_out: 1,
        transaction_check_interval: if has_only_delays(seed) { 86_400_000 } else { 10 },
        transaction_check_max: 4,
        ..simulated()
    }
}

fn rows(tree: &Json, name: &str) -> Rows {
    let members = |tree: &Json| -> Vec<(String, Json)> {
        let members = tree.as_object().unwrap_or_default().iter();
        members
            .map(|(key, value)| (name_of(key), value.clone()))
            .collect()
    };
    let table = tree.get("offsetTable").map(members).unwrap_or_default();
    let mut rows = Rows::new();
    for (key, value) in table {
        if name == DELAYS {
            rows.insert((String::new(), key.parse().unwrap()), value.as_i64().unwrap());
            continue;
        }
        for (queue, offset) in members(&value) {
            rows.insert((key.clone(), queue.parse().unwrap()), offset.as_i64().unwrap());
        }
    }
    rows
}

/// Runs actions with a broker on this disk.
async fn work(seed: u64, disk: &SimDisk) -> History {
    let mut run = Run {
        disk,
        history: History::default(),
        stored: BTreeMap::new(),
        life: 0,
        halves: Vec::new(),
        number: 0,
        has_only_delays: has_only_delays(seed),
    };
    let mut random = Random::of(&[seed]);
    let security = Security {
        check: Some(Arc::new(Users)),
        ..Security::default()
    };
    crashes::work(
        disk,
        (small(seed), security),
        &mut random,
        async |site, session, random| {
            site.ask_ok(create("T", QUEUES)).await;
            site.ask_ok(create("Doomed", QUEUES)).await;
            for _ in 0..DONE_A_RUN {
                run.one(site, random).await;
                run.look(session);
            }
        },
    )
    .await;
    run.history
}

struct Run<'r> {
    disk: &'r SimDisk,
    history: History,
    /// Messages of each queue.
    stored: BTreeMap<(&'static str, i32), i64>,
    life: usize,
    halves: Vec<(String, i64, i64)>,
    number: usize,
    has_only_delays: bool,
}

impl Run<'_> {
    async fn one(&mut self, site: &Site, random: &mut Random) {
        self.number += 1;
        let key = format!("key{}", self.number);
        let topic = *random.choose(&["T", "Doomed"]).unwrap();
        let queue = i32::try_from(random.below(2)).unwrap();
        let what = random.below(21);
        match what {
            10..17 if self.has_only_delays => tokio::time::sleep(Duration::from_millis(2)).await,
            0..6 => {
                let body = self.life.to_string();
                let text = properties(&[("UNIQ_KEY", &key)]);
                let sent = site.ask_ok(send(topic, queue, body.as_bytes(), &text)).await;
                self.stored
                    .insert((topic, queue), number(&sent, "queueOffset") + 1);
            }
            6..10 => {
                let level = random.choose(&["1", "2"]).unwrap();
                let text = properties(&[("UNIQ_KEY", &key), ("DELAY", level)]);
                site.ask_ok(send("T", queue, b"later", &text)).await;
            }
            10..13 => {
                let pairs = [("TRAN_MSG", "true"), ("PGROUP", "producers"), ("UNIQ_KEY", &key)];
                let mut half = send("T", queue, b"half", &properties(&pairs));
                half.fields.set("f", "4");
                let sent = site.ask_ok(half).await;
                let stored: OffsetId = sent.fields.get("msgId").unwrap().parse().unwrap();
                self.halves
                    .push((key, number(&sent, "queueOffset"), stored.offset));
            }
            13 => self.end(site, random).await,
            14..17 => self.commit(site, topic, queue).await,
            17 => {
                let began = self.disk.steps();
                let queues = i64::try_from(self.history.topics.len()).unwrap() + 1;
                site.ask_ok(create("V", i32::try_from(queues).unwrap())).await;
                self.history.topics.push(self.span(queues, began));
            }
            18 => {
                let began = self.disk.steps();
                let retries = i64::try_from(self.history.groups.len()).unwrap() + 1;
                let group = format!(r#"{{"groupName":"W","retryMaxTimes":{retries}}}"#);
                let change = Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP);
                site.ask_ok(change.with_body(group)).await;
                self.history.groups.push(self.span(retries, began));
            }
            19 => self.create_as_user(site, random).await,
            _ if random.one_in(3) => self.delete(site).await,
            _ => tokio::time::sleep(Duration::from_millis(40)).await,
        }
    }

    fn span<T>(&self, what: T, began: usize) -> Span<T> {
        Span {
            what,
            began,
            done: self.disk.steps(),
        }
    }

    async fn end(&mut self, site: &Site, random: &mut Random) {
        if self.halves.is_empty() {
            return;
        }
        let (key, place, position) = self.halves.swap_remove(random.below(self.halves.len()));
        let how = *random.choose(&["8", "12"]).unwrap();
        let (place, position) = (place.to_string(), position.to_string());
        let fields = [
            ("producerGroup", "producers"),
            ("tranStateTableOffset", &place),
            ("commitLogOffset", &position),
            ("commitOrRollback", how),
            ("fromTransactionCheck", "false"),
            ("msgId", &key),
            ("transactionId", &key),
        ];
        let command = Command::request(request::END_TRANSACTION);
        let command = fields
            .into_iter()
            .fold(command, |command, (name, value)| command.with_field(name, value));
        // It is refused if the check has given up on it.
        site.ask(command).await;
        if how == "8" {
            self.history.committed.insert(key);
        }
    }

    async fn commit(&mut self, site: &Site, topic: &'static str, queue: i32) {
        let Some(count) = self.stored.get(&(topic, queue)).copied() else {
            return;
        };
        let began = self.disk.steps();
        let fields = [
            ("consumerGroup", "G"),
            ("topic", topic),
            ("queueId", &queue.to_string()),
            ("commitOffset", &count.to_string()),
        ];
        let command = Command::request(request::UPDATE_CONSUMER_OFFSET);
        let command = fields
            .into_iter()
            .fold(command, |command, (name, value)| command.with_field(name, value));
        site.ask_ok(command).await;
        if topic == "Doomed" {
            let commit = self.span((queue, self.life, count), began);
            self.history.commits.push(commit);
        }
    }

    async fn create_as_user(&mut self, site: &Site, random: &mut Random) {
        let began = self.disk.steps();
        let (topic, user) = (
            format!("N{}", self.number),
            *random.choose(&["ann", "bob"]).unwrap(),
        );
        site.ask_ok(create(&topic, 1).with_field("AccessKey", user)).await;
        let created = self.span((topic, user), began);
        self.history.created.push(created);
    }

    async fn delete(&mut self, site: &Site) {
        let began = self.disk.steps();
        let command = Command::request(request::DELETE_TOPIC_IN_BROKER).with_field("topic", "Doomed");
        site.ask_ok(command).await;
        self.history.deletions.push(self.span(self.life, began));
        self.life += 1;
        self.stored.retain(|(topic, _), _| *topic != "Doomed");
        site.ask_ok(create("Doomed", QUEUES)).await;
    }

    /// Records the content of the files that are written periodically.
    fn look(&mut self, session: &Session) {
        for name in [DELAYS, OFFSETS] {
            let step = self.disk.steps();
            let Ok(bytes) = session.read(&config(name)) else {
                continue;
            };
            let now = rows(&Json::parse(&bytes).unwrap(), name);
            let seen = self.history.seen.entry(name).or_default();
            if seen.last().is_none_or(|(_, last)| *last != now) {
                seen.push((step, now));
            }
        }
    }
}

/// A disk after a crash.
struct After<'h> {
    history: &'h History,
    crash: Crash,
}

/// The parts of a record that this test uses.
struct Found {
    index: i64,
    key: String,
    body: Vec<u8>,
    real: Option<(String, i32)>,
}

impl After<'_> {
    fn load(&self, name: &str) -> Result<Option<Json>, String> {
        let has_version = |tree: &Json| {
            tree.get("dataVersion")
                .map(drop)
                .ok_or_else(|| "no dataVersion".to_owned())
        };
        self.crash.load(name, has_version)
    }

    /// Checks a table that is written before its change is answered: it has the last change, or the one in progress.
    fn table(&self, (file, table, row, column): (&str, &str, &str, &str), changes: &[Span<i64>]) -> Outcome {
        let tree = self.load(file)?;
        let row = tree.as_ref().and_then(|tree| tree.get(table)?.get(row));
        let has = row.and_then(|row| row.get(column)?.as_i64()).unwrap_or(0);
        let newest = |is: &dyn Fn(&Span<i64>) -> bool| {
            let changes = changes.iter().filter(|change| is(change));
            changes.map(|change| change.what).max().unwrap_or(0)
        };
        let least = newest(&|change| change.done <= self.crash.steps);
        let most = newest(&|change| change.began < self.crash.steps);
        ensure!(
            (least..=most).contains(&has),
            "{file} is neither old nor new: {column} is {has} instead of {least} to {most}"
        );
        Ok(())
    }

    /// Checks that each topic of a user has its creator, who would otherwise create more topics than allowed.
    fn creators(&self) -> Outcome {
        let topics = self.load("topics.json")?;
        let has_table = |tree: &Json| {
            tree.get("makerTable")
                .map(drop)
                .ok_or_else(|| "no makerTable".to_owned())
        };
        let creators = self.crash.load(CREATORS, has_table)?;
        for created in &self.history.created {
            let (topic, user) = &created.what;
            let table = topics.as_ref().and_then(|tree| tree.get("topicConfigTable"));
            let exists = table.and_then(|table| table.get(topic)).is_some();
            ensure!(
                exists || created.done > self.crash.steps,
                "topics.json lacks {topic}, which was created"
            );
            let creator = creators
                .as_ref()
                .and_then(|tree| tree.get("makerTable")?.get(topic));
            ensure!(
                !exists || creator.and_then(Json::as_str) == Some(*user),
                "{CREATORS} has {creator:?} as creator of {topic} instead of {user}"
            );
        }
        Ok(())
    }

    /// Checks a file that is written periodically: it is not older than the save before the last one seen.
    fn offsets(&self, name: &'static str) -> Result<Rows, String> {
        let tree = self.load(name)?;
        let now = tree.map(|tree| rows(&tree, name)).unwrap_or_default();
        let seen = self.history.seen.get(name).map_or(&[][..], Vec::as_slice);
        let before = seen.partition_point(|(step, _)| *step <= self.crash.steps);
        let deleted = |key: &str| key.starts_with("Doomed");
        if let Some((_, least)) = before.checked_sub(2).and_then(|at| seen.get(at)) {
            for (key, offset) in least.iter().filter(|((key, _), _)| !deleted(key)) {
                ensure!(
                    now.get(key).is_some_and(|now| now >= offset),
                    "{name} is older than a save that was done: {key:?} is {:?} instead of {offset}",
                    now.get(key)
                );
            }
        }
        Ok(now)
    }

    fn all(&self, topic: &str, queue: i32) -> Result<Vec<Found>, String> {
        self.crash.all(topic, queue, found)
    }

    fn delays(&self) -> Outcome {
        let mut delivered = BTreeSet::new();
        for queue in 0..QUEUES {
            let all = self.all("T", queue)?;
            delivered.extend(all.into_iter().map(|found| (found.key, queue)));
        }
        for ((_, level), offset) in self.offsets(DELAYS)? {
            let end = self.crash.store.max_offset(SCHEDULE, level - 1);
            ensure!(
                offset <= end,
                "{DELAYS} is ahead: level {level} is at {offset} of {end}"
            );
            for found in self.all(SCHEDULE, level - 1)? {
                let (topic, queue) = found.real.unwrap();
                assert_eq!(topic, "T");
                ensure!(
                    found.index >= offset || delivered.contains(&(found.key.clone(), queue)),
                    "{DELAYS} is ahead: level {level} is at {offset}, and {} at {} was never delivered",
                    found.key,
                    found.index
                );
            }
        }
        Ok(())
    }

    fn consumers(&self, offsets: &Rows) -> Outcome {
        for ((key, queue), offset) in offsets {
            let (topic, _) = key.split_once('@').unwrap();
            let end = self.crash.store.max_offset(topic, *queue);
            ensure!(
                *offset <= end,
                "{OFFSETS} is ahead: {key} queue {queue} is at {offset} of {end}"
            );
            if topic != "Doomed" {
                continue;
            }
            let Some(newest) = self.all(topic, *queue)?.pop() else {
                continue;
            };
            let life: usize = String::from_utf8(newest.body).unwrap().parse().unwrap();
            let commits = self.history.commits.iter().filter(|commit| {
                (commit.what.0, commit.what.1) == (*queue, life) && commit.began < self.crash.steps
            });
            let most = commits.map(|commit| commit.what.2).max().unwrap_or(0);
            ensure!(
                *offset <= most,
                "{OFFSETS} is ahead: {key} queue {queue} is at {offset}, of this topic only {most} were read"
            );
        }
        Ok(())
    }

    fn transactions(&self, offsets: &Rows) -> Outcome {
        let of = |topic: &str| {
            let key = (format!("{topic}@{CHECKER}"), 0);
            offsets.get(&key).copied().unwrap_or(0)
        };
        let (done, ops_done) = (of(HALVES), of(OPS));
        let (halves, ops) = (self.all(HALVES, 0)?, self.all(OPS, 0)?);
        let mut ended = BTreeSet::new();
        for op in ops {
            let text = String::from_utf8(op.body).unwrap();
            let places = text.split(',').filter(|place| !place.is_empty());
            for place in places.map(|place| place.parse::<i64>().unwrap()) {
                ensure!(
                    op.index >= ops_done || place < done,
                    "{OFFSETS} is ahead: ops are done to {ops_done}, halves to {done}, and {place} ended"
                );
                ended.insert(place);
            }
        }
        let given_up: BTreeSet<String> = self
            .all(GIVEN_UP, 0)?
            .into_iter()
            .map(|found| found.key)
            .collect();
        let newest: BTreeMap<&str, i64> = halves
            .iter()
            .map(|half| (half.key.as_str(), half.index))
            .collect();
        let mut stored = BTreeSet::new();
        for queue in 0..QUEUES {
            stored.extend(self.all("T", queue)?.into_iter().map(|found| found.key));
        }
        for half in &halves {
            let is_ended = ended.contains(&half.index);
            let is_passed =
                is_ended || newest[half.key.as_str()] > half.index || given_up.contains(&half.key);
            ensure!(
                half.index >= done || is_passed,
                "{OFFSETS} is ahead: halves are done to {done}, and nothing became of {} at {}",
                half.key,
                half.index
            );
            ensure!(
                !is_ended || !self.history.committed.contains(&half.key) || stored.contains(&half.key),
                "the transaction {} was closed without its message",
                half.key
            );
        }
        Ok(())
    }

    fn check(&self) -> Outcome {
        let topics = ("topics.json", "topicConfigTable", "V", "readQueueNums");
        self.table(topics, &self.history.topics)?;
        let groups = (
            "subscriptionGroup.json",
            "subscriptionGroupTable",
            "W",
            "retryMaxTimes",
        );
        self.table(groups, &self.history.groups)?;
        self.creators()?;
        self.delays()?;
        let offsets = self.offsets(OFFSETS)?;
        self.consumers(&offsets)?;
        self.transactions(&offsets)
    }
}

fn found(record: &Record<'_>) -> Found {
    let property = |name| record.properties.get(name).map(ToOwned::to_owned);
    let queue = property("REAL_QID").and_then(|id| id.parse().ok());
    Found {
        index: record.queue_offset,
        key: property("UNIQ_KEY").unwrap_or_default(),
        body: record.body.to_vec(),
        real: property("REAL_TOPIC").zip(queue),
    }
}

/// Runs a broker, stops its disk at many steps, and reports what does not hold.
fn run(seed: u64, points: usize, swallow: Option<Swallow>) -> Outcome {
    let work = async |disk: &SimDisk| work(seed, disk).await;
    crashes::run(seed, points, swallow, (&small(seed), work), |history, crash| {
        After { history, crash }.check()
    })
}

/// Starts a broker after crashes and waits until it has delivered all delayed messages: none is skipped, and after a
/// kill at most one is delivered again.
fn run_on(seed: u64, points: usize) -> Outcome {
    let runtime = runtime();
    let disk = SimDisk::default();
    runtime.block_on(work(seed, &disk));
    let mut random = Random::of(&[seed, 5]);
    for point in 0..points {
        let steps = random.below(disk.steps() + 1);
        let loss = if point % 2 == 0 {
            Loss::Nothing
        } else {
            *random.choose(&Loss::ALL).unwrap()
        };
        let after = disk.crash(steps, loss, random.next());
        let about = format!(
            "seed {seed}, behind step {steps} of {}, {loss:?} lost",
            disk.steps()
        );
        let (all, copies) = runtime.block_on(deliver(seed, &after));
        let missing = all.iter().find(|key| !copies.contains_key(*key));
        ensure!(missing.is_none(), "{about}: {missing:?} was passed");
        let again: usize = all.iter().map(|key| copies[key] - 1).sum();
        ensure!(
            loss != Loss::Nothing || again <= 1,
            "{about}: {again} of {} came again",
            all.len()
        );
    }
    Ok(())
}

/// The delayed messages, and how often each message was stored in its topic.
async fn deliver(seed: u64, disk: &SimDisk) -> (BTreeSet<String>, BTreeMap<String, usize>) {
    let session = disk.session();
    let fs: Arc<dyn Fs> = Arc::new(session.clone());
    let broker = Broker::start_on(fs, small(seed), &Handle::current(), None, &[]).unwrap();
    let context = broker.context();
    common::eventually("all levels are done", async || {
        let offsets = context.delays.offsets();
        (1..=2).all(|level| {
            let end = context.store.max_offset(SCHEDULE, level - 1);
            end == 0 || offsets.get(&level) == Some(&end)
        })
    })
    .await;
    let history = History::default();
    let after = After {
        history: &history,
        crash: Crash {
            steps: 0,
            session,
            store: Arc::clone(&context.store),
        },
    };
    let keys = |topic, queues| -> Vec<String> {
        let all = (0..queues).flat_map(|queue| after.all(topic, queue).unwrap());
        all.map(|found| found.key).collect()
    };
    let all = keys(SCHEDULE, 2).into_iter().collect();
    let mut copies = BTreeMap::new();
    for key in keys("T", QUEUES) {
        *copies.entry(key).or_default() += 1;
    }
    broker.stop(LIMIT).await.unwrap();
    (all, copies)
}

#[test]
fn no_crash_leaves_progress_ahead_of_the_messages_or_half_a_file() {
    for seed in 0..3 {
        run(seed, 100, None).unwrap();
    }
}

#[test]
fn a_broker_after_a_crash_delivers_every_delayed_message() {
    for seed in 10..13 {
        run_on(seed, 8).unwrap();
    }
}

#[test]
#[ignore = "make faults: some minutes"]
fn no_crash_leaves_progress_ahead_of_the_messages_or_half_a_file_at_many_crash_points() {
    let runs = Runs {
        points: 100,
        failed_once: &[],
    };
    runs.take_new(Part::Progress, |seed, points| {
        let starts = points / 5;
        run(seed, points - starts, None)?;
        run_on(seed, starts)
    });
}

fn is_noticed(swallow: Swallow, by: &str) {
    crashes::is_noticed(swallow, by, |seed| run(seed, 150, Some(swallow)));
}

#[test]
fn a_log_that_is_never_flushed_leaves_progress_ahead_of_the_messages() {
    is_noticed(Swallow::File("/commitlog/"), "ahead");
}

#[test]
fn progress_of_levels_that_is_never_flushed_is_noticed() {
    is_noticed(Swallow::File(DELAYS), DELAYS);
}

#[test]
fn progress_of_consumers_that_is_never_flushed_is_noticed() {
    is_noticed(Swallow::File(OFFSETS), OFFSETS);
}

#[test]
fn topics_that_are_never_flushed_are_noticed() {
    is_noticed(Swallow::File("topics.json"), "topics.json");
}

#[test]
fn groups_that_are_never_flushed_are_noticed() {
    is_noticed(Swallow::File("subscriptionGroup.json"), "subscriptionGroup.json");
}

#[test]
fn creators_of_topics_that_are_never_flushed_are_noticed() {
    is_noticed(Swallow::File(CREATORS), CREATORS);
}

#[test]
fn files_whose_renames_are_never_flushed_are_noticed() {
    is_noticed(Swallow::Directory("config"), ".json");
}
