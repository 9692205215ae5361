//! The broker: send, pull, offsets, clients, topics, over the store.
