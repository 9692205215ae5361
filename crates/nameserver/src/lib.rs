//! The name server: registration, routes, liveness.
