//! The settings `http-proxy` and `additional-ca` of the cluster, as requests to the outside use
//! them: imports of images, registries and backup targets.

use base::{Chain, Stop};
use futures_util::{Stream, StreamExt as _};
use hci::cluster_setting::{HttpProxy, effective};
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use reqwest::{Certificate, NoProxy, Proxy};
use tracing::{info, warn};

use super::Egress;

const HTTP_PROXY: &str = "http-proxy";
const ADDITIONAL_CA: &str = "additional-ca";

/// Proxy and certificates of requests that leave the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outbound {
    proxy: HttpProxy,
    /// Certificates to trust besides those of the system, PEM.
    ca: String,
}

impl Outbound {
    /// Whether names are resolved by a proxy.
    pub(crate) fn has_proxy(&self) -> bool {
        !self.proxy.http_proxy.is_empty() || !self.proxy.https_proxy.is_empty()
    }

    /// The URL of the proxy of `http://` addresses.
    pub(crate) fn http_proxy(&self) -> Option<&str> {
        Some(self.proxy.http_proxy.as_str()).filter(|url| !url.is_empty())
    }

    /// The URL of the proxy of `https://` addresses.
    pub(crate) fn https_proxy(&self) -> Option<&str> {
        Some(self.proxy.https_proxy.as_str()).filter(|url| !url.is_empty())
    }

    /// Hosts that are reached without a proxy, separated by commas.
    pub(crate) fn no_proxy(&self) -> &str {
        &self.proxy.no_proxy
    }

    /// Certificates to trust besides those of the system, PEM.
    pub(crate) fn ca(&self) -> &str {
        &self.ca
    }

    /// Makes a client use both. Certificates that cannot be read were refused when they were set.
    pub(crate) fn apply(
        &self,
        mut builder: reqwest::ClientBuilder,
    ) -> reqwest::Result<reqwest::ClientBuilder> {
        let except = || NoProxy::from_string(self.no_proxy());
        if let Some(url) = self.http_proxy() {
            builder = builder.proxy(Proxy::http(url)?.no_proxy(except()));
        }
        if let Some(url) = self.https_proxy() {
            builder = builder.proxy(Proxy::https(url)?.no_proxy(except()));
        }
        if !self.ca.is_empty() {
            builder = builder.tls_certs_merge(Certificate::from_pem_bundle(self.ca.as_bytes())?);
        }
        Ok(builder)
    }

    /// Takes the value of a setting over; nothing is its default.
    fn set(&mut self, name: &str, setting: Option<&serde_json::Value>) {
        let value = effective(name, setting);
        match name {
            HTTP_PROXY => self.proxy = HttpProxy::parse(&value),
            ADDITIONAL_CA => self.ca = value,
            _ => {}
        }
    }
}

/// The events of one setting. Nodes may read these two and no others, so each is watched by name.
fn watched(
    client: &Client,
    name: &'static str,
) -> impl Stream<Item = (&'static str, watcher::Result<Event<DynamicObject>>)> + use<> {
    let settings: Api<DynamicObject> = Api::all_with(client.clone(), &resource());
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    watcher::watcher(settings, config).default_backoff().map(move |event| (name, event))
}

/// Why there is no client for requests to the outside.
#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    #[error("cannot read the setting {name}")]
    Setting { name: &'static str, source: kube::Error },
    #[error("cannot use the settings {HTTP_PROXY} and {ADDITIONAL_CA}")]
    Client(#[from] reqwest::Error),
}

/// A client for requests of an administrator to the outside, with both settings as they are now.
/// Unlike imports, which are requests of tenants, it reaches every address.
pub async fn outbound_client(client: &Client) -> Result<reqwest::Client, OutboundError> {
    let mut outbound = Outbound::default();
    let settings: Api<DynamicObject> = Api::all_with(client.clone(), &resource());
    for name in [HTTP_PROXY, ADDITIONAL_CA] {
        let found = settings.get_opt(name).await;
        let found = found.map_err(|source| OutboundError::Setting { name, source })?;
        outbound.set(name, found.map(|setting| setting.data).as_ref());
    }
    Ok(outbound.apply(reqwest::Client::builder())?.build()?)
}

fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("harvesterhci.io", "v1beta1", "Setting");
    ApiResource::from_gvk_with_plural(&kind, "settings")
}

