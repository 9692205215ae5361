//! A broker on a simulated disk, and what the disk has after it was stopped at any step.
#![allow(unused_macros, unused_imports, reason = "each test file uses a part")]
#![allow(clippy::disallowed_methods, reason = "the test waits for its task itself")]

use super::{LIMIT, Site, options_in};
use pyrmq_broker::{Broker, Options};
use pyrmq_remoting::body::{Json, Key};
use pyrmq_remoting::clock;
use pyrmq_remoting::message::Record;
use pyrmq_remoting::message::record::records;
use pyrmq_remoting::net::Security;
use pyrmq_store::{Fs, GetMessage, GetStatus, Store, TagFilter, config_file};
use pyrmq_testkit::sim::{Loss, Session, Swallow};
use pyrmq_testkit::{Random, SimDisk};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};

const ROOT: &str = "/data";

/// What does not hold.
pub(crate) type Outcome = Result<(), String>;

/// Returns an error with this text unless a condition holds.
macro_rules! ensure {
    ($holds:expr, $($text:tt)*) => {
        if !$holds {
            return Err(format!($($text)*));
        }
    };
}
pub(crate) use ensure;

/// Options for a broker on a simulated disk.
pub(crate) fn simulated() -> Options {
    let mut options = Options {
        flush_consumer_offset_interval: 100,
        ..options_in(Path::new(ROOT))
    };
    let store = &mut options.store;
    store.segment_bytes = 1 << 17;
    store.max_message_bytes = 1 << 16;
    store.queue_file_bytes = 4000;
    store.index = false;
    // Saving progress itself must make the messages durable.
    store.flush_interval_ms = 60_000;
    options
}

/// The path of a file of the broker's configuration.
pub(crate) fn config(name: &str) -> PathBuf {
    Path::new(ROOT).join("store/config").join(name)
}

/// A member's name as text; empty if it is an object.
pub(crate) fn name_of(key: &Key) -> String {
    match key {
        Key::Str(name) => name.clone(),
        Key::Int(number) => number.to_string(),
        Key::Object(_) => String::new(),
    }
}

pub(crate) fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// Starts a broker on a disk that follows the clock, does some work with it, and stops it cleanly or like a kill.
pub(crate) async fn work(
    disk: &SimDisk,
    (options, security): (Options, Security),
    random: &mut Random,
    actions: impl AsyncFnOnce(&Site, &Session, &mut Random),
) {
    disk.set_now(clock::now_ms());
    let session = disk.session();
    let fs: Arc<dyn Fs> = Arc::new(session.clone());
    let broker = Broker::start_secured(&fs, options, &Handle::current(), (None, &[]), &security).unwrap();
    let site = Site::of(broker);
    let stopped = Arc::new(AtomicBool::new(false));
    let clock = {
        let (disk, stopped) = (disk.clone(), stopped.clone());
        tokio::spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                disk.set_now(clock::now_ms());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    };
    actions(&site, &session, random).await;
    if random.one_in(2) {
        session.kill();
        drop(site.broker.stop(LIMIT).await);
        site.client.close().await;
    } else {
        site.stop().await;
    }
    stopped.store(true, Ordering::Relaxed);
    clock.await.unwrap();
}

/// A disk after a crash.
pub(crate) struct Crash {
    /// The steps that the disk had done.
    pub(crate) steps: usize,
    pub(crate) session: Session,
    pub(crate) store: Arc<Store>,
}

impl Crash {
    /// Reads a file, which must be whole; `None` if there is no file.
    pub(crate) fn load(
        &self,
        name: &str,
        is_whole: impl Fn(&Json) -> Outcome,
    ) -> Result<Option<Json>, String> {
        let whole = |text: &str| is_whole(&Json::parse(text.as_bytes()).map_err(|error| error.to_string())?);
        let loaded =
            config_file::load(&self.session, &config(name), whole).map_err(|error| error.to_string())?;
        Ok(loaded.text().map(|text| Json::parse(text.as_bytes()).unwrap()))
    }

    /// Reads all records of a queue.
    pub(crate) fn all<T>(
        &self,
        topic: &str,
        queue: i32,
        found: impl Fn(&Record<'_>) -> T,
    ) -> Result<Vec<T>, String> {
        let (mut all, mut offset) = (Vec::new(), self.store.min_offset(topic, queue));
        loop {
            let get = GetMessage {
                topic,
                queue_id: queue,
                offset,
                max_count: 64,
                max_bytes: 1 << 20,
                tags: TagFilter::All,
            };
            let got = self
                .store
                .get(&get)
                .map_err(|error| format!("{topic}-{queue}: {error}"))?;
            if got.status != GetStatus::Found {
                return Ok(all);
            }
            all.extend(records(&got.body).map(|record| found(&record.unwrap())));
            offset = got.next_offset;
        }
    }
}

/// A disk that only pretends to do one kind of fsync: one of the first runs must notice it by this loss.
pub(crate) fn is_noticed(swallow: Swallow, by: &str, run: impl Fn(u64) -> Outcome) {
    let found = (0..8).find_map(|seed| run(seed).err());
    let found = found.unwrap_or_else(|| panic!("{swallow:?} was never noticed"));
    // Before that is the step of the disk, which may name the file too.
    let what = found.split_once(" lost: ").map_or("", |(_, what)| what);
    assert!(
        what.contains(by),
        "{swallow:?} was noticed by something else: {found}"
    );
}

/// Does some work with a disk, which may lose syncs, stops it at many steps, and reports what does not hold.
pub(crate) fn run<H>(
    seed: u64,
    points: usize,
    swallow: Option<Swallow>,
    (options, work): (&Options, impl AsyncFnOnce(&SimDisk) -> H),
    check: impl Fn(&H, Crash) -> Outcome,
) -> Outcome {
    let disk = SimDisk::default();
    if let Some(what) = swallow {
        disk.swallow(what);
    }
    let history = runtime().block_on(work(&disk));
    let mut random = Random::of(&[seed, 3]);
    for _ in 0..points {
        let steps = random.below(disk.steps() + 1);
        let loss = *random.choose(&Loss::ALL).unwrap();
        let session = disk.crash(steps, loss, random.next()).session();
        let about = |what: &str| {
            let step = disk.describe(steps);
            format!(
                "seed {seed}, behind step {steps} of {} ({step}), {loss:?} lost: {what}",
                disk.steps()
            )
        };
        let store = Store::open_without_threads(options.store.clone(), Arc::new(session.clone()));
        let crash = Crash {
            steps,
            session,
            store: store.map_err(|error| about(&error.to_string()))?,
        };
        check(&history, crash).map_err(|what| about(&what))?;
    }
    Ok(())
}
