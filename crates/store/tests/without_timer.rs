//! A timer wheel of a 5.x broker, and a broker without one: harmless once everything is delivered, otherwise refused by
//! name.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test that makes a directory as another broker left it"
)]

mod common;

use common::{open, real, small};
use pyrmq_store::{Options, Store};
use pyrmq_testkit::TempDir;
use std::fs;
use std::path::Path;

const DELIVERED_TO_MS: i64 = 1_800_000_000_000;

/// Writes a wheel of some slots of which one is used, the wheel's progress, and a log of one record.
fn timers(root: &Path, slot_ms: i64, flushed: i64) {
    let mut wheel = vec![0_u8; 32 * 10];
    let slot = &mut wheel[64..96];
    slot[..8].copy_from_slice(&(slot_ms / 1000).to_be_bytes());
    slot[24..28].copy_from_slice(&1_i32.to_be_bytes());
    let mut check = DELIVERED_TO_MS.to_be_bytes().to_vec();
    check.extend(flushed.to_be_bytes());
    let mut log = vec![0_u8; 1000];
    log[..52].fill(7);
    fs::create_dir_all(root.join("timerlog")).unwrap();
    fs::create_dir_all(root.join("config")).unwrap();
    fs::write(root.join("timerlog").join("00000000000000000000"), log).unwrap();
    fs::write(root.join("timerwheel"), wheel).unwrap();
    fs::write(root.join("config").join("timercheck"), check).unwrap();
}

fn without_timer(root: &Path) -> Options {
    let mut options = small(root);
    options.timer.enable = false;
    options
}

fn refusal(root: &Path) -> String {
    Store::open(without_timer(root), real()).unwrap_err().to_string()
}

#[test]
fn a_wheel_that_has_delivered_all_is_left_alone() {
    let dir = TempDir::new().unwrap();
    timers(dir.path(), DELIVERED_TO_MS - 1000, 52);
    open(without_timer(dir.path())).close().unwrap();
}

#[test]
fn a_message_that_waits_in_the_wheel_is_named() {
    let dir = TempDir::new().unwrap();
    timers(dir.path(), DELIVERED_TO_MS + 1000, 52);
    assert!(refusal(dir.path()).contains("timer messages"));
}

#[test]
fn a_message_that_a_crash_left_in_the_log_alone_is_named() {
    let dir = TempDir::new().unwrap();
    timers(dir.path(), DELIVERED_TO_MS - 1000, 0);
    fs::write(dir.path().join("abort"), "1").unwrap();
    assert!(refusal(dir.path()).contains("timer messages"));
}
