//! Producer and puller over the wire; pulled records as column buffers.
