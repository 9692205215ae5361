//! Registrations that would make the tables too large.

use super::types::{MAX_IDS_PER_NAME, MEAN_IDS_PER_NAME, RegisterError, Registration};
use super::writer::Writer;
use std::collections::HashSet;
use std::sync::Arc;

impl Writer {
    pub(super) fn refuse_too_many(&self, from: &Registration<'_>) -> Result<(), RegisterError> {
        let settings = self.view.settings();
        if let Some(limit) = settings.max_brokers
            && self.brokers.len() >= limit
            && !self.brokers.contains_key(from.name)
        {
            return Err(RegisterError::TooManyBrokers {
                name: from.name.to_owned(),
                limit,
            });
        }
        self.refuse_too_many_ids(from)?;
        let has = self.topics.get(from.name);
        let both = |has: &HashSet<Arc<str>>| has.iter().filter(|topic| from.topics.has(topic)).count();
        // Returns the number of new topics if they and those already counted exceed the limit. Only then each is looked
        // up among the name's topics.
        let too_many = |counted: usize, limit: usize| {
            let is_expired = |more: &usize| counted + more > limit;
            let all = Some(from.topics.count()).filter(is_expired)?;
            Some(all - has.map_or(0, both)).filter(is_expired)
        };
        let of_name = has.map_or(0, HashSet::len);
        if let Some(limit) = settings.max_topics_per_broker
            && let Some(more) = too_many(of_name, limit)
        {
            return Err(RegisterError::TooManyTopics {
                name: from.name.to_owned(),
                count: of_name + more,
                limit,
            });
        }
        if let Some(limit) = settings.max_topics {
            let of_all = self.topics_of_all();
            if let Some(more) = too_many(of_all, limit).filter(|more| *more > 0) {
                return Err(RegisterError::TooManyTopicsOfAll {
                    name: from.name.to_owned(),
                    more,
                    has: of_all,
                    limit,
                });
            }
        }
        Ok(())
    }

    /// Refuses an id beyond the limits. A broker that registers again, or whose id changed, adds no id.
    pub(super) fn refuse_too_many_ids(&self, from: &Registration<'_>) -> Result<(), RegisterError> {
        let Some(names) = self.view.settings().max_brokers else {
            return Ok(());
        };
        let held = self
            .brokers
            .get(from.name)
            .map(|broker| &broker.data.broker_addrs);
        if held
            .is_some_and(|held| held.contains_key(&from.id) || held.values().any(|held| held == from.address))
        {
            return Ok(());
        }
        if held.is_some_and(|held| held.len() >= MAX_IDS_PER_NAME) {
            return Err(RegisterError::TooManyIds {
                name: from.name.to_owned(),
                id: from.id,
                limit: MAX_IDS_PER_NAME,
            });
        }
        let limit = names.saturating_mul(MEAN_IDS_PER_NAME);
        if self.view.live().len() >= limit {
            return Err(RegisterError::TooManyIdsOfAll {
                name: from.name.to_owned(),
                id: from.id,
                limit,
            });
        }
        Ok(())
    }

    /// Returns the number of topics of all broker names, counted once for each name.
    pub(super) fn topics_of_all(&self) -> usize {
        self.topics.values().map(HashSet::len).sum()
    }
}
