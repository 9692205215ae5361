//! The options of a message besides topic and body, and how they are read from Python.
//!
//! All verbs take the same keyword arguments for a message. They arrive as a Python dict and are read here, once. Their
//! types and documentation are those of `pyrmq.message.MessageOptions`.

use crate::errors::Error;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString};
use pyrmq_client::ClientError;
use pyrmq_client::producer::Producer;
use pyrmq_client::producer::outgoing::Properties;
use pyrmq_remoting::message::java_hash;
use pyrmq_remoting::message::properties::{MAX_BYTES, names};

/// The kind of a send. Not every kind accepts every option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One message: `send`, `send_async` and `produce`.
    Send,
    Batch,
    Oneway,
    Request,
    Reply,
    /// The first half of a transaction.
    Half,
}

use Kind::{Batch, Half, Oneway, Reply, Request, Send};

/// The kinds by the names that hooks use.
const KINDS: [(&str, Kind); 6] = [
    ("send", Send),
    ("batch", Batch),
    ("oneway", Oneway),
    ("request", Request),
    ("reply", Reply),
    ("half", Half),
];

/// An option of a message.
struct MessageOption {
    name: &'static str,
    /// The kinds of a send that accept it.
    kinds: &'static [Kind],
    read: for<'py> fn(&mut Given<'py>, &str, &Bound<'py, PyAny>) -> PyResult<()>,
}

/// All options. The order is that of `option_names`.
const OPTIONS: [MessageOption; 9] = [
    MessageOption {
        name: "keys",
        kinds: &[Send, Batch, Oneway, Request, Reply, Half],
        read: |given, name, value| argument(name, value).map(|keys| given.message.keys = keys),
    },
    MessageOption {
        name: "tags",
        kinds: &[Send, Batch, Oneway, Request, Reply, Half],
        read: |given, name, value| argument(name, value).map(|tags| given.message.tags = tags),
    },
    MessageOption {
        name: "properties",
        kinds: &[Send, Batch, Oneway, Request, Reply, Half],
        read: |given, _, value| {
            let properties = (!value.is_none()).then(|| dict_of(value.clone()));
            given.message.properties = properties.transpose()?;
            Ok(())
        },
    },
    MessageOption {
        name: "queue",
        kinds: &[Send, Batch, Oneway, Request, Half],
        read: |given, name, value| argument(name, value).map(|queue| given.queue = queue),
    },
    MessageOption {
        name: "sharding_key",
        kinds: &[Send, Batch, Oneway],
        read: |given, name, value| argument(name, value).map(|key| given.message.sharding_key = key),
    },
    MessageOption {
        name: "flag",
        kinds: &[Send, Half],
        read: |given, name, value| argument(name, value).map(|flag| given.message.flag = flag),
    },
    MessageOption {
        name: "delay_level",
        kinds: &[Send],
        read: |given, name, value| argument(name, value).map(|level| given.delay_level = level),
    },
    MessageOption {
        name: "delay",
        kinds: &[Send],
        read: |given, name, value| argument(name, value).map(|delay| given.delay = delay),
    },
    MessageOption {
        name: "deliver_at",
        kinds: &[Send],
        read: |given, name, value| argument(name, value).map(|at| given.deliver_at = at),
    },
];

/// What has been read of a call's options so far. Three of them decide together when the message is delivered.
#[derive(Default)]
struct Given<'py> {
    message: MessageProperties<'py>,
    queue: Option<Bound<'py, PyAny>>,
    delay_level: DelayLevel,
    delay: Option<Bound<'py, PyAny>>,
    deliver_at: Option<Bound<'py, PyAny>>,
}

impl Kind {
    pub(crate) fn of(name: &str) -> PyResult<Self> {
        let found = KINDS.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, kind)| *kind)
            .ok_or_else(|| PyTypeError::new_err(format!("there is no kind of send named {name:?}")))
    }

    fn options(self) -> impl Iterator<Item = &'static MessageOption> {
        OPTIONS.iter().filter(move |option| option.kinds.contains(&self))
    }

    /// The option of this name. An unknown one is an error that suggests the closest known name.
    fn option(self, py: Python<'_>, name: &str) -> PyResult<&'static MessageOption> {
        self.options()
            .find(|option| option.name == name)
            .ok_or_else(|| unexpected(py, self, name))
    }
}

