//! A broker whose groups pop, over a simulated disk that stops anywhere: no offset is ahead of what brings its messages
//! back, and each file is either the old or the new one.
//!
//! As in `crash_points.rs`, the disk records every step of a run, and the test stops it at many of them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::crashes::{self, Crash, Outcome, ensure, name_of, simulated};
use common::pops::{Popped, ack, hide, pop, popped, short_intervals};
use common::{Site, properties, send};
use pyrmq_broker::Options;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{Body, Json, PopCheckPoint};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::message::ReceiptHandle;
use pyrmq_remoting::names::{REVIVE_GROUP, REVIVE_TOPIC, TIMER_TOPIC};
use pyrmq_remoting::net::Security;
use pyrmq_store::Store;
use pyrmq_testkit::fault_points::{Part, Runs};
use pyrmq_testkit::sim::{Loss, Session, Swallow};
use pyrmq_testkit::{Random, SimDisk};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const QUEUES: i32 = 2;
const RETRY: &str = "%RETRY%G_T";
const ACTIONS: usize = 250;
/// Soon over, so that messages come back during a run.
const INVISIBLE_MS: i64 = 300;

/// A message by topic, queue and offset.
type Place = (String, i32, i64);

#[derive(Default)]
struct History {
    /// The shares that group M had, in order, and from which step of the disk to which each was set.
    modes: Vec<(i64, usize, usize)>,
    /// What groups acknowledged, and at which step that began.
    acked: BTreeMap<(&'static str, Place), usize>,
}

fn small() -> Options {
    short_intervals(simulated())
}

/// Runs actions with a broker on this disk.
async fn work(seed: u64, disk: &SimDisk) -> History {
    let mut run = Run {
        disk,
        history: History::default(),
        held: Vec::new(),
        number: 0,
    };
    let mut random = Random::of(&[seed]);
    crashes::work(
        disk,
        (small(), Security::default()),
        &mut random,
        async |site, _, random| {
            site.create("T", QUEUES).await;
            for _ in 0..ACTIONS {
                run.one(site, random).await;
            }
        },
    )
    .await;
    run.history
}

struct Run<'r> {
    disk: &'r SimDisk,
    history: History,
    held: Vec<(&'static str, Popped)>,
    number: usize,
}

impl Run<'_> {
    async fn one(&mut self, site: &Site, random: &mut Random) {
        self.number += 1;
        let queue = i32::try_from(random.below(2)).unwrap();
        match random.below(12) {
            0..4 => {
                let text = properties(&[("UNIQ_KEY", &format!("key{}", self.number))]);
                let sent = site.ask(send("T", queue, b"x", &text)).await;
                assert_eq!(sent.code, response::SUCCESS);
            }
            4..7 => {
                let most = i32::try_from(random.below(4)).unwrap() + 1;
                self.pop(site, "G", pop("G", "T", -1, most, INVISIBLE_MS, 0))
                    .await;
            }
            7 => {
                let ordered = pop("O", "T", queue, 3, INVISIBLE_MS, 0).with_field("order", "true");
                self.pop(site, "O", ordered).await;
            }
            8..10 => self.acknowledge(site, random).await,
            10 => self.set_mode(site).await,
            _ => tokio::time::sleep(Duration::from_millis(60)).await,
        }
    }

    async fn pop(&mut self, site: &Site, group: &'static str, command: Command) {
        let found = popped(&site.ask(command).await);
        self.held
            .extend(found.into_iter().map(|message| (group, message)));
    }

    /// Of an ordered group the first that is held, else any; late ones, too.
    async fn acknowledge(&mut self, site: &Site, random: &mut Random) {
        if self.held.is_empty() {
            return;
        }
        let mut at = random.below(self.held.len());
        if self.held[at].0 == "O" {
            at = self.held.iter().position(|(group, _)| *group == "O").unwrap();
        }
        let (group, message) = self.held.remove(at);
        let handle = ReceiptHandle::parse(&message.handle).unwrap();
        let topic = handle.source.topic("T", group).into_owned();
        let place = (topic, message.queue_id, message.offset);
        let began = self.disk.steps();
        self.history.acked.entry((group, place)).or_insert(began);
        let answer = site.ask(ack(group, &message)).await;
        // An ordered group may have gone on.
        assert!(
            matches!(answer.code, response::SUCCESS | response::MESSAGE_ILLEGAL),
            "{:?}",
            answer.remark
        );
    }

