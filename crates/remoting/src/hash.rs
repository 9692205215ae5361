//! Maps by topic, address or code, for look-ups that happen for each message.

use std::collections::HashMap;

/// The hash of such maps: quick, and seeded at random, so that chosen names do not collide.
pub type NameState = foldhash::fast::RandomState;

/// A map by such keys.
pub type NameMap<K, V> = HashMap<K, V, NameState>;
