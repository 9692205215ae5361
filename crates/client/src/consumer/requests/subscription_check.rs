//! Checks filters before a group is joined: their grammar here, and the rest by the brokers (request 46).

use crate::error::ClientError;
use crate::session::membership::{Membership, Subscription};
use crate::session::routes::Routes;
use bytes::Bytes;
use pyrmq_remoting::Command;
use pyrmq_remoting::body::{Body, CheckClientRequestBody};
use pyrmq_remoting::codes::{request, response};
use pyrmq_remoting::net::Client;
use pyrmq_routing::filter::Filter;
use std::sync::Arc;
use std::time::Duration;

/// Refuses a condition that is wrong, or that a broker of the topic does not evaluate; brokers have `time` to answer.
/// Tags need no check.
pub(crate) async fn check_filter(
    client: &Client,
    routes: &Routes,
    (membership, time): (&Membership, Duration),
    topic: &Arc<str>,
    subscription: &Subscription,
) -> Result<(), ClientError> {
    const WHAT: &str = "a check of a filter";
    if !subscription.is_sql {
        return Ok(());
    }
    if let Err(source) = Filter::compile(&subscription.expression) {
        return Err(ClientError::Filter {
            topic: topic.to_string(),
            expression: subscription.expression.clone(),
            source,
        });
    }
    let body = CheckClientRequestBody {
        client_id: membership.client_id.clone(),
        group: membership.group().to_owned(),
        subscription_data: Some(subscription.data(topic)),
        ..CheckClientRequestBody::default()
    };
    let body = Bytes::from(body.encode());
    let route = routes.get(topic).await?;
    for broker in &route.route.brokers {
        let Some(address) = route.reader_of(&broker.name) else {
            continue;
        };
        let command = Command::request(request::CHECK_CLIENT_CONFIG).with_body(body.clone());
        match client.request(&address, command, time).await {
            Ok(answer) if answer.code == response::SUCCESS => {}
            Ok(answer) => return Err(ClientError::refused(WHAT, &address, answer.code, answer.remark)),
            // This broker will check it at the first pull.
            Err(error) => tracing::warn!(address, %error, "filter not checked"),
        }
    }
    Ok(())
}
