//! The users and policies of a server, their file, and how requests 3001 to 3010 change them.
//!
//! ```text
//! {"users":[{"username":"alice","password":"..","userType":"Super","userStatus":"enable"}],
//!  "acls":[{"subject":"User:bob","policies":[{"policyType":"Custom","entries":[
//!    {"resource":"Topic:orders*","actions":["Pub","Sub"],"sourceIps":["10.0.0.0/8"],"decision":"Allow"}]}]}]}
//! ```
//! The objects are those of Apache's requests. `previousPassword` is ours: it is valid in addition to the password, so
//! that a secret changes without a moment in which half of the clients are refused. Apache keeps all this in RocksDB.

use crate::error::AuthError;
use crate::members::{check_keys, check_lists, check_texts, items, wrong};
use crate::policy::{Acl, PolicyType};
use crate::resource::Resource;
use crate::secret::Secret;
use crate::signature::Key;
use pyrmq_remoting::body::{AclInfo, BodyValue, Json, Key as Name, Style, UserInfo, Writer};
use std::collections::BTreeMap;

/// What a user may do in addition to what policies allow (Apache `UserType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserType {
    /// The user may do everything.
    Super,
    /// The user may do what policies allow.
    Normal,
}

/// Whether a user may do anything (Apache `UserStatus`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserStatus {
    /// The user's requests are served.
    Enable,
    /// Every request of the user is refused.
    Disable,
}

/// One user.
#[derive(Debug, Clone)]
pub struct User {
    /// What the user may do in addition to what policies allow.
    pub kind: UserType,
    /// Whether the user may do anything.
    pub status: UserStatus,
    password: Secret,
    previous: Option<Secret>,
    keys: Vec<Key>,
}

impl User {
    pub(crate) fn keys(&self) -> &[Key] {
        &self.keys
    }

    fn new(password: Secret, previous: Option<Secret>, kind: UserType, status: UserStatus) -> Self {
        let keys = std::iter::once(&password).chain(&previous);
        Self {
            kind,
            status,
            keys: keys.filter_map(Key::new).collect(),
            password,
            previous,
        }
    }
}

/// All users, and the policies of each.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    users: BTreeMap<String, User>,
    acls: BTreeMap<String, Acl>,
}

const USER_KEYS: &[&str] = &[
    "username",
    "password",
    "previousPassword",
    "userType",
    "userStatus",
];
const ACL_KEYS: &[&str] = &["subject", "policies"];
const POLICY_KEYS: &[&str] = &["policyType", "entries"];
const ENTRY_KEYS: &[&str] = &["resource", "actions", "sourceIps", "decision"];

fn kind_of(text: Option<&str>) -> Result<Option<UserType>, AuthError> {
    match text {
        None | Some("") => Ok(None),
        Some(text) if text.eq_ignore_ascii_case("Super") => Ok(Some(UserType::Super)),
        Some(text) if text.eq_ignore_ascii_case("Normal") => Ok(Some(UserType::Normal)),
        Some(text) => Err(wrong("userType", text, "give Super or Normal")),
    }
}

fn status_of(text: Option<&str>) -> Result<Option<UserStatus>, AuthError> {
    match text {
        None | Some("") => Ok(None),
        Some(text) if text.eq_ignore_ascii_case("enable") => Ok(Some(UserStatus::Enable)),
        Some(text) if text.eq_ignore_ascii_case("disable") => Ok(Some(UserStatus::Disable)),
        Some(text) => Err(wrong("userStatus", text, "give enable or disable")),
    }
}

/// The user's name of `User:name`.
fn user_of(subject: &str) -> Result<&str, AuthError> {
    let name = subject.strip_prefix("User:").filter(|name| !name.is_empty());
    name.ok_or_else(|| wrong("subject", subject, "give `User:` and the user's name"))
}

