//! Decides whether a request may be served, and with which words it is refused (Apache
//! `PlainPermissionManager.validate`).

use super::accounts::{Account, Accounts};
use super::needs::{Need, Stop, each_need, is_trace};
use crate::shortened::short;
use crate::signature::{ACCESS_KEY, is_signed};
use pyrmq_remoting::Command;
use pyrmq_remoting::codes::response;
use pyrmq_remoting::net::{Peer, Refused, RequestCheck};
use pyrmq_remoting::sync::{read, write};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

/// How an answer of Apache's broker begins when this module refuses a request: with the exception's name.
const EXCEPTION: &str = "org.apache.rocketmq.acl.common.AclException: ";

/// Checks each request of a broker against the accounts in force.
#[derive(Debug, Default)]
pub struct PlainGuard {
    // Guards which accounts are in force; held only to clone the pointer.
    accounts: RwLock<Arc<Accounts>>,
    refused: AtomicU64,
}

impl PlainGuard {
    /// A guard with these accounts.
    pub fn new(accounts: Accounts) -> Self {
        Self {
            accounts: RwLock::new(Arc::new(accounts)),
            refused: AtomicU64::new(0),
        }
    }

    /// The accounts in force.
    pub fn accounts(&self) -> Arc<Accounts> {
        read(&self.accounts).clone()
    }

    /// Puts other accounts in force, from the next request on.
    pub fn replace(&self, accounts: Accounts) {
        *write(&self.accounts) = Arc::new(accounts);
    }

    /// Requests that were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Why a request from this address may not be served, in Apache's words; `None`: it may.
    pub fn refusal(&self, request: &Command, source: IpAddr) -> Option<String> {
        self.examine(request, source).err().map(|why| why.text)
    }

    fn examine(&self, request: &Command, source: IpAddr) -> Result<(), Why> {
        let accounts = self.accounts();
        if accounts.is_white(source) {
            return Ok(());
        }
        let failed_login = |text: String| Why {
            text,
            is_failed_login: true,
        };
        let Some(name) = request.fields.get(ACCESS_KEY) else {
            return Err(failed_login("No accessKey is configured".to_owned()));
        };
        let Some(account) = accounts.account(name) else {
            return Err(failed_login(format!("No acl config for {}", short(name))));
        };
        if account.is_white(source) {
            return Ok(());
        }
        if !is_signed(request, [&account.key]) {
            return Err(failed_login(format!(
                "Check signature failed for accessKey={name}"
            )));
        }
        let lacking = lacking(account, name, request);
        lacking.map_or(Ok(()), |text| {
            Err(Why {
                text,
                is_failed_login: false,
            })
        })
    }
}

/// Why a request is not served.
struct Why {
    text: String,
    is_failed_login: bool,
}

/// Which permission an account lacks for a request; `None`: none.
fn lacking(account: &Account, name: &str, request: &Command) -> Option<String> {
    if account.may_everything() || is_trace(request) {
        return None;
    }
    match each_need(request, &mut |need| check(account, name, request.code, need)) {
        Ok(()) => None,
        Err(Stop::Unmet(why)) => Some(why),
        Err(Stop::Body(error)) => Some(error.to_string()),
    }
}

fn check(account: &Account, name: &str, code: i32, need: Need<'_>) -> Result<(), String> {
    let is_met = match need {
        Need::Admin => account.is_admin,
        Need::Publish(topic) => account.of_topic(topic).publish,
        Need::Subscribe(topic) => account.of_topic(topic).subscribe,
        Need::Group(group) => account.of_group(group).subscribe,
    };
    if is_met {
        return Ok(());
    }
    Err(match need {
        Need::Admin => format!("Need admin permission for request code={code}, but accessKey={name} is not"),
        Need::Publish(topic) | Need::Subscribe(topic) => {
            format!("No default permission for topic:{}", short(topic))
        }
        Need::Group(group) => format!("No default permission for group:{}", short(group)),
    })
}

impl RequestCheck for PlainGuard {
    fn check(&self, request: &Command, peer: &Peer) -> Option<Refused> {
        let why = self.examine(request, peer.remote().ip()).err()?;
        self.refused.fetch_add(1, Ordering::Relaxed);
        Some(Refused {
            answer: Command::error(response::SYSTEM_ERROR, [EXCEPTION, &why.text].concat()),
            why: why.text,
            is_failed_login: why.is_failed_login,
        })
    }

    fn user<'r>(&self, request: &'r Command) -> Option<&'r str> {
        request.fields.get(ACCESS_KEY)
    }

    fn may(&self, user: &str, request: &Command, source: IpAddr) -> bool {
        let accounts = self.accounts();
        let account = accounts.account(user);
        accounts.is_white(source)
            || account
                .is_some_and(|account| account.is_white(source) || lacking(account, user, request).is_none())
    }
}
