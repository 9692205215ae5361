//! Accounts of 4.x's access control lists (request 54).

use crate::body::codec::value::body;

body! {
    /// All accounts of a broker (Apache `GetBrokerClusterAclConfigResponseBody`).
    pub struct GetBrokerClusterAclConfigResponseBody {
        /// Addresses from which every request is served.
        pub global_white_addrs: Vec<String> => "globalWhiteAddrs",
        /// The accounts.
        pub plain_access_configs: Vec<PlainAccessConfig> => "plainAccessConfigs",
    }

    /// One account (Apache `PlainAccessConfig`).
    pub struct PlainAccessConfig {
        /// Name of the account.
        pub access_key: Option<String> => "accessKey",
        /// Whether it may do what needs an administrator.
        pub admin: bool => "admin",
        /// Permission for groups that are not listed.
        pub default_group_perm: Option<String> => "defaultGroupPerm",
        /// Permission for topics that are not listed.
        pub default_topic_perm: Option<String> => "defaultTopicPerm",
        /// Permissions for groups, each `name=permission`.
        pub group_perms: Option<Vec<String>> => "groupPerms",
        /// The secret that signs.
        pub secret_key: Option<String> => "secretKey",
        /// Permissions for topics, each `name=permission`.
        pub topic_perms: Option<Vec<String>> => "topicPerms",
        /// Addresses from which its requests need no signature.
        pub white_remote_address: Option<String> => "whiteRemoteAddress",
    }
}
