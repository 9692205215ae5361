//! The broker's runtime information: 28 (Apache `AdminBrokerProcessor.prepareRuntimeInfo`, `StoreStatsService`).
//!
//! It has every key of Apache's, because tools read them without checking that they exist. Keys of parts that are not
//! built are 0.

use crate::context::BrokerContext;
use crate::processor::{Answer, answer};
use pyrmq_remoting::body::KVTable;
use pyrmq_remoting::names::SCHEDULE_TOPIC;
use pyrmq_remoting::net::Peer;
use pyrmq_remoting::{Command, clock};
use std::fmt::Display;
use std::sync::atomic::Ordering;

/// The version that this broker is compatible with, as Apache's `MQVersion.getVersionDesc` writes it.
const VERSION_TEXT: &str = "V5_5_0";

/// Queues of Apache's thread pools. They are always empty: here, requests run on their connection's task.
const POOLS: [(&str, &str); 4] = [
    ("pull", "100000"),
    ("litePull", "100000"),
    ("query", "20000"),
    ("ack", "100000"),
];

/// Returns the broker's runtime information (28).
pub(crate) fn runtime(context: &BrokerContext, _request: &Command, _peer: &Peer) -> Answer {
    let table = info(context).into_iter().collect();
    Ok(answer(&KVTable { table }))
}

/// The keys and values, sorted by key.
pub(crate) fn info(context: &BrokerContext) -> Vec<(String, String)> {
    let mut entries = Entries::default();
    counters(context, &mut entries);
    store(context, &mut entries);
    for (pool, capacity) in POOLS {
        entries.add(&format!("{pool}ThreadPoolQueueSize"), &0);
        entries.add(&format!("{pool}ThreadPoolQueueCapacity"), &capacity);
        entries.add(&format!("{pool}ThreadPoolQueueHeadWaitTimeMills"), &0);
    }
    flow_control(context, &mut entries);
    entries.add("EndTransactionQueueSize", &0);
    entries.add("EndTransactionThreadPoolQueueCapacity", &100_000);
    let [late, unread, waiting] = context.timers.metrics(&context.store);
    entries.add("timerReadBehind", &late);
    entries.add("timerOffsetBehind", &unread);
    entries.add("timerCongestNum", &waiting);
    entries.add("timerEnqueueTps", &"0.0");
    entries.add("timerDequeueTps", &"0.0");
    for (level, offset) in context.delays.offsets() {
        let end = context.store.max_offset(SCHEDULE_TOPIC, level - 1);
        entries.add(
            &format!("scheduleMessageOffset_{level}"),
            &format!("{offset},{end}"),
        );
    }
    entries.0.sort_unstable();
    entries.0
}

#[derive(Default)]
struct Entries(Vec<(String, String)>);

impl Entries {
    fn add(&mut self, key: &str, value: &dyn Display) {
        self.0.push((key.to_owned(), value.to_string()));
    }
}

