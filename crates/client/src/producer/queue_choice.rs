//! The queue that an attempt goes to (Apache `MQFaultStrategy.selectOneMessageQueue`).

use crate::error::ClientError;
use crate::producer::outgoing::{OutgoingMessage, Target};
use crate::producer::shared::ProducerShared;
use crate::session::routes::TopicRoute;
use pyrmq_remoting::text::{join_host_port, split_host_port};
use pyrmq_routing::route::PublishedQueue;
use pyrmq_routing::select;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The port on which a broker accepts sends but no pulls (Apache `MixAll.brokerVIPChannel`).
fn fast_port(address: &Arc<str>) -> Arc<str> {
    let fast = split_host_port(address).and_then(|(host, port)| {
        let port = port.checked_sub(2)?;
        Some(join_host_port(host, port).into())
    });
    fast.unwrap_or_else(|| address.clone())
}

impl ProducerShared {
    /// The queue that a message goes to.
    pub(crate) fn queue_for(
        &self,
        route: &TopicRoute,
        outgoing: &OutgoingMessage,
        last_broker: Option<&str>,
        now: Instant,
    ) -> Result<PublishedQueue, ClientError> {
        let chosen = self.choose(route, outgoing, last_broker, now)?;
        let mut queue = self.spread(route, outgoing, (chosen, last_broker), now).clone();
        if self.options.vip_channel {
            queue.address = fast_port(&queue.address);
        }
        Ok(queue)
    }

    fn choose<'a>(
        &self,
        route: &'a TopicRoute,
        outgoing: &OutgoingMessage,
        last_broker: Option<&str>,
        now: Instant,
    ) -> Result<&'a PublishedQueue, ClientError> {
        let queues = &route.published.queues;
        let chosen = match &outgoing.target {
            Target::Any if self.options.latency_fault => {
                let now_ms = self.clock_ms(now);
                route
                    .selector
                    .select_healthy(queues, &route.healths, last_broker, now_ms)
            }
            Target::Any => route.selector.select(queues, last_broker),
            Target::Hash(hash) => {
                select::by_number(i64::from(*hash), queues.len()).and_then(|at| queues.get(at))
            }
            Target::Queue { broker, id } => queues
                .iter()
                .find(|queue| queue.queue_id == *id && (broker.is_empty() || queue.broker == *broker)),
        };
        chosen.ok_or_else(|| route.no_queue(&outgoing.topic))
    }

    /// The chosen queue, or a queue of another broker if the chosen queue's broker has too many messages in flight.
    fn spread<'a>(
        &self,
        route: &'a TopicRoute,
        outgoing: &OutgoingMessage,
        (chosen, last_broker): (&'a PublishedQueue, Option<&str>),
        now: Instant,
    ) -> &'a PublishedQueue {
        if !matches!(outgoing.target, Target::Any) || !route.has_several_brokers() {
            return chosen;
        }
        let queues = &route.published.queues;
        let brokers = queues.iter().map(|queue| &queue.broker);
        let Some(least) = self.back_pressure.instead_of(&chosen.broker, brokers) else {
            return chosen;
        };
        let again = || self.choose(route, outgoing, last_broker, now).ok();
        let mut others = std::iter::repeat_with(again).take(queues.len()).flatten();
        others.find(|queue| queue.broker == *least).unwrap_or(chosen)
    }

    /// Records the outcome of an attempt in the fault table. With a detector, a broker that failed is avoided until it
    /// answers a probe.
    pub(super) fn observe(&self, broker: &str, latency: Duration, isolate: bool, now: Instant) {
        let latency_ms = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
        let reachable = !(isolate && self.options.detect);
        self.faults
            .update(broker, latency_ms, isolate, reachable, self.clock_ms(now));
    }

    /// A clock that only goes forward, for the fault table.
    pub(crate) fn clock_ms(&self, now: Instant) -> i64 {
        i64::try_from(now.saturating_duration_since(self.born).as_millis()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::fast_port;

    #[test]
    fn the_fast_port_is_two_below_the_brokers() {
        let fast = |address: &str| fast_port(&address.into()).to_string();
        assert_eq!(fast("broker:10911"), "broker:10909");
        assert_eq!(fast("[::1]:10911"), "[::1]:10909");
        assert_eq!(fast("broker:1"), "broker:1", "there is no such port");
    }
}
