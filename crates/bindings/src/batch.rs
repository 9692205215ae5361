//! Many messages in one call: from a Python iterable into batch frames, and their outcomes back, one for each.
//!
//! A frame leaves as soon as it is full, so encoding goes on while the first answers come. Messages with a sharding
//! key or a queue of their own are grouped by queue; a delayed one cannot be in a batch (brokers refuse it) and goes
//! as a frame of its own.

use crate::enter;
use crate::errors::Error;
use crate::outcome::{BatchPart, batch_list};
use crate::own::Extras;
use crate::producer::{BodyRef, PyProducer, target_of};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use pyrmq_client::ClientError;
use pyrmq_client::batch::Batch;
use pyrmq_client::draft::{Draft, Target, check_topic};
use pyrmq_client::producer::Producer;
use pyrmq_routing::select;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where the outcomes of a call's frames come together. Whoever brings the last one ends the call.
struct Gathered {
    // Guards what has come.
    state: Mutex<Arrived>,
    done: Condvar,
}

struct Arrived {
    expected: Option<usize>,
    parts: Vec<BatchPart>,
    then: Option<Box<dyn FnOnce(Vec<BatchPart>) + Send>>,
}

impl Gathered {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(Arrived {
                expected: None,
                parts: Vec::new(),
                then: None,
            }),
            done: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, Arrived> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bring(&self, part: BatchPart) {
        let mut state = self.state();
        state.parts.push(part);
        self.end_if_whole(state);
    }

    fn end_if_whole(&self, mut state: MutexGuard<'_, Arrived>) {
        if state.expected != Some(state.parts.len()) {
            return;
        }
        match state.then.take() {
            Some(then) => {
                let parts = std::mem::take(&mut state.parts);
                drop(state);
                then(parts);
            }
            None => self.done.notify_all(),
        }
    }

    /// So many frames were sent.
    fn expect(&self, frames: usize) {
        let mut state = self.state();
        state.expected = Some(frames);
        self.end_if_whole(state);
    }

    fn wait(&self, slice: Duration) -> Option<Vec<BatchPart>> {
        let state = self.state();
        let (mut state, _) = self
            .done
            .wait_timeout_while(state, slice, |state| state.expected != Some(state.parts.len()))
            .unwrap_or_else(PoisonError::into_inner);
        (state.expected == Some(state.parts.len())).then(|| std::mem::take(&mut state.parts))
    }
}

/// One call under way.
struct Call<'a, 'py> {
    producer: &'a PyProducer,
    py: Python<'py>,
    topic: Arc<str>,
    batch_bytes: usize,
    timeout: Duration,
    open: BTreeMap<Place, (Batch, Vec<u32>)>,
    gathered: Arc<Gathered>,
    frames: usize,
    count: u32,
    /// Frames wait for room; an event loop's do not, it has asked for room before.
    waits: bool,
    /// Topics of batches keep each as one record.
    inner: bool,
}

/// What separates batches of one topic: the queue, when the message names one.
type Place = Option<(Arc<str>, i32)>;

/// How a call's messages are sent.
pub(crate) struct Plan<'a, 'py> {
    pub(crate) topic: &'a str,
    pub(crate) extras: &'a Extras<'py>,
    pub(crate) queue: Option<&'a (String, i32)>,
    pub(crate) batch_bytes: usize,
    pub(crate) timeout: Duration,
    pub(crate) inner: bool,
}

/// Sends everything and waits for all outcomes.
pub(crate) fn send<'py>(
    producer: &PyProducer,
    py: Python<'py>,
    messages: &Bound<'py, PyAny>,
    plan: &Plan<'_, 'py>,
) -> PyResult<Bound<'py, PyList>> {
    let (gathered, frames) = launch_all(producer, py, messages, plan, true)?;
    gathered.expect(frames);
    let parts = enter::wait(py, |slice| gathered.wait(slice))?;
    batch_list(py, parts)
}

/// Sends everything; the outcomes go to `then` when all are there.
pub(crate) fn send_then<'py>(
    producer: &PyProducer,
    py: Python<'py>,
    messages: &Bound<'py, PyAny>,
    plan: &Plan<'_, 'py>,
    then: Box<dyn FnOnce(Vec<BatchPart>) + Send>,
) -> PyResult<()> {
    let (gathered, frames) = launch_all(producer, py, messages, plan, false)?;
    gathered.state().then = Some(then);
    gathered.expect(frames);
    Ok(())
}

