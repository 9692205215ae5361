//! The accounts of all files together (Apache `PlainPermissionManager.load`).

use super::address::{self, AddressPattern};
use super::permission::Permission;
use super::yaml;
use crate::error::AuthError;
use crate::secret::Secret;
use crate::signature::Key;
use pyrmq_remoting::body::{Body, GetBrokerClusterAclConfigResponseBody, PlainAccessConfig};
use pyrmq_remoting::names::group_of_retry;
use saphyr::{Mapping, Yaml};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

/// Paths and contents of files, in the order in which they are read.
pub type Files = Vec<(String, Vec<u8>)>;

pub(super) const FILE_KEYS: &[&str] = &[WHITE, ACCOUNTS, VERSION];
pub(super) const WHITE: &str = "globalWhiteRemoteAddresses";
pub(super) const ACCOUNTS: &str = "accounts";
pub(super) const VERSION: &str = "dataVersion";
pub(super) const ACCESS_KEY: &str = "accessKey";
pub(super) const SECRET_KEY: &str = "secretKey";
pub(super) const ADDRESS: &str = "whiteRemoteAddress";
pub(super) const ADMIN: &str = "admin";
pub(super) const DEFAULT_TOPIC: &str = "defaultTopicPerm";
pub(super) const DEFAULT_GROUP: &str = "defaultGroupPerm";
pub(super) const TOPICS: &str = "topicPerms";
pub(super) const GROUPS: &str = "groupPerms";
const ACCOUNT_KEYS: &[&str] = &[
    ACCESS_KEY,
    SECRET_KEY,
    ADDRESS,
    ADMIN,
    DEFAULT_TOPIC,
    DEFAULT_GROUP,
    TOPICS,
    GROUPS,
];

/// Access keys and secret keys are longer than this (Apache `AclConstants.ACCESS_KEY_MIN_LENGTH`).
const SHORT_KEY: usize = 6;

/// The state of a file (Apache `DataVersion`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Version {
    /// How often requests have changed it.
    pub counter: u64,
    /// When the last one did, in milliseconds.
    pub timestamp_ms: u64,
}

/// One account.
#[derive(Clone)]
pub(super) struct Account {
    pub(super) key: Key,
    pub(super) is_admin: bool,
    white: AddressPattern,
    default_topic: Permission,
    default_group: Permission,
    topics: HashMap<String, Permission>,
    groups: HashMap<String, Permission>,
    /// The account as the file has it, with the secret.
    config: PlainAccessConfig,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("config", &"***")
            .finish_non_exhaustive()
    }
}

impl Account {
    /// Whether requests from this address need no signature.
    pub(super) fn is_white(&self, source: IpAddr) -> bool {
        self.white.matches(source)
    }

    /// Whether it may do everything. An administrator with permissions of its own has only these, as in Apache.
    pub(super) fn may_everything(&self) -> bool {
        self.is_admin && self.topics.is_empty() && self.groups.is_empty()
    }

    pub(super) fn of_topic(&self, topic: &str) -> Permission {
        self.topics.get(topic).copied().unwrap_or(self.default_topic)
    }

    pub(super) fn of_group(&self, group: &str) -> Permission {
        self.groups.get(group).copied().unwrap_or(self.default_group)
    }
}

/// The accounts and white addresses of all files.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    white: Vec<AddressPattern>,
    white_texts: Vec<String>,
    by_key: HashMap<String, Account>,
    order: Vec<String>,
    versions: Vec<(String, Version)>,
    unknown: Vec<String>,
}

impl Accounts {
    /// Reads the files. Anything wrong or contradictory is an error that names the file.
    pub fn parse(files: &Files) -> Result<Self, AuthError> {
        let mut all = Self::default();
        for (path, text) in files {
            all.add(path, text).map_err(|error| AuthError::InFile {
                path: path.clone(),
                error: Box::new(error),
            })?;
        }
        if all.by_key.is_empty() && all.white.is_empty() {
            return Err(AuthError::Nobody);
        }
        Ok(all)
    }

