//! One request or response as a Python object, and its codec: `pyrmq.remoting.Command`.

use crate::errors::Error;
use bytes::{Bytes, BytesMut};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use pyrmq_remoting::frame::{self, Limits};
use pyrmq_remoting::{Command, Language, SerializeType};

/// A frozen command. The body stays in Rust's memory until Python asks for it.
#[pyclass(frozen, name = "Command", module = "pyrmq.remoting")]
#[derive(Debug, Clone)]
pub(crate) struct PyCommand {
    pub(crate) command: Command,
}

impl From<Command> for PyCommand {
    fn from(command: Command) -> Self {
        Self { command }
    }
}

#[pymethods]
impl PyCommand {
    #[new]
    #[pyo3(signature = (code, fields=None, body=None, *, remark=None, opaque=0, flag=0, language="PYTHON",
        version=pyrmq_remoting::command::CURRENT_VERSION, serialize_type="JSON"))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one argument for each member of the frame's header"
    )]
    fn new(
        code: i32,
        fields: Option<&Bound<'_, PyDict>>,
        body: Option<&Bound<'_, PyAny>>,
        remark: Option<String>,
        opaque: i32,
        flag: i32,
        language: &str,
        version: i32,
        serialize_type: &str,
    ) -> PyResult<Self> {
        let mut command = Command {
            code,
            language: Language::from_name(language),
            version,
            opaque,
            flag,
            remark,
            serialize_type: serialize_type_of(serialize_type).map_err(PyTypeError::new_err)?,
            body: body.map(body_of).transpose()?,
            ..Command::default()
        };
        if let Some(fields) = fields {
            push_fields(&mut command, fields)?;
        }
        Ok(Self { command })
    }

    /// Reads the first whole frame of `data`, and how many bytes it takes. `None`: there is no whole frame yet.
    #[staticmethod]
    fn decode(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Option<(Self, usize)>> {
        let mut input = BytesMut::from(body_of(data)?);
        let whole = input.len();
        match frame::decode(&mut input, &Limits::default()) {
            Ok(found) => Ok(found.map(|command| (Self { command }, whole - input.len()))),
            Err(error) => Err(Error::Wire(error).into_py(py)),
        }
    }

    /// Encodes the command as one frame.
    fn encode<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let frame = frame::encode(&self.command).map_err(|error| Error::Wire(error).into_py(py))?;
        Ok(PyBytes::new(py, &frame))
    }

    #[getter]
    fn code(&self) -> i32 {
        self.command.code
    }

    #[getter]
    fn language(&self) -> &'static str {
        self.command.language.name()
    }

    #[getter]
    fn version(&self) -> i32 {
        self.command.version
    }

    #[getter]
    fn opaque(&self) -> i32 {
        self.command.opaque
    }

    #[getter]
    fn flag(&self) -> i32 {
        self.command.flag
    }

    #[getter]
    fn remark(&self) -> Option<&str> {
        self.command.remark.as_deref()
    }

    #[getter]
    fn serialize_type(&self) -> &'static str {
        match self.command.serialize_type {
            SerializeType::Json => "JSON",
            SerializeType::RocketMq => "ROCKETMQ",
        }
    }

    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let fields = PyDict::new(py);
        for (key, value) in self.command.fields.iter() {
            fields.set_item(key, value)?;
        }
        Ok(fields)
    }

    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.command.body.as_deref().map(|body| PyBytes::new(py, body))
    }

    #[getter]
    fn is_response(&self) -> bool {
        self.command.is_response()
    }

    #[getter]
    fn is_oneway(&self) -> bool {
        self.command.is_oneway()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other
            .cast::<Self>()
            .is_ok_and(|other| other.get().command == self.command)
    }

    fn __repr__(&self) -> String {
        let kind = if self.command.is_response() {
            "response"
        } else {
            "request"
        };
        let body = self.command.body.as_ref().map_or(0, Bytes::len);
        let fields: Vec<String> = self
            .command
            .fields
            .iter()
            .map(|(key, value)| format!("{key}={value:?}"))
            .collect();
        let remark = self
            .command
            .remark
            .as_ref()
            .map(|remark| format!(", remark={remark:?}"))
            .unwrap_or_default();
        format!(
            "<Command {kind} code={} opaque={} {}{remark}, body of {body} bytes>",
            self.command.code,
            self.command.opaque,
            fields.join(" ")
        )
    }
}

fn serialize_type_of(name: &str) -> Result<SerializeType, String> {
    match name {
        "JSON" => Ok(SerializeType::Json),
        "ROCKETMQ" => Ok(SerializeType::RocketMq),
        other => Err(format!("serialize_type is neither JSON nor ROCKETMQ: {other}")),
    }
}

/// Appends a Python dict's pairs. Values may be text, numbers or booleans, as the fields of Apache's header classes
/// are.
pub(crate) fn push_fields(command: &mut Command, fields: &Bound<'_, PyDict>) -> PyResult<()> {
    for (key, value) in fields {
        let key = key.cast::<PyString>()?.to_cow()?;
        if value.is_none() {
            continue;
        }
        if let Ok(text) = value.cast::<PyString>() {
            command.fields.push(&key, &text.to_cow()?);
        } else if let Ok(truth) = value.extract::<bool>() {
            command.fields.push(&key, if truth { "true" } else { "false" });
        } else if let Ok(number) = value.extract::<i64>() {
            command.fields.push(&key, &number.to_string());
        } else {
            return Err(PyTypeError::new_err(format!(
                "field `{key}` is neither text, a number nor a truth value: {value}"
            )));
        }
    }
    Ok(())
}

/// A copy of any bytes-like object, or of text as UTF-8.
pub(crate) fn body_of(data: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(Bytes::copy_from_slice(bytes.as_bytes()));
    }
    if let Ok(text) = data.cast::<PyString>() {
        return Ok(Bytes::copy_from_slice(text.to_cow()?.as_bytes()));
    }
    let buffer = PyBuffer::<u8>::get(data).map_err(|_| {
        PyTypeError::new_err(format!(
            "a body is bytes, another bytes-like object, or text (sent as UTF-8), not {}",
            data.get_type()
        ))
    })?;
    Ok(Bytes::from(buffer.to_vec(data.py())?))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyCommand>()
}
