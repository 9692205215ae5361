//! Connections to servers: one for each address, shared by everything that is given the same object.

use crate::command::PyCommand;
use crate::enter;
use crate::errors::Error;
use crate::runtime::{self, Owner};
use crate::security::{Credentials, security};
use pyo3::prelude::*;
use pyrmq_remoting::net::{Client, ClientOptions, NetError, SystemResolver, Table};
use std::sync::Arc;
use std::time::Duration;

/// Opens connections when they are first needed. Belongs to the process that made it.
#[pyclass(frozen, name = "Connections", module = "pyrmq._core")]
pub(crate) struct Connections {
    owner: Owner,
    client: Client,
}

impl Connections {
    /// The client, in the process that made it.
    pub(crate) fn client(&self) -> Result<Client, Error> {
        self.owner.check()?;
        Ok(self.client.clone())
    }
}

#[pymethods]
impl Connections {
    /// `shared`: use the connections of this process's producers and consumers, with their time to connect.
    #[new]
    #[pyo3(signature = (*, connect_timeout_ms=3000, shared=false, credentials=None))]
    fn new(
        py: Python<'_>,
        connect_timeout_ms: u64,
        shared: bool,
        credentials: Option<&Credentials>,
    ) -> PyResult<Self> {
        let security = security(None, credentials);
        let options = ClientOptions {
            connect_timeout: Duration::from_millis(connect_timeout_ms),
            ..ClientOptions::default()
        };
        let make = || {
            let runtime = runtime::current()?;
            if shared {
                return Ok(runtime::connections()?.join_without_group(runtime.handle(), security)?);
            }
            let way = (Arc::new(SystemResolver) as _, security);
            let table = Arc::new(Table::new());
            Client::secured(runtime.handle(), options, table, Arc::new(()), way).map_err(Error::from)
        };
        Ok(Self {
            owner: Owner::new("a set of connections"),
            client: make().map_err(|error| error.into_py(py))?,
        })
    }

    /// Asks a server and waits for its answer, which may be an error answer.
    fn request(
        &self,
        py: Python<'_>,
        address: &str,
        command: &PyCommand,
        timeout_ms: u64,
    ) -> PyResult<PyCommand> {
        let client = self.client().map_err(|error| error.into_py(py))?;
        let call = client.call(
            address,
            command.command.clone(),
            Duration::from_millis(timeout_ms),
        );
        let answer: Result<_, NetError> = enter::wait(py, |slice| call.wait(slice))?;
        answer
            .map(PyCommand::from)
            .map_err(|error| Error::from(error).into_py(py))
    }

    /// Ends every wait, and every connection that nobody else uses, at once. What uses these connections later raises.
    fn close(&self) {
        if self.owner.is_here() {
            self.client.shut();
        }
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            // The parent's threads may have held its locks during the fork: closing could wait for ever.
            std::mem::forget(self.client.clone());
        }
        self.close();
    }
}

/// Adds this file's class to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Connections>()
}
