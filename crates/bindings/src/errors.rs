//! Every error that can reach Python, and the class of `pyrmq.errors` that it becomes.
//!
//! One enum, one match without a catch-all: a new variant does not compile until somebody says what Python gets. The
//! classes themselves are Python's (fields, docstrings, tree); they are looked up when an error is raised.

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyModule};
use pyrmq_broker::BrokerError;
use pyrmq_client::ClientError;
use pyrmq_client::error::Uncommitted;
use pyrmq_client::range::RangeError;
use pyrmq_nameserver::NameServerError;
use pyrmq_remoting::WireError;
use pyrmq_remoting::net::NetError;
use pyrmq_store::StoreError;
use thiserror::Error;

/// What can go wrong on the way through this crate.
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
    /// The runtime could not be started.
    #[error("cannot start the runtime's threads: {cause}")]
    Runtime { cause: std::io::Error },
    /// An argument or option that cannot be used.
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
}

impl Error {
    /// The Python exception, ready to raise.
    pub(crate) fn into_py(self, py: Python<'_>) -> PyErr {
        let text = self.to_string();
        let made = match self {
            Self::Forked { .. } => raise(py, "ForkError", &text, &[]),
            Self::Closed { .. } => raise(py, "ClosedError", &text, &[]),
            Self::Runtime { .. } => raise(py, "RmqError", &text, &[]),
            Self::Config { .. } => raise(py, "ConfigError", &text, &[]),
            Self::Wire(_) | Self::Message { .. } => raise(py, "ProtocolError", &text, &[]),
            Self::Net(error) => raise_net(py, &text, &error),
            Self::Range(error) => raise_range(py, &text, &error),
            Self::Client(error) => raise_client(py, &text, error),
            Self::Broker(BrokerError::Store(error @ StoreError::BadOption { .. })) => {
                raise(py, "ConfigError", &error.to_string(), &[])
            }
            Self::Broker(BrokerError::Option { .. })
            | Self::NameServer(NameServerError::Option { .. } | NameServerError::NotLive { .. }) => {
                raise(py, "ConfigError", &text, &[])
            }
            Self::Broker(_) | Self::NameServer(_) => raise(py, "ServerError", &text, &[]),
        };
        made.unwrap_or_else(|failed| failed)
    }
}

fn raise_client(py: Python<'_>, text: &str, error: ClientError) -> PyResult<PyErr> {
    match error {
        ClientError::Option { .. } | ClientError::NotAssigned { .. } => raise(py, "ConfigError", text, &[]),
        ClientError::Topic { .. }
        | ClientError::EmptyBody { .. }
        | ClientError::MixedTopics { .. }
        | ClientError::BodyTooLarge { .. }
        | ClientError::Property { .. }
        | ClientError::Properties { .. } => raise(py, "MessageError", text, &[]),
        ClientError::NameServers { addresses, .. } => {
            let fields = [("addresses", Value::Text(&addresses))];
            raise(py, "NameServerUnreachable", text, &fields)
        }
        ClientError::NoTopic { topic, .. } => {
            raise(py, "TopicNotFound", text, &[("topic", Value::Text(&topic))])
        }
        ClientError::NoQueue { topic, .. } | ClientError::NoBroker { topic } => {
            raise(py, "RouteError", text, &[("topic", Value::Text(&topic))])
        }
        ClientError::Answer {
            code,
            remark,
            address,
            ..
        } => raise_answer(py, text, code, &remark, &address),
        ClientError::Net { source, .. } => raise_net(py, text, &source),
        ClientError::NotConfirmed {
            topic,
            may_exist,
            in_time,
            last,
            ..
        } => raise_not_confirmed(py, text, &topic, may_exist, in_time, *last),
        ClientError::NotCommitted { failed, .. } => raise_not_committed(py, text, failed),
        ClientError::TooManyInFlight(_) => raise(py, "QueueFull", text, &[]),
        ClientError::Answered { .. } => raise(py, "ProtocolError", text, &[]),
        ClientError::Closed { .. } => raise(py, "ClosedError", text, &[]),
    }
}

