//! A call of `receive`, from its beginning to its result.

use crate::consumer::options::{MIN_INVISIBLE, check_invisible};
use crate::consumer::pop::answer::Popped;
use crate::consumer::pop::simple::{PopShared, SimpleConsumer};
use crate::consumer::pop::state::ReceiveOutcome;
use crate::error::ClientError;
use pyrmq_remoting::sync::wait_while;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl SimpleConsumer {
    /// Begins to request up to `max` messages, hidden from others for `invisible`; brokers may wait for them for
    /// `wait`.
    pub fn receive(&self, max: usize, invisible: Duration, wait: Duration) -> Result<Receiving, ClientError> {
        check_invisible(invisible, MIN_INVISIBLE)?;
        if self.shared.heartbeat.membership.topics().is_empty() && !self.shared.state().is_closed {
            return Err(ClientError::NotSubscribed);
        }
        let id = self.shared.state().add_receive(max.max(1), invisible, wait);
        let receiving = Receiving {
            shared: self.shared.clone(),
            id,
            invisible,
        };
        self.shared.send_pops();
        Ok(receiving)
    }
}

/// A call that waits for messages. Dropping it ends the wait; messages that arrive for it then go to the next call.
#[derive(Debug)]
pub struct Receiving {
    shared: Arc<PopShared>,
    id: u64,
    invisible: Duration,
}

impl Receiving {
    /// The messages; an empty list if the time has passed; `None`: wait.
    pub fn take(&self) -> Result<Option<Vec<Popped>>, ClientError> {
        let mut stale = Vec::new();
        let taken = self.shared.state().take(self.id, Instant::now(), &mut stale);
        for batch in stale {
            let (shared, invisible) = (self.shared.clone(), self.invisible);
            self.shared
                .tracker
                .spawn(async move { shared.bring_back(batch, invisible).await });
        }
        match taken? {
            ReceiveOutcome::Messages(messages) => {
                let now = Instant::now();
                for message in &messages {
                    message.receipt.return_to_caller(&self.shared.in_hand, now);
                }
                Ok(Some(messages))
            }
            ReceiveOutcome::Over => Ok(Some(Vec::new())),
            ReceiveOutcome::Wait => {
                self.shared.send_pops();
                Ok(None)
            }
        }
    }

    /// Waits up to `slice` until something may be there.
    pub fn wait(&self, slice: Duration) {
        let state = self.shared.state();
        drop(wait_while(&self.shared.changed, state, slice, |state| {
            !state.is_ready()
        }));
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.pending.remove(&self.id);
        // Another call may wait for the messages that this one was woken for.
        if state.is_ready() && !state.pending.is_empty() {
            self.shared.wake(&state);
        }
    }
}
