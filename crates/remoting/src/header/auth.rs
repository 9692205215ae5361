//! Users and access rules of 5.x: requests 3001 to 3010. Python serves them.

crate::header! {
    /// Creates a user (Apache `CreateUserRequestHeader`).
    pub struct CreateUserRequestHeader<'a> {
        /// User name.
        pub username: Option<&'a str> => "username",
    }

    /// Changes a user (Apache `UpdateUserRequestHeader`).
    pub struct UpdateUserRequestHeader<'a> {
        /// User name.
        pub username: Option<&'a str> => "username",
    }

    /// Deletes a user (Apache `DeleteUserRequestHeader`).
    pub struct DeleteUserRequestHeader<'a> {
        /// User name.
        pub username: Option<&'a str> => "username",
    }

    /// Asks for a user (Apache `GetUserRequestHeader`).
    pub struct GetUserRequestHeader<'a> {
        /// User name.
        pub username: Option<&'a str> => "username",
    }

    /// Asks for users (Apache `ListUsersRequestHeader`).
    pub struct ListUsersRequestHeader<'a> {
        /// Text that names must contain.
        pub filter: Option<&'a str> => "filter",
    }

    /// Creates rules (Apache `CreateAclRequestHeader`).
    pub struct CreateAclRequestHeader<'a> {
        /// Subject, `User:name`.
        pub subject: Option<&'a str> => "subject",
    }

    /// Changes rules (Apache `UpdateAclRequestHeader`).
    pub struct UpdateAclRequestHeader<'a> {
        /// Subject, `User:name`.
        pub subject: Option<&'a str> => "subject",
    }

    /// Deletes rules (Apache `DeleteAclRequestHeader`).
    pub struct DeleteAclRequestHeader<'a> {
        /// Subject, `User:name`.
        pub subject: Option<&'a str> => "subject",
        /// Policy type.
        pub policy_type: Option<&'a str> => "policyType",
        /// Resource.
        pub resource: Option<&'a str> => "resource",
    }

    /// Asks for rules (Apache `GetAclRequestHeader`).
    pub struct GetAclRequestHeader<'a> {
        /// Subject, `User:name`.
        pub subject: Option<&'a str> => "subject",
    }

    /// Asks for rules of many (Apache `ListAclsRequestHeader`).
    pub struct ListAclsRequestHeader<'a> {
        /// Text that subjects must contain.
        pub subject_filter: Option<&'a str> => "subjectFilter",
        /// Text that resources must contain.
        pub resource_filter: Option<&'a str> => "resourceFilter",
    }
}
