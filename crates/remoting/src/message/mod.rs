//! Messages as they lie on disk and travel on the wire.
