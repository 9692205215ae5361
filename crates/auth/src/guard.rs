//! Checks the requests of a server: who sent it, and may that user do it (Apache `AuthenticationPipeline`,
//! `AuthorizationPipeline`).

use crate::policy::Decision;
use crate::requests::{one_topic, required_rights};
use crate::resource::ResourceType;
use crate::rules::{Rules, User, UserStatus, UserType};
use crate::shortened::short;
use crate::signature::{ACCESS_KEY, is_signed};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::net::{Peer, Refused, RequestCheck};
use pyrmq_remoting::sync::{read, write};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

/// What a server checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switches {
    /// Whether the user's policies are checked; otherwise every user may do everything.
    pub authorization: bool,
}

/// Checks each request against the rules in force. Signatures are always checked.
#[derive(Debug)]
pub struct Guard {
    switches: Switches,
    cluster: String,
    // Guards which rules are in force; held only to clone the pointer.
    rules: RwLock<Arc<Rules>>,
    refused: AtomicU64,
}

impl Guard {
    /// A guard of a cluster of this name.
    pub fn new(cluster: impl Into<String>, switches: Switches, rules: Rules) -> Self {
        Self {
            switches,
            cluster: cluster.into(),
            rules: RwLock::new(Arc::new(rules)),
            refused: AtomicU64::new(0),
        }
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<Rules> {
        read(&self.rules).clone()
    }

    /// Puts other rules in force, from the next request on.
    pub fn replace(&self, rules: Rules) {
        *write(&self.rules) = Arc::new(rules);
    }

    /// Requests that were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Why a request from this address may not be served; `None`: it may. A request without a user, of an unknown user
    /// and with a wrong signature are told apart only in the log: an answer must not tell which users there are.
    pub fn refusal(&self, request: &Command, source: IpAddr) -> Option<Refusal> {
        let rules = self.rules();
        let (name, user) = match authenticate(&rules, request) {
            Ok(found) => found,
            Err(why) => {
                return Some(Refusal {
                    remark: "authentication failed: check the access key, the secret key and that the user is enabled"
                        .to_owned(),
                    why,
                    is_failed_login: claims_user(request),
                });
            }
        };
        let remark = self.lacking(&rules, (name, user), request, source)?;
        Some(Refusal {
            why: remark.clone(),
            remark,
            is_failed_login: false,
        })
    }

    /// Which right a user lacks for a request; `None`: none.
    fn lacking(
        &self,
        rules: &Rules,
        (name, user): (&str, &User),
        request: &Command,
        source: IpAddr,
    ) -> Option<String> {
        if !self.switches.authorization || user.kind == UserType::Super {
            return None;
        }
        let acl = rules.acl(name);
        // Sends: what is allowed needs no list of rights, which costs memory.
        if let (Some(acl), Some((topic, actions))) = (acl, one_topic(request))
            && acl.decide_on((ResourceType::Topic, topic), actions, source) == Some(Decision::Allow)
        {
            return None;
        }
        let rights = match required_rights(request, &self.cluster) {
            Ok(rights) => rights,
            Err(error) => return Some(short(&format!("cannot say what the request does: {error}"))),
        };
        for right in rights {
            let decided = acl.and_then(|acl| acl.decide(&right.resource, right.actions, source));
            let detail = match decided {
                Some(Decision::Allow) => continue,
                Some(Decision::Deny) => "the decision is deny",
                None => "no matched policies",
            };
            let (name, resource) = (short(name), short(&right.resource.to_string()));
            return Some(format!(
                "User:{name} has no permission to access {resource} from {source}, {detail}."
            ));
        }
        None
    }
}

/// Why a request is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What the answer says.
    pub remark: String,
    /// What the log says.
    pub why: String,
    /// The sender claims to be a user and is not.
    pub is_failed_login: bool,
}

fn claims_user(request: &Command) -> bool {
    let name = request.fields.get(ACCESS_KEY);
    name.is_some_and(|name| !name.is_empty())
}

fn authenticate<'r>(rules: &'r Rules, request: &'r Command) -> Result<(&'r str, &'r User), String> {
    let Some(name) = request.fields.get(ACCESS_KEY).filter(|name| !name.is_empty()) else {
        return Err("the request is not signed".to_owned());
    };
    let Some(user) = rules.user(name) else {
        return Err(format!("there is no user {:?}", short(name)));
    };
    if !is_signed(request, user.keys()) {
        return Err(format!("the signature is not that of user {:?}", short(name)));
    }
    if user.status == UserStatus::Disable {
        return Err(format!("user {:?} is disabled", short(name)));
    }
    Ok((name, user))
}

impl RequestCheck for Guard {
    fn check(&self, request: &Command, peer: &Peer) -> Option<Refused> {
        let refusal = self.refusal(request, peer.remote().ip())?;
        self.refused.fetch_add(1, Ordering::Relaxed);
        Some(Refused {
            answer: Command::error(response::NO_PERMISSION, refusal.remark),
            why: refusal.why,
            is_failed_login: refusal.is_failed_login,
        })
    }

    fn user<'r>(&self, request: &'r Command) -> Option<&'r str> {
        request.fields.get(ACCESS_KEY)
    }

    fn may(&self, user: &str, request: &Command, source: IpAddr) -> bool {
        let rules = self.rules();
        let known = rules.user(user).filter(|user| user.status == UserStatus::Enable);
        known.is_some_and(|known| self.lacking(&rules, (user, known), request, source).is_none())
    }
}
