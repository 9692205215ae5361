//! What a pop is answered with: where its group begins, retries or the topic first, too many that wait; and what a
//! message looks like that comes back. Over real sockets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::pops::{pop, popped, short_intervals};
use common::{Site, TempDir, eventually, options, send};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::Command;

/// Longer than a test takes.
const LONG_MS: i64 = 60_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_begins_at_the_newest_message_misses_none_that_arrives_later() {
    let dir = TempDir::new();
    let mut settings = short_intervals(options(&dir));
    settings.store.segment_bytes = 1 << 16;
    settings.store.set("fileReservedTime", "0").unwrap();
    let site = Site::start(settings);
    site.create("T", 2).await;
    for number in 0..120 {
        let answer = site.ask(send("T", number % 2, &[b'x'; 4000], "")).await;
        assert_eq!(answer.code, response::SUCCESS, "{:?}", answer.remark);
    }
    // Where a queue still has its first message, a new group begins there.
    let min = |queue| site.broker.context().store.min_offset("T", queue);
    eventually("old messages go", async || {
        site.ask_ok(Command::request(request::DELETE_EXPIRED_COMMITLOG))
            .await;
        min(0) > 0 && min(1) > 0
    })
    .await;
    let newest = |most| {
        let mut ask = pop("G", "T", -1, most, LONG_MS, 0);
        ask.fields.set("initMode", "1");
        ask
    };
    // The answer is full before the pop comes to the other queue.
    let first = popped(&site.ask_ok(newest(1)).await);
    assert_eq!((first.len(), first[0].offset), (1, 59));
    let other = 1 - first[0].queue_id;
    for body in ["a", "b"] {
        let answer = site.ask(send("T", other, body.as_bytes(), "")).await;
        assert_eq!(answer.code, response::SUCCESS);
    }
    let rest = popped(&site.ask_ok(newest(32)).await);
    let places: Vec<(i32, i64)> = rest
        .iter()
        .map(|message| (message.queue_id, message.offset))
        .collect();
    assert_eq!(places, [(other, 59), (other, 60), (other, 61)]);
    let oldest = popped(&site.ask_ok(pop("H", "T", 0, 1, LONG_MS, 0)).await);
    assert_eq!(oldest[0].offset, min(0));
    site.stop().await;
}
