//! The consumer with listeners: Python threads take messages here and report their outcomes.

use crate::completion::{self, ArrivalSignal, QueueRef, ReplyTo, Value};
use crate::consumer::control::{PyControl, queue_ref_of};
use crate::consumer::settings::ConsumerSettings;
use crate::enter;
use crate::errors::Error;
use crate::received;
use crate::runtime::Owned;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use pyrmq_client::ClientError;
use pyrmq_client::consumer::listener::{Failure, Work};
use pyrmq_client::consumer::puller::Puller;
use std::time::{Duration, Instant};

/// A consumer with listeners. Frozen and shared by threads.
#[pyclass(frozen, name = "ListeningConsumer", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct PyListeningConsumer {
    puller: Owned<Puller>,
    arrival_signal: ArrivalSignal,
}

/// Messages that a listener has, until it reports their outcomes.
#[pyclass(frozen, name = "Work", module = "pyrmq._core")]
#[derive(Debug)]
pub(crate) struct PyWork {
    work: Work,
}

/// What a listener did with the message at an index: `later` with a delay level, `again` with a pause in ms, `dead`
/// or `untouched`.
fn failure(index: usize, what: &str, value: i64) -> PyResult<(usize, Failure)> {
    let failure = match what {
        "later" => Failure::Later {
            delay_level: i32::try_from(value).unwrap_or(0),
        },
        "again" => Failure::Again {
            pause: Duration::from_millis(u64::try_from(value).unwrap_or(0)),
        },
        "dead" => Failure::Dead,
        "untouched" => Failure::Untouched,
        other => return Err(PyValueError::new_err(format!("unknown outcome {other:?}"))),
    };
    Ok((index, failure))
}

#[pymethods]
impl PyListeningConsumer {
    #[new]
    fn new(py: Python<'_>, settings: ConsumerSettings) -> PyResult<Self> {
        Ok(Self {
            puller: settings.puller(py)?,
            arrival_signal: ArrivalSignal::default(),
        })
    }

    /// The part that it shares with consumers that are polled.
    fn control(&self) -> PyControl {
        PyControl::new(self.puller.clone())
    }

    /// A descriptor that is readable when there may be something to take: for event loops.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.puller.check_in(py)?;
        self.arrival_signal.fd(py, |waker| self.puller.on_arrival(waker))
    }

    /// Makes the descriptor unreadable until something arrives.
    fn hush(&self) {
        self.arrival_signal.reset();
    }

    /// The assigned queues, each with the offset that a commit would name, and the messages that listeners have.
    fn queues(&self, py: Python<'_>) -> PyResult<Vec<(QueueRef, i64, usize)>> {
        self.puller.check_in(py)?;
        let queues = self.puller.progress().into_iter();
        Ok(queues
            .map(|(key, done, in_flight)| (queue_ref_of(&self.puller, &key), done, in_flight))
            .collect())
    }

    /// Up to `max` messages of one queue; waits up to `timeout_ms` for the first. None: the time has passed. An error
    /// once the consumer takes nothing more. For threads of the package's own: a signal does not end the wait.
    fn take<'py>(
        &self,
        py: Python<'py>,
        max: usize,
        timeout_ms: u64,
    ) -> PyResult<Option<(Bound<'py, PyList>, PyWork)>> {
        self.puller.check_in(py)?;
        let deadline = Instant::now() + Duration::from_millis(timeout_ms);
        loop {
            let work = match self.puller.take_work(max) {
                Ok(work) => work,
                Err(error) => return Err(Error::from(error).into_py(py)),
            };
            if let Some(work) = work {
                let list = received::to_list(py, work.parts.clone(), &self.puller.options().client)?;
                return Ok(Some((list, PyWork { work })));
            }
            let may_be_there = enter::wait_quietly(py, |slice| {
                let left = deadline.saturating_duration_since(Instant::now());
                if self.puller.wait(slice.min(left)) {
                    return Some(true);
                }
                (left <= slice).then_some(false)
            })?;
            if self.puller.is_draining() {
                // Messages that were given back meanwhile belong to the thread that gave them back.
                return Err(Error::from(ClientError::Closed { what: "consumer" }).into_py(py));
            }
            if !may_be_there || Instant::now() >= deadline {
                return Ok(None);
            }
        }
    }

    /// Numbers of messages that are delivered again, that became dead letters, and that were skipped as unreadable.
    fn failures(&self, py: Python<'_>) -> PyResult<(u64, u64, u64)> {
        self.puller.check_in(py)?;
        let counts = self.puller.failures();
        Ok((counts.later, counts.dead, counts.unreadable))
    }

    /// Whether listeners may continue with these messages.
    fn holds(&self, py: Python<'_>, work: &PyWork) -> PyResult<bool> {
        self.puller.check_in(py)?;
        Ok(self.puller.holds(&work.work))
    }

    /// Reports the outcomes of the messages `first` to `end - 1`: all that `failed` does not name are done. Messages
    /// that were finished before are skipped.
    fn finish(
        &self,
        py: Python<'_>,
        work: &PyWork,
        first: usize,
        end: usize,
        failed: Vec<(usize, String, i64)>,
    ) -> PyResult<()> {
        self.puller.check_in(py)?;
        let failed = failed
            .into_iter()
            .map(|(index, what, value)| failure(index, &what, value))
            .collect::<PyResult<Vec<_>>>()?;
        if failed.is_empty() {
            // Quicker than to hand the interpreter to another thread and wait for it again.
            self.puller.finish(&work.work, first..end, &failed);
        } else {
            py.detach(|| self.puller.finish(&work.work, first..end, &failed));
        }
        Ok(())
    }

    /// From now on hands out only what a clean end needs, and waits until messages that are being handed back have
    /// reached their brokers. False: the time passed before. In a forked child nothing is done: it is the parent's.
    /// With `to` the outcome goes there: see `completion::run`.
    #[pyo3(signature = (timeout_ms, to=None))]
    fn drain(&self, py: Python<'_>, timeout_ms: u64, to: Option<ReplyTo>) -> PyResult<Py<PyAny>> {
        if to.is_none() && !self.puller.is_here() {
            return Value::from(true).into_py(py);
        }
        self.puller.check_in(py)?;
        let time = Duration::from_millis(timeout_ms);
        let puller = self.puller.clone();
        completion::run(py, to, async move { Ok(puller.drain(time).await) })
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyListeningConsumer>()?;
    module.add_class::<PyWork>()
}
