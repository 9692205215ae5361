//! `_core.Credentials`, `_core.Guard` and `_core.PlainGuard`: the identity of clients, and the access control of
//! servers.

use crate::enter;
use crate::errors::Error;
use crate::tls::{ClientTls, ServerTls};
use pyo3::prelude::*;
use pyrmq_auth::plain::{self, Accounts};
use pyrmq_auth::{Audit, Rules, Secret, Switches};
use pyrmq_remoting::net::{
    AdminPort, AuditLog, ClientLimits, Limits, Network, ProxySources, RateLimits, Security,
};
use pyrmq_remoting::{Fields, clock};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// A user's name, and its secret key in a form that cannot be read back.
#[pyclass(frozen, module = "pyrmq._core")]
pub(crate) struct Credentials {
    inner: Arc<pyrmq_auth::Credentials>,
}

impl Credentials {
    pub(crate) fn inner(&self) -> Arc<pyrmq_auth::Credentials> {
        self.inner.clone()
    }
}

#[pymethods]
impl Credentials {
    #[new]
    #[pyo3(signature = (access_key, secret_key, security_token=None))]
    fn new(
        py: Python<'_>,
        access_key: String,
        secret_key: String,
        security_token: Option<String>,
    ) -> PyResult<Self> {
        let made = pyrmq_auth::Credentials::new(access_key, &Secret::new(secret_key), security_token);
        let inner = made.ok_or_else(|| {
            let text = "the secret key is empty: give the user's secret key".to_owned();
            Error::Config { text }.into_py(py)
        })?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }
}

/// The users and policies of a server, and the check of its requests.
#[pyclass(frozen, module = "pyrmq._core")]
pub(crate) struct Guard {
    inner: Arc<pyrmq_auth::Guard>,
}

/// A request's fields, as Python passes them.
struct FieldPairs(Fields);

impl<'a, 'py> FromPyObject<'a, 'py> for FieldPairs {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let pairs: BTreeMap<String, String> = given.extract()?;
        let pairs = pairs.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        Ok(Self(pairs.collect()))
    }
}

#[pymethods]
impl Guard {
    /// `text`: the content of the file of users and policies.
    #[new]
    fn new(py: Python<'_>, cluster: String, authorization: bool, text: &[u8]) -> PyResult<Self> {
        enter::compute(py, || {
            let rules = Rules::parse(text)?;
            let inner = pyrmq_auth::Guard::new(cluster, Switches { authorization }, rules);
            Ok::<_, Error>(Self {
                inner: Arc::new(inner),
            })
        })
    }

    /// Replaces users and policies by those of another file's content.
    fn replace(&self, py: Python<'_>, text: &[u8]) -> PyResult<()> {
        enter::compute(py, || {
            self.inner.replace(Rules::parse(text)?);
            Ok::<_, Error>(())
        })
    }

    /// The file's content after a request that changes it (3001 to 3003, 3006 to 3008). `replace` puts it into force.
    fn changed(&self, py: Python<'_>, code: i32, fields: FieldPairs, body: &[u8]) -> PyResult<Vec<u8>> {
        let fields = fields.0;
        enter::compute(py, || {
            let rules = self.inner.rules();
            let changed = pyrmq_auth::changed(&rules, code, &fields, body)?;
            Ok::<_, Error>(changed.to_text())
        })
    }

    /// The response body for a request that lists users or policies; None if there is nothing to list.
    fn answer_to_read(&self, py: Python<'_>, code: i32, fields: FieldPairs) -> PyResult<Option<Vec<u8>>> {
        let fields = fields.0;
        enter::compute(py, || {
            let rules = self.inner.rules();
            Ok::<_, Error>(pyrmq_auth::answer_to_read(&rules, code, &fields)?)
        })
    }

    /// The number of users.
    #[getter]
    fn users(&self) -> usize {
        self.inner.rules().user_count()
    }

    /// Which policies contradict each other, as texts.
    fn contradictions(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        enter::compute(py, || {
            let found = self.inner.rules().contradictions();
            Ok::<_, Error>(found.iter().map(ToString::to_string).collect())
        })
    }

    /// How many requests were refused.
    #[getter]
    fn refused(&self) -> u64 {
        self.inner.refused()
    }
}

/// The accounts of a broker (ACL 1.0), and the check of its requests.
#[pyclass(frozen, module = "pyrmq._core")]
pub(crate) struct PlainGuard {
    inner: Arc<plain::PlainGuard>,
}

#[pymethods]
impl PlainGuard {
    /// `files`: paths and contents of the files of accounts.
    #[new]
    fn new(py: Python<'_>, files: plain::Files) -> PyResult<Self> {
        enter::compute(py, move || {
            let inner = plain::PlainGuard::new(Accounts::parse(&files)?);
            Ok::<_, Error>(Self {
                inner: Arc::new(inner),
            })
        })
    }

    /// Replaces the accounts by those of other contents.
    fn replace(&self, py: Python<'_>, files: plain::Files) -> PyResult<()> {
        enter::compute(py, move || {
            self.inner.replace(Accounts::parse(&files)?);
            Ok::<_, Error>(())
        })
    }

    /// Path and content of the file that a request changes (50, 51, 53). New accounts go to the file `main`. `replace`
    /// puts the change into force.
    #[staticmethod]
    fn changed(
        py: Python<'_>,
        files: plain::Files,
        main: &str,
        code: i32,
        fields: FieldPairs,
    ) -> PyResult<(String, Vec<u8>)> {
        let (fields, now_ms) = (fields.0, u64::try_from(clock::now_ms()).unwrap_or_default());
        enter::compute(py, move || {
            let change = plain::changed(&files, main, code, &fields, now_ms)?;
            Ok::<_, Error>((change.path, change.text))
        })
    }

