//! Connections that sent much and then nothing: each has an append batch, and an idle one holds no buffers.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test that reads the size of its own process"
)]

mod common;

use common::{message, open, small};
use pyrmq_testkit::TempDir;

const CONNECTIONS: usize = 300;
const BODY_BYTES: usize = 500 << 10;

/// Bytes of this process that are in memory.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

#[test]
fn idle_connections_hold_little_memory_after_a_burst() {
    let dir = TempDir::new().unwrap();
    let mut options = small(dir.path());
    options.segment_bytes = 32 << 20;
    options.max_message_bytes = 1 << 20;
    let store = open(options);
    let body = vec![b'x'; BODY_BYTES];
    let mut batches: Vec<_> = (0..CONNECTIONS).map(|_| store.append_batch()).collect();
    let before = resident_bytes();
    for batch in &mut batches {
        batch.stage(
            &message("T", 0, &body, ""),
            Box::new(|stored: Result<_, _>| {
                stored.unwrap();
                None
            }),
        );
        batch.commit();
    }
    assert_eq!(store.max_offset("T", 0), i64::try_from(CONNECTIONS).unwrap());
    let grown = resident_bytes().saturating_sub(before);
    assert!(
        grown < CONNECTIONS * BODY_BYTES / 3,
        "{CONNECTIONS} idle batches hold {grown} bytes"
    );
}
