//! Broker settings: request 26.

crate::header! {
    /// Version of the settings in the body (Apache `GetBrokerConfigResponseHeader`).
    pub struct GetBrokerConfigResponseHeader<'a> {
        /// DataVersion as JSON.
        pub version: &'a str => "version",
    }
}
