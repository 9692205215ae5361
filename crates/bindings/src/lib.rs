//! The Python module pyrmq._core: the only crate that knows pyo3.
