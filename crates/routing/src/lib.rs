//! Routing decisions without I/O: name server tables, queue selection, latency fault tolerance, allocation.
