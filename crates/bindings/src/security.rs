//! `_core.Credentials` and `_core.Guard`: in whose name clients send, and what servers let users do.

use crate::enter;
use crate::errors::Error;
use pyo3::prelude::*;
use pyrmq_auth::{Rules, Secret, Switches};
use pyrmq_remoting::Fields;
use pyrmq_remoting::net::Security;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A user's name, and its secret in a form that cannot be read back.
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
            let text = "the secret key is empty: give the one of the user".to_owned();
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

/// A request's fields, as Python has them.
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
    /// `text` is that of the file of users and policies.
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

    /// Puts another file's text in force.
    fn replace(&self, py: Python<'_>, text: &[u8]) -> PyResult<()> {
        enter::compute(py, || {
            self.inner.replace(Rules::parse(text)?);
            Ok::<_, Error>(())
        })
    }

    /// The file's text after a request (3001 to 3003, 3006 to 3008); `replace` puts it in force.
    fn changed(&self, py: Python<'_>, code: i32, fields: FieldPairs, body: &[u8]) -> PyResult<Vec<u8>> {
        let fields = fields.0;
        enter::compute(py, || {
            let rules = self.inner.rules();
            let changed = pyrmq_auth::changed(&rules, code, &fields, body)?;
            Ok::<_, Error>(changed.to_text())
        })
    }

    /// The body of the answer to a request that looks at users or policies; None if there is nothing to show.
    fn asked(&self, py: Python<'_>, code: i32, fields: FieldPairs) -> PyResult<Option<Vec<u8>>> {
        let fields = fields.0;
        enter::compute(py, || {
            let rules = self.inner.rules();
            Ok::<_, Error>(pyrmq_auth::asked(&rules, code, &fields)?)
        })
    }

    /// Number of users.
    #[getter]
    fn users(&self) -> usize {
        self.inner.rules().user_count()
    }

    /// Requests that were refused.
    #[getter]
    fn refused(&self) -> u64 {
        self.inner.refused()
    }
}

/// How a server or client protects its requests.
pub(crate) fn security(guard: Option<&Guard>, credentials: Option<&Credentials>) -> Security {
    Security {
        check: guard.map(|guard| guard.inner.clone() as _),
        signer: credentials.map(|credentials| credentials.inner() as _),
    }
}

/// Adds this file's classes to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Credentials>()?;
    module.add_class::<Guard>()
}
