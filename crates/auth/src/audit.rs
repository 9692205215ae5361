//! What the audit log writes about a request: its user, and the resources that it names.

use crate::audience::changes;
use crate::requests::required_rights;
use crate::signature::ACCESS_KEY;
use pyrmq_remoting::Command;
use pyrmq_remoting::net::{CodeSet, RequestAudit};

/// Maximum number of resources that one line names; the others are only counted.
const MAX_RESOURCES: usize = 8;
/// Fields that say what a change of the cluster is about. None of them can have a secret.
const FIELDS: &[&str] = &[
    "username",
    "subject",
    "brokerName",
    "namespace",
    "key",
    "topic",
    "group",
    "consumerGroup",
];

/// Describes the requests of one server.
#[derive(Debug)]
pub struct Audit {
    cluster: String,
    checks_users: bool,
}

impl Audit {
    /// Describes the requests of a server of this cluster. A server that does not check users trusts no name.
    pub fn new(cluster: impl Into<String>, checks_users: bool) -> Self {
        Self {
            cluster: cluster.into(),
            checks_users,
        }
    }
}

impl RequestAudit for Audit {
    fn changes(&self) -> CodeSet {
        changes()
    }

    fn user<'r>(&self, request: &'r Command) -> Option<&'r str> {
        let name = request.fields.get(ACCESS_KEY).filter(|_| self.checks_users);
        name.filter(|name| !name.is_empty())
    }

    fn resources(&self, request: &Command) -> String {
        // It is unknown what a malformed body names.
        let Ok(rights) = required_rights(request, &self.cluster) else {
            return "unknown".to_owned();
        };
        let mut names: Vec<String> = rights.iter().map(|right| right.resource.to_string()).collect();
        names.dedup();
        let more = names.len().saturating_sub(MAX_RESOURCES);
        names.truncate(MAX_RESOURCES);
        let is_named = names.iter().any(|name| !name.starts_with("Cluster:"));
        if !is_named {
            let fields = FIELDS
                .iter()
                .filter_map(|key| Some((key, request.fields.get(key)?)));
            names.extend(fields.map(|(key, value)| format!("{key}={value}")));
        }
        if more > 0 {
            names.push(format!("and {more} more"));
        }
        names.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pyrmq_remoting::codes::request;

    fn request(code: i32, fields: &[(&str, &str)], body: &str) -> Command {
        let mut request = Command::request(code).with_body(body.as_bytes().to_vec());
        request.fields = fields.iter().copied().collect();
        request
    }

    #[test]
    fn a_line_names_what_a_request_touches_and_no_secret() {
        let audit = Audit::new("main", true);
        let fields = [
            ("topic", "orders"),
            ("AccessKey", "bob"),
            ("Signature", "c2VjcmV0"),
        ];
        let create = request(request::UPDATE_AND_CREATE_TOPIC, &fields, "");
        assert_eq!(audit.resources(&create), "Topic:orders");
        assert_eq!(audit.user(&create), Some("bob"));
        assert_eq!(Audit::new("main", false).user(&create), None);
        let fields = [("username", "eve"), ("AccessKey", "root")];
        let user = request(request::AUTH_CREATE_USER, &fields, r#"{"password":"hush"}"#);
        assert_eq!(audit.resources(&user), "Cluster:main username=eve");
        let config = request(request::UPDATE_BROKER_CONFIG, &[], "brokerPermission=4");
        assert_eq!(audit.resources(&config), "Cluster:main");
        let groups: Vec<_> = (0..20).map(|at| format!(r#"{{"groupName":"g{at}"}}"#)).collect();
        let body = format!(r#"{{"groupConfigList":[{}]}}"#, groups.join(","));
        let list = request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, &[], &body);
        assert!(audit.resources(&list).ends_with("Group:g7 and 12 more"));
        let broken = request(request::UPDATE_AND_CREATE_TOPIC_LIST, &[], "{");
        assert_eq!(audit.resources(&broken), "unknown");
    }
}
