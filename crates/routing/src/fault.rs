//! Latency fault tolerance: brokers that were slow or failed are avoided for a while (Apache
//! `LatencyFaultToleranceImpl`, `MQFaultStrategy`).
//!
//! A broker becomes available again when its time has passed. Avoiding a broker is advice, never a refusal: if none
//! is available, the selection uses one anyway (see [`select`](crate::select)).
//!
//! The queues of a route point to their broker's [`Health`]. So selecting a queue reads one number for each queue that
//! it considers, and takes no lock.

use pyrmq_remoting::sync::{read, write};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Something that belongs to a broker, such as a queue.
pub trait OnBroker {
    /// The broker's name.
    fn broker(&self) -> &str;
}

impl OnBroker for &str {
    fn broker(&self) -> &str {
        self
    }
}

/// Latency that a failed attempt counts as, however long it took (Apache: isolation).
pub const ISOLATION_LATENCY_MS: u64 = 10_000;

/// The latencies from which on a broker is avoided, and for how long. Rows ascend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    rows: Vec<(u64, u64)>,
}

impl Schedule {
    /// Apache 5.x `latencyMax` and `notAvailableDuration`, milliseconds.
    pub const DEFAULT: [(u64, u64); 7] = [
        (50, 0),
        (100, 0),
        (550, 2000),
        (1800, 5000),
        (3000, 6000),
        (5000, 10_000),
        (15_000, 30_000),
    ];

    /// Takes rows of (latency from, avoided for), in milliseconds. `None` if they do not ascend in latency.
    pub fn new(rows: &[(u64, u64)]) -> Option<Self> {
        let ascending = rows.windows(2).all(|pair| match pair {
            [(left, _), (right, _)] => left < right,
            _ => true,
        });
        ascending.then(|| Self { rows: rows.to_vec() })
    }

    /// Returns how long a broker with this latency is avoided, in milliseconds.
    pub fn not_available_ms(&self, latency_ms: u64) -> u64 {
        self.rows
            .iter()
            .rev()
            .find(|(from, _)| latency_ms >= *from)
            .map_or(0, |(_, duration)| *duration)
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            rows: Self::DEFAULT.to_vec(),
        }
    }
}

/// The recorded state of one broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Latency of the last attempt, ms.
    pub latency_ms: u64,
    /// Avoided until this time of the caller's clock, ms.
    pub until_ms: i64,
    /// False if a probe must answer before the broker counts as reachable.
    pub reachable: bool,
}

/// The state of one broker as queue selection reads it; the table and the routes share it.
#[derive(Debug)]
pub struct Health {
    // Written under the table's lock. A reader never needs two fields from the same moment.
    latency_ms: AtomicU64,
    until_ms: AtomicI64,
    reachable: AtomicBool,
    // False: never recorded, or forgotten.
    known: AtomicBool,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            latency_ms: AtomicU64::new(0),
            until_ms: AtomicI64::new(i64::MIN),
            reachable: AtomicBool::new(true),
            known: AtomicBool::new(false),
        }
    }
}

impl Health {
    /// Returns true if the broker is not avoided now.
    pub fn is_available(&self, now_ms: i64) -> bool {
        now_ms >= self.until_ms.load(Ordering::Acquire)
    }

    /// Returns true unless the broker waits for a probe.
    pub fn is_reachable(&self) -> bool {
        self.reachable.load(Ordering::Acquire)
    }

    fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    fn fault(&self) -> Fault {
        Fault {
            latency_ms: self.latency_ms.load(Ordering::Acquire),
            until_ms: self.until_ms.load(Ordering::Acquire),
            reachable: self.is_reachable(),
        }
    }

    fn forget(&self) {
        self.known.store(false, Ordering::Release);
        self.latency_ms.store(0, Ordering::Release);
        self.until_ms.store(i64::MIN, Ordering::Release);
        self.reachable.store(true, Ordering::Release);
    }
}

/// Brokers by name. There are few, so a linear search beats hashing a name.
type Records = Vec<(Box<str>, Arc<Health>)>;

fn found<'a>(records: &'a Records, broker: &str) -> Option<&'a Arc<Health>> {
    let found = records.iter().find(|(name, _)| **name == *broker);
    found.map(|(_, health)| health)
}

/// The health of each queue's broker, by queue index, for [`QueueSelector::select_healthy`].
///
/// [`QueueSelector::select_healthy`]: crate::select::QueueSelector::select_healthy
#[derive(Debug, Clone, Default)]
pub struct Healths {
    places: Arc<[Arc<Health>]>,
}

impl Healths {
    /// Returns the health for the queue at this index; `None` if there is no such queue.
    pub fn get(&self, place: usize) -> Option<&Health> {
        self.places.get(place).map(AsRef::as_ref)
    }
}

/// The brokers of one client by name. `now_ms` is a time of any monotonic clock.
#[derive(Debug)]
pub struct LatencyFaultTolerance {
    schedule: Schedule,
    // Guards the list of brokers and changes of their state. Reading a health needs no lock.
    records: RwLock<Records>,
}

