//! Requests 50, 51 and 53: how they change the files (Apache `PlainPermissionManager`).

use super::accounts::{
    ACCESS_KEY, ACCOUNTS, ADDRESS, ADMIN, Accounts, DEFAULT_GROUP, DEFAULT_TOPIC, Files, GROUPS, SECRET_KEY,
    TOPICS, VERSION, WHITE, check_keys, version,
};
use super::yaml;
use crate::error::AuthError;
use pyrmq_remoting::Fields;
use pyrmq_remoting::codes::request;
use saphyr::{Mapping, Scalar, Yaml};

/// A file with its new content, which is not yet written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Which of the files changes; it is new if it is none of them.
    pub path: String,
    /// The file's new content.
    pub text: Vec<u8>,
}

/// What a request does to one file.
enum Edit<'f> {
    Put(&'f Fields),
    Drop(&'f str),
    White(&'f str),
}

/// The change that a request describes. New accounts go to the file `main`. A change after which the files together
/// could not be read is refused.
pub fn changed(
    files: &Files,
    main: &str,
    code: i32,
    fields: &Fields,
    now_ms: u64,
) -> Result<Change, AuthError> {
    let field = |name| fields.get(name).unwrap_or_default();
    let (path, edit) = match code {
        request::UPDATE_AND_CREATE_ACL_CONFIG => {
            check_keys(field(ACCESS_KEY), field(SECRET_KEY))?;
            let holder = holder(files, field(ACCESS_KEY))?;
            (holder.unwrap_or(main), Edit::Put(fields))
        }
        request::DELETE_ACL_CONFIG => {
            let name = field(ACCESS_KEY);
            let holder = holder(files, name)?.ok_or_else(|| AuthError::NoAccount(name.to_owned()))?;
            (holder, Edit::Drop(name))
        }
        request::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG => {
            let path = Some(field("aclFileFullPath")).filter(|path| !path.is_empty());
            let path = path.unwrap_or(main);
            if path != main && files.iter().all(|(known, _)| known != path) {
                return Err(AuthError::NoFile(path.to_owned()));
            }
            (path, Edit::White(field("globalWhiteAddrs")))
        }
        _ => return Err(AuthError::NotAdmin(code)),
    };
    let mut after = files.clone();
    let at = after.iter().position(|(known, _)| known == path);
    let old = at.map_or_else(Vec::new, |at| after.remove(at).1);
    let mut file = yaml::read(&old)?;
    match edit {
        Edit::Put(fields) => put_account(&mut file, fields)?,
        Edit::Drop(name) => accounts(&mut file)?.retain(|account| access_key(account) != Some(name)),
        Edit::White(addresses) => yaml::set(&mut file, WHITE, list(addresses)),
    }
    count_change(&mut file, now_ms)?;
    let change = Change {
        path: path.to_owned(),
        text: yaml::write(file),
    };
    after.push((change.path.clone(), change.text.clone()));
    Accounts::parse(&after)?;
    Ok(change)
}

/// The file that has an account.
fn holder<'f>(files: &'f Files, name: &str) -> Result<Option<&'f str>, AuthError> {
    for (path, text) in files {
        if accounts(&mut yaml::read(text)?)?
            .iter()
            .any(|account| access_key(account) == Some(name))
        {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn access_key<'n>(account: &'n Yaml<'_>) -> Option<&'n str> {
    let Yaml::Mapping(account) = account else {
        return None;
    };
    yaml::text(account, ACCESS_KEY, ACCOUNTS).ok().flatten()
}

/// The accounts of a file; the list is created if there is none.
fn accounts<'m, 'y>(file: &'m mut Mapping<'y>) -> Result<&'m mut Vec<Yaml<'y>>, AuthError> {
    if yaml::get(file, ACCOUNTS).is_none_or(yaml::is_null) {
        yaml::set(file, ACCOUNTS, Yaml::Sequence(Vec::new()));
    }
    match yaml::get_mut(file, ACCOUNTS) {
        Some(Yaml::Sequence(accounts)) => Ok(accounts),
        _ => Err(yaml::wrong(ACCOUNTS, "the file", "not a list", "give a list")),
    }
}

/// Adds an account, or changes what the request names of one. As in Apache, a request that does not name `admin` makes
/// it an account without these rights.
fn put_account(file: &mut Mapping<'_>, fields: &Fields) -> Result<(), AuthError> {
    let name = fields.get(ACCESS_KEY).unwrap_or_default();
    let all = accounts(file)?;
    let at = all
        .iter()
        .position(|account| access_key(account) == Some(name))
        .unwrap_or(all.len());
    if at == all.len() {
        all.push(Yaml::Mapping(Mapping::new()));
    }
    let Some(Yaml::Mapping(account)) = all.get_mut(at) else {
        return Ok(());
    };
    for key in [ACCESS_KEY, SECRET_KEY, ADDRESS] {
        if let Some(text) = fields.get(key) {
            yaml::set(account, key, yaml::string(text));
        }
    }
    let is_admin = fields
        .get(ADMIN)
        .is_some_and(|text| text.eq_ignore_ascii_case("true"));
    yaml::set(account, ADMIN, Yaml::Value(Scalar::Boolean(is_admin)));
    for key in [DEFAULT_TOPIC, DEFAULT_GROUP] {
        if let Some(text) = fields.get(key).filter(|text| !text.is_empty()) {
            yaml::set(account, key, yaml::string(text));
        }
    }
    for key in [TOPICS, GROUPS] {
        if let Some(text) = fields.get(key) {
            yaml::set(account, key, list(text));
        }
    }
    Ok(())
}

/// The items between commas, but not those between braces: `192.168.1.{7,9}` is one address.
fn list(text: &str) -> Yaml<'static> {
    let mut depth = 0_usize;
    let items = text.split(|letter: char| {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    });
    let items = items.map(str::trim).filter(|item| !item.is_empty());
    Yaml::Sequence(items.map(yaml::string).collect())
}

/// Counts a change of a file, so that `clusterAclConfigVersion` shows which brokers have it. Other members stay.
fn count_change(file: &mut Mapping<'_>, now_ms: u64) -> Result<(), AuthError> {
    let counter = version(file)?.counter.saturating_add(1);
    let mut first = match yaml::items(file, VERSION, "the file")?.first() {
        Some(Yaml::Mapping(first)) => first.clone(),
        _ => Mapping::new(),
    };
    let number = |number: u64| Yaml::Value(Scalar::Integer(i64::try_from(number).unwrap_or(i64::MAX)));
    yaml::set(&mut first, "counter", number(counter));
    yaml::set(&mut first, "timestamp", number(now_ms));
    yaml::set(file, VERSION, Yaml::Sequence(vec![Yaml::Mapping(first)]));
    Ok(())
}
