//! Users and access rules (3001 to 3010).

use crate::body::codec::value::body;

body! {
    /// A user (Apache `UserInfo`).
    pub struct UserInfo {
        /// Password.
        pub password: Option<String> => "password",
        /// `enable` or `disable`.
        pub user_status: Option<String> => "userStatus",
        /// `Super` or `Normal`.
        pub user_type: Option<String> => "userType",
        /// User name.
        pub username: Option<String> => "username",
    }

    /// Rules of one subject (Apache `AclInfo`).
    pub struct AclInfo {
        /// Policies.
        pub policies: Option<Vec<PolicyInfo>> => "policies",
        /// Subject, `User:name`.
        pub subject: Option<String> => "subject",
    }

    /// Rules of one kind (Apache `PolicyInfo`).
    pub struct PolicyInfo {
        /// Entries.
        pub entries: Option<Vec<PolicyEntryInfo>> => "entries",
        /// Policy type.
        pub policy_type: Option<String> => "policyType",
    }

    /// One rule (Apache `PolicyEntryInfo`).
    pub struct PolicyEntryInfo {
        /// Actions.
        pub actions: Option<Vec<String>> => "actions",
        /// `Allow` or `Deny`.
        pub decision: Option<String> => "decision",
        /// Resource.
        pub resource: Option<String> => "resource",
        /// Addresses.
        pub source_ips: Option<Vec<String>> => "sourceIps",
    }
}
