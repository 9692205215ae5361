//! Counters of pops: what is in flight (Apache `PopInflightMessageCounter`), pop check points and acknowledgements
//! (`BrokerStatsManager`).
//!
//! In flight are messages that were popped and neither acknowledged nor brought back. They are counted since the start,
//! and without ordered groups, whose offset stays at the first message that is not done. An acknowledgement that is
//! repeated is counted each time.

use crate::context::BrokerContext;
use crate::pop::pop_check_point::Taken;
use crate::tables::topics::Topic;
use pyrmq_remoting::clock;
use std::sync::atomic::Ordering;

/// Messages were popped from a topic or its retry topic. The pop check point counts for the requested topic.
pub(super) fn count_pop(
    context: &BrokerContext,
    (requested, from): (&Topic, &Topic),
    taken: &Taken<'_>,
    messages: u64,
) {
    count_check_point(context, requested, taken.group);
    if is_counted(context, taken.pop_time) {
        let traffic = from.traffic.group_or_new(taken.group);
        traffic.count_popped(taken.queue_id, messages);
    }
}

/// Messages were acknowledged.
pub(super) fn count_acks(context: &BrokerContext, topic: &Topic, taken: &Taken<'_>, messages: u64) {
    context.stats.acks.fetch_add(messages, Ordering::Relaxed);
    let traffic = topic.traffic.group_or_new(taken.group);
    traffic.count_acks(messages);
    if is_in_flight(context, taken) {
        traffic.count_done(taken.queue_id, messages);
    }
}

/// A message is hidden until another time: it has another pop check point, and the former is acknowledged.
pub(super) fn count_change(context: &BrokerContext, topic: &Topic, former: &Taken<'_>) {
    count_check_point(context, topic, former.group);
    context.stats.acks.fetch_add(1, Ordering::Relaxed);
    let traffic = topic.traffic.group_or_new(former.group);
    traffic.count_acks(1);
    if !is_in_flight(context, former) && is_counted(context, clock::now_ms()) {
        traffic.count_popped(former.queue_id, 1);
    }
}

/// Counts messages that came back when their time had passed, or were acknowledged after it.
pub(super) fn count_back(context: &BrokerContext, taken: &Taken<'_>, messages: u64) {
    let topic = context.topics.get(taken.topic);
    let traffic = topic.and_then(|topic| topic.traffic.group(taken.group));
    if let Some(traffic) = traffic.filter(|_| is_counted(context, taken.pop_time)) {
        traffic.count_done(taken.queue_id, messages);
    }
}

fn count_check_point(context: &BrokerContext, topic: &Topic, group: &str) {
    context.stats.check_points.fetch_add(1, Ordering::Relaxed);
    topic.traffic.group_or_new(group).count_check_point();
}

/// Whether the messages of a pop are counted as in flight. If the clock is set back to before the start, they are not,
/// until it has passed the start again.
fn is_counted(context: &BrokerContext, pop_time: i64) -> bool {
    pop_time >= context.stats.started_ms()
}

/// Whether they still are: otherwise they come back, and are counted then.
fn is_in_flight(context: &BrokerContext, taken: &Taken<'_>) -> bool {
    is_counted(context, taken.pop_time) && clock::now_ms() < taken.due_ms()
}
