//! Every error that can reach Python, and the class of `pyrmq.errors` that it becomes.
//!
//! No variant falls to an arm `_`: clippy refuses that, also where an enum that may grow forces such an arm. So a new
//! variant is not merged until its Python class is chosen. The classes themselves are written in Python (fields,
//! docstrings, tree) and looked up when an error is raised.
#![warn(clippy::wildcard_enum_match_arm)]

use pyo3::exceptions::{PyFileNotFoundError, PyImportError, PyOSError, PyPermissionError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyModule, PyTuple};
use pyrmq_auth::AuthError;
use pyrmq_broker::BrokerError;
use pyrmq_client::ClientError;
use pyrmq_client::error::{Attempt, SendFailure, Uncommitted};
use pyrmq_client::reader::RangeError;
use pyrmq_nameserver::NameServerError;
use pyrmq_remoting::WireError;
use pyrmq_remoting::net::NetError;
use pyrmq_routing::allocate::AllocateError;
use pyrmq_routing::filter::{FilterError, Mismatch};
use pyrmq_store::StoreError;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// Everything that can fail in this crate.
#[derive(Debug, Error)]
pub(crate) enum Error {
    /// A handle of the parent process was used in a forked child.
    #[error(
        "{what} was opened in process {opened} and cannot be used in its forked child {pid}: open a new one there"
    )]
    Forked {
        what: &'static str,
        opened: u32,
        pid: u32,
    },
    /// A handle was used after it was closed.
    #[error("{what} is closed")]
    Closed { what: &'static str },
    /// The runtime's threads could not be started.
    #[error("cannot start the runtime's threads: {cause}")]
    Runtime { cause: std::io::Error },
    /// An argument or option with an unusable value.
    #[error("{text}")]
    Config { text: String },
    /// Bytes that do not follow the format.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A message whose bytes do not follow the format.
    #[error("cannot read {what}: {source}")]
    Message { what: String, source: WireError },
    /// A request got no answer.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A producer's or consumer's call failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A range of a queue could not be read.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// A broker did not start or stop as asked.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// A name server did not start or change as asked.
    #[error(transparent)]
    NameServer(#[from] NameServerError),
    /// A log's files could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A place in a log where no record can be read.
    #[error(
        "{} cannot be read at position {position}: {reason}; onCorrupt=skip reads on at the next good record, and \
         `pyrmq log verify` shows all such places",
        path.display()
    )]
    DamagedLog {
        path: PathBuf,
        position: i64,
        reason: String,
    },
    /// A message of a log whose body cannot be read.
    #[error("{}: {text}; onBadMessage=null or skip reads on without it", path.display())]
    LogMessage { path: PathBuf, text: String },
    /// A filter that cannot be read.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// A value that a filter cannot compare.
    #[error("the comparison at character {position} of the filter has no result: {mismatch}")]
    NoResult { position: usize, mismatch: Mismatch },
    /// Users and policies that cannot be used.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// Queues that cannot be allocated.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
}

impl Error {
    /// The Python exception, ready to raise.
    pub(crate) fn into_py(self, py: Python<'_>) -> PyErr {
        let text = self.to_string();
        let made = match self {
            Self::Forked { .. } => raise(py, "ForkError", &text, &[]),
            Self::Closed { .. } => raise(py, "ClosedError", &text, &[]),
            Self::Runtime { .. } => raise(py, "RmqError", &text, &[]),
            Self::Config { .. } | Self::Allocate(_) | Self::Auth(_) => raise(py, "ConfigError", &text, &[]),
            Self::Wire(_) | Self::Message { .. } | Self::DamagedLog { .. } | Self::LogMessage { .. } => {
                raise(py, "ProtocolError", &text, &[])
            }
            Self::Net(error) => raise_net(py, &text, &error, Vec::new()),
            Self::Range(error) => raise_range(py, &text, &error),
            Self::Client(error) => raise_client(py, &text, error),
            Self::Broker(BrokerError::Store(error @ StoreError::BadOption { .. })) => {
                raise(py, "ConfigError", &error.to_string(), &[])
            }
            Self::Broker(BrokerError::Option { .. })
            | Self::NameServer(NameServerError::Option { .. } | NameServerError::NotLive { .. }) => {
                raise(py, "ConfigError", &text, &[])
            }
            Self::Store(error) => raise_store(py, &text, &error),
            Self::Broker(_) | Self::NameServer(_) => raise(py, "ServerError", &text, &[]),
            Self::Filter(FilterError { position, .. }) | Self::NoResult { position, .. } => {
                let position = Value::Int(i64::try_from(position).unwrap_or(i64::MAX));
                raise(py, "FilterError", &text, &[("position", position)])
            }
        };
        made.unwrap_or_else(|failed| failed)
    }
}