fn unexpected(py: Python<'_>, kind: Kind, name: &str) -> PyErr {
    let known: Vec<_> = kind.options().map(|option| option.name).collect();
    let near = PyModule::import(py, "difflib")
        .and_then(|difflib| difflib.call_method1("get_close_matches", (name, known, 1)))
        .and_then(|near| near.extract::<Vec<String>>());
    let hint = match near.ok().and_then(|near| near.into_iter().next()) {
        Some(near) => format!(", did you mean '{near}'?"),
        None => String::new(),
    };
    PyTypeError::new_err(format!("got an unexpected keyword argument '{name}'{hint}"))
}

/// Raises for an option that this kind of send does not accept.
#[pyfunction]
fn check_options(kind: &str, options: &Bound<'_, PyDict>) -> PyResult<()> {
    let kind = Kind::of(kind)?;
    for name in options.keys() {
        kind.option(options.py(), &name.cast::<PyString>()?.to_cow()?)?;
    }
    Ok(())
}

/// The options that a kind of send accepts.
#[pyfunction]
fn option_names(kind: &str) -> PyResult<Vec<&'static str>> {
    Ok(Kind::of(kind)?.options().map(|option| option.name).collect())
}

/// The options of a message as Python gives them: the keyword arguments of a call, or the attributes of a
/// `pyrmq.Message`.
#[derive(Default, FromPyObject)]
pub(crate) struct MessageProperties<'py> {
    pub(crate) keys: Option<Bound<'py, PyAny>>,
    pub(crate) tags: Option<Bound<'py, PyString>>,
    pub(crate) properties: Option<Bound<'py, PyDict>>,
    pub(crate) sharding_key: Option<Bound<'py, PyString>>,
    pub(crate) when: Delay,
    pub(crate) flag: Flag,
}

impl<'py> MessageProperties<'py> {
    /// Reads the attributes of a `pyrmq.Message`.
    pub(crate) fn of_message(message: &Bound<'py, PyAny>) -> PyResult<Self> {
        message.extract().map_err(|error: PyErr| {
            // pyo3's error names the attribute that it could not read; the cause of that error says what is wrong with
            // the value.
            let py = message.py();
            let cause = error
                .cause(py)
                .filter(|cause| !cause.is_instance_of::<PyTypeError>(py));
            cause.unwrap_or(error)
        })
    }
}

/// A message's flag, a signed 32-bit integer.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Flag(pub(crate) i32);

impl<'a, 'py> FromPyObject<'a, 'py> for Flag {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        int32("flag", &value).map(Self)
    }
}

/// A delay level. A number that does not fit into 64 bits becomes the largest, which is refused like every level that
/// is too large.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct DelayLevel(pub(crate) i64);

impl<'a, 'py> FromPyObject<'a, 'py> for DelayLevel {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match value.extract::<i64>() {
            Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => Ok(Self(i64::MAX)),
            level => level.map(Self),
        }
    }
}

/// Reads a 32-bit option. The error names the range.
fn int32(option: &str, value: &Bound<'_, PyAny>) -> PyResult<i32> {
    let py = value.py();
    value.extract().map_err(|error: PyErr| {
        if !error.is_instance_of::<PyOverflowError>(py) {
            return error;
        }
        let range = "a whole number from -2147483648 to 2147483647";
        let text = format!("option `{option}` is {value}, it must be {range}");
        Error::Config { text }.into_py(py)
    })
}

/// The queue that a call names (broker name or empty, queue id), and the milliseconds that are left to the call.
pub(crate) type QueueAndTime = (Option<(String, i32)>, Option<u64>);

/// The options of a sending call. The queue remains a Python value, since a selector may need the route.
#[derive(Default)]
pub(crate) struct SendArgs<'py> {
    pub(crate) properties: MessageProperties<'py>,
    pub(crate) queue: Option<Bound<'py, PyAny>>,
}

impl<'py> SendArgs<'py> {
    /// Reads the options of a call. A message without options costs nothing here.
    pub(crate) fn read(kind: Kind, options: &Bound<'py, PyDict>) -> PyResult<Self> {
        let py = options.py();
        let mut given = Given::default();
        for (name, value) in options {
            let name = name.cast::<PyString>()?.to_cow()?;
            (kind.option(py, &name)?.read)(&mut given, &name, &value)?;
        }
        let mut properties = given.message;
        properties.when = when_of(py, given.delay_level, given.delay, given.deliver_at)?;
        let queue = given.queue;
        Ok(Self { properties, queue })
    }
}

