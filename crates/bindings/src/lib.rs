//! The Python module `pyrmq._core`: the only crate that knows pyo3.
//!
//! Rules (ARCHITECTURE.md, "boundary"): Rust never calls Python on a thread of its own; a call that may block goes
//! through `enter.rs`; one error enum reaches `errors.rs`; nothing starts at import. A file adds its classes and
//! functions in its own `register`.

mod command;
mod completion;
mod connections;
mod consumer;
mod enter;
mod errors;
mod json;
mod log;
mod log_files;
mod producer;
mod received;
mod records;
mod request_many;
mod routing;
mod runtime;
mod security;
mod server;
mod tls;

use pyo3::pymodule;

/// Names only: each file registers what it defines.
#[pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add(
            "BUILD_PROFILE",
            if cfg!(debug_assertions) {
                "debug"
            } else {
                "release"
            },
        )?;
        module.add("SYSTEM_TOPICS", pyrmq_remoting::names::SYSTEM_TOPICS.to_vec())?;
        crate::producer::accumulator::register(module)?;
        crate::producer::args::register(module)?;
        crate::server::broker::register(module)?;
        crate::consumer::columns::register(module)?;
        crate::command::register(module)?;
        crate::connections::register(module)?;
        crate::consumer::class::register(module)?;
        crate::consumer::batch::register(module)?;
        crate::consumer::control::register(module)?;
        crate::consumer::rebalance::register(module)?;
        crate::consumer::listener::register(module)?;
        crate::producer::request_reply::register(module)?;
        crate::json::register(module)?;
        crate::server::links::register(module)?;
        crate::log::register(module)?;
        crate::log_files::register(module)?;
        crate::server::nameserver::register(module)?;
        crate::completion::register(module)?;
        crate::producer::table::register(module)?;
        crate::producer::class::register(module)?;
        crate::producer::base::register(module)?;
        crate::received::register(module)?;
        crate::consumer::popped::register(module)?;
        crate::consumer::simple::register(module)?;
        crate::records::register(module)?;
        crate::request_many::register(module)?;
        crate::server::requests::register(module)?;
        crate::routing::register(module)?;
        crate::security::register(module)?;
        crate::server::store_lock::register(module)?;
        crate::tls::register(module)?;
        Ok(())
    }
}
