//! The Python module `pyrmq._core`: the only crate that knows pyo3.
//!
//! Rules (ARCHITECTURE.md, "boundary"): Rust never calls Python on a thread of its own; a call that may block goes
//! through `enter.rs`; one error enum reaches `errors.rs`; nothing starts at import. A file adds its classes and
//! functions in its own `register`.

mod accumulator;
mod batch;
mod broker;
mod callbacks;
mod columns;
mod command;
mod completion;
mod completion_queue;
mod connections;
mod consumer;
mod enter;
mod errors;
mod json;
mod links;
mod log;
mod nameserver;
mod producer;
mod producer_base;
mod received;
mod records;
mod request_reply;
mod requests;
mod routing;
mod runtime;
mod send_args;
mod send_future;
mod stop;
mod store_lock;

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
        crate::accumulator::register(module)?;
        crate::broker::register(module)?;
        crate::columns::register(module)?;
        crate::command::register(module)?;
        crate::connections::register(module)?;
        crate::consumer::register(module)?;
        crate::send_future::register(module)?;
        crate::request_reply::register(module)?;
        crate::json::register(module)?;
        crate::links::register(module)?;
        crate::log::register(module)?;
        crate::nameserver::register(module)?;
        crate::completion::register(module)?;
        crate::producer::register(module)?;
        crate::producer_base::register(module)?;
        crate::received::register(module)?;
        crate::records::register(module)?;
        crate::requests::register(module)?;
        crate::routing::register(module)?;
        crate::store_lock::register(module)?;
        Ok(())
    }
}