/// A file that cannot be opened or read raises an `OSError`; the other errors say what is wrong with the directory.
fn raise_store(py: Python<'_>, text: &str, error: &StoreError) -> PyResult<PyErr> {
    match error {
        StoreError::Io { kind, .. } => Ok(if *kind == ErrorKind::NotFound {
            PyFileNotFoundError::new_err(text.to_owned())
        } else if *kind == ErrorKind::PermissionDenied {
            PyPermissionError::new_err(text.to_owned())
        } else {
            PyOSError::new_err(text.to_owned())
        }),
        StoreError::Exhausted { .. }
        | StoreError::Stalled { .. }
        | StoreError::Locked { .. }
        | StoreError::NotWritable { .. }
        | StoreError::Foreign { .. }
        | StoreError::TopicsOfBatches { .. }
        | StoreError::Newer { .. }
        | StoreError::TimerWheel { .. }
        | StoreError::BadOption { .. }
        | StoreError::FileLength { .. }
        | StoreError::NotAFile { .. }
        | StoreError::Gap { .. }
        | StoreError::Damaged { .. }
        | StoreError::QueueMismatch { .. }
        | StoreError::BadConfigFile { .. }
        | StoreError::MessageTooLarge { .. }
        | StoreError::PropertiesTooLarge { .. }
        | StoreError::IllegalQueue { .. }
        | StoreError::EmptyBatch
        | StoreError::Wire(_)
        | StoreError::ReadOnly { .. }
        | StoreError::DiskFull { .. }
        | StoreError::Busy { .. }
        | StoreError::FlushTimeout { .. }
        | StoreError::Closed
        | _ => raise(py, "ServerError", text, &[]),
    }
}

fn raise_client(py: Python<'_>, text: &str, error: ClientError) -> PyResult<PyErr> {
    if let ClientError::NotConfirmed { failure, item } = &error {
        return raise_not_confirmed(py, text, failure, *item);
    }
    if let ClientError::NotCommitted { failed, .. } = error {
        return raise_not_committed(py, text, failed);
    }
    raise_cause(py, text, &error, Vec::new())
}

/// Raises the class that matches an error's cause, with the cause's fields and then those known of the send.
fn raise_cause<'a>(
    py: Python<'_>,
    text: &str,
    cause: &'a ClientError,
    mut known: Vec<(&'a str, Value<'a>)>,
) -> PyResult<PyErr> {
    if let ClientError::Net { source, .. } = cause {
        return raise_net(py, text, source, known);
    }
    let mut fields = fields_of(cause);
    fields.append(&mut known);
    if let ClientError::Refused { code, .. } = cause {
        return raise_code(py, *code, text, &fields);
    }
    raise(py, class_of(cause), text, &fields)
}