/// Each queue with its position and its failure; the first failure is the cause.
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

/// The class for a response code is Python's to know.
fn raise_answer(py: Python<'_>, text: &str, code: i32, remark: &str, broker: &str) -> PyResult<PyErr> {
    let class = PyModule::import(py, "pyrmq.errors")?
        .getattr("for_code")?
        .call1((code,))?;
    let keywords = PyDict::new(py);
    keywords.set_item("code", code)?;
    keywords.set_item("remark", remark)?;
    keywords.set_item("broker", broker)?;
    Ok(PyErr::from_value(class.call((text,), Some(&keywords))?))
}

/// Out of time, or what the last attempt failed with; that failure is the cause.
fn raise_not_confirmed(
    py: Python<'_>,
    text: &str,
    topic: &str,
    may_exist: bool,
    in_time: bool,
    last: ClientError,
) -> PyResult<PyErr> {
    let unknown = ("may_exist", Value::Bool(may_exist));
    let raised = match &last {
        ClientError::Answer {
            code,
            remark,
            address,
            ..
        } if !in_time => raise_answer(py, text, *code, remark, address),
        ClientError::Net { source, address, .. }
            if !in_time && !matches!(**source, NetError::Timeout { .. } | NetError::Busy { .. }) =>
        {
            raise(
                py,
                "ConnectionLost",
                text,
                &[("address", Value::Text(address)), unknown],
            )
        }
        _ => raise(py, "SendTimeout", text, &[("topic", Value::Text(topic)), unknown]),
    }?;
    raised.set_cause(py, Some(Error::Client(last).into_py(py)));
    Ok(raised)
}

fn raise_net(py: Python<'_>, text: &str, error: &NetError) -> PyResult<PyErr> {
    let (class, address, sent) = match error {
        NetError::Connect { address, .. }
        | NetError::NotSent { address, .. }
        | NetError::GoAway { address } => ("ConnectionLost", address, false),
        NetError::ConnectionLost { address, .. } => ("ConnectionLost", address, true),
        NetError::Timeout { address, .. } => {
            return raise(py, "RequestTimeout", text, &[("address", Value::Text(address))]);
        }
        NetError::Busy { .. } => return raise(py, "QueueFull", text, &[]),
        NetError::Closed => return raise(py, "ClosedError", text, &[]),
        NetError::Option { .. } => return raise(py, "ConfigError", text, &[]),
        NetError::Frame(_) => return raise(py, "ProtocolError", text, &[]),
        _ => return raise(py, "RmqError", text, &[]),
    };
    let fields = [
        ("address", Value::Text(address)),
        ("may_exist", Value::Bool(sent)),
    ];
    raise(py, class, text, &fields)
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
                ("broker", Value::Text(&range.address)),
            ];
            raise_code(py, *code, text, &fields)
        }
        RangeError::Expired { .. } => raise(py, "DataLossError", text, &[]),
        RangeError::Message { .. } | RangeError::Answer { .. } => raise(py, "ProtocolError", text, &[]),
    }
}

/// The class that `pyrmq.errors.for_code` finds.
fn raise_code(py: Python<'_>, code: i32, text: &str, fields: &[(&str, Value<'_>)]) -> PyResult<PyErr> {
    let found = PyModule::import(py, "pyrmq.errors")?
        .getattr("for_code")?
        .call1((code,))?;
    raise(py, &found.getattr("__name__")?.extract::<String>()?, text, fields)
}

/// A value for a keyword of an exception class.
pub(crate) enum Value<'a> {
    Int(i64),
    Bool(bool),
    Text(&'a str),
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
        }
    }
    let exception = module.getattr(class)?.call((text,), Some(&keywords))?;
    Ok(PyErr::from_value(exception))
}