fn counters(context: &BrokerContext, entries: &mut Entries) {
    let stats = &context.stats;
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let (put, sent) = (load(&stats.put), load(&stats.sent));
    let (put_mornings, get_mornings) = stats.mornings();
    entries.add("brokerActive", &true);
    entries.add("brokerVersionDesc", &VERSION_TEXT);
    entries.add("brokerVersion", &pyrmq_remoting::command::CURRENT_VERSION);
    entries.add("bootTimestamp", &stats.started_ms());
    entries.add("startAcceptSendRequestTimeStamp", &0);
    let seconds = (clock::now_ms() - stats.started_ms()) / 1000;
    entries.add("runtime", &uptime_text(seconds));
    entries.add("msgPutTotalYesterdayMorning", &put_mornings[0]);
    entries.add("msgPutTotalTodayMorning", &put_mornings[1]);
    entries.add("msgPutTotalTodayNow", &put);
    entries.add("msgGetTotalYesterdayMorning", &get_mornings[0]);
    entries.add("msgGetTotalTodayMorning", &get_mornings[1]);
    entries.add("msgGetTotalTodayNow", &sent);
    entries.add("putMessageTimesTotal", &put);
    entries.add("getMessageTimesTotal", &sent);
    entries.add("putMessageFailedTimes", &load(&stats.put_failed));
    entries.add("putMessageSizeTotal", &load(&stats.put_bytes));
    entries.add(
        "putMessageAverageSize",
        &load(&stats.put_bytes).checked_div(put).unwrap_or(0),
    );
    for key in [
        "putMessageEntireTimeMax",
        "getMessageEntireTimeMax",
        "dispatchMaxBuffer",
        "remainTransientStoreBufferNumbs",
        "remainHowManyDataToCommit",
    ] {
        entries.add(key, &0);
    }
    entries.add("putLatency99", &"0.0");
    entries.add("putLatency999", &"0.0");
    entries.add("putMessageDistributeTime", &"");
    let rates = stats.rates();
    for (key, windows) in [
        ("putTps", rates.put),
        ("getFoundTps", rates.found),
        ("getMissTps", rates.missed),
        ("getTransferredTps", rates.sent),
        // The spelling of 4.x, whose `mqadmin clusterList` fails without it.
        ("getTransferedTps", rates.sent),
    ] {
        entries.add(key, &windows_text(windows));
    }
    let total = [0, 1, 2].map(|at| rates.found[at] + rates.missed[at]);
    entries.add("getTotalTps", &windows_text(total));
}

fn uptime_text(seconds: i64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    format!(
        "[ {days} days, {hours} hours, {minutes} minutes, {} seconds ]",
        seconds % 60
    )
}

/// What sends wait for, and how often that took too long. Apache does not have the last four keys.
fn flow_control(context: &BrokerContext, entries: &mut Entries) {
    let busy = context.store.health().busy;
    entries.add("pageCacheLockTimeMills", &busy.held_now_ms);
    entries.add(
        "sendThreadPoolQueueSize",
        &(busy.waiting_for_lock + busy.waiting_for_disk),
    );
    entries.add(
        "sendThreadPoolQueueCapacity",
        &context.store.live().send_capacity(),
    );
    entries.add("sendThreadPoolQueueHeadWaitTimeMills", &busy.oldest_ms);
    entries.add("busyPageCacheTimes", &busy.held);
    entries.add("busyWaitedTimes", &busy.waited);
    entries.add("busyOverloadTimes", &busy.overload);
    entries.add("busyLongestWaitMills", &busy.longest_ms);
}

fn windows_text(windows: [f64; 3]) -> String {
    let [short, middle, long] = windows;
    format!("{short:?} {middle:?} {long:?}")
}

fn store(context: &BrokerContext, entries: &mut Entries) {
    let health = context.store.health();
    entries.add("commitLogMinOffset", &health.min_physical_offset);
    entries.add("commitLogMaxOffset", &health.max_physical_offset);
    entries.add("dispatchBehindBytes", &health.dispatch_behind_bytes);
    let unflushed = (health.max_physical_offset - health.flushed_offset).max(0);
    entries.add("remainHowManyDataToFlush", &readable(unflushed));
    entries.add("commitLogDiskRatio", &health.disk_ratio);
    entries.add("consumeQueueDiskRatio", &health.disk_ratio);
    let free = i64::try_from(health.disk_free_bytes).unwrap_or(i64::MAX);
    entries.add(
        "commitLogDirCapacity",
        &format!(
            "Total : {}, Free : {}.",
            total_of(health.disk_ratio, free),
            readable(free)
        ),
    );
    entries.add("earliestMessageTimeStamp", &context.earliest_ms());
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "a size for people"
)]
fn total_of(used: f64, free: i64) -> String {
    let share = (1.0 - used).max(0.001);
    readable((free as f64 / share) as i64)
}

/// Apache `MixAll.humanReadableByteCount` with powers of 1024.
#[expect(clippy::cast_precision_loss, reason = "a size for people")]
fn readable(bytes: i64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1024.0;
    for unit in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if size < 1024.0 {
            return format!("{size:.1} {unit}");
        }
        size /= 1024.0;
    }
    format!("{size:.1} EiB")
}
