//! Refreshes the routes that a client knows, in rounds.

use crate::error::ClientError;
use crate::session::routes::{RouteResult, Routes};
use pyrmq_remoting::codes::response;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Requests that a round has open at a time. One by one, ten thousand topics at 20 ms would take more than three
/// minutes; all at once would flood the name server.
const MAX_REQUESTS: usize = 16;

/// Refreshes known routes, round by round.
#[derive(Debug)]
pub struct RouteRefresh {
    routes: Routes,
    // The topic after which the next round begins, in the order of names.
    last: Option<Arc<str>>,
}

/// What a round knows of its requests.
struct Progress {
    // How many may be open.
    limit: usize,
    // The last place in the round whose request was answered.
    answered: Option<usize>,
}

impl RouteRefresh {
    /// Nothing is requested before the first round.
    pub fn new(routes: Routes) -> Self {
        Self { routes, last: None }
    }

    /// Requests the routes of these topics, at most 16 at a time. A request without an answer, or for which the name
    /// server is too busy, halves that number; an answer adds one to it. The round ends early when nothing is left of
    /// it: while name servers are silent, each of the others would take its whole time, too.
    ///
    /// The next round begins after the last topic that was answered, so that a name server that has time for a few in
    /// each round gets to all of them. If there was no answer, it begins after the last topic that was requested: those
    /// may be topics that this name server never answers.
    pub async fn round(&mut self, mut topics: Vec<Arc<str>>) {
        topics.sort_unstable();
        if let Some(last) = &self.last {
            let first = topics.partition_point(|topic| topic <= last);
            topics.rotate_left(first);
        }
        let mut progress = Progress {
            limit: MAX_REQUESTS,
            answered: None,
        };
        let mut requests = JoinSet::new();
        let mut requested = 0;
        'round: for (place, topic) in topics.iter().enumerate() {
            while requests.len() >= progress.limit {
                match requests.join_next().await {
                    Some(done) => progress.count(done.ok()),
                    None => break 'round,
                }
            }
            let (routes, topic) = (self.routes.clone(), topic.clone());
            requests.spawn(async move { (place, routes.refresh(&topic).await) });
            requested = place;
        }
        while let Some(done) = requests.join_next().await {
            progress.count(done.ok());
        }
        self.last = topics.into_iter().nth(progress.answered.unwrap_or(requested));
    }
}

impl Progress {
    /// Counts a request that is done. A failure leaves what is known; the look-up has logged it.
    fn count(&mut self, done: Option<(usize, RouteResult)>) {
        match done {
            Some((place, outcome)) if is_answered(&outcome) => {
                self.limit = MAX_REQUESTS.min(self.limit + 1);
                self.answered = self.answered.max(Some(place));
            }
            _ => self.limit /= 2,
        }
    }
}

/// Whether a name server has answered, and was not too busy to find the route.
fn is_answered(outcome: &RouteResult) -> bool {
    !matches!(
        outcome,
        Err(ClientError::NameServers { .. }
            | ClientError::Closed { .. }
            | ClientError::Refused {
                code: response::SYSTEM_BUSY,
                ..
            })
    )
}
