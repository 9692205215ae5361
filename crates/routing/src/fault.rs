//! Latency fault tolerance: brokers that were slow or failed are left out for a while (Apache
//! `LatencyFaultToleranceImpl`, `MQFaultStrategy`).
//!
//! A broker always comes back by itself when its time is over; leaving out is advice, never a refusal: when no broker
//! is available the selection takes one all the same (see [`select`](crate::select)).

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// What an attempt that failed counts as, whatever time it took (Apache: isolation).
pub const ISOLATION_LATENCY_MS: u64 = 10_000;

/// From which latency on a broker is left out, and for how long. Rows ascend.
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

    /// Rows of (latency from, left out for), in milliseconds. `None` when they do not ascend in latency.
    pub fn new(rows: &[(u64, u64)]) -> Option<Self> {
        let ascending = rows.windows(2).all(|pair| match pair {
            [(left, _), (right, _)] => left < right,
            _ => true,
        });
        ascending.then(|| Self { rows: rows.to_vec() })
    }

    /// How long a broker with this latency is left out, ms.
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

/// What is known of one broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Latency of the last attempt, ms.
    pub latency_ms: u64,
    /// Left out until this time of the caller's clock, ms.
    pub until_ms: i64,
    /// False when a probe must answer before it is counted as reachable.
    pub reachable: bool,
}

/// Records of brokers, by name: few, so that looking through them beats hashing a name.
#[derive(Debug, Default)]
struct Records {
    all: Vec<(Box<str>, Fault)>,
}

impl Records {
    fn get(&self, broker: &str) -> Option<&Fault> {
        let found = self.all.iter().find(|(name, _)| **name == *broker);
        found.map(|(_, fault)| fault)
    }

    fn get_mut(&mut self, broker: &str) -> Option<&mut Fault> {
        let found = self.all.iter_mut().find(|(name, _)| **name == *broker);
        found.map(|(_, fault)| fault)
    }

    /// The last moment at which somebody is left out; never while a probe is awaited.
    fn clear_from(&self) -> i64 {
        let faults = self.all.iter().map(|(_, fault)| fault);
        faults
            .map(|fault| if fault.reachable { fault.until_ms } else { i64::MAX })
            .max()
            .unwrap_or(i64::MIN)
    }
}

/// The brokers of one client by name. `now_ms` is any clock that only goes forward.
#[derive(Debug)]
pub struct LatencyFaultTolerance {
    schedule: Schedule,
    // From this moment on nobody is left out and no probe is awaited: looked at without the lock.
    clear_from: AtomicI64,
    // Guards what is known of each broker; read for each queue that is chosen while somebody is left out, written when
    // that changes.
    faults: RwLock<Records>,
}

/// What is known now, for several looks.
#[derive(Debug)]
pub struct Look<'a> {
    records: RwLockReadGuard<'a, Records>,
}

impl Look<'_> {
    /// True when the broker is not left out now. A broker never heard of is available.
    pub fn is_available(&self, broker: &str, now_ms: i64) -> bool {
        self.records
            .get(broker)
            .is_none_or(|fault| now_ms >= fault.until_ms)
    }

    /// True unless a probe is awaited.
    pub fn is_reachable(&self, broker: &str) -> bool {
        self.records.get(broker).is_none_or(|fault| fault.reachable)
    }
}

impl Default for LatencyFaultTolerance {
    fn default() -> Self {
        Self::new(Schedule::default())
    }
}

impl LatencyFaultTolerance {
    /// With this schedule.
    pub fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            clear_from: AtomicI64::new(i64::MIN),
            faults: RwLock::default(),
        }
    }

    /// For several looks with one lock.
    pub fn look(&self) -> Look<'_> {
        let records = self.faults.read().unwrap_or_else(PoisonError::into_inner);
        Look { records }
    }

    /// True when nobody is left out and no probe is awaited: every broker is as good as any other.
    pub fn is_clear(&self, now_ms: i64) -> bool {
        now_ms >= self.clear_from.load(Ordering::Acquire)
    }

    fn change<R>(&self, change: impl FnOnce(&mut Records) -> R) -> R {
        let mut records = self.faults.write().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut records);
        self.clear_from.store(records.clear_from(), Ordering::Release);
        result
    }

    /// An attempt ended. `isolate`: it failed, and counts as [`ISOLATION_LATENCY_MS`]. `reachable`: false when only a
    /// probe shall say that the broker is back.
    pub fn update(&self, broker: &str, latency_ms: u64, isolate: bool, reachable: bool, now_ms: i64) {
        let measured = if isolate { ISOLATION_LATENCY_MS } else { latency_ms };
        let out = self.schedule.not_available_ms(measured);
        let until = now_ms.saturating_add(i64::try_from(out).unwrap_or(i64::MAX));
        // The usual case, a quick answer of a broker without a record, takes no write lock.
        if out == 0 && reachable && self.look().records.get(broker).is_none() {
            return;
        }
        self.change(|records| {
            if records.get(broker).is_none() {
                let fresh = Fault {
                    latency_ms: 0,
                    until_ms: i64::MIN,
                    reachable: true,
                };
                records.all.push((broker.into(), fresh));
            }
            let Some(fault) = records.get_mut(broker) else {
                return;
            };
            fault.latency_ms = latency_ms;
            fault.reachable = reachable;
            // Good news does not shorten what was decided: answers of one broker arrive out of order.
            if out > 0 {
                fault.until_ms = fault.until_ms.max(until);
            }
        });
    }

    /// A probe was answered.
    pub fn set_reachable(&self, broker: &str) {
        self.change(|records| {
            if let Some(fault) = records.get_mut(broker) {
                fault.reachable = true;
            }
        });
    }

    /// True when the broker is not left out now. A broker never heard of is available.
    pub fn is_available(&self, broker: &str, now_ms: i64) -> bool {
        self.look().is_available(broker, now_ms)
    }

    /// True unless a probe is awaited.
    pub fn is_reachable(&self, broker: &str) -> bool {
        self.look().is_reachable(broker)
    }

    /// What is known of a broker.
    pub fn get(&self, broker: &str) -> Option<Fault> {
        self.look().records.get(broker).copied()
    }

    /// What is known of every broker, by name.
    pub fn all(&self) -> Vec<(String, Fault)> {
        let look = self.look();
        let records = look.records.all.iter();
        let mut known: Vec<(String, Fault)> =
            records.map(|(name, fault)| (name.to_string(), *fault)).collect();
        known.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        known
    }

    /// The brokers that wait for a probe, sorted.
    pub fn unreachable(&self) -> Vec<String> {
        let known = self.all().into_iter();
        known
            .filter(|(_, fault)| !fault.reachable)
            .map(|(name, _)| name)
            .collect()
    }

    /// Forgets a broker that has left the routes.
    pub fn remove(&self, broker: &str) {
        self.change(|records| records.all.retain(|(name, _)| **name != *broker));
    }
}