impl Rules {
    /// Reads a file's text. Anything unknown or missing is an error. Policies that contradict each other are none,
    /// since a server of Apache starts with them. See [`Self::contradictions`].
    pub fn parse(text: &[u8]) -> Result<Self, AuthError> {
        let json = Json::parse(text)?;
        check_keys(&json, &["users", "acls"], "the file")?;
        let mut rules = Self::default();
        for user in items(&json, "users")? {
            check_keys(user, USER_KEYS, "a user")?;
            check_texts(user, USER_KEYS)?;
            let previous = user.get("previousPassword").and_then(Json::as_str);
            let previous = previous.filter(|text| !text.is_empty()).map(Secret::new);
            let info = UserInfo::read(user.clone(), "users")?;
            rules.add_user(&info, previous)?;
        }
        for acl in items(&json, "acls")? {
            check_keys(acl, ACL_KEYS, "an ACL")?;
            check_texts(acl, &["subject"])?;
            for policy in items(acl, "policies")? {
                check_keys(policy, POLICY_KEYS, "a policy")?;
                check_texts(policy, &["policyType"])?;
                for entry in items(policy, "entries")? {
                    check_keys(entry, ENTRY_KEYS, "an entry")?;
                    check_texts(entry, &["resource", "decision"])?;
                    check_lists(entry, &["actions", "sourceIps"])?;
                }
            }
            let info = AclInfo::read(acl.clone(), "acls")?;
            let subject = info.subject.clone().unwrap_or_default();
            let name = user_of(&subject)?;
            if rules.acls.contains_key(name) {
                return Err(AuthError::Twice { what: subject });
            }
            let acl = rules.read_acl(name, &info)?;
            rules.acls.insert(name.to_owned(), acl);
        }
        if rules.users.is_empty() {
            return Err(AuthError::NoUsers);
        }
        Ok(rules)
    }

    /// The text of the file.
    pub fn to_text(&self) -> Vec<u8> {
        let mut text = self.to_json().to_bytes(Style::PLAIN);
        text.push(b'\n');
        text
    }

    fn to_json(&self) -> Json {
        let text = |text: &str| Json::Str(text.to_owned());
        let users = self.users.iter().map(|(name, user)| {
            let info = Self::user_info(name, user, true);
            let mut members = vec![
                (Name::Str("username".into()), text(name)),
                (Name::Str("password".into()), text(user.password.expose())),
                (
                    Name::Str("userType".into()),
                    text(info.user_type.as_deref().unwrap_or_default()),
                ),
                (
                    Name::Str("userStatus".into()),
                    text(info.user_status.as_deref().unwrap_or_default()),
                ),
            ];
            if let Some(previous) = &user.previous {
                members.push((Name::Str("previousPassword".into()), text(previous.expose())));
            }
            Json::Object(members)
        });
        let acls = self.acls.iter().map(|(name, acl)| {
            let mut writer = Writer::new(Style::PLAIN);
            acl.info(&format!("User:{name}")).write(&mut writer);
            Json::parse(&writer.finish()).unwrap_or(Json::Null)
        });
        Json::Object(vec![
            (Name::Str("users".into()), Json::Array(users.collect())),
            (Name::Str("acls".into()), Json::Array(acls.collect())),
        ])
    }

    /// A user by name.
    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// The policies of a user.
    pub fn acl(&self, name: &str) -> Option<&Acl> {
        self.acls.get(name)
    }

    /// Number of users.
    pub fn user_count(&self) -> usize {
        self.users.len()
    }

    /// Whether an enabled user may do everything.
    pub(crate) fn has_super(&self) -> bool {
        let mut users = self.users.values();
        users.any(|user| user.kind == UserType::Super && user.status == UserStatus::Enable)
    }

    fn add_user(&mut self, info: &UserInfo, previous: Option<Secret>) -> Result<(), AuthError> {
        let name = info.username.clone().unwrap_or_default();
        if name.trim().is_empty() {
            return Err(wrong("username", &name, "give a name"));
        }
        if name.trim() != name {
            return Err(wrong("username", &name, "give a name without blanks at its ends"));
        }
        if name.contains(':') {
            return Err(wrong("username", &name, "give a name without a colon"));
        }
        if self.users.contains_key(&name) {
            return Err(AuthError::UserExists(name));
        }
        let password = Secret::new(info.password.clone().unwrap_or_default());
        if password.expose().trim().is_empty() {
            return Err(wrong("password", "", "give a password that is not empty"));
        }
        let kind = kind_of(info.user_type.as_deref())?.unwrap_or(UserType::Normal);
        let status = status_of(info.user_status.as_deref())?.unwrap_or(UserStatus::Enable);
        self.users
            .insert(name, User::new(password, previous, kind, status));
        Ok(())
    }

    /// Adds a user (3001).
    pub fn create_user(&mut self, info: &UserInfo) -> Result<(), AuthError> {
        self.add_user(info, None)
    }

    /// Changes what is given of a user (3002). A new password replaces the old one at once.
    pub fn update_user(&mut self, info: &UserInfo) -> Result<(), AuthError> {
        let name = info.username.as_deref().unwrap_or_default();
        let old = self
            .users
            .get(name)
            .ok_or_else(|| AuthError::NoUser(name.to_owned()))?;
        let given = info.password.as_deref().filter(|text| !text.trim().is_empty());
        let previous = if given.is_some() {
            None
        } else {
            old.previous.clone()
        };
        let user = User::new(
            given.map_or_else(|| old.password.clone(), Secret::new),
            previous,
            kind_of(info.user_type.as_deref())?.unwrap_or(old.kind),
            status_of(info.user_status.as_deref())?.unwrap_or(old.status),
        );
        self.users.insert(name.to_owned(), user);
        Ok(())
    }

