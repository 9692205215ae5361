//! RocketMQ's JSON bodies as Python values. Their names may be bare integers or objects, which the `json` module cannot
//! read.

use crate::errors::Error;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use pyrmq_remoting::body::{Json, Key};

/// Parses a body. An integer name becomes an int; an object as a name becomes a tuple of its (name, value) pairs.
#[pyfunction]
fn parse_json<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let json = Json::parse(text).map_err(|error| Error::Wire(error).into_py(py))?;
    value(py, &json)
}

fn value<'py>(py: Python<'py>, json: &Json) -> PyResult<Bound<'py, PyAny>> {
    Ok(match json {
        Json::Null => py.None().into_bound(py),
        Json::Bool(truth) => truth.into_pyobject(py)?.to_owned().into_any(),
        Json::Int(number) => number.into_pyobject(py)?.into_any(),
        Json::Float(number) => number.into_pyobject(py)?.into_any(),
        Json::Str(text) => PyString::new(py, text).into_any(),
        Json::Array(items) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(value(py, item)?)?;
            }
            list.into_any()
        }
        Json::Object(members) => {
            let dict = PyDict::new(py);
            for (name, member) in members {
                dict.set_item(key(py, name)?, value(py, member)?)?;
            }
            dict.into_any()
        }
    })
}

fn key<'py>(py: Python<'py>, name: &Key) -> PyResult<Bound<'py, PyAny>> {
    Ok(match name {
        Key::Str(text) => PyString::new(py, text).into_any(),
        Key::Int(number) => number.into_pyobject(py)?.into_any(),
        Key::Object(members) => {
            let mut pairs = Vec::with_capacity(members.len());
            for (name, member) in members {
                pairs.push((key(py, name)?, value(py, member)?));
            }
            PyTuple::new(py, pairs)?.into_any()
        }
    })
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(parse_json, module)?)
}
