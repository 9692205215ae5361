//! Asks brokers that failed whether they are back (Apache `LatencyFaultToleranceImpl.detectByOneRound`).
//!
//! A broker is avoided for a limited time, so it would be tried again without a probe, too. But a broker that does not
//! answer probes comes after those that do even when that time has passed. Any answer counts, even an error.

use crate::producer::shared::ProducerShared;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::request;
use pyrmq_remoting::header::offset::GetMaxOffsetRequestHeader;
use std::sync::Weak;

/// Probes until the producer ends.
pub(crate) async fn run(shared: Weak<ProducerShared>) {
    loop {
        let Some(strong) = shared.upgrade() else { return };
        let (shutdown, interval) = (strong.shutdown.clone(), strong.options.detect_interval);
        drop(strong);
        if shutdown.sleep_or_stop(interval).await {
            return;
        }
        let Some(strong) = shared.upgrade() else { return };
        for broker in strong.faults.unreachable() {
            match strong.routes.queue_on(&broker) {
                Some((topic, queue_id, address)) => {
                    let header = GetMaxOffsetRequestHeader {
                        topic: &topic,
                        queue_id,
                        committed: None,
                    };
                    let command = Command::request(request::GET_MAX_OFFSET).with_header(&header);
                    let timeout = strong.options.detect_timeout;
                    let answer = strong.client.request(&address, command, timeout).await;
                    if answer.is_ok() {
                        tracing::info!(broker, "broker answers again");
                        strong.faults.set_reachable(&broker);
                    }
                }
                // No route leads there any more.
                None => strong.faults.remove(&broker),
            }
        }
    }
}