/// The exception's class. [`raise_cause`] chooses that of an answer by its code and that of a lost connection itself.
fn class_of(cause: &ClientError) -> &'static str {
    match cause {
        ClientError::Option { .. }
        | ClientError::NotAssigned { .. }
        | ClientError::NotAllocated { .. }
        | ClientError::NotSubscribed => "ConfigError",
        ClientError::OutOfRange { .. } => "OffsetOutOfRange",
        ClientError::Receipt { .. } => "ReceiptError",
        ClientError::Filter { .. } => "FilterError",
        ClientError::Topic { .. }
        | ClientError::EmptyBody { .. }
        | ClientError::MixedTopics { .. }
        | ClientError::BodyTooLarge { .. }
        | ClientError::Property { .. }
        | ClientError::Properties { .. }
        | ClientError::Unencodable { .. } => "MessageError",
        ClientError::NameServers { .. } => "NameServerUnreachable",
        ClientError::NoTopic { .. } => "TopicNotFound",
        ClientError::NoQueue { .. } | ClientError::NoBroker { .. } | ClientError::NoMaster { .. } => {
            "RouteError"
        }
        ClientError::NotBegun { .. } => "RequestTimeout",
        ClientError::TooManyInFlight(_) => "QueueFull",
        ClientError::UnreadableAnswer { .. } => "ProtocolError",
        ClientError::Closed { .. } => "ClosedError",
        // NotConfirmed and NotCommitted are never the cause of another error.
        ClientError::NotConfirmed { .. } => "SendTimeout",
        ClientError::NotCommitted { .. } | ClientError::QueueGone { .. } => "CommitError",
        ClientError::Refused { .. }
        | ClientError::Net { .. }
        | ClientError::Unsubscribed { .. }
        | ClientError::Aborted { .. } => "RmqError",
    }
}

/// The cause's fields, as attributes of the exception.
fn fields_of(cause: &ClientError) -> Vec<(&str, Value<'_>)> {
    match cause {
        ClientError::Receipt { handle, .. } => vec![("handle", Value::Text(handle))],
        ClientError::Filter { source, .. } => {
            let position = i64::try_from(source.position).unwrap_or(i64::MAX);
            vec![("position", Value::Int(position))]
        }
        ClientError::OutOfRange { .. } => range_fields_of(cause),
        ClientError::NotBegun { .. } => vec![("may_exist", Value::Bool(false))],
        ClientError::NameServers { addresses, .. } => vec![("addresses", Value::Text(addresses))],
        ClientError::NoTopic { topic, .. }
        | ClientError::NoQueue { topic, .. }
        | ClientError::NoBroker { topic }
        | ClientError::Topic { topic, .. }
        | ClientError::EmptyBody { topic }
        | ClientError::MixedTopics { topic, .. }
        | ClientError::BodyTooLarge { topic, .. }
        | ClientError::Property { topic, .. }
        | ClientError::Unsubscribed { topic }
        | ClientError::Properties { topic, .. } => vec![("topic", Value::Text(topic))],
        ClientError::Refused {
            code,
            remark,
            address,
            ..
        } => vec![
            ("code", Value::Int((*code).into())),
            ("remark", Value::Text(remark)),
            ("address", Value::Text(address)),
        ],
        ClientError::TooManyInFlight(full) => {
            let broker = full.broker.iter().map(|broker| Value::Text(&broker.name));
            broker.map(|name| ("broker", name)).collect()
        }
        ClientError::Option { .. }
        | ClientError::NoMaster { .. }
        | ClientError::Net { .. }
        | ClientError::NotConfirmed { .. }
        | ClientError::NotCommitted { .. }
        | ClientError::NotAllocated { .. }
        | ClientError::NotAssigned { .. }
        | ClientError::Aborted { .. }
        | ClientError::QueueGone { .. }
        | ClientError::NotSubscribed
        | ClientError::UnreadableAnswer { .. }
        | ClientError::Unencodable { .. }
        | ClientError::Closed { .. } => Vec::new(),
    }
}

fn range_fields_of(cause: &ClientError) -> Vec<(&str, Value<'_>)> {
    let ClientError::OutOfRange {
        topic,
        broker,
        queue_id,
        offset,
        held,
    } = cause
    else {
        return Vec::new();
    };
    vec![
        ("topic", Value::Text(topic)),
        ("broker", Value::Text(broker)),
        ("queue_id", Value::Int((*queue_id).into())),
        ("offset", Value::Int(*offset)),
        ("first", Value::Int(held.0)),
        ("last", Value::Int(held.1)),
    ]
}