    /// All accounts with their secrets, as request 54 is answered.
    fn listed(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        enter::compute(py, || Ok::<_, Error>(self.inner.accounts().to_json()))
    }

    /// The files, each with how often requests have changed it and when the last one did, in milliseconds.
    #[getter]
    fn versions(&self) -> Vec<(String, u64, u64)> {
        let accounts = self.inner.accounts();
        let versions = accounts.versions().iter();
        versions
            .map(|(path, version)| (path.clone(), version.counter, version.timestamp_ms))
            .collect()
    }

    /// Keys of the files that nothing reads.
    #[getter]
    fn unknown(&self) -> Vec<String> {
        self.inner.accounts().unknown().to_vec()
    }

    /// The number of accounts.
    #[getter]
    fn users(&self) -> usize {
        self.inner.accounts().count()
    }

    /// How many requests were refused.
    #[getter]
    fn refused(&self) -> u64 {
        self.inner.refused()
    }
}

/// How a server protects its requests and those that it sends.
#[pyclass(frozen, module = "pyrmq._core")]
pub(crate) struct ServerSecurity {
    inner: Security,
}

impl ServerSecurity {
    pub(crate) fn inner(&self) -> Security {
        self.inner.clone()
    }
}

#[pymethods]
impl ServerSecurity {
    /// `cluster`: the server's, for the audit log. `proxy_sources`: addresses and networks whose PROXY headers are
    /// believed. `limits`, each 0 for none: connections, requests and bytes a second of an address, requests and bytes
    /// a second of a user, the longest wait after a failed login in ms. `admin`: where requests of administrators are
    /// served, and nowhere else.
    #[new]
    #[pyo3(signature = (*, cluster, guard=None, plain=None, credentials=None, server_tls=None, client_tls=None, proxy_sources=Vec::new(), limits=[0; 6], admin=None))]
    #[expect(clippy::needless_pass_by_value, reason = "pyo3 hands over owned lists")]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        cluster: String,
        guard: Option<&Guard>,
        plain: Option<&PlainGuard>,
        credentials: Option<&Credentials>,
        server_tls: Option<&ServerTls>,
        client_tls: Option<&ClientTls>,
        proxy_sources: Vec<String>,
        limits: [u64; 6],
        admin: Option<(String, u16)>,
    ) -> PyResult<Self> {
        let admin = admin.map(admin_port).transpose();
        let admin = admin.map_err(|error| error.into_py(py))?;
        let networks = networks(&proxy_sources).map_err(|error| error.into_py(py))?;
        let inner = Security {
            check: guard
                .map(|guard| guard.inner.clone() as _)
                .or_else(|| plain.map(|guard| guard.inner.clone() as _)),
            server_tls: server_tls.map(ServerTls::inner),
            limits: Limits::new(client_limits(limits)),
            admin: admin.map(Arc::new),
            audit: Some(Arc::new(AuditLog::new(Arc::new(Audit::new(
                cluster,
                guard.is_some() || plain.is_some(),
            ))))),
            proxy_sources: ProxySources::new(networks).map(Arc::new),
            ..client_security(credentials, client_tls)
        };
        Ok(Self { inner })
    }

    /// When the first list of revoked certificates of clients is out of date, in ms since the Unix epoch.
    fn next_update_ms(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        enter::compute(py, || {
            let tls = self.inner.server_tls.as_ref();
            Ok::<_, Error>(tls.and_then(|tls| tls.next_update_ms()))
        })
    }
}

fn client_limits(
    [connections, requests, bytes, user_requests, user_bytes, login_ms]: [u64; 6],
) -> ClientLimits {
    let rates = |requests, bytes| RateLimits { requests, bytes };
    ClientLimits {
        connections_per_address: usize::try_from(connections).unwrap_or(usize::MAX),
        address: rates(requests, bytes),
        user: rates(user_requests, user_bytes),
        failed_login_delay: Duration::from_millis(login_ms),
    }
}

fn admin_port((host, port): (String, u16)) -> Result<AdminPort, Error> {
    let address: IpAddr = host.parse().map_err(|_| Error::Config {
        text: format!("`adminBindAddress` is {host:?}: it must be an address of this machine like 127.0.0.1"),
    })?;
    Ok(AdminPort {
        address: SocketAddr::new(address, port),
        codes: pyrmq_auth::administrative(),
    })
}

fn networks(texts: &[String]) -> Result<Vec<Network>, Error> {
    let network = |text: &String| {
        Network::parse(text).ok_or_else(|| Error::Config {
            text: format!("{text:?} is no address like 10.0.0.1 and no network like 10.0.0.0/8"),
        })
    };
    texts.iter().map(network).collect()
}

/// How a client protects its requests.
pub(crate) fn client_security(credentials: Option<&Credentials>, tls: Option<&ClientTls>) -> Security {
    Security {
        signer: credentials.map(|credentials| credentials.inner() as _),
        client_tls: tls.map(ClientTls::inner),
        ..Security::default()
    }
}

/// The right that a request code needs: the actions of which any one is enough, and the resources.
#[pyfunction]
fn needed_right(code: i32) -> (String, String) {
    pyrmq_auth::described(code)
}

/// Adds this file's classes and functions to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Credentials>()?;
    module.add_class::<Guard>()?;
    module.add_class::<PlainGuard>()?;
    module.add_class::<ServerSecurity>()?;
    module.add_function(wrap_pyfunction!(needed_right, module)?)
}
