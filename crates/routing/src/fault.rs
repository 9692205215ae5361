//! Latency fault tolerance: brokers that were slow or failed are left out for a while (Apache
//! `LatencyFaultToleranceImpl`, `MQFaultStrategy`).
//!
//! A broker always comes back by itself when its time is over; leaving out is advice, never a refusal: when no broker
//! is available the selection takes one all the same (see [`select`](crate::select)).

use std::collections::HashMap;
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

/// The brokers of one client by name. `now_ms` is any clock that only goes forward.
#[derive(Debug, Default)]
pub struct LatencyFaultTolerance {
    schedule: Schedule,
    // Guards what is known of each broker; read for each queue that is chosen, written for each answer.
    faults: RwLock<HashMap<Box<str>, Fault>>,
}

impl LatencyFaultTolerance {
    /// With this schedule.
    pub fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            faults: RwLock::default(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<Box<str>, Fault>> {
        self.faults.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt ended. `isolate`: it failed, and counts as [`ISOLATION_LATENCY_MS`]. `reachable`: false when only a
    /// probe shall say that the broker is back.
    pub fn update(&self, broker: &str, latency_ms: u64, isolate: bool, reachable: bool, now_ms: i64) {
        let measured = if isolate { ISOLATION_LATENCY_MS } else { latency_ms };
        let out = self.schedule.not_available_ms(measured);
        let until = now_ms.saturating_add(i64::try_from(out).unwrap_or(i64::MAX));
        // The usual case, a quick answer of a broker without a record, takes no write lock.
        if out == 0 && reachable && !self.read().contains_key(broker) {
            return;
        }
        let mut faults = self.faults.write().unwrap_or_else(PoisonError::into_inner);
        let fault = faults.entry(broker.into()).or_insert(Fault {
            latency_ms: 0,
            until_ms: i64::MIN,
            reachable: true,
        });
        fault.latency_ms = latency_ms;
        fault.reachable = reachable;
        // Good news does not shorten what was decided: answers of one broker arrive out of order.
        if out > 0 {
            fault.until_ms = fault.until_ms.max(until);
        }
    }

    /// A probe was answered.
    pub fn set_reachable(&self, broker: &str) {
        let mut faults = self.faults.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(fault) = faults.get_mut(broker) {
            fault.reachable = true;
        }
    }

    /// True when the broker is not left out now. A broker never heard of is available.
    pub fn is_available(&self, broker: &str, now_ms: i64) -> bool {
        self.read()
            .get(broker)
            .is_none_or(|fault| now_ms >= fault.until_ms)
    }

    /// True unless a probe is awaited.
    pub fn is_reachable(&self, broker: &str) -> bool {
        self.read().get(broker).is_none_or(|fault| fault.reachable)
    }

    /// What is known of a broker.
    pub fn get(&self, broker: &str) -> Option<Fault> {
        self.read().get(broker).copied()
    }

    /// What is known of every broker, by name.
    pub fn all(&self) -> Vec<(String, Fault)> {
        let faults = self.read();
        let mut known: Vec<(String, Fault)> = faults
            .iter()
            .map(|(name, fault)| (name.to_string(), *fault))
            .collect();
        known.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        known
    }

    /// The brokers that wait for a probe, sorted.
    pub fn unreachable(&self) -> Vec<String> {
        let faults = self.read();
        let waiting = faults.iter().filter(|(_, fault)| !fault.reachable);
        let mut names: Vec<String> = waiting.map(|(name, _)| name.to_string()).collect();
        names.sort_unstable();
        names
    }

    /// Forgets a broker that has left the routes.
    pub fn remove(&self, broker: &str) {
        self.faults
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(broker);
    }
}
