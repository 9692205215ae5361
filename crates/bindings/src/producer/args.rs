//! What a message has beside topic and body, still Python's, and how arguments of Python's are read.

use crate::producer::class::PyProducer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString};
use pyrmq_client::ClientError;
use pyrmq_client::producer::Producer;
use pyrmq_client::producer::outgoing::Properties;
use pyrmq_remoting::message::java_hash;

/// What a message has beside topic and body, as it comes from Python.
#[derive(FromPyObject)]
pub(crate) struct MessageProperties<'py> {
    pub(crate) keys: Option<Bound<'py, PyAny>>,
    pub(crate) tags: Option<Bound<'py, PyString>>,
    pub(crate) properties: Option<Bound<'py, PyDict>>,
    pub(crate) sharding_key: Option<Bound<'py, PyString>>,
    pub(crate) when: Delay,
    pub(crate) flag: i32,
}

impl MessageProperties<'_> {
    /// Checks and writes the properties; the unique id is among them.
    pub(crate) fn properties<'t>(
        &self,
        topic: &'t str,
        producer: &Producer,
    ) -> PyResult<Result<Properties<'t>, ClientError>> {
        let mut text = Properties::new(topic, producer.ids());
        Ok(self.write(&mut text)?.map(|()| text))
    }

    /// The wire form without a unique id; empty, without memory of its own, for a plain message.
    pub(crate) fn text(&self, topic: &str) -> PyResult<Result<String, ClientError>> {
        let plain = self.keys.is_none() && self.tags.is_none() && self.properties.is_none();
        if plain && self.sharding_key.is_none() && !self.is_delayed() {
            return Ok(Ok(String::new()));
        }
        let mut text = Properties::bare(topic);
        Ok(self.write(&mut text)?.and_then(|()| text.finish()))
    }

    fn write(&self, text: &mut Properties<'_>) -> PyResult<Result<(), ClientError>> {
        let mut written = Ok(());
        if let Some(keys) = &self.keys {
            written = written.and(text.push("KEYS", &keys_of(keys)?));
        }
        if let Some(tags) = &self.tags {
            written = written.and(text.push("TAGS", &tags.to_cow()?));
        }
        if let Some(key) = &self.sharding_key {
            written = written.and(text.push("__SHARDINGKEY", &key.to_cow()?));
        }
        written = written.and(self.when.write(text));
        if let Some(properties) = &self.properties {
            for (name, value) in properties {
                let (name, value) = (name.cast::<PyString>()?, value.cast::<PyString>()?);
                written = written.and(text.push_user(&name.to_cow()?, &value.to_cow()?));
            }
        }
        Ok(written)
    }

    pub(crate) fn sharding_hash(&self) -> PyResult<Option<i32>> {
        let Some(key) = &self.sharding_key else {
            return Ok(None);
        };
        Ok(Some(java_hash::hash(&key.to_cow()?)))
    }

    /// Not at once: such a message cannot be in a batch.
    pub(crate) fn is_delayed(&self) -> bool {
        !matches!(self.when, Delay::Level(0))
    }
}

/// When a message is delivered: at once (0), by a level of the broker's, or by a timer: a property and its value.
#[derive(FromPyObject)]
pub(crate) enum Delay {
    Level(i64),
    Timer(String, String),
}

impl Delay {
    fn write(&self, text: &mut Properties<'_>) -> Result<(), ClientError> {
        match self {
            Self::Level(0) => Ok(()),
            Self::Level(level) if i32::try_from(*level).is_ok_and(|level| level > 0) => {
                text.push("DELAY", &level.to_string())
            }
            Self::Level(_) => Err(text.refuse("DELAY", "a delay level is a number from 0 on")),
            Self::Timer(name, value) => text.push(name, value),
        }
    }
}

/// Several keys are one text with spaces between them.
fn keys_of(keys: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = keys.cast::<PyString>() {
        return Ok(text.to_cow()?.into_owned());
    }
    let mut joined = String::new();
    for key in keys.try_iter()? {
        let key = key?;
        let key = key
            .cast::<PyString>()
            .map_err(|_| PyTypeError::new_err(format!("a key is text, not {}", key.get_type())))?;
        if !joined.is_empty() {
            joined.push(' ');
        }
        joined.push_str(&key.to_cow()?);
    }
    Ok(joined)
}

/// Properties as a dict, whatever mapping they came in.
pub(crate) fn dict_of(properties: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyDict>> {
    match properties.cast_into::<PyDict>() {
        Ok(dict) => Ok(dict),
        Err(error) => {
            let other = error.into_inner();
            let dict = other.py().get_type::<PyDict>().call1((other,))?;
            Ok(dict.cast_into()?)
        }
    }
}

/// When a message is delivered. Times are read by Python's `when_of`.
pub(crate) fn when_of(
    py: Python<'_>,
    level: i64,
    delay: Option<Bound<'_, PyAny>>,
    deliver_at: Option<Bound<'_, PyAny>>,
) -> PyResult<Delay> {
    if delay.is_none() && deliver_at.is_none() {
        return Ok(Delay::Level(level));
    }
    let read = PyModule::import(py, "pyrmq.message")?.getattr("when_of")?;
    read.call1((level, delay, deliver_at))?.extract()
}

/// The queue that a caller means. All but numbers are read by Python's `queue_of`, which asks selectors.
pub(crate) fn queue_of(
    producer: &Py<PyProducer>,
    topic: &str,
    queue: &Bound<'_, PyAny>,
) -> PyResult<Option<(String, i32)>> {
    if let Ok(number) = queue.cast::<PyInt>() {
        return Ok(Some((String::new(), number.extract()?)));
    }
    let read = PyModule::import(queue.py(), "pyrmq._client.values")?.getattr("queue_of")?;
    read.call1((producer, topic, queue))?.extract()
}
