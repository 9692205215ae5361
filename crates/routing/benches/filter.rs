//! Measures nanoseconds of a filter for one message; `tests/interop/java/src5/FilterBench.java` measures the same
//! expressions and properties with Apache's classes.
//!
//! Argument: `--seconds` per measurement. Prints one JSON object per line.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and fails by panicking"
)]

use pyrmq_remoting::message::properties::{Properties, append};
use pyrmq_routing::filter::Filter;
use std::hint::black_box;
use std::time::{Duration, Instant};

const BATCH: u32 = 1000;
const ROUNDS: usize = 9;

const EXPRESSIONS: [(&str, &str); 4] = [
    ("one text", "region = 'eu'"),
    ("one number", "price > 100"),
    (
        "a usual one",
        "price BETWEEN 10 AND 500 AND region IN ('eu', 'us', 'asia') AND TAGS IS NOT NULL",
    ),
    (
        "a long one",
        "(price > 1000 OR region = 'mars' OR name STARTSWITH 'x') OR (TAGS = 'TagB' AND count >= 3.5) OR name CONTAINS 'tea'",
    ),
];

const PROPERTIES: [(&str, &str); 8] = [
    ("KEYS", "order-1234567"),
    ("UNIQ_KEY", "7F000001000F18B4AAC208A7F5E30000"),
    ("WAIT", "true"),
    ("TAGS", "TagA"),
    ("region", "eu"),
    ("price", "250"),
    ("count", "3"),
    ("name", "green tea"),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|word| word == "--seconds");
    let seconds = at.map_or(0.1, |at| arguments[at + 1].parse().unwrap());
    let time = Duration::from_secs_f64(seconds);
    let mut text = String::new();
    for (name, value) in PROPERTIES {
        append(&mut text, name, value);
    }
    for (what, expression) in EXPRESSIONS {
        let filter = Filter::compile(expression).unwrap();
        let ns = median(&filter, &text, time);
        println!("{{\"what\":\"{what}\",\"ns\":{ns:.2}}}");
    }
}

fn median(filter: &Filter, text: &str, time: Duration) -> f64 {
    let mut spent = Vec::new();
    let end = Instant::now() + time * u32::try_from(ROUNDS).unwrap();
    while Instant::now() < end {
        let began = Instant::now();
        for _ in 0..BATCH {
            black_box(filter.matches(Properties::new(black_box(text))));
        }
        spent.push(began.elapsed());
    }
    spent.sort();
    spent[spent.len() / 2].as_secs_f64() * 1e9 / f64::from(BATCH)
}
