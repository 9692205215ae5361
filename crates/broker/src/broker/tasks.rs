//! The background tasks of a broker. Each runs until the broker shuts down.

use super::ready_requests::{ReadyRequests, answer_ready};
use crate::context::{BlockingError, BrokerContext, on_blocking_thread};
use crate::error::BrokerError;
use crate::long_polling::{self, EndOf};
use crate::processor;
use crate::stats::windows::Schedule;
use pyrmq_remoting::clock;
use pyrmq_remoting::net::{Shutdown, Tracker};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often waiting pulls are checked for lost connections and passed deadlines.
const SWEEP: Duration = Duration::from_secs(1);

/// Every this many sweeps, the broker also checks for unannounced messages (Apache: every 5 s).
const CHECK_SWEEPS: u32 = 5;

/// How often silent clients are removed (Apache: every 10 s).
const CLIENT_SCAN: Duration = Duration::from_secs(10);

/// Wakes pops when they are due.
pub(super) async fn wake_pops(context: Arc<BrokerContext>, shutdown: Shutdown) {
    loop {
        let now_ms = long_polling::now_ms();
        let next_ms = context.pops.held.sweep(now_ms);
        let left_ms = next_ms.map_or(i64::MAX, |next_ms| next_ms.saturating_sub(now_ms));
        let wait = Duration::from_millis(u64::try_from(left_ms).unwrap_or(0)).min(SWEEP);
        tokio::select! {
            () = shutdown.stopped() => return,
            () = context.pops.held.sooner.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Wakes requests whose deadline has passed or whose messages were not announced, drops those of lost connections, and
/// samples counters. A task of its own answers requests that are ready, since that may wait for the disk.
pub(super) async fn sweep_waiting(ready: Arc<ReadyRequests>, tasks: Tracker, shutdown: Shutdown) {
    let context = &ready.context;
    let mut sweeps = 0_u32;
    let mut had_failed = false;
    let mut schedule = Schedule::default();
    while !shutdown.sleep_or_stop(SWEEP).await {
        sweeps = sweeps.wrapping_add(1);
        if context.store.has_failed() && !had_failed {
            had_failed = true;
            tracing::error!("the store has failed: name servers learn that this broker cannot be written");
            context.announcements.changed();
        }
        let end_of = |topic: &str, queue: i32| context.store.max_offset(topic, queue);
        let check: Option<&EndOf<'_>> = sweeps.is_multiple_of(CHECK_SWEEPS).then_some(&end_of);
        context.long_polling.sweep(long_polling::now_ms(), check);
        context.pops.held.drop_closed();
        tasks.spawn(answer_ready(Arc::downgrade(&ready)));
        let now_ms = clock::now_ms();
        context.stats.sample(now_ms);
        context.sample_traffic(now_ms, &schedule.due(now_ms));
    }
}

pub(super) async fn scan_clients(context: Arc<BrokerContext>, shutdown: Shutdown) {
    while !shutdown.sleep_or_stop(CLIENT_SCAN).await {
        let now_ms = clock::now_ms();
        context.locks.sweep(now_ms);
        let oldest_ms = now_ms - context.options.channel_expired_timeout;
        for (group, members) in context.clients.sweep_silent(oldest_ms, now_ms) {
            context.notify(&group, &members);
        }
    }
}

/// Asks producers about transactions that have not ended.
pub(super) async fn check_transactions(context: Arc<BrokerContext>, shutdown: Shutdown) {
    let pause = || Duration::from_millis(context.live.transaction_check_interval().unsigned_abs());
    while !shutdown.sleep_or_stop(pause()).await {
        let checking = context.clone();
        let check = move || processor::transaction::check(&checking);
        if let Err(error) = on_blocking_thread(&context.stats, check).await {
            tracing::warn!(%error, "cannot check transactions, will try again");
        }
    }
}

/// Writes what is written only periodically: consumer offsets and the progress of delayed messages.
pub(super) async fn write_files(context: Arc<BrokerContext>, shutdown: Shutdown) {
    let millis = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or(1000));
    let period = || {
        let live = &context.live;
        millis(
            live.flush_consumer_offset_interval()
                .min(live.flush_delay_offset_interval()),
        )
    };
    while !shutdown.sleep_or_stop(period()).await {
        let writing = context.clone();
        let write = move || {
            writing
                .persist_offsets()
                .and(writing.persist_orders())
                .and(writing.delays.persist(&writing.store))
        };
        if let Err(error) = on_blocking_thread(&context.stats, write).await {
            tracing::warn!(%error, "cannot write consumer offsets, will try again");
            if matches!(error, BlockingError::Panicked) {
                context.mark_progress_unwritten();
            }
        }
    }
}

/// How long the state of ordered groups may be unwritten: after a kill they handle again what they did in that time.
const ORDERS_PERIOD: Duration = Duration::from_millis(200);
/// Writing it takes at most this part of the time.
const ORDERS_PART: u32 = 20;
/// The longest pause between attempts while it cannot be written.
const MAX_ORDERS_PAUSE: Duration = Duration::from_secs(5);

/// Writes the state of ordered groups soon after each change. While that fails, each pause is twice the one before.
pub(super) async fn write_orders(context: Arc<BrokerContext>, shutdown: Shutdown) {
    let mut pause = ORDERS_PERIOD;
    // Why the last attempt failed, so that it is logged once.
    let mut failed = String::new();
    while !shutdown.sleep_or_stop(pause).await {
        if !context.pops.orders.has_changed() {
            pause = ORDERS_PERIOD;
            failed.clear();
            continue;
        }
        let (writing, began) = (context.clone(), Instant::now());
        if let Err(error) = on_blocking_thread(&context.stats, move || writing.persist_orders()).await {
            context.pops.orders.set_changed();
            let error = error.to_string();
            if error != failed {
                tracing::warn!(error, "cannot write the state of ordered groups, will try again");
                failed = error;
            }
            pause = (pause * 2).min(MAX_ORDERS_PAUSE);
        } else {
            if !std::mem::take(&mut failed).is_empty() {
                tracing::info!("the state of ordered groups is written again");
            }
            pause = ORDERS_PERIOD;
        }
        pause = pause.max(began.elapsed() * ORDERS_PART);
    }
}

pub(super) fn persist_and_close(context: &BrokerContext) -> Result<(), BrokerError> {
    // One failure must not skip the others: the store has to be closed cleanly in any case.
    let results = [
        context.persist_offsets(),
        context.persist_orders(),
        context.delays.persist(&context.store),
        context.store.close(),
    ];
    results
        .into_iter()
        .collect::<Result<(), _>>()
        .map_err(BrokerError::from)
}

pub(super) fn close_store(context: &BrokerContext) {
    if let Err(error) = context.store.close() {
        tracing::warn!(%error, "cannot close the store of a broker that did not start");
    }
}