    fn add(&mut self, path: &str, text: &[u8]) -> Result<(), AuthError> {
        let file = yaml::read(text)?;
        self.unknown.extend(yaml::unknown(&file, FILE_KEYS, path)?);
        for (at, item) in yaml::items(&file, WHITE, "the file")?.iter().enumerate() {
            let context = format!("item {} of `{WHITE}`", at + 1);
            let text = yaml::scalar(item, "the address", &context)?.unwrap_or_default();
            if text.trim().is_empty() {
                continue;
            }
            self.white.push(pattern(text, "the address", &context)?);
            self.white_texts.push(text.to_owned());
        }
        for (at, item) in yaml::items(&file, ACCOUNTS, "the file")?.iter().enumerate() {
            let context = format!("account {}", at + 1);
            let Yaml::Mapping(item) = item else {
                return Err(yaml::wrong(
                    ACCOUNTS,
                    &context,
                    "not a mapping",
                    "begin it with `- accessKey:`",
                ));
            };
            for unknown in yaml::unknown(item, ACCOUNT_KEYS, &context)? {
                self.unknown.push(format!("{unknown} of {path}"));
            }
            let (name, account) = account(item, &context)?;
            if self.by_key.contains_key(&name) {
                return Err(AuthError::Twice {
                    what: format!("the access key {name}"),
                });
            }
            self.order.push(name.clone());
            self.by_key.insert(name, account);
        }
        self.versions.push((path.to_owned(), version(&file)?));
        Ok(())
    }

    /// Number of accounts.
    pub fn count(&self) -> usize {
        self.by_key.len()
    }

    /// Keys that nothing reads, and where they are. They stay in the files.
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// The files, each with its state.
    pub fn versions(&self) -> &[(String, Version)] {
        &self.versions
    }

    /// Whether every request from this address is served.
    pub(super) fn is_white(&self, source: IpAddr) -> bool {
        self.white.iter().any(|pattern| pattern.matches(source))
    }

    pub(super) fn account(&self, access_key: &str) -> Option<&Account> {
        self.by_key.get(access_key)
    }

    /// All accounts with their secrets, as request 54 is answered.
    pub fn to_json(&self) -> Vec<u8> {
        let accounts = self.order.iter().filter_map(|name| self.by_key.get(name));
        let body = GetBrokerClusterAclConfigResponseBody {
            global_white_addrs: self.white_texts.clone(),
            plain_access_configs: accounts.map(|account| account.config.clone()).collect(),
        };
        body.encode()
    }
}

fn pattern(text: &str, key: &str, context: &str) -> Result<AddressPattern, AuthError> {
    AddressPattern::parse(text).ok_or_else(|| yaml::wrong(key, context, text, address::EXPECTED))
}

/// Refuses keys that Apache finds too short.
pub(super) fn check_keys(access_key: &str, secret_key: &str) -> Result<(), AuthError> {
    let is_short = |key: &str| key.chars().count() <= SHORT_KEY;
    if is_short(access_key) || is_short(secret_key) {
        return Err(AuthError::ShortKey {
            access_key: access_key.to_owned(),
        });
    }
    Ok(())
}

