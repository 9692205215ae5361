//! Many requests at once: planning a read then costs one round trip, not one for each queue.

use crate::command::PyCommand;
use crate::connections::Connections;
use crate::enter;
use crate::errors::Error;
use pyo3::prelude::*;
use pyrmq_remoting::net::NetError;
use std::time::Duration;

/// Sends requests (address, command, timeout in ms). Returns for each its response, or the exception that a single
/// request would have raised. One without a response delays the others by its own timeout at most.
#[pyfunction]
fn request_many(
    py: Python<'_>,
    connections: &Connections,
    requests: Vec<(String, PyRef<'_, PyCommand>, u64)>,
) -> PyResult<Vec<Py<PyAny>>> {
    let client = connections.client().map_err(|error| error.into_py(py))?;
    let calls: Vec<_> = requests
        .into_iter()
        .map(|(address, command, timeout_ms)| {
            client.call(
                &address,
                command.command.clone(),
                Duration::from_millis(timeout_ms),
            )
        })
        .collect();
    let mut answers = Vec::with_capacity(calls.len());
    for call in calls {
        let answer: Result<_, NetError> = enter::wait(py, |slice| call.wait(slice))?;
        answers.push(match answer {
            Ok(answer) => Py::new(py, PyCommand::from(answer))?.into_any(),
            Err(error) => Error::from(error).into_py(py).into_value(py).into_any(),
        });
    }
    Ok(answers)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(request_many, module)?)
}
