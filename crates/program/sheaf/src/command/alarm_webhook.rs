//! Requests to the receivers of alarms, with the proxy and the certificates of the cluster's settings.
//! Which messages there are is decided by the controllers.

use std::pin::Pin;
use std::time::Duration;

use controllers::{AlarmMessage, AlarmSender, DeliveryResult};
use kube::Client;

/// A receiver that takes longer gets the message again.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a receiver has not taken a message. Its address is left out, since it may contain a token.
#[derive(Debug, thiserror::Error)]
enum WebhookError {
    #[error("the receiver answered {0}")]
    Refused(reqwest::StatusCode),
    #[error("the receiver did not answer")]
    Unreachable(#[source] reqwest::Error),
}

pub(super) struct AlarmWebhooks {
    client: Client,
}

impl AlarmWebhooks {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }
}

impl AlarmSender for AlarmWebhooks {
    fn send(&self, message: AlarmMessage) -> Pin<Box<dyn Future<Output = DeliveryResult> + Send>> {
        let client = self.client.clone();
        Box::pin(async move {
            let client = agent::outbound_client(&client).await?;
            let mut request = client.post(&message.url).timeout(SEND_TIMEOUT).body(message.body);
            for (name, value) in message.headers {
                request = request.header(name, value);
            }
            let answer = request
                .send()
                .await
                .map_err(|error| WebhookError::Unreachable(error.without_url()))?;
            match answer.status() {
                status if status.is_success() => Ok(()),
                status => Err(WebhookError::Refused(status).into()),
            }
        })
    }
}
