//! The connection of the `vm`, `image` and `volume` commands to a cluster.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use http::header::CONTENT_TYPE;
use http::{Method, Request, Uri};
use kube::{Client, Config};
use serde_json::Value;

use super::management::read_servers;
use crate::cli::ClusterScope;
use crate::data_dir::Layout;

/// How long a server may take to say that it is ready.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a server that has accepted a request may take to answer it; longer than the server
/// itself waits for its store.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The manager of the fields that our commands write.
const FIELD_MANAGER: &str = "sheaf";
const OBJECTS: &str = "/apis/kubevirt.io/v1";
const ACTIONS: &str = "/apis/subresources.kubevirt.io/v1";

/// A client, and the namespace of the command.
pub(super) struct ClusterClient {
    pub(super) client: Client,
    pub(super) config: Config,
    pub(super) namespace: String,
}

impl ClusterClient {
    pub(super) async fn to(place: &ClusterScope) -> Result<Self> {
        let (path, servers) = match place.kubeconfig() {
            Some(path) => (path.to_owned(), Vec::new()),
            None => {
                let layout = Layout::new(place.data.data_dir.as_deref())?;
                layout.require()?;
                (layout.admin_kubeconfig(), read_servers(&layout))
            }
        };
        let config = client::read_kubeconfig(&path).await?;
        let config = Box::pin(answering(config, &servers)).await;
        let client = Client::try_from(config.clone())
            .with_context(|| format!("cannot use {}", path.display()))?;
        Ok(Self { client, config, namespace: place.namespace.clone() })
    }

    pub(super) fn objects(&self, resource: &str) -> String {
        format!("{OBJECTS}/namespaces/{}/{resource}", self.namespace)
    }

    pub(super) fn core(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.namespace)
    }

    pub(super) fn machine(&self, name: &str) -> String {
        self.objects(&format!("virtualmachines/{name}"))
    }

    pub(super) fn machine_action(&self, name: &str, action: &str) -> String {
        format!("{ACTIONS}/namespaces/{}/virtualmachines/{name}/{action}", self.namespace)
    }

    pub(super) fn instance(&self, name: &str, action: &str) -> String {
        format!("{ACTIONS}/namespaces/{}/virtualmachineinstances/{name}/{action}", self.namespace)
    }

    /// One object; nothing if there is none.
    pub(super) async fn find(&self, path: &str) -> Result<Option<Value>> {
        let request = Request::get(path).body(Vec::new()).context("cannot build a request")?;
        match self.within(self.client.request::<Value>(request)).await? {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(self.describe(error)),
        }
    }

    /// The items of a list; none where the kind does not exist.
    pub(super) async fn items(&self, path: &str) -> Result<Vec<Value>> {
        let list = self.find(path).await?.unwrap_or(Value::Null);
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    pub(super) async fn text(&self, path: &str) -> Result<String> {
        let request = Request::get(path).body(Vec::new()).context("cannot build a request")?;
        self.answer(self.client.request_text(request)).await
    }

    pub(super) async fn post(&self, path: &str, object: &Value) -> Result<Value> {
        self.send(Method::POST, path, object).await
    }

    /// A request to do something: the answer is empty.
    pub(super) async fn put(&self, path: &str, options: &Value) -> Result<()> {
        let request = Request::put(path)
            .header(CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(options).context("cannot encode the request")?)
            .context("cannot build a request")?;
        self.answer(self.client.request_text(request)).await.map(drop)
    }

    pub(super) async fn delete(&self, path: &str) -> Result<()> {
        let request = Request::delete(path).body(Vec::new()).context("cannot build a request")?;
        self.answer(self.client.request_text(request)).await.map(drop)
    }

    /// Applies a JSON merge patch.
    pub(super) async fn merge(&self, path: &str, patch: &Value) -> Result<Value> {
        self.answer(self.client.request::<Value>(merge_patch(path, patch)?)).await
    }

    /// The same with a patch that names a `resourceVersion`. Nothing if the object is at another one.
    pub(super) async fn merge_unchanged(&self, path: &str, patch: &Value) -> Result<Option<Value>> {
        match self.within(self.client.request::<Value>(merge_patch(path, patch)?)).await? {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => Err(self.describe(error)),
        }
    }

    async fn answer<T>(&self, asked: impl Future<Output = kube::Result<T>>) -> Result<T> {
        self.within(asked).await?.map_err(|error| self.describe(error))
    }

    /// Bounds a request: a command must not hang because a server does.
    async fn within<T>(&self, asked: impl Future<Output = T>) -> Result<T> {
        tokio::time::timeout(ANSWER_TIMEOUT, asked).await.map_err(|_| {
            anyhow!(
                "the cluster at {} did not answer within {} s",
                self.config.cluster_url,
                ANSWER_TIMEOUT.as_secs()
            )
        })
    }

    /// An error with the address of the cluster, where that matters.
    pub(super) fn describe(&self, error: kube::Error) -> anyhow::Error {
        describe(error, &self.config.cluster_url)
    }

    async fn send(&self, method: Method, path: &str, object: &Value) -> Result<Value> {
        let request = Request::builder()
            .method(method)
            .uri(managed(path))
            .header(CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(object).context("cannot encode the object")?)
            .context("cannot build a request")?;
        self.answer(self.client.request::<Value>(request)).await
    }
}

