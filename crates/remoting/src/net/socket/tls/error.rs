//! What is wrong with certificates, keys and settings.

use std::io;
use std::sync::Arc;
use thiserror::Error;

/// Certificates, keys or settings that cannot be used.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read the {what} `{path}`: {source}")]
    Read {
        /// What the file should have.
        what: &'static str,
        /// The file.
        path: String,
        /// The error of the system.
        source: Arc<io::Error>,
    },
    /// A file has something else than it should.
    #[error("the {what} `{path}` cannot be used: {cause}")]
    Content {
        /// What the file should have.
        what: &'static str,
        /// The file.
        path: String,
        /// What is wrong, and how to fix it.
        cause: String,
    },
    /// Settings that do not fit together, or whose algorithms are not supported.
    #[error("{0}")]
    Setting(String),
}
