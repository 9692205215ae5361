//! Routes and topic lists of a name server: requests 105, 224.

crate::header! {
    /// Asks which brokers serve a topic (Apache `GetRouteInfoRequestHeader`).
    pub struct GetRouteInfoRequestHeader<'a> {
        /// Topic name.
        pub topic: &'a str => "topic" or "",
        /// Whether the body must be standard JSON.
        pub accept_standard_json_only: Option<bool> => "acceptStandardJsonOnly",
    }

    /// Asks for the topics of a cluster (Apache `GetTopicsByClusterRequestHeader`).
    pub struct GetTopicsByClusterRequestHeader<'a> {
        /// Cluster name.
        pub cluster: &'a str => "cluster",
    }
}
