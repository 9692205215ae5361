//! Requests 3001 to 3010: how they change users and policies, and what they are answered (Apache
//! `AdminBrokerProcessor`).

use crate::error::AuthError;
use crate::rules::{Rules, UserType};
use crate::signature::ACCESS_KEY;
use pyrmq_remoting::Fields;
use pyrmq_remoting::body::{AclInfo, Body, BodyValue, Style, UserInfo, Writer};
use pyrmq_remoting::codes::request;

fn field<'f>(fields: &'f Fields, name: &str) -> &'f str {
    fields.get(name).unwrap_or_default()
}

fn caller_is_super(rules: &Rules, fields: &Fields) -> bool {
    let caller = rules.user(field(fields, ACCESS_KEY));
    caller.is_some_and(|caller| caller.kind == UserType::Super)
}

/// Refuses to create, change or delete a super user, unless a super user requests it.
fn check_super(rules: &Rules, fields: &Fields, info: Option<&UserInfo>) -> Result<(), AuthError> {
    let names = |kind: &str| kind.eq_ignore_ascii_case("Super");
    let makes = info.and_then(|info| info.user_type.as_deref()).is_some_and(names);
    let known = rules.user(field(fields, "username"));
    let touches = known.is_some_and(|user| user.kind == UserType::Super);
    if (makes || touches) && !caller_is_super(rules, fields) {
        return Err(AuthError::OnlySuper);
    }
    Ok(())
}

/// The rules after a request that changes them. The caller writes them down before they are in force.
pub fn changed(before: &Rules, code: i32, fields: &Fields, body: &[u8]) -> Result<Rules, AuthError> {
    let mut rules = before.clone();
    let user = || -> Result<UserInfo, AuthError> {
        let mut info = UserInfo::decode(body)?;
        info.username = Some(field(fields, "username").to_owned());
        Ok(info)
    };
    match code {
        request::AUTH_CREATE_USER => {
            let info = user()?;
            check_super(&rules, fields, Some(&info))?;
            rules.create_user(&info)?;
        }
        request::AUTH_UPDATE_USER => {
            let info = user()?;
            check_super(&rules, fields, Some(&info))?;
            rules.update_user(&info)?;
        }
        request::AUTH_DELETE_USER => {
            check_super(&rules, fields, None)?;
            rules.delete_user(field(fields, "username"));
        }
        request::AUTH_CREATE_ACL | request::AUTH_UPDATE_ACL => {
            let info = AclInfo::decode(body)?;
            let given = info.subject.as_deref().filter(|subject| !subject.is_empty());
            rules.put_acl(given.unwrap_or(field(fields, "subject")), &info)?;
        }
        request::AUTH_DELETE_ACL => {
            let (kind, resource) = (fields.get("policyType"), fields.get("resource"));
            rules.delete_acl(field(fields, "subject"), kind, resource)?;
        }
        _ => return Err(AuthError::NotAdmin(code)),
    }
    if before.has_super() && !rules.has_super() {
        return Err(AuthError::LastSuper);
    }
    Ok(rules)
}

/// Returns the body of the answer to a request that reads users or policies; `None` if there is nothing to show.
pub fn answer_to_read(rules: &Rules, code: i32, fields: &Fields) -> Result<Option<Vec<u8>>, AuthError> {
    let with_password = caller_is_super(rules, fields);
    Ok(match code {
        request::AUTH_GET_USER => rules
            .get_user(field(fields, "username"), with_password)
            .map(|info| info.encode()),
        request::AUTH_LIST_USER => listed(&rules.list_users(field(fields, "filter"), with_password)),
        request::AUTH_GET_ACL => rules.get_acl(field(fields, "subject"))?.map(|info| info.encode()),
        request::AUTH_LIST_ACL => {
            let (subjects, resources) = (field(fields, "subjectFilter"), field(fields, "resourceFilter"));
            listed(&rules.list_acls(subjects, resources))
        }
        _ => return Err(AuthError::NotAdmin(code)),
    })
}

fn listed<T: BodyValue>(values: &[T]) -> Option<Vec<u8>> {
    if values.is_empty() {
        return None;
    }
    let mut writer = Writer::new(Style::PLAIN);
    writer.open_array();
    for value in values {
        writer.element();
        value.write(&mut writer);
    }
    writer.close_array();
    Some(writer.finish())
}