/// The brokers as they are now, for several look-ups by name. Nothing changes while this lives.
#[derive(Debug)]
pub struct FaultSnapshot<'a> {
    records: RwLockReadGuard<'a, Records>,
}

impl FaultSnapshot<'_> {
    /// Returns true if the broker is not avoided now. An unknown broker is available.
    pub fn is_available(&self, broker: &str, now_ms: i64) -> bool {
        found(&self.records, broker).is_none_or(|health| health.is_available(now_ms))
    }

    /// Returns true unless the broker waits for a probe.
    pub fn is_reachable(&self, broker: &str) -> bool {
        found(&self.records, broker).is_none_or(|health| health.is_reachable())
    }
}

impl Default for LatencyFaultTolerance {
    fn default() -> Self {
        Self::new(Schedule::default())
    }
}

impl LatencyFaultTolerance {
    /// Creates an empty table with this schedule.
    pub fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            records: RwLock::default(),
        }
    }

    /// Returns a snapshot: one lock for several look-ups.
    pub fn snapshot(&self) -> FaultSnapshot<'_> {
        let records = read(&self.records);
        FaultSnapshot { records }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Records> {
        write(&self.records)
    }

    /// Returns the healths of the brokers of a route's queues; keep them as long as the route.
    pub fn healths<Q: OnBroker>(&self, queues: &[Q]) -> Healths {
        let mut records = self.write();
        // A broker that no route leads to any more needs an entry only if its state is recorded.
        records.retain(|(_, health)| health.is_known() || Arc::strong_count(health) > 1);
        let mut of = |queue: &Q| health_of(&mut records, queue.broker());
        Healths {
            places: queues.iter().map(&mut of).collect(),
        }
    }

    /// Records a finished attempt. `isolate`: it failed, and counts as [`ISOLATION_LATENCY_MS`]. `reachable`: false if
    /// only a probe may report that the broker is back.
    pub fn update(&self, broker: &str, latency_ms: u64, isolate: bool, reachable: bool, now_ms: i64) {
        let measured = if isolate { ISOLATION_LATENCY_MS } else { latency_ms };
        let out = self.schedule.not_available_ms(measured);
        let until = now_ms.saturating_add(i64::try_from(out).unwrap_or(i64::MAX));
        // The usual case, a fast answer of a broker without a record, takes no write lock.
        let is_known = |health: &Arc<Health>| health.is_known();
        if out == 0 && reachable && !found(&self.snapshot().records, broker).is_some_and(is_known) {
            return;
        }
        let mut records = self.write();
        let health = health_of(&mut records, broker);
        health.latency_ms.store(latency_ms, Ordering::Release);
        health.reachable.store(reachable, Ordering::Release);
        // A fast answer does not shorten the time: answers of one broker arrive out of order.
        if out > 0 {
            health.until_ms.fetch_max(until, Ordering::AcqRel);
        }
        health.known.store(true, Ordering::Release);
    }

    /// Records that a probe was answered.
    pub fn set_reachable(&self, broker: &str) {
        if let Some(health) = found(&self.write(), broker) {
            health.reachable.store(true, Ordering::Release);
        }
    }

    /// Returns true if the broker is not avoided now. An unknown broker is available.
    pub fn is_available(&self, broker: &str, now_ms: i64) -> bool {
        self.snapshot().is_available(broker, now_ms)
    }

    /// Returns true unless the broker waits for a probe.
    pub fn is_reachable(&self, broker: &str) -> bool {
        self.snapshot().is_reachable(broker)
    }

    /// Returns the state of a broker.
    pub fn get(&self, broker: &str) -> Option<Fault> {
        let snapshot = self.snapshot();
        let health = found(&snapshot.records, broker)?;
        health.is_known().then(|| health.fault())
    }

    /// Returns the state of every broker, by name.
    pub fn all(&self) -> Vec<(String, Fault)> {
        let snapshot = self.snapshot();
        let records = snapshot.records.iter().filter(|(_, health)| health.is_known());
        let mut known: Vec<(String, Fault)> = records
            .map(|(name, health)| (name.to_string(), health.fault()))
            .collect();
        known.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        known
    }

    /// Returns the brokers that wait for a probe, sorted.
    pub fn unreachable(&self) -> Vec<String> {
        let known = self.all().into_iter();
        known
            .filter(|(_, fault)| !fault.reachable)
            .map(|(name, _)| name)
            .collect()
    }

    /// Forgets a broker that has left the routes.
    pub fn remove(&self, broker: &str) {
        self.write().retain(|(name, health)| {
            let leaves = **name == *broker;
            if leaves {
                health.forget();
            }
            // If a route is still held, it keeps this health, in case the broker comes back.
            !leaves || Arc::strong_count(health) > 1
        });
    }
}

fn health_of(records: &mut Records, broker: &str) -> Arc<Health> {
    if let Some(health) = found(records, broker) {
        return health.clone();
    }
    let health = Arc::<Health>::default();
    records.push((broker.into(), health.clone()));
    health
}
