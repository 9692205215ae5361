//! Rights that a request needs for things that it does not name, and the number of topics that a user may create.

use crate::context::BrokerContext;
use crate::error::Refusal;
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::request;
use pyrmq_remoting::net::{Peer, Security};
use std::sync::Arc;

impl BrokerContext {
    /// Called once, before any request is served.
    pub(crate) fn secured_by(&self, security: &Security) {
        let check = (security.check.iter()).all(|check| self.check.set(check.clone()).is_ok());
        let audit = (security.audit.iter()).all(|audit| self.audit.set(audit.clone()).is_ok());
        if !check || !audit {
            tracing::error!("the broker's check of rights was set twice");
        }
    }

    /// Calls `create`, which creates these topics for a request, unless the request's user has created as many as it
    /// may. Users who may change the cluster's settings have no limit.
    pub(crate) fn create_as_user<T>(
        &self,
        request: &Command,
        peer: &Peer,
        topics: &[&str],
        create: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let Some((user, limit)) = self.creator(request, peer) else {
            return create();
        };
        let mut is_allowed = false;
        let created = self.creators.create((user, limit), topics, &self.topics, || {
            is_allowed = true;
            create()
        });
        if let (Err(refusal), Some(audit), false) = (&created, self.audit.get(), is_allowed) {
            audit.refused(request, peer.remote(), refusal.code, &refusal.remark);
        }
        created
    }

    /// The user that counts as creator of the topics that a request creates, and how many it may create; 0 is no limit.
    /// `None` while users are not checked.
    pub(crate) fn creator<'r>(&self, request: &'r Command, peer: &Peer) -> Option<(&'r str, i32)> {
        let check = self.check.get()?;
        let user = check.user(request)?;
        let limit = self.live.max_topics_per_user();
        let change = Command::request(request::UPDATE_BROKER_CONFIG);
        if limit > 0 && check.may(user, &change, peer.remote().ip()) {
            return Some((user, 0));
        }
        Some((user, limit))
    }

    pub(crate) fn checks_rights(&self) -> bool {
        self.check.get().is_some()
    }

    /// The user of a request that was let pass; `None` while rights are not checked.
    pub(crate) fn user_of(&self, request: &Command) -> Option<Arc<str>> {
        self.check
            .get()
            .map(|check| check.user(request).unwrap_or_default().into())
    }

    /// Whether a user may send to a topic which the user's request does not name. True while rights are not checked.
    pub(crate) fn may_send(&self, user: Option<&str>, topic: &str, peer: &Peer) -> bool {
        let Some(check) = self.check.get() else {
            return true;
        };
        let send = Command::request(request::SEND_MESSAGE).with_field("topic", topic);
        user.is_some_and(|user| check.may(user, &send, peer.remote().ip()))
    }

    /// Checks a request again that has waited: its user's rights may have changed. Returns the answer if it is refused,
    /// and records the refusal in the audit log.
    pub(crate) fn check_again(&self, request: &Command, peer: &Peer) -> Option<Command> {
        let refused = self.check.get()?.check(request, peer)?;
        if let Some(audit) = self.audit.get() {
            audit.refused(request, peer.remote(), refused.answer.code, &refused.why);
        }
        Some(refused.answer)
    }
}