fn launch_all<'py>(
    producer: &PyProducer,
    py: Python<'py>,
    messages: &Bound<'py, PyAny>,
    plan: &Plan<'_, 'py>,
    waits: bool,
) -> PyResult<(Arc<Gathered>, usize)> {
    check_topic(plan.topic).map_err(|error| Error::from(error).into_py(py))?;
    let mut call = Call {
        producer,
        py,
        topic: producer.producer.topic(plan.topic),
        batch_bytes: plan
            .batch_bytes
            .min(producer.producer.options().max_message_bytes),
        timeout: plan.timeout,
        open: BTreeMap::new(),
        gathered: Gathered::new(),
        frames: 0,
        count: 0,
        waits,
        inner: plan.inner,
    };
    for message in messages.try_iter()? {
        let message = message?;
        if message.is_instance_of::<PyBytes>() || message.is_instance_of::<PyString>() {
            call.add(&message, plan.extras, plan.queue)?;
        } else if let Ok(body) = message.getattr("body") {
            let own: Extras<'py> = message.extract()?;
            check_same_topic(&message, plan.topic)?;
            call.add(&body, &own, plan.queue)?;
        } else {
            call.add(&message, plan.extras, plan.queue)?;
        }
    }
    call.finish()?;
    Ok((call.gathered, call.frames))
}

/// A message that names another topic than its call is a mistake, not a wish.
fn check_same_topic(message: &Bound<'_, PyAny>, topic: &str) -> PyResult<()> {
    let own = message.getattr("topic")?;
    let own = own.cast::<PyString>()?.to_cow()?;
    if own == topic {
        return Ok(());
    }
    let mixed = ClientError::MixedTopics {
        topic: topic.to_owned(),
        other: own.into_owned(),
    };
    Err(Error::from(mixed).into_py(message.py()))
}

fn taken(open: &mut Batch, inner: bool, producer: &Producer) -> Draft {
    if inner {
        open.take_inner(producer.ids())
    } else {
        open.take()
    }
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
        if extras.is_delayed() {
            let target = target_of(queue.cloned(), extras.sharding_hash()?);
            let body = bytes::Bytes::copy_from_slice(body.as_slice());
            let draft = producer
                .draft(&topic, body, properties, id, extras.flag, target)
                .map_err(|error| self.raise(error))?;
            let member = self.next();
            return self.launch(draft, vec![member]);
        }
        let place = self.place(extras, queue)?;
        let member = self.next();
        let (py, limit, inner) = (self.py, self.batch_bytes, self.inner);
        let (open, members) = self.open.entry(place.clone()).or_insert_with(|| {
            let target = place.as_ref().map_or(Target::Any, |(broker, id)| Target::Queue {
                broker: broker.clone(),
                id: *id,
            });
            (Batch::new(topic, target, limit), Vec::new())
        });
        let full = (!open.fits(body.as_slice().len(), properties.len()))
            .then(|| (taken(open, inner, producer), std::mem::take(members)));
        open.push(body.as_slice(), &properties, &id, extras.flag)
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
            None => enter::block_on(self.py, routes.get_within(&self.topic, self.timeout))?,
        };
        let queues = &route.published.queues;
        let at = select::by_number(i64::from(hash), queues.len());
        Ok(at
            .and_then(|at| queues.get(at))
            .map(|queue| (queue.broker.clone(), queue.queue_id)))
    }

    fn launch(&mut self, draft: Draft, members: Vec<u32>) -> PyResult<()> {
        if self.waits {
            let deadline = Instant::now() + self.timeout;
            self.producer
                .enter(self.py, members.len(), draft.counted, deadline)?;
        } else {
            let gate = self.producer.producer.gate();
            gate.enter_anyway(members.len(), draft.counted);
        }
        let gathered = self.gathered.clone();
        let done = Box::new(move |outcome| gathered.bring((members, outcome)));
        self.producer.producer.send(draft, self.timeout, done);
        self.frames += 1;
        Ok(())
    }

    /// Sends what is left.
    fn finish(&mut self) -> PyResult<()> {
        for (_, (mut open, members)) in std::mem::take(&mut self.open) {
            if !open.is_empty() {
                let draft = taken(&mut open, self.inner, &self.producer.producer);
                self.launch(draft, members)?;
            }
        }
        Ok(())
    }
}
