//! Many messages in one call: from a Python iterable into batch frames, and their outcomes back, one for each.
//!
//! A frame leaves as soon as it is full, so encoding goes on while the first answers come. Messages with a sharding
//! key or a queue of their own are grouped by queue; a delayed one cannot be in a batch (brokers refuse it) and goes
//! as a frame of its own.

use crate::enter;
use crate::errors::Error;
use crate::outcome::{PySendResult, Waiter};
use crate::producer::{BodyRef, Extras, PyProducer, target_of};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use pyrmq_client::ClientError;
use pyrmq_client::accumulate::Accumulator;
use pyrmq_client::draft::{Draft, Target, check_topic};
use pyrmq_routing::select;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A frame on its way, and which messages of the call are in it.
struct Frame {
    members: Vec<u32>,
    waiter: Arc<Waiter>,
}

/// One call under way.
struct Call<'a, 'py> {
    producer: &'a PyProducer,
    py: Python<'py>,
    topic: Arc<str>,
    batch_bytes: usize,
    timeout: Duration,
    open: BTreeMap<Place, (Accumulator, Vec<u32>)>,
    frames: Vec<Frame>,
    count: u32,
}

/// What separates batches of one topic: the queue, when the message names one.
type Place = Option<(Arc<str>, i32)>;

#[expect(clippy::too_many_arguments, reason = "called by one line of Python")]
pub(crate) fn send<'py>(
    producer: &PyProducer,
    py: Python<'py>,
    topic: &str,
    messages: &Bound<'py, PyAny>,
    extras: &Extras<'py>,
    queue: Option<&(String, i32)>,
    batch_bytes: usize,
    timeout_ms: Option<u64>,
) -> PyResult<Bound<'py, PyList>> {
    check_topic(topic).map_err(|error| Error::from(error).into_py(py))?;
    let mut call = Call {
        producer,
        py,
        topic: topic.into(),
        batch_bytes: batch_bytes.min(producer.producer.options().max_message_bytes),
        timeout: producer.timeout(timeout_ms),
        open: BTreeMap::new(),
        frames: Vec::new(),
        count: 0,
    };
    for message in messages.try_iter()? {
        let message = message?;
        if message.is_instance_of::<PyBytes>() || message.is_instance_of::<PyString>() {
            call.add(&message, extras, queue)?;
        } else if let Ok(body) = message.getattr("body") {
            let own: Extras<'py> = message.extract()?;
            call.add(&body, &own, queue)?;
        } else {
            call.add(&message, extras, queue)?;
        }
    }
    call.finish()
}

impl<'py> Call<'_, 'py> {
    fn raise(&self, error: ClientError) -> PyErr {
        Error::from(error).into_py(self.py)
    }

    fn add(
        &mut self,
        body: &Bound<'py, PyAny>,
        extras: &Extras<'py>,
        queue: Option<&(String, i32)>,
    ) -> PyResult<()> {
        let topic = self.topic.clone();
        let body = BodyRef::of(body)?;
        let producer = &self.producer.producer;
        producer
            .check_size(&topic, body.as_slice().len())
            .map_err(|error| self.raise(error))?;
        let properties = extras
            .properties(&topic, producer)?
            .map_err(|error| self.raise(error))?;
        let id = properties.message_id().to_owned();
        let properties = properties.finish().map_err(|error| self.raise(error))?;
        if extras.delay_level() > 0 {
            let target = target_of(queue.cloned(), extras.sharding_hash()?);
            let body = bytes::Bytes::copy_from_slice(body.as_slice());
            let draft = producer
                .draft(&topic, body, properties, id, extras.flag(), target)
                .map_err(|error| self.raise(error))?;
            let member = self.next();
            return self.launch(draft, vec![member]);
        }
        let place = self.place(extras, queue)?;
        let member = self.next();
        let (py, limit) = (self.py, self.batch_bytes);
        let (accumulator, members) = self.open.entry(place.clone()).or_insert_with(|| {
            let target = place.as_ref().map_or(Target::Any, |(broker, id)| Target::Queue {
                broker: broker.clone(),
                id: *id,
            });
            (Accumulator::new(topic, target, limit), Vec::new())
        });
        let full = (!accumulator.fits(body.as_slice().len(), properties.len()))
            .then(|| (accumulator.take(), std::mem::take(members)));
        accumulator
            .push(body.as_slice(), &properties, &id, extras.flag())
            .map_err(|error| Error::from(error).into_py(py))?;
        members.push(member);
        match full {
            Some((draft, members)) => self.launch(draft, members),
            None => Ok(()),
        }
    }

    fn next(&mut self) -> u32 {
        self.count += 1;
        self.count - 1
    }

    /// The queue of a message that names one, by itself or by its sharding key.
    fn place(&self, extras: &Extras<'py>, queue: Option<&(String, i32)>) -> PyResult<Place> {
        if let Some((broker, id)) = queue {
            return Ok(Some((broker.as_str().into(), *id)));
        }
        let Some(hash) = extras.sharding_hash()? else {
            return Ok(None);
        };
        let routes = self.producer.producer.routes();
        let route = match routes.known(&self.topic) {
            Some(route) => route,
            None => enter::block_on(self.py, routes.get(&self.topic))?,
        };
        let queues = &route.published.queues;
        let at = select::by_number(i64::from(hash), queues.len());
        Ok(at
            .and_then(|at| queues.get(at))
            .map(|queue| (queue.broker.clone(), queue.queue_id)))
    }

    fn launch(&mut self, draft: Draft, members: Vec<u32>) -> PyResult<()> {
        let deadline = Instant::now() + self.timeout;
        self.producer
            .enter(self.py, members.len(), draft.body.len(), deadline)?;
        let waiter: Arc<Waiter> = Arc::default();
        let slot = waiter.clone();
        self.producer
            .producer
            .send(draft, self.timeout, Box::new(move |outcome| slot.set(outcome)));
        self.frames.push(Frame { members, waiter });
        Ok(())
    }

    /// Sends what is left and waits for everything.
    fn finish(mut self) -> PyResult<Bound<'py, PyList>> {
        for (_, (mut accumulator, members)) in std::mem::take(&mut self.open) {
            if !accumulator.is_empty() {
                self.launch(accumulator.take(), members)?;
            }
        }
        let py = self.py;
        let mut results: Vec<Option<Py<PyAny>>> = Vec::new();
        results.resize_with(self.count as usize, || None);
        for frame in self.frames {
            let outcome = enter::wait(py, |slice| frame.waiter.wait(slice))?;
            let shared = outcome.map(Arc::new);
            for (item, member) in (0..).zip(frame.members) {
                let value = match &shared {
                    Ok(result) => Py::new(py, PySendResult::item(result.clone(), item))?.into_any(),
                    Err(error) => Error::from(error.clone()).into_py(py).into_value(py).into_any(),
                };
                if let Some(slot) = results.get_mut(member as usize) {
                    *slot = Some(value);
                }
            }
        }
        PyList::new(py, results)
    }
}
