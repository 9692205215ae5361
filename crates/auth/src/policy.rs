//! Policies of one subject, and what they decide (Apache `Acl`, `Policy`, `PolicyEntry`, `AclAuthorizationHandler`).

use crate::error::AuthError;
use crate::resource::{Action, Pattern, Resource, ResourceType};
use pyrmq_remoting::body::{AclInfo, PolicyEntryInfo, PolicyInfo};
use pyrmq_remoting::net::Network;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The decision of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The entry allows its actions.
    Allow,
    /// The entry denies its actions.
    Deny,
}

impl Decision {
    fn name(self) -> &'static str {
        match self {
            Self::Allow => "Allow",
            Self::Deny => "Deny",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Allow, Self::Deny]
            .into_iter()
            .find(|decision| decision.name().eq_ignore_ascii_case(name))
    }
}

/// When an entry is checked: default entries only where no custom entry matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyType {
    /// The entry is checked first.
    Custom,
    /// The entry is checked if no custom entry matches.
    Default,
}

impl PolicyType {
    fn name(self) -> &'static str {
        match self {
            Self::Custom => "Custom",
            Self::Default => "Default",
        }
    }

    /// Returns the type with Apache's name, in any case; without a name it is custom, as Apache fills it in.
    pub fn from_name(name: Option<&str>) -> Result<Self, AuthError> {
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(Self::Custom);
        };
        [Self::Custom, Self::Default]
            .into_iter()
            .find(|kind| kind.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| wrong("policyType", name, "give Custom or Default"))
    }
}

/// One rule: these actions on this resource, from these addresses, are allowed or denied.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyEntry {
    /// The resources.
    pub resource: Resource,
    /// The actions.
    pub actions: Vec<Action>,
    /// The addresses; none means all.
    source_ips: Vec<(String, Network)>,
    /// Whether the entry allows or denies its actions.
    pub decision: Decision,
}

fn wrong(what: &str, value: &str, expected: &'static str) -> AuthError {
    AuthError::Value {
        what: what.to_owned(),
        value: value.to_owned(),
        expected,
    }
}

impl PolicyEntry {
    fn read(info: &PolicyEntryInfo) -> Result<Self, AuthError> {
        let text = info.resource.as_deref().unwrap_or_default();
        let resource = Resource::parse(text).ok_or_else(|| {
            wrong(
                "resource",
                text,
                "give `*`, or Cluster, Namespace, Topic or Group with a name, as in `Topic:orders`, `Topic:ord*` or `Topic:*`",
            )
        })?;
        let mut actions = Vec::new();
        for name in info.actions.iter().flatten() {
            let action = Action::from_name(name).ok_or_else(|| {
                wrong(
                    "action",
                    name,
                    "give All, Pub, Sub, Create, Update, Delete, Get or List",
                )
            })?;
            actions.push(action);
        }
        if actions.is_empty() {
            return Err(wrong("actions", "", "give at least one action"));
        }
        let mut source_ips = Vec::new();
        for text in info.source_ips.iter().flatten() {
            let network = Network::parse(text).ok_or_else(|| {
                wrong(
                    "sourceIps",
                    text,
                    "give an IP address, or a network as 10.0.0.0/8",
                )
            })?;
            source_ips.push((text.clone(), network));
        }
        let text = info.decision.as_deref().unwrap_or_default();
        let decision =
            Decision::from_name(text).ok_or_else(|| wrong("decision", text, "give Allow or Deny"))?;
        Ok(Self {
            resource,
            actions,
            source_ips,
            decision,
        })
    }

    fn info(&self) -> PolicyEntryInfo {
        PolicyEntryInfo {
            actions: Some(
                self.actions
                    .iter()
                    .map(|action| action.name().to_owned())
                    .collect(),
            ),
            decision: Some(self.decision.name().to_owned()),
            resource: Some(self.resource.to_string()),
            source_ips: (!self.source_ips.is_empty())
                .then(|| self.source_ips.iter().map(|(text, _)| text.clone()).collect()),
        }
    }

    fn matches(&self, (kind, name): (ResourceType, &str), actions: &[Action], source: IpAddr) -> bool {
        let has = |action: &Action| self.actions.contains(action);
        self.resource.covers_name(kind, name)
            && (has(&Action::All) || actions.iter().any(has))
            && (self.source_ips.is_empty()
                || self
                    .source_ips
                    .iter()
                    .any(|(_, network)| network.contains(source)))
    }

    /// Which of two matching entries decides: the more specific one; if they are equally specific, the one that denies.
    fn precedence(&self, other: &Self) -> Ordering {
        let rank = |entry: &Self| match (entry.resource.kind, entry.resource.pattern) {
            (ResourceType::Any, _) => 3,
            (_, Pattern::Literal) => 0,
            (_, Pattern::Prefixed) => 1,
            (_, Pattern::Any) => 2,
        };
        let denies = |entry: &Self| entry.decision == Decision::Deny;
        (rank(self).cmp(&rank(other)))
            .then_with(|| other.resource.name.len().cmp(&self.resource.name.len()))
            .then_with(|| denies(other).cmp(&denies(self)))
    }
}

