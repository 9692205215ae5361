//! Checks of a client's subscription (request 46).

use crate::body::SubscriptionData;
use crate::body::codec::value::body;

body! {
    /// Asks whether a subscription is valid (Apache `CheckClientRequestBody`).
    pub struct CheckClientRequestBody {
        /// Client id.
        pub client_id: String => "clientId",
        /// Consumer group.
        pub group: String => "group",
        /// Namespace.
        pub namespace: Option<String> => "namespace",
        /// Subscription.
        pub subscription_data: Option<SubscriptionData> => "subscriptionData",
    }
}
