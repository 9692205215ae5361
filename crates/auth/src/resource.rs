//! What is protected, and what may be done with it (Apache `Resource`, `Action`).

use pyrmq_remoting::names::{DLQ_PREFIX, group_of_retry};
use std::fmt;

/// The kind of a resource (Apache `ResourceType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResourceType {
    /// Every kind of resource.
    Any,
    /// The whole cluster: its settings, its users, its brokers.
    Cluster,
    /// A namespace of 5.x.
    Namespace,
    /// A topic.
    Topic,
    /// A consumer group.
    Group,
}

impl ResourceType {
    const NAMES: [(Self, &'static str); 5] = [
        (Self::Any, "Any"),
        (Self::Cluster, "Cluster"),
        (Self::Namespace, "Namespace"),
        (Self::Topic, "Topic"),
        (Self::Group, "Group"),
    ];

    fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(kind, _)| *kind == self);
        found.map_or("Any", |(_, name)| name)
    }

    fn from_name(name: &str) -> Option<Self> {
        let found = Self::NAMES
            .iter()
            .find(|(_, known)| known.eq_ignore_ascii_case(name));
        found.map(|(kind, _)| *kind)
    }
}

/// How a resource's name is compared (Apache `ResourcePattern`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// The pattern covers every name.
    Any,
    /// The pattern covers one name.
    Literal,
    /// The pattern covers the names that begin with a text.
    Prefixed,
}

/// A resource, or a pattern of resources: `*`, `Topic:*`, `Topic:name`, `Topic:prefix*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resource {
    /// The resource's kind.
    pub kind: ResourceType,
    /// How the name is compared.
    pub pattern: Pattern,
    /// The name or prefix; empty with [`Pattern::Any`].
    pub name: String,
}

impl Resource {
    /// A topic by its name.
    pub fn topic(name: &str) -> Self {
        Self::literal(ResourceType::Topic, name)
    }

    /// A group by its name, or by the name of its retry or dead-letter topic. In a retry topic of POP with
    /// `enableRetryTopicV2`, which is `%RETRY%group+topic`, the group is before the `+`.
    pub fn group(name: &str) -> Self {
        let of_retry = group_of_retry(name);
        let of_retry = of_retry.map(|rest| rest.split_once('+').map_or(rest, |(group, _)| group));
        let bare = of_retry.or_else(|| name.strip_prefix(DLQ_PREFIX));
        Self::literal(ResourceType::Group, bare.unwrap_or(name))
    }

    /// A cluster by its name.
    pub fn cluster(name: &str) -> Self {
        Self::literal(ResourceType::Cluster, name)
    }

    fn literal(kind: ResourceType, name: &str) -> Self {
        Self {
            kind,
            pattern: Pattern::Literal,
            name: name.to_owned(),
        }
    }

    /// Reads a pattern as policies have it.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self {
                kind: ResourceType::Any,
                pattern: Pattern::Any,
                name: String::new(),
            });
        }
        let (kind, name) = text.split_once(':')?;
        let kind = ResourceType::from_name(kind)?;
        // No legal name begins or ends with a blank: such a pattern would match nothing.
        let name = Some(name).filter(|name| name.trim() == *name)?;
        let (pattern, name) = match name.split_once('*') {
            Some(("", "")) => (Pattern::Any, ""),
            Some((prefix, "")) => (Pattern::Prefixed, prefix),
            // A star in the middle is part of no legal name: such a pattern would match nothing.
            Some(_) => return None,
            None if name.is_empty() => return None,
            None => (Pattern::Literal, name),
        };
        let name = name.to_owned();
        Some(Self { kind, pattern, name })
    }

    /// Whether this pattern covers a resource.
    pub fn covers(&self, resource: &Self) -> bool {
        self.covers_name(resource.kind, &resource.name)
    }

    /// Whether this pattern covers the resource of this kind and name.
    pub fn covers_name(&self, kind: ResourceType, name: &str) -> bool {
        if self.kind == ResourceType::Any {
            return true;
        }
        self.kind == kind
            && match self.pattern {
                Pattern::Any => true,
                Pattern::Literal => self.name == name,
                Pattern::Prefixed => name.starts_with(&self.name),
            }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.pattern) {
            (ResourceType::Any, _) => f.write_str("*"),
            (kind, Pattern::Any) => write!(f, "{}:*", kind.name()),
            (kind, Pattern::Literal) => write!(f, "{}:{}", kind.name(), self.name),
            (kind, Pattern::Prefixed) => write!(f, "{}:{}*", kind.name(), self.name),
        }
    }
}

/// What may be done with a resource (Apache `Action`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Everything; only in policies.
    All,
    /// Send.
    Pub,
    /// Receive.
    Sub,
    /// Create.
    Create,
    /// Change.
    Update,
    /// Delete.
    Delete,
    /// Look at one.
    Get,
    /// Look at many.
    List,
}

impl Action {
    const NAMES: [(Self, &'static str); 8] = [
        (Self::All, "All"),
        (Self::Pub, "Pub"),
        (Self::Sub, "Sub"),
        (Self::Create, "Create"),
        (Self::Update, "Update"),
        (Self::Delete, "Delete"),
        (Self::Get, "Get"),
        (Self::List, "List"),
    ];

    /// Apache's name.
    pub fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(action, _)| *action == self);
        found.map_or("All", |(_, name)| name)
    }

    /// By Apache's name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        let found = Self::NAMES
            .iter()
            .find(|(_, known)| known.eq_ignore_ascii_case(name));
        found.map(|(action, _)| *action)
    }
}