fn account(item: &Mapping<'_>, context: &str) -> Result<(String, Account), AuthError> {
    let name = yaml::literal(item, ACCESS_KEY, context)?
        .unwrap_or_default()
        .to_owned();
    let secret = yaml::literal(item, SECRET_KEY, context)?
        .unwrap_or_default()
        .to_owned();
    check_keys(&name, &secret)?;
    let context = &format!("account {name}");
    let address = yaml::text(item, ADDRESS, context)?.map(str::to_owned);
    let (default_topic, topic_text) = default_permission(item, DEFAULT_TOPIC, context)?;
    let (default_group, group_text) = default_permission(item, DEFAULT_GROUP, context)?;
    let mut permissions = Permissions::default();
    let topic_perms = permissions.add(item, TOPICS, &name)?;
    let group_perms = permissions.add(item, GROUPS, &name)?;
    let is_admin = yaml::boolean(item, ADMIN, context)?;
    let key = Key::new(&Secret::new(secret.as_str())).ok_or_else(|| AuthError::ShortKey {
        access_key: name.clone(),
    })?;
    let account = Account {
        key,
        is_admin,
        white: pattern(address.as_deref().unwrap_or_default(), ADDRESS, context)?,
        default_topic,
        default_group,
        topics: permissions.topics,
        groups: permissions.groups,
        config: PlainAccessConfig {
            access_key: Some(name.clone()),
            admin: is_admin,
            default_group_perm: group_text,
            default_topic_perm: topic_text,
            group_perms,
            secret_key: Some(secret),
            topic_perms,
            white_remote_address: address,
        },
    };
    Ok((name, account))
}

fn default_permission(
    item: &Mapping<'_>,
    key: &str,
    context: &str,
) -> Result<(Permission, Option<String>), AuthError> {
    let Some(text) = yaml::text(item, key, context)? else {
        return Ok((Permission::default(), None));
    };
    let permission =
        Permission::parse(text).ok_or_else(|| yaml::wrong(key, context, text, Permission::EXPECTED))?;
    Ok((permission, Some(text.to_owned())))
}

/// What an account lists.
#[derive(Debug, Default)]
struct Permissions {
    topics: HashMap<String, Permission>,
    groups: HashMap<String, Permission>,
}

impl Permissions {
    /// Adds a list of `name=permission`, and returns it as it is.
    fn add(&mut self, item: &Mapping<'_>, key: &str, name: &str) -> Result<Option<Vec<String>>, AuthError> {
        let context = format!("account {name}");
        let mut listed = Vec::new();
        for item in yaml::items(item, key, &context)? {
            let text = yaml::scalar(item, key, &context)?.unwrap_or_default();
            self.add_one(text, key, name)?;
            listed.push(text.to_owned());
        }
        Ok(yaml::get(item, key).is_some().then_some(listed))
    }

    fn add_one(&mut self, text: &str, key: &str, name: &str) -> Result<(), AuthError> {
        let context = format!("account {name}");
        let (resource, permission) = text
            .split_once('=')
            .filter(|(resource, _)| !resource.trim().is_empty())
            .ok_or_else(|| {
                yaml::wrong(
                    key,
                    &context,
                    text,
                    "give a name and a permission, such as `orders=PUB`",
                )
            })?;
        let permission = Permission::parse(permission)
            .ok_or_else(|| yaml::wrong(key, &context, text, Permission::EXPECTED))?;
        let resource = resource.trim();
        // The retry topic of a group stands for the group.
        let (known, resource) = match group_of_retry(resource) {
            Some(group) => (&mut self.groups, group),
            None if key == GROUPS => (&mut self.groups, resource),
            None => (&mut self.topics, resource),
        };
        match known.insert(resource.to_owned(), permission) {
            Some(first) if first != permission => Err(AuthError::Contradiction {
                account: name.to_owned(),
                resource: resource.to_owned(),
                first: first.to_string(),
                second: permission.to_string(),
            }),
            _ => Ok(()),
        }
    }
}

/// The state of a file. Request 52 shows it.
pub(super) fn version(file: &Mapping<'_>) -> Result<Version, AuthError> {
    let Some(first) = yaml::items(file, VERSION, "the file")?.first() else {
        return Ok(Version::default());
    };
    let number = |key| {
        let text = match first {
            Yaml::Mapping(first) => yaml::text(first, key, VERSION)?.unwrap_or("0"),
            _ => "",
        };
        text.parse()
            .map_err(|_| yaml::wrong(key, VERSION, text, "give a number, or remove `dataVersion`"))
    };
    Ok(Version {
        counter: number("counter")?,
        timestamp_ms: number("timestamp")?,
    })
}