    /// Removes a user with its policies (3003); one that does not exist is no error, as in Apache.
    pub fn delete_user(&mut self, name: &str) {
        self.users.remove(name);
        self.acls.remove(name);
    }

    /// A user as an answer has it (3004). Only a super user is shown passwords: whoever sees one can act as its user.
    pub fn get_user(&self, name: &str, with_password: bool) -> Option<UserInfo> {
        let user = self.users.get(name)?;
        Some(Self::user_info(name, user, with_password))
    }

    /// The users whose name contains a text (3005).
    pub fn list_users(&self, filter: &str, with_password: bool) -> Vec<UserInfo> {
        let found = self.users.iter().filter(|(name, _)| name.contains(filter));
        found
            .map(|(name, user)| Self::user_info(name, user, with_password))
            .collect()
    }

    fn user_info(name: &str, user: &User, with_password: bool) -> UserInfo {
        let (kind, status) = (user.kind, user.status);
        UserInfo {
            password: with_password.then(|| user.password.expose().to_owned()),
            user_status: Some(
                if status == UserStatus::Enable {
                    "enable"
                } else {
                    "disable"
                }
                .to_owned(),
            ),
            user_type: Some(
                if kind == UserType::Super {
                    "Super"
                } else {
                    "Normal"
                }
                .to_owned(),
            ),
            username: Some(name.to_owned()),
        }
    }

    fn read_acl(&self, name: &str, info: &AclInfo) -> Result<Acl, AuthError> {
        if !self.users.contains_key(name) {
            return Err(AuthError::NoUser(name.to_owned()));
        }
        Acl::read(info.policies.as_deref().unwrap_or_default())
    }

    /// Returns which policies contradict each other: the one that denies decides then.
    pub fn contradictions(&self) -> Vec<AuthError> {
        let acls = self.acls.iter();
        acls.flat_map(|(name, acl)| acl.contradictions(&format!("User:{name}")))
            .collect()
    }

    /// Adds policies to those of a user; entries for the same resource are replaced (3006 and 3007). Policies that
    /// contradict each other are refused.
    pub fn put_acl(&mut self, subject: &str, info: &AclInfo) -> Result<(), AuthError> {
        let name = user_of(subject)?;
        let acl = self.read_acl(name, info)?;
        if let Some(error) = acl.contradictions(subject).into_iter().next() {
            return Err(error);
        }
        self.acls.entry(name.to_owned()).or_default().merge(acl);
        Ok(())
    }

    /// Removes the entries of one resource, or all policies of a user (3008).
    pub fn delete_acl(
        &mut self,
        subject: &str,
        kind: Option<&str>,
        resource: Option<&str>,
    ) -> Result<(), AuthError> {
        let name = user_of(subject)?;
        if !self.users.contains_key(name) {
            return Err(AuthError::NoUser(name.to_owned()));
        }
        let kind = PolicyType::from_name(kind)?;
        let acl = self
            .acls
            .get_mut(name)
            .ok_or_else(|| AuthError::NoAcl(subject.to_owned()))?;
        if let Some(text) = resource.filter(|text| !text.is_empty()) {
            let resource =
                Resource::parse(text).ok_or_else(|| wrong("resource", text, "give it as `Topic:orders`"))?;
            acl.remove(kind, &resource);
            if !acl.is_empty() {
                return Ok(());
            }
        }
        self.acls.remove(name);
        Ok(())
    }

    /// The policies of a user as an answer has them (3009).
    pub fn get_acl(&self, subject: &str) -> Result<Option<AclInfo>, AuthError> {
        let name = user_of(subject)?;
        if !self.users.contains_key(name) {
            return Err(AuthError::NoUser(name.to_owned()));
        }
        Ok(self.acls.get(name).map(|acl| acl.info(subject)))
    }

    /// The policies of the subjects and resources that contain these texts (3010).
    pub fn list_acls(&self, subject_filter: &str, resource_filter: &str) -> Vec<AclInfo> {
        let subjects = self.acls.iter().map(|(name, acl)| (format!("User:{name}"), acl));
        let found = subjects.filter(|(subject, acl)| {
            subject.contains(subject_filter) && (resource_filter.is_empty() || acl.mentions(resource_filter))
        });
        found.map(|(subject, acl)| acl.info(&subject)).collect()
    }
}
