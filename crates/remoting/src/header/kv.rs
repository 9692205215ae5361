//! Key-value configuration of a name server: requests 100, 101, 102, 219. Python serves them.

crate::header! {
    /// Stores a value (Apache `PutKVConfigRequestHeader`).
    pub struct PutKVConfigRequestHeader<'a> {
        /// Namespace of the key.
        pub namespace: &'a str => "namespace",
        /// Key.
        pub key: &'a str => "key",
        /// Value.
        pub value: &'a str => "value",
    }

    /// Asks for a value (Apache `GetKVConfigRequestHeader`).
    pub struct GetKVConfigRequestHeader<'a> {
        /// Namespace of the key.
        pub namespace: &'a str => "namespace",
        /// Key.
        pub key: &'a str => "key",
    }

    /// A value (Apache `GetKVConfigResponseHeader`).
    pub struct GetKVConfigResponseHeader<'a> {
        /// Value.
        pub value: Option<&'a str> => "value",
    }

    /// Deletes a value (Apache `DeleteKVConfigRequestHeader`).
    pub struct DeleteKVConfigRequestHeader<'a> {
        /// Namespace of the key.
        pub namespace: &'a str => "namespace",
        /// Key.
        pub key: &'a str => "key",
    }

    /// Asks for all values of a namespace (Apache `GetKVListByNamespaceRequestHeader`).
    pub struct GetKVListByNamespaceRequestHeader<'a> {
        /// Namespace of the key.
        pub namespace: &'a str => "namespace",
    }
}