/// Extracts one argument. The error names it.
fn argument<'a, 'py, T: FromPyObject<'a, 'py>>(name: &str, value: &'a Bound<'py, PyAny>) -> PyResult<T> {
    value.extract().map_err(|error: T::Error| {
        let error: PyErr = error.into();
        if !error.is_instance_of::<PyTypeError>(value.py()) {
            return error;
        }
        let text = error.value(value.py());
        PyTypeError::new_err(format!("argument '{name}': {text}"))
    })
}

impl MessageProperties<'_> {
    /// A new unique id, and the encoded properties with it and with `system`, RocketMQ's own ones.
    pub(crate) fn encode(
        &self,
        py: Python<'_>,
        topic: &str,
        producer: &Producer,
        system: &[(String, String)],
    ) -> PyResult<(String, String)> {
        let raise = |error: ClientError| Error::from(error).into_py(py);
        let mut text = Properties::new(topic, producer.ids());
        self.write(&mut text)?.map_err(raise)?;
        for (name, value) in system {
            text.push(name, value).map_err(raise)?;
        }
        let id = text.message_id().to_owned();
        Ok((id, text.finish().map_err(raise)?))
    }

    /// The encoded properties without a unique id. Empty, without an allocation, for a message without options.
    pub(crate) fn encode_bare(&self, topic: &str) -> PyResult<Result<String, ClientError>> {
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
            written = written.and(match keys.cast::<PyString>() {
                Ok(one) => text.push(names::KEYS, &one.to_cow()?),
                Err(_) => text.push(names::KEYS, &joined(keys)?.to_cow()?),
            });
        }
        if let Some(tags) = &self.tags {
            written = written.and(text.push(names::TAGS, &tags.to_cow()?));
        }
        if let Some(key) = &self.sharding_key {
            written = written.and(text.push(names::SHARDINGKEY, &key.to_cow()?));
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

    /// Whether the message is delivered later. Such a message cannot be in a batch.
    pub(crate) fn is_delayed(&self) -> bool {
        !matches!(self.when, Delay::Level(DelayLevel(0)))
    }
}

/// When a message is delivered: at once (0), after a delay level, or by the timer (a property and its value).
#[derive(FromPyObject)]
pub(crate) enum Delay {
    Level(DelayLevel),
    Timer(String, String),
}

impl Default for Delay {
    fn default() -> Self {
        Self::Level(DelayLevel(0))
    }
}

impl Delay {
    fn write(&self, text: &mut Properties<'_>) -> Result<(), ClientError> {
        match self {
            Self::Level(DelayLevel(0)) => Ok(()),
            Self::Level(DelayLevel(level)) if i32::try_from(*level).is_ok_and(|level| level > 0) => {
                text.push(names::DELAY, &level.to_string())
            }
            Self::Level(_) => Err(text.refuse(names::DELAY, "a delay level is a number of at least 0")),
            Self::Timer(name, value) => text.push(name, value),
        }
    }
}

/// Joins several keys with spaces, as RocketMQ stores them.
fn joined<'py>(keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
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
    Ok(PyString::new(keys.py(), &joined))
}

/// Properties as a dict, from any mapping.
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

/// When a message is delivered. Python's `when_of` reads times.
pub(crate) fn when_of(
    py: Python<'_>,
    level: DelayLevel,
    delay: Option<Bound<'_, PyAny>>,
    deliver_at: Option<Bound<'_, PyAny>>,
) -> PyResult<Delay> {
    if delay.is_none() && deliver_at.is_none() {
        return Ok(Delay::Level(level));
    }
    let read = PyModule::import(py, "pyrmq.message")?.getattr("when_of")?;
    read.call1((level.0, delay, deliver_at))?.extract()
}

/// The queue that a caller names. Python's `queue_of` reads everything but integers, since it calls selectors.
pub(crate) fn queue_of<'py>(
    producer: &Bound<'py, PyAny>,
    topic: &str,
    queue: &Bound<'py, PyAny>,
) -> PyResult<Option<(String, i32)>> {
    if let Ok(number) = queue.cast::<PyInt>() {
        return Ok(Some((String::new(), int32("queue", number)?)));
    }
    let read = PyModule::import(queue.py(), "pyrmq._client.values")?.getattr("queue_of")?;
    read.call1((producer, topic, queue))?.extract()
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("MAX_PROPERTIES_BYTES", MAX_BYTES)?;
    module.add_function(wrap_pyfunction!(check_options, module)?)?;
    module.add_function(wrap_pyfunction!(option_names, module)?)
}
