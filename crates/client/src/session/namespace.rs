//! Names of topics and groups in a namespace (Apache `NamespaceUtil`).

use crate::session::options::ClientOptions;
use pyrmq_remoting::names::{DLQ_PREFIX, RETRY_PREFIX, SYSTEM_PREFIX, SYSTEM_TOPICS};
use std::borrow::Cow;
use std::sync::Arc;

/// Between a namespace and a name in it (Apache `NamespaceUtil.NAMESPACE_SEPARATOR`).
const NAMESPACE_SEPARATOR: char = '%';

/// The prefixes that stand before the namespace in the name of a group's topic.
const GROUP_PREFIXES: [&str; 2] = [RETRY_PREFIX, DLQ_PREFIX];

impl ClientOptions {
    /// A name in the namespace (Apache `NamespaceUtil.wrapNamespace`): RocketMQ's own topics are in none, and the
    /// prefix of a retry or dead letter topic stays in front.
    pub fn wrap<'a>(&self, name: &'a str) -> Cow<'a, str> {
        if self.namespace.is_empty() || SYSTEM_TOPICS.contains(&name) || name.starts_with(SYSTEM_PREFIX) {
            return Cow::Borrowed(name);
        }
        let prefix = GROUP_PREFIXES.iter().find(|prefix| name.starts_with(**prefix));
        let (prefix, bare) = name.split_at(prefix.map_or(0, |prefix| prefix.len()));
        let inside = bare.strip_prefix(&*self.namespace);
        if inside.is_some_and(|rest| rest.starts_with(NAMESPACE_SEPARATOR)) {
            return Cow::Borrowed(name);
        }
        Cow::Owned(format!("{prefix}{}{NAMESPACE_SEPARATOR}{bare}", self.namespace))
    }

    /// A topic as the caller knows it.
    pub fn unwrap_name(&self, name: &Arc<str>) -> Arc<str> {
        match self.inside(name) {
            plain if plain.len() == name.len() => name.clone(),
            plain => plain.into(),
        }
    }

    /// The part of a topic's name after the namespace, which is the topic as the caller knows it.
    pub fn inside<'a>(&self, name: &'a str) -> &'a str {
        if self.namespace.is_empty() {
            return name;
        }
        let inside = name.strip_prefix(&*self.namespace);
        inside
            .and_then(|rest| rest.strip_prefix(NAMESPACE_SEPARATOR))
            .unwrap_or(name)
    }
}
