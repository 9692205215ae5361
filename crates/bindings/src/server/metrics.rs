//! The broker's metrics as Python's metrics port takes them.

use crate::enter;
use crate::errors::Error;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyrmq_broker::context::BrokerContext;
use pyrmq_broker::metrics;

/// One dictionary with a list for each kind; the lists are read without the interpreter.
pub(crate) fn read<'py>(py: Python<'py>, context: &BrokerContext) -> PyResult<Bound<'py, PyDict>> {
    let (topics, groups, consumers, counters, held, revive, times, oldest_ms) = enter::compute(py, || {
        Ok::<_, Error>((
            metrics::topics(context),
            metrics::groups(context),
            metrics::consumers(context),
            metrics::counters(context),
            metrics::held(context),
            metrics::revive(context),
            (context.store.flush_times(), context.store.flush_waits()),
            context.earliest_ms(),
        ))
    })?;
    let topics: Vec<_> = (topics.into_iter())
        .map(|of| (of.topic, of.is_system, of.messages_in, of.bytes_in, of.queues))
        .collect();
    let groups: Vec<_> = (groups.into_iter())
        .map(|of| {
            let totals = of.totals;
            (
                (of.group, of.topic),
                (
                    totals.messages_out,
                    totals.bytes_out,
                    totals.sent_back,
                    totals.dead_letters,
                ),
                of.lag,
                of.in_flight,
            )
        })
        .collect();
    let revive: Vec<_> = (revive.into_iter())
        .map(|of| (of.queue_id, of.behind, of.late_ms))
        .collect();
    let (flushes, waits) = times;
    let flushes: Vec<_> = (flushes.into_iter())
        .map(|of| (of.name, of.buckets, of.sum_us))
        .collect();
    let all = PyDict::new(py);
    all.set_item("topics", topics)?;
    all.set_item("groups", groups)?;
    all.set_item("consumers", consumers)?;
    all.set_item("counters", counters)?;
    all.set_item("held", held)?;
    all.set_item("revive", revive)?;
    all.set_item("flushes", flushes)?;
    all.set_item("flush_waits", (waits.buckets, waits.sum_us))?;
    all.set_item("oldest_ms", oldest_ms)?;
    Ok(all)
}

/// How old the oldest message that waits for each group on its topic is, ms.
pub(crate) fn lag_ms(context: &BrokerContext, pairs: &[(String, String)]) -> Vec<i64> {
    let pairs = pairs.iter();
    pairs
        .map(|(group, topic)| metrics::lag_ms(context, group, topic))
        .collect()
}