fn merge_patch(path: &str, patch: &Value) -> Result<Request<Vec<u8>>> {
    Request::patch(managed(path))
        .header(CONTENT_TYPE, "application/merge-patch+json")
        .body(serde_json::to_vec(patch).context("cannot encode the patch")?)
        .context("cannot build a request")
}

/// The configuration with the first server that is ready: the configured one, or another of the
/// cluster. Without others, and if none is ready, the configured one.
async fn answering(config: Config, others: &[String]) -> Config {
    let urls = others.iter().filter_map(|url| url.parse::<Uri>().ok());
    let mut all = vec![config.cluster_url.clone()];
    all.extend(urls.filter(|url| url.authority() != config.cluster_url.authority()));
    if all.len() < 2 {
        return config;
    }
    for cluster_url in all {
        let mut candidate = config.clone();
        candidate.cluster_url = cluster_url;
        let Ok(client) = Client::try_from(candidate.clone()) else { continue };
        let Ok(request) = Request::get("/readyz").body(Vec::new()) else { continue };
        let asked = tokio::time::timeout(PROBE_TIMEOUT, client.request_text(request)).await;
        if matches!(asked, Ok(Ok(_))) {
            return candidate;
        }
    }
    config
}

/// The server's message, or why it cannot be reached and at which address.
pub(super) fn describe(error: kube::Error, url: &Uri) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => anyhow!(status.message),
        kube::Error::Service(_) | kube::Error::HyperError(_) => {
            // The layers above say which library noticed it; the last one says what happened.
            let mut cause: &dyn std::error::Error = &error;
            while let Some(next) = cause.source() {
                cause = next;
            }
            anyhow!("cannot reach the cluster at {url}: {cause}; is the server running?")
        }
        error => anyhow::Error::new(error).context(format!("cannot use the cluster at {url}")),
    }
}

/// The path of a request that changes something, as a change of this program.
fn managed(path: &str) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{path}{separator}fieldManager={FIELD_MANAGER}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreachable_cluster_is_named_with_its_address() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = kube::Error::Service(Box::new(refused));
        let text = describe(error, &"https://10.0.0.1:6443".parse().unwrap()).to_string();
        assert!(text.contains("at https://10.0.0.1:6443"), "{text}");
        assert!(text.contains("connection refused"), "{text}");
    }

    #[test]
    fn changes_are_made_under_our_name() {
        assert_eq!(managed("/a"), "/a?fieldManager=sheaf");
        assert_eq!(managed("/a?b=c"), "/a?b=c&fieldManager=sheaf");
    }
}
