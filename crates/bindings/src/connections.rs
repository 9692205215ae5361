//! Connections to servers: one for each address, shared by every user of the same object.

use crate::command::PyCommand;
use crate::enter;
use crate::errors::Error;
use crate::runtime::{self, Owner};
use crate::security::{Credentials, client_security};
use crate::tls::ClientTls;
use pyo3::prelude::*;
use pyrmq_client::session::address_server::AddressServer;
use pyrmq_remoting::net::{
    Client, ClientOptions, NetError, ProcessorTable, RequestFields, RequestHook, SystemResolver,
};
use std::sync::Arc;
use std::time::Duration;

/// Settings of all clients: one item for each of `pyrmq._client.options.producer.Options.client`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ClientSettings {
    name_servers: Vec<String>,
    group: String,
    instance_name: String,
    namespace: String,
    unit_name: String,
    address_server: Option<String>,
    credentials: Option<Py<Credentials>>,
    tls: Option<Py<ClientTls>>,
    request_fields: Vec<(String, String)>,
}

impl ClientSettings {
    /// The options that all clients have.
    pub(crate) fn options(self) -> Result<pyrmq_client::ClientOptions, Error> {
        let address_server = self
            .address_server
            .map(|text| AddressServer::new(&text, &self.unit_name))
            .transpose()?;
        let hook: Option<Arc<dyn RequestHook>> = match self.request_fields {
            fields if fields.is_empty() => None,
            fields => Some(Arc::new(RequestFields(fields))),
        };
        Ok(pyrmq_client::ClientOptions {
            address_server,
            hook,
            instance_name: self.instance_name,
            unit_name: self.unit_name,
            namespace: self.namespace,
            credentials: self.credentials.map(|credentials| credentials.get().inner()),
            tls: self.tls.map(|tls| tls.get().inner()),
            ..pyrmq_client::ClientOptions::new(self.name_servers, self.group)
        })
    }
}

/// Opens each connection when it is first needed. It belongs to the process that created it.
#[pyclass(frozen, name = "Connections", module = "pyrmq._core")]
pub(crate) struct Connections {
    owner: Owner,
    client: Client,
}

impl Connections {
    /// The client. An error in a forked child.
    pub(crate) fn client(&self) -> Result<Client, Error> {
        self.owner.check()?;
        Ok(self.client.clone())
    }
}

#[pymethods]
impl Connections {
    /// `shared`: use the connections of this process's producers and consumers, with their connect timeout.
    #[new]
    #[pyo3(signature = (*, connect_timeout_ms=3000, shared=false, credentials=None, tls=None))]
    fn new(
        py: Python<'_>,
        connect_timeout_ms: u64,
        shared: bool,
        credentials: Option<&Credentials>,
        tls: Option<&ClientTls>,
    ) -> PyResult<Self> {
        let security = client_security(credentials, tls);
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
            let table = Arc::new(ProcessorTable::new());
            Client::secured(runtime.handle(), options, table, Arc::new(()), way).map_err(Error::from)
        };
        Ok(Self {
            owner: Owner::new("a set of connections"),
            client: make().map_err(|error| error.into_py(py))?,
        })
    }

    /// Sends a request and waits for its response, which may carry an error code.
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

    /// Ends all waits at once, and closes the connections that nobody else uses. Later requests raise.
    fn close(&self) {
        if self.owner.is_here() {
            self.client.shut();
        }
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            // Threads of the parent may have held the client's locks during the fork: closing it could block forever.
            std::mem::forget(self.client.clone());
        }
        self.close();
    }
}

/// Adds this file's class to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Connections>()
}
