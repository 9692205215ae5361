//! What a message has beside topic and body, still Python's, and how arguments of Python's are read.

use crate::producer::{Delay, PyProducer, keys_of};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString};
use pyrmq_client::ClientError;
use pyrmq_client::draft::Properties;

/// A message's own properties.
pub(crate) struct Own<'py> {
    pub(crate) keys: Option<Bound<'py, PyAny>>,
    pub(crate) tags: Option<Bound<'py, PyString>>,
    pub(crate) properties: Option<Bound<'py, PyDict>>,
    pub(crate) sharding_key: Option<Bound<'py, PyString>>,
    pub(crate) delay: Delay,
}

impl Own<'_> {
    /// The wire form; empty, without memory of its own, for a plain message.
    pub(crate) fn text(&self, topic: &str) -> PyResult<Result<String, ClientError>> {
        let plain = self.keys.is_none() && self.tags.is_none() && self.properties.is_none();
        if plain && self.sharding_key.is_none() && !self.delay.is_some() {
            return Ok(Ok(String::new()));
        }
        let mut text = Properties::bare(topic);
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
        written = written.and(self.delay.write(&mut text));
        if let Some(properties) = &self.properties {
            for (name, value) in properties {
                let (name, value) = (name.cast::<PyString>()?, value.cast::<PyString>()?);
                written = written.and(text.push_user(&name.to_cow()?, &value.to_cow()?));
            }
        }
        Ok(written.and_then(|()| text.finish()))
    }
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
