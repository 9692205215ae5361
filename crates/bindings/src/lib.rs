//! The Python module `pyrmq._core`: the only crate that knows pyo3.
//!
//! Rules (ARCHITECTURE.md, "boundary"): Rust never calls Python on a thread of its own; a call that may block goes
//! through [`enter`]; one error enum reaches [`errors`]; nothing starts at import. A file adds its classes and
//! functions in its own `register`.

mod columns;
mod command;
mod connections;
mod enter;
mod errors;
mod log;
mod requests;
mod runtime;

use pyo3::prelude::*;

/// Names only: each file registers what it defines.
#[pymodule(gil_used = false)]
mod _core {
    use super::*;

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
        columns::register(module)?;
        command::register(module)?;
        connections::register(module)?;
        log::register(module)?;
        requests::register(module)?;
        Ok(())
    }
}