/// Follows both settings until `stop`.
pub(super) async fn follow(client: Client, egress: Egress, mut stop: Stop) {
    let mut events = std::pin::pin!(futures_util::stream::select(
        watched(&client, HTTP_PROXY),
        watched(&client, ADDITIONAL_CA),
    ));
    let mut outbound = Outbound::default();
    loop {
        let event = tokio::select! {
            () = stop.requested() => return,
            event = events.next() => event,
        };
        let (name, event) = match event {
            None => return,
            Some((_, Err(error))) => {
                warn!(error = %Chain(&error), "cannot watch the settings of requests to the outside");
                continue;
            }
            Some((name, Ok(event))) => (name, event),
        };
        match event {
            Event::Apply(setting) | Event::InitApply(setting) => {
                outbound.set(name, Some(&setting.data));
            }
            Event::Delete(_) => outbound.set(name, None),
            Event::Init | Event::InitDone => continue,
        }
        if *egress.outbound() != outbound {
            info!(setting = name, "requests to the outside follow the setting");
            egress.set_outbound(outbound.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[test]
    fn settings_are_taken_over_and_reset() {
        let mut outbound = Outbound::default();
        let value = r#"{"httpProxy":"http://p:1","noProxy":"10.0.0.0/8"}"#;
        outbound.set(HTTP_PROXY, Some(&json!({"value": value})));
        outbound.set(ADDITIONAL_CA, Some(&json!({"value": "PEM"})));
        outbound.set("log-level", Some(&json!({"value": "debug"})));
        assert_eq!((outbound.http_proxy(), outbound.https_proxy()), (Some("http://p:1"), None));
        assert_eq!((outbound.no_proxy(), outbound.ca()), ("10.0.0.0/8", "PEM"));
        assert!(outbound.has_proxy());
        outbound.set(HTTP_PROXY, Some(&json!({"value": ""})));
        outbound.set(ADDITIONAL_CA, None);
        assert_eq!(outbound, Outbound::default());
    }

    /// A server that answers every request with its name and what was asked for.
    async fn server(name: &'static str) -> std::net::SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = vec![0; 4096];
                let read = stream.read(&mut head).await.unwrap();
                let head = String::from_utf8_lossy(&head[..read]).into_owned();
                let asked = head.split_whitespace().nth(1).unwrap_or_default().to_owned();
                let body = format!("{name} {asked}");
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn requests_go_through_the_proxy_except_to_excluded_hosts() {
        let (proxy, direct) = (server("proxy").await, server("direct").await);
        let url = format!("http://{direct}/disk");
        let fetch = async |no_proxy: &str| {
            let value = json!({"httpProxy": format!("http://{proxy}"), "noProxy": no_proxy});
            let mut outbound = Outbound::default();
            outbound.set(HTTP_PROXY, Some(&json!({"value": value.to_string()})));
            let client = outbound.apply(reqwest::Client::builder()).unwrap().build().unwrap();
            client.get(&url).send().await.unwrap().text().await.unwrap()
        };
        assert_eq!(fetch("192.0.2.1").await, format!("proxy {url}"));
        assert_eq!(fetch("127.0.0.0/8").await, "direct /disk");
    }

    #[tokio::test]
    async fn names_are_left_to_a_proxy_and_addresses_are_not() {
        let egress = Egress::default();
        assert!(egress.check("no-such-name.invalid").await.is_err());
        let before = egress.outbound();
        let mut outbound = Outbound::default();
        let value = json!({"httpsProxy": "http://p:1"}).to_string();
        outbound.set(HTTP_PROXY, Some(&json!({"value": value})));
        egress.set_outbound(outbound);
        assert!(!Arc::ptr_eq(&before, &egress.outbound()));
        assert!(egress.check("no-such-name.invalid").await.is_ok());
        assert!(egress.check("127.0.0.1").await.is_err(), "addresses of the node stay refused");
    }
}