/// Lists each queue with its position and its failure; the first failure becomes the cause.
fn raise_not_committed(py: Python<'_>, text: &str, failed: Vec<Uncommitted>) -> PyResult<PyErr> {
    let queue_id = PyModule::import(py, "pyrmq.message")?.getattr("QueueId")?;
    let (offsets, causes) = (PyDict::new(py), PyDict::new(py));
    let mut first = None;
    for uncommitted in failed {
        let Uncommitted {
            topic,
            broker,
            queue_id: number,
            offset,
            cause,
        } = uncommitted;
        let queue = queue_id.call1((&*topic, &*broker, number))?;
        let cause = Error::Client(cause).into_py(py);
        offsets.set_item(&queue, offset)?;
        causes.set_item(&queue, cause.value(py))?;
        first.get_or_insert(cause);
    }
    let keywords = PyDict::new(py);
    keywords.set_item("offsets", offsets)?;
    keywords.set_item("causes", causes)?;
    let class = PyModule::import(py, "pyrmq.errors")?.getattr("CommitError")?;
    let raised = PyErr::from_value(class.call((text,), Some(&keywords))?);
    raised.set_cause(py, first);
    Ok(raised)
}

/// Raises for a send that ran out of time, or for the failure after which it was given up. The failure is the cause.
fn raise_not_confirmed(
    py: Python<'_>,
    text: &str,
    failure: &SendFailure,
    item: Option<u32>,
) -> PyResult<PyErr> {
    let mut known = vec![
        ("topic", Value::Text(&failure.topic)),
        ("message_id", Value::Text(failure.message_id(item))),
        ("may_exist", Value::Bool(failure.may_exist)),
        ("attempts", Value::Attempts(&failure.failed_attempts)),
    ];
    if let Some(broker) = &failure.broker {
        known.push(("broker", Value::Text(broker)));
    }
    if let Some(queue_id) = failure.queue_id {
        known.push(("queue_id", Value::Int(queue_id.into())));
    }
    let waited = |source: &NetError| matches!(source, NetError::Timeout { .. } | NetError::Busy { .. });
    let last = &failure.last;
    // A response that no broker sends leaves the outcome open, like no response.
    let is_open = matches!(last, ClientError::UnreadableAnswer { .. })
        || matches!(last, ClientError::Net { source, .. } if waited(source));
    let raised = if failure.in_time || is_open {
        raise(py, "SendTimeout", text, &known)
    } else if let ClientError::Net { address, .. } = last {
        known.push(("address", Value::Text(address)));
        raise(py, "ConnectionLost", text, &known)
    } else {
        raise_cause(py, text, last, known)
    }?;
    raised.set_cause(py, Some(Error::Client(failure.last.clone()).into_py(py)));
    Ok(raised)
}

fn raise_net<'a>(
    py: Python<'_>,
    text: &str,
    error: &'a NetError,
    mut known: Vec<(&'a str, Value<'a>)>,
) -> PyResult<PyErr> {
    let (class, address, sent) = match error {
        NetError::Connect { address, .. }
        | NetError::NotSent { address, .. }
        | NetError::GoAway { address } => ("ConnectionLost", address, false),
        NetError::ConnectionLost { address, .. } => ("ConnectionLost", address, true),
        NetError::Timeout { address, sent, .. } => ("RequestTimeout", address, *sent),
        NetError::Busy { .. } => return raise(py, "QueueFull", text, &known),
        NetError::Closed => return raise(py, "ClosedError", text, &known),
        NetError::Option { .. } => return raise(py, "ConfigError", text, &known),
        NetError::Frame(_) => return raise(py, "ProtocolError", text, &known),
        NetError::Bind { .. } | _ => return raise(py, "RmqError", text, &known),
    };
    let mut fields = vec![
        ("address", Value::Text(address)),
        ("may_exist", Value::Bool(sent)),
    ];
    fields.append(&mut known);
    raise(py, class, text, &fields)
}