/// Finds actions that one entry allows and another one denies, on one resource and from the same addresses. A general
/// entry beside an exception to it (all actions and one, a network and an address in it) is no contradiction.
fn find_contradictions(entries: &[PolicyEntry]) -> BTreeMap<String, Vec<Action>> {
    // By resource and addresses, since a subject may have thousands of entries for one resource.
    let mut decisions: BTreeMap<(String, Vec<Network>), [Vec<Action>; 2]> = BTreeMap::new();
    let mut found: BTreeMap<String, Vec<Action>> = BTreeMap::new();
    for entry in entries {
        let mut networks: Vec<_> = entry.source_ips.iter().map(|(_, network)| *network).collect();
        networks.sort_unstable();
        networks.dedup();
        let key = (entry.resource.to_string(), networks);
        let [allowed, denied] = decisions.entry(key).or_default();
        let (own, other) = match entry.decision {
            Decision::Allow => (allowed, denied),
            Decision::Deny => (denied, allowed),
        };
        for action in &entry.actions {
            if own.contains(action) {
                continue;
            }
            own.push(*action);
            if other.contains(action) {
                let actions = found.entry(entry.resource.to_string()).or_default();
                if !actions.contains(action) {
                    actions.push(*action);
                }
            }
        }
    }
    found
}

/// All policies of one subject.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Acl {
    custom: Vec<PolicyEntry>,
    default: Vec<PolicyEntry>,
}

impl Acl {
    /// Reads policies as requests and files have them. Several entries for one resource stay side by side, also if
    /// they contradict each other. See [`Self::contradictions`].
    pub fn read(policies: &[PolicyInfo]) -> Result<Self, AuthError> {
        let mut acl = Self::default();
        for policy in policies {
            let kind = PolicyType::from_name(policy.policy_type.as_deref())?;
            let entries = policy.entries.as_deref().unwrap_or_default();
            if entries.is_empty() {
                return Err(wrong("entries", "", "give each policy at least one entry"));
            }
            for entry in entries {
                acl.entries(kind).push(PolicyEntry::read(entry)?);
            }
        }
        if acl.is_empty() {
            return Err(wrong("policies", "", "give at least one policy"));
        }
        Ok(acl)
    }

    fn entries(&mut self, kind: PolicyType) -> &mut Vec<PolicyEntry> {
        match kind {
            PolicyType::Custom => &mut self.custom,
            PolicyType::Default => &mut self.default,
        }
    }

    /// Adds other policies. Their entries for a resource replace all old ones for it (Apache `Policy.updateEntry`).
    pub fn merge(&mut self, other: Self) {
        for (kind, fresh) in [
            (PolicyType::Custom, other.custom),
            (PolicyType::Default, other.default),
        ] {
            let entries = self.entries(kind);
            entries.retain(|old| fresh.iter().all(|entry| entry.resource != old.resource));
            entries.extend(fresh);
        }
    }

    /// Removes the entries of a resource.
    pub fn remove(&mut self, kind: PolicyType, resource: &Resource) {
        self.entries(kind).retain(|entry| entry.resource != *resource);
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.custom.is_empty() && self.default.is_empty()
    }

    /// Returns what contradicts itself here: the entry that denies decides then. Apache takes the one that allows or
    /// the last one.
    pub fn contradictions(&self, subject: &str) -> Vec<AuthError> {
        let found = [&self.custom, &self.default].into_iter();
        let found = found.flat_map(|entries| find_contradictions(entries));
        found
            .map(|(resource, actions)| AuthError::TwoDecisions {
                subject: subject.to_owned(),
                resource,
                actions: actions
                    .into_iter()
                    .map(Action::name)
                    .collect::<Vec<_>>()
                    .join(", "),
            })
            .collect()
    }

    /// Whether one of its resources contains a text.
    pub(crate) fn mentions(&self, text: &str) -> bool {
        let mut entries = self.custom.iter().chain(&self.default);
        entries.any(|entry| entry.resource.to_string().contains(text))
    }

    /// The form of requests and files.
    pub fn info(&self, subject: &str) -> AclInfo {
        let policy = |kind: PolicyType, entries: &[PolicyEntry]| {
            (!entries.is_empty()).then(|| PolicyInfo {
                entries: Some(entries.iter().map(PolicyEntry::info).collect()),
                policy_type: Some(kind.name().to_owned()),
            })
        };
        let policies = [
            policy(PolicyType::Custom, &self.custom),
            policy(PolicyType::Default, &self.default),
        ];
        AclInfo {
            policies: Some(policies.into_iter().flatten().collect()),
            subject: Some(subject.to_owned()),
        }
    }

    /// What the entries say of one of these actions on a resource from an address; `None` if none of them matches.
    pub fn decide(&self, resource: &Resource, actions: &[Action], source: IpAddr) -> Option<Decision> {
        self.decide_on((resource.kind, &resource.name), actions, source)
    }

    /// Returns what the entries say of one of these actions on the resource of a kind and name, from an address; `None`
    /// if no entry matches. See [`Self::decide`].
    pub(crate) fn decide_on(
        &self,
        resource: (ResourceType, &str),
        actions: &[Action],
        source: IpAddr,
    ) -> Option<Decision> {
        [&self.custom, &self.default].into_iter().find_map(|entries| {
            let matching = entries
                .iter()
                .filter(|entry| entry.matches(resource, actions, source));
            matching
                .min_by(|a, b| a.precedence(b))
                .map(|entry| entry.decision)
        })
    }
}