    async fn set_mode(&mut self, site: &Site) {
        let share = i64::try_from(self.history.modes.len()).unwrap() + 1;
        let began = self.disk.steps();
        let body = format!(r#"{{"consumerGroup":"M","mode":"POP","popShareQueueNum":{share},"topic":"T"}}"#);
        site.ask_ok(Command::request(request::SET_MESSAGE_REQUEST_MODE).with_body(body))
            .await;
        self.history.modes.push((share, began, self.disk.steps()));
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
    tries: i32,
    body: Vec<u8>,
    tags: String,
    real: Option<String>,
}

impl After<'_> {
    fn load(&self, name: &str) -> Result<Option<Json>, String> {
        let is_object = |tree: &Json| tree.as_object().map(drop).ok_or_else(|| "no object".to_owned());
        self.crash.load(name, is_object)
    }

    fn all(&self, topic: &str, queue: i32) -> Result<Vec<Found>, String> {
        self.crash.all(topic, queue, |record| {
            let property = |name| record.properties.get(name).map(ToOwned::to_owned);
            Found {
                index: record.queue_offset,
                key: property("UNIQ_KEY").unwrap_or_default(),
                tries: record.reconsume_times,
                body: record.body.to_vec(),
                tags: property("TAGS").unwrap_or_default(),
                real: property("REAL_TOPIC"),
            }
        })
    }

    fn modes(&self) -> Outcome {
        let tree = self.load("messageRequestMode.json")?;
        let row = tree
            .as_ref()
            .and_then(|tree| tree.get("messageRequestModeMap")?.get("T")?.get("M"));
        let share = row
            .and_then(|row| row.get("popShareQueueNum")?.as_i64())
            .unwrap_or(0);
        let newest = |is: &dyn Fn(&(i64, usize, usize)) -> bool| {
            let modes = self.history.modes.iter().filter(|mode| is(mode));
            modes.map(|(share, ..)| *share).max().unwrap_or(0)
        };
        let least = newest(&|(_, _, done)| *done <= self.crash.steps);
        let most = newest(&|(_, began, _)| *began < self.crash.steps);
        ensure!(
            (least..=most).contains(&share),
            "messageRequestMode.json is neither old nor new: the share is {share} instead of {least} to {most}"
        );
        Ok(())
    }

    fn offsets(&self) -> Result<BTreeMap<(String, String, i32), i64>, String> {
        let tree = self.load("consumerOffset.json")?;
        let mut rows = BTreeMap::new();
        let table = tree.as_ref().and_then(|tree| tree.get("offsetTable"));
        for (key, queues) in table.and_then(Json::as_object).unwrap_or_default() {
            let name = name_of(key);
            let (topic, group) = name.split_once('@').unwrap();
            for (queue, offset) in queues.as_object().unwrap_or_default() {
                let queue: i32 = name_of(queue).parse().unwrap();
                let key = (topic.to_owned(), group.to_owned(), queue);
                rows.insert(key, offset.as_i64().unwrap());
            }
        }
        Ok(rows)
    }

    fn is_acked(&self, group: &str, place: &Place) -> bool {
        let acked = self.history.acked.iter();
        let mut of_place = acked.filter(|((of, at), _)| *of == group && at == place);
        of_place.any(|(_, began)| *began < self.crash.steps)
    }

    fn check(&self) -> Outcome {
        self.modes()?;
        self.load("consumerOrderInfo.json")?;
        let offsets = self.offsets()?;
        let revive = [REVIVE_TOPIC, &small().broker_cluster_name].concat();
        let mut points = Vec::new();
        for found in self.all(TIMER_TOPIC, 0)? {
            if found.real.as_deref() == Some(&revive) && found.tags == "ck" {
                points.push(PopCheckPoint::decode(&found.body).unwrap());
            }
        }
        let mut revived = Vec::new();
        for queue in 0..8 {
            let done = offsets.get(&(revive.clone(), REVIVE_GROUP.to_owned(), queue));
            for found in self
                .all(&revive, queue)?
                .iter()
                .filter(|found| found.tags == "ck")
            {
                let point = PopCheckPoint::decode(&found.body).unwrap();
                if done.is_some_and(|done| found.index <= *done) {
                    revived.push(point.clone());
                }
                points.push(point);
            }
        }
        let covered: BTreeSet<Place> = points.iter().flat_map(places).collect();
        for ((topic, group, queue), offset) in &offsets {
            for index in self.crash.store.min_offset(topic, *queue)..*offset {
                let place = (topic.clone(), *queue, index);
                let is_safe = match group.as_str() {
                    "G" => covered.contains(&place),
                    "O" => self.is_acked("O", &place),
                    _ => true,
                };
                ensure!(
                    is_safe,
                    "{group} is at {offset} of {topic}, and nothing brings {place:?} back"
                );
            }
        }
        self.check_revived(&revived)
    }

    /// What a pop check point that is done named is acknowledged, or in the retry topic with one more delivery.
    fn check_revived(&self, revived: &[PopCheckPoint]) -> Outcome {
        let mut messages = BTreeMap::new();
        let mut copies = BTreeSet::new();
        for topic in ["T", RETRY] {
            for queue in 0..QUEUES {
                for found in self.all(topic, queue)? {
                    copies.insert((found.key.clone(), found.tries));
                    messages.insert((topic.to_owned(), queue, found.index), (found.key, found.tries));
                }
            }
        }
        for place in revived.iter().flat_map(places) {
            let (key, tries) = messages
                .get(&place)
                .ok_or_else(|| format!("{place:?} is not stored"))?;
            ensure!(
                self.is_acked("G", &place) || copies.contains(&(key.clone(), tries + 1)),
                "the pop check point of {place:?} counts as done, and {key} did not come back"
            );
        }
        Ok(())
    }
}

/// The messages of a pop check point.
fn places(point: &PopCheckPoint) -> Vec<Place> {
    let topic = point.topic.clone().unwrap();
    let distances = point.offset_differences.clone().unwrap();
    distances
        .into_iter()
        .map(|distance| {
            let offset = point.start_offset + i64::from(distance);
            (topic.clone(), point.queue_id, offset)
        })
        .collect()
}

/// Runs a broker, stops its disk at many steps, and reports what does not hold.
fn run(seed: u64, points: usize, swallow: Option<Swallow>) -> Outcome {
    let work = async |disk: &SimDisk| work(seed, disk).await;
    crashes::run(seed, points, swallow, (&small(), work), |history, crash| {
        After { history, crash }.check()
    })
}

#[test]
fn no_crash_leaves_a_popped_message_that_nothing_brings_back() {
    run(0, 30, None).unwrap();
}

#[test]
fn a_kill_leaves_a_change_of_the_invisible_time_whole_or_not_at_all() {
    const LONG_MS: i64 = 60_000;
    let disk = SimDisk::default();
    let mut steps = 0..=0;
    let change = async |site: &Site, _: &Session, _: &mut Random| {
        site.create("T", 1).await;
        site.ask_ok(send("T", 0, b"x", "")).await;
        let messages = popped(&site.ask_ok(pop("G", "T", 0, 1, LONG_MS, 0)).await);
        let before = disk.steps();
        site.ask_ok(hide("G", &messages[0], 2 * LONG_MS)).await;
        steps = before..=disk.steps();
    };
    let settings = (small(), Security::default());
    crashes::runtime().block_on(crashes::work(&disk, settings, &mut Random::of(&[0]), change));
    let (mut is_old, mut is_new) = (false, false);
    for steps in steps {
        let session = disk.crash(steps, Loss::Nothing, 0).session();
        let store = Store::open_without_threads(small().store, Arc::new(session.clone())).unwrap();
        let (history, crash) = (
            &History::default(),
            Crash {
                steps,
                session,
                store,
            },
        );
        let found = After { history, crash }.all(TIMER_TOPIC, 0).unwrap();
        let tags: Vec<&str> = found.iter().map(|found| found.tags.as_str()).collect();
        match tags[..] {
            ["ck"] => is_old = true,
            ["ck", "ck", "ack"] => is_new = true,
            _ => panic!("behind step {steps} ({}): {tags:?}", disk.describe(steps)),
        }
    }
    assert!(is_old && is_new);
}

/// The checks see a disk that loses what was synced.
#[test]
fn a_disk_that_swallows_syncs_of_the_log_is_noticed() {
    let found = (0..4).find_map(|seed| run(seed, 25, Some(Swallow::File("commitlog"))).err());
    assert!(found.is_some(), "no crash point was wrong");
}

/// The file itself must be the loss.
fn is_noticed(file: &'static str) {
    let swallow = Swallow::File(file);
    crashes::is_noticed(swallow, file, |seed| run(seed, 60, Some(swallow)));
}

#[test]
fn orders_that_are_never_flushed_are_noticed() {
    is_noticed("consumerOrderInfo.json");
}

#[test]
fn modes_that_are_never_flushed_are_noticed() {
    is_noticed("messageRequestMode.json");
}

#[test]
#[ignore = "make faults: some minutes"]
fn no_crash_leaves_a_popped_message_that_nothing_brings_back_at_many_crash_points() {
    let runs = Runs {
        points: 100,
        failed_once: &[],
    };
    runs.take_new(Part::Popped, |seed, points| run(seed, points, None));
}
