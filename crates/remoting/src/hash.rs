//! Maps by topic, address or code, for look-ups that occur for each message.

use std::collections::HashMap;

/// The hash of such maps. It is fast, and randomly seeded so that a peer cannot choose names that collide.
pub type NameState = foldhash::fast::RandomState;

/// A map with keys that peers choose.
pub type NameMap<K, V> = HashMap<K, V, NameState>;