/// Adds to an error the message that it concerns, unless it names one already.
pub(crate) fn about(py: Python<'_>, error: PyErr, topic: &str, message_id: Option<&str>) -> PyErr {
    let raised = error.value(py);
    for (name, text) in [("topic", Some(topic)), ("message_id", message_id)] {
        let is_missing = raised.getattr(name).is_ok_and(|known| known.is_none());
        if let Some(text) = text.filter(|_| is_missing)
            && let Err(failed) = raised.setattr(name, text)
        {
            return failed;
        }
    }
    error
}

fn raise_range(py: Python<'_>, text: &str, error: &RangeError) -> PyResult<PyErr> {
    match error {
        RangeError::Unreachable { range, .. } => raise(
            py,
            "ConnectionLost",
            text,
            &[("address", Value::Text(&range.address))],
        ),
        RangeError::Refused {
            range, code, remark, ..
        } => {
            let fields = [
                ("code", Value::Int((*code).into())),
                ("remark", Value::Text(remark)),
                ("address", Value::Text(&range.address)),
            ];
            raise_code(py, *code, text, &fields)
        }
        RangeError::Expired { .. } => raise(py, "DataLossError", text, &[]),
        RangeError::Message { .. } | RangeError::Answer { .. } => raise(py, "ProtocolError", text, &[]),
    }
}

/// Raises the class that `pyrmq.errors.for_code` finds.
fn raise_code(py: Python<'_>, code: i32, text: &str, fields: &[(&str, Value<'_>)]) -> PyResult<PyErr> {
    let found = PyModule::import(py, "pyrmq.errors")?
        .getattr("for_code")?
        .call1((code,))?;
    raise(py, &found.getattr("__name__")?.extract::<String>()?, text, fields)
}

/// The value of an exception's keyword argument.
pub(crate) enum Value<'a> {
    Int(i64),
    Bool(bool),
    Text(&'a str),
    Attempts(&'a [Attempt]),
}

fn raise(py: Python<'_>, class: &str, text: &str, fields: &[(&str, Value<'_>)]) -> PyResult<PyErr> {
    let module = PyModule::import(py, "pyrmq.errors").map_err(|cause| {
        let broken = PyImportError::new_err(format!(
            "pyrmq.errors cannot be imported to raise {class}: {text}"
        ));
        broken.set_cause(py, Some(cause));
        broken
    })?;
    let keywords = PyDict::new(py);
    for (name, value) in fields {
        match value {
            Value::Int(number) => keywords.set_item(name, number)?,
            Value::Bool(truth) => keywords.set_item(name, truth)?,
            Value::Text(text) => keywords.set_item(name, text)?,
            Value::Attempts(failed_attempts) => keywords.set_item(name, attempts_of(py, failed_attempts)?)?,
        }
    }
    let exception = module.getattr(class)?.call((text,), Some(&keywords))?;
    Ok(PyErr::from_value(exception))
}

/// Failed attempts as `pyrmq.errors.Attempt` objects.
pub(crate) fn attempts_of<'py>(
    py: Python<'py>,
    failed_attempts: &[Attempt],
) -> PyResult<Bound<'py, PyTuple>> {
    let made: PyResult<Vec<_>> = if failed_attempts.is_empty() {
        Ok(Vec::new())
    } else {
        let class = PyModule::import(py, "pyrmq.errors")?.getattr("Attempt")?;
        let seconds = |millis: u64| Duration::from_millis(millis).as_secs_f64();
        let one = |attempt: &Attempt| {
            class.call1((
                attempt.number,
                &*attempt.broker,
                attempt.queue_id,
                seconds(attempt.began_ms),
                seconds(attempt.took_ms),
                &attempt.cause,
                attempt.may_exist,
            ))
        };
        failed_attempts.iter().map(one).collect()
    };
    PyTuple::new(py, made?)
}
