//! Members of one group that subscribe to different things. The broker keeps one subscription for each topic of a
//! group, so that each heartbeat of such a member replaces that of another: messages are skipped, and queues change
//! hands.

use crate::tables::clients::{Client, Consumers};
use crate::tables::subscription::Subscription;
use pyrmq_remoting::names;
use std::cell::LazyCell;
use std::collections::HashSet;

/// A member whose last heartbeat is this old has subscribed to all that it wants, ms.
const SETTLED_MS: i64 = 5000;
/// Time between two warnings of one group, ms.
const WARNING_INTERVAL_MS: i64 = 60_000;
/// Topics that a warning names; of the others it says the number.
const MAX_NAMED: usize = 3;
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
}

/// The topics in which a member differs from others of its group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conflicts {
    /// The number of topics that differ.
    pub count: usize,
    /// The first few topics that differ.
    pub named: Vec<Conflict>,
    /// Whether it is time to warn of the group again.
    pub is_due: bool,
}

impl Conflicts {
    fn add(&mut self, topic: &str, one: (&str, &str), other: (&str, &str)) {
        self.count += 1;
        if self.named.len() < MAX_NAMED {
            let owned = |(client, subscription): (&str, &str)| (client.to_owned(), subscription.to_owned());
            self.named.push(Conflict {
                topic: topic.to_owned(),
                one: owned(one),
                other: owned(other),
            });
        }
    }
}

impl Consumers {
    /// How the subscriptions of a member differ from what other members have said. `last_ms` is the time of its
    /// heartbeat before this one: one that is just starting subscribes to its topics one after the other.
    pub(super) fn conflicts(
        &mut self,
        subscriptions: &[Subscription],
        client: &Client,
        last_ms: Option<i64>,
    ) -> Conflicts {
        let has_started = last_ms.is_some_and(|last_ms| client.seen_ms - last_ms >= SETTLED_MS);
        let mut found = self.differences(subscriptions, client, has_started);
        if found.count > 0 && client.seen_ms.saturating_sub(self.warned_ms) >= WARNING_INTERVAL_MS {
            found.is_due = true;
            self.warned_ms = client.seen_ms;
        }
        found
    }

    fn differences(&self, subscriptions: &[Subscription], client: &Client, has_started: bool) -> Conflicts {
        let members = LazyCell::new(|| {
            let ids = self.members.values().map(|member| member.id.as_str());
            ids.collect::<HashSet<_>>()
        });
        // Another member, still there, that has said what the group's subscription of a topic is.
        let other_author = |topic: &str| {
            let author = self.authors.get(topic).filter(|author| **author != client.id)?;
            members.contains(author.as_str()).then_some(author.as_str())
        };
        let mut found = Conflicts::default();
        for subscription in subscriptions {
            let topic = &subscription.topic;
            let known = self.subscriptions.get(topic);
            if let Some(known) = known.filter(|known| !selects_alike(known, subscription))
                && let Some(author) = other_author(topic)
            {
                let other = (client.id.as_str(), subscription.expression.as_str());
                found.add(topic, (author, &known.expression), other);
            }
        }
        if has_started {
            let said: HashSet<&str> = subscriptions.iter().map(|one| one.topic.as_str()).collect();
            for (topic, known) in &self.subscriptions {
                if !said.contains(topic.as_str())
                    && !names::is_retry(topic)
                    && let Some(author) = other_author(topic)
                {
                    found.add(topic, (author, &known.expression), (&client.id, NOTHING));
                }
            }
        }
        found
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::clients::{Clients, ConsumeMode, ConsumerHeartbeat};
    use pyrmq_remoting::net::{Outbox, Peer};
    use pyrmq_remoting::{Command, Language};
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    struct Silent;

    impl Outbox for Silent {
        fn push(&self, _command: Command) {}

        fn is_closed(&self) -> bool {
            false
        }

        fn close(&self) {}
    }

    fn client(number: u64, seen_ms: i64) -> Client {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        Client {
            id: format!("client-{number}"),
            peer: Peer::new(number, address, address, Arc::new(Silent)),
            user: None,
            language: Language::default(),
            version: 0,
            seen_ms,
        }
    }

    fn subscribed(topics: &[String], version: i64) -> ConsumerHeartbeat {
        let parsed = topics
            .iter()
            .map(|topic| Subscription::parse(topic, Some("*"), None, version).unwrap());
        ConsumerHeartbeat {
            group: "G".to_owned(),
            consume_mode: ConsumeMode::default(),
            subscriptions: Some(parsed.collect()),
            fingerprint: 0,
        }
    }

    fn heartbeat(clients: &Clients, client: &Client, topics: &[String]) -> Conflicts {
        let heartbeat = subscribed(topics, client.seen_ms);
        clients.register_consumer(heartbeat, client).conflicts
    }

    fn topics(prefix: &str, count: usize) -> Vec<String> {
        (0..count).map(|at| format!("{prefix}{at:06}")).collect()
    }

    /// The least time of a few heartbeats that name other topics than those before.
    fn time_of(count: usize) -> Duration {
        let clients = Clients::default();
        let said = [topics("a", count), topics("b", count)];
        let times = (0..8).map(|round| {
            let at = usize::from(round % 2 == 0);
            let client = client(u64::from(round % 2 == 0), 1_700_000_000_000 + round * 5000);
            let heartbeat = subscribed(&said[at], client.seen_ms);
            let began = Instant::now();
            let conflicts = clients.register_consumer(heartbeat, &client).conflicts;
            // The first one of each is just starting.
            assert_eq!(conflicts.count, if round < 2 { 0 } else { count });
            began.elapsed()
        });
        times.skip(2).min().unwrap()
    }

    #[test]
    fn many_subscriptions_are_compared_in_a_time_that_grows_with_their_number() {
        let (few, many) = (time_of(2000), time_of(8000));
        assert!(many < few * 9, "{few:?}, and {many:?} for four times as many");
    }

    #[test]
    fn a_group_is_warned_of_once_a_minute_with_its_first_topics() {
        let clients = Clients::default();
        let start_ms = 1_700_000_000_000;
        let (a, b) = (topics("a", 10), topics("b", 10));
        let mut warnings = 0;
        for round in 0..20 {
            let now_ms = start_ms + round * 10_000;
            for (number, said) in [(1, &a), (2, &b)] {
                let conflicts = heartbeat(&clients, &client(number, now_ms), said);
                assert!(conflicts.named.len() <= 3);
                warnings += i32::from(conflicts.is_due);
                if conflicts.count > 0 {
                    assert_eq!((conflicts.count, conflicts.named.len()), (10, 3));
                }
            }
        }
        assert_eq!(warnings, 4, "190 s");
    }
}
