//! Measures nanoseconds of selecting a queue with fault tolerance on; `tests/interop/java/src5/RoutingBench.java`
//! measures the same tables with Apache's client.
//!
//! Argument: `--seconds` per measurement. Prints one JSON object per line.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and fails by panicking"
)]

use pyrmq_routing::fault::{Healths, LatencyFaultTolerance, Schedule};
use pyrmq_routing::route::PublishedQueue;
use pyrmq_routing::select::QueueSelector;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BATCH: u32 = 1000;
const ROUNDS: usize = 9;

fn queues(brokers: usize) -> Vec<PublishedQueue> {
    let names: Vec<Arc<str>> = (0..brokers).map(|at| format!("broker-{at}").into()).collect();
    let queue = |broker: &Arc<str>, queue_id| PublishedQueue {
        broker: broker.clone(),
        queue_id,
        address: broker.clone(),
    };
    let all = names
        .iter()
        .flat_map(|broker| (0..4).map(move |id| queue(broker, id)));
    all.collect()
}

fn median(queues: &[PublishedQueue], healths: &Healths, last: Option<&str>, time: Duration) -> f64 {
    let selector = QueueSelector::new(0);
    let mut spent = Vec::new();
    let end = Instant::now() + time * u32::try_from(ROUNDS).unwrap();
    while Instant::now() < end {
        let began = Instant::now();
        for _ in 0..BATCH {
            // A send has already read the clock for its deadline. Java reads it within the selection.
            let now_ms = black_box(5);
            let chosen = selector.select_healthy(black_box(queues), healths, last, now_ms);
            black_box(chosen.unwrap().queue_id);
        }
        spent.push(began.elapsed());
    }
    spent.sort_unstable();
    spent[spent.len() / 2].as_secs_f64() * 1e9 / f64::from(BATCH)
}

fn main() {
    let mut words = std::env::args().skip_while(|word| word != "--seconds").skip(1);
    let seconds = words.next().map_or(0.1, |text| text.parse().unwrap());
    let time = Duration::from_secs_f64(seconds);
    for brokers in [2, 16] {
        let queues = queues(brokers);
        for (what, slow, last) in [
            ("no broker was slow", false, None),
            ("one broker is left out", true, None),
            ("a retry", false, Some("broker-1")),
        ] {
            let faults = LatencyFaultTolerance::new(Schedule::default());
            for queue in &queues {
                faults.update(&queue.broker, 1, false, true, 0);
            }
            if slow {
                faults.update("broker-0", 20_000, false, true, 0);
            }
            let ns = median(&queues, &faults.healths(&queues), last, time);
            println!("{{\"what\":\"{what}\",\"brokers\":{brokers},\"ns\":{ns:.2}}}");
        }
    }
}
