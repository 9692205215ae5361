//! Members of one group that subscribe to different things. The broker keeps one subscription for each topic of a
//! group, so that each heartbeat of such a member replaces that of another: messages are skipped, and queues change
//! hands.

use crate::tables::clients::{Client, Consumers};
use crate::tables::subscription::Subscription;
use pyrmq_remoting::names;

/// A member whose last heartbeat is this old has subscribed to all that it wants, ms.
const SETTLED_MS: i64 = 5000;
/// Time between two warnings of one topic, ms.
const WARNING_INTERVAL_MS: i64 = 60_000;
/// What a member without the subscription is said to have.
const NOTHING: &str = "(none)";

/// Two members of a group that differ in a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The topic.
    pub topic: String,
    /// The client id of the member that was there, and its subscription.
    pub one: (String, String),
    /// The client id of the member whose heartbeat differs, and its subscription.
    pub other: (String, String),
    /// Whether it is time to warn of it again.
    pub is_due: bool,
}

impl Consumers {
    /// How the subscriptions of a member differ from what other members have said. `last_ms` is the time of its
    /// heartbeat before this one: one that is just starting subscribes to its topics one after the other.
    pub(super) fn conflicts(
        &mut self,
        subscriptions: &[Subscription],
        client: &Client,
        last_ms: Option<i64>,
    ) -> Vec<Conflict> {
        let mut found = Vec::new();
        for subscription in subscriptions {
            let known = self.subscriptions.get(&subscription.topic);
            if let Some(known) = known.filter(|known| !selects_alike(known, subscription))
                && let Some(author) = self.other_author(&subscription.topic, client)
            {
                let other = subscription.expression.clone();
                found.push((
                    subscription.topic.clone(),
                    author,
                    known.expression.clone(),
                    other,
                ));
            }
        }
        if last_ms.is_some_and(|last_ms| client.seen_ms - last_ms >= SETTLED_MS) {
            for (topic, known) in &self.subscriptions {
                let is_named = subscriptions.iter().any(|one| one.topic == *topic);
                if !is_named
                    && !names::is_retry(topic)
                    && let Some(author) = self.other_author(topic, client)
                {
                    found.push((
                        topic.clone(),
                        author,
                        known.expression.clone(),
                        NOTHING.to_owned(),
                    ));
                }
            }
        }
        let conflict = |(topic, author, known, other): (String, String, String, String)| {
            let warned_ms = self.warned_ms.entry(topic.clone()).or_insert(i64::MIN);
            let is_due = client.seen_ms.saturating_sub(*warned_ms) >= WARNING_INTERVAL_MS;
            if is_due {
                *warned_ms = client.seen_ms;
            }
            Conflict {
                topic,
                one: (author, known),
                other: (client.id.clone(), other),
                is_due,
            }
        };
        found.into_iter().map(conflict).collect()
    }

    /// Another member, still there, that has said what the group's subscription of a topic is.
    fn other_author(&self, topic: &str, client: &Client) -> Option<String> {
        let author = self.authors.get(topic).filter(|author| **author != client.id)?;
        let is_there = self.members.values().any(|member| member.id == *author);
        is_there.then(|| author.clone())
    }
}

/// Whether two subscriptions name the same messages; the order of tags does not matter.
fn selects_alike(one: &Subscription, other: &Subscription) -> bool {
    if one.is_tag() && other.is_tag() {
        let sorted = |of: &Subscription| {
            let mut tags = of.tags.clone();
            tags.sort_unstable();
            tags
        };
        return sorted(one) == sorted(other);
    }
    one.is_tag() == other.is_tag() && one.expression == other.expression
}
