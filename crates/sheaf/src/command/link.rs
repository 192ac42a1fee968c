//! The connection to a cluster that commands for people use.

use anyhow::{Context as _, Result, anyhow};
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use kube::{Client, Config};
use serde_json::Value;

use crate::cli::Place;
use crate::data_dir::Layout;

const OBJECTS: &str = "/apis/kubevirt.io/v1";
const ACTIONS: &str = "/apis/subresources.kubevirt.io/v1";

/// A client, and the namespace that names are in.
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) config: Config,
    pub(super) namespace: String,
}

impl Link {
    pub(super) async fn to(place: &Place) -> Result<Self> {
        let path = match &place.kubeconfig {
            Some(path) => path.clone(),
            None => {
                let layout = Layout::new(place.data.data_dir.as_deref())?;
                layout.require()?;
                layout.admin_kubeconfig()
            }
        };
        let config = client::read_kubeconfig(&path).await?;
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
        match self.client.request::<Value>(request).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(plain(error)),
        }
    }

    /// The items of a list; none where the kind does not exist.
    pub(super) async fn items(&self, path: &str) -> Result<Vec<Value>> {
        let list = self.find(path).await?.unwrap_or(Value::Null);
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    pub(super) async fn text(&self, path: &str) -> Result<String> {
        let request = Request::get(path).body(Vec::new()).context("cannot build a request")?;
        self.client.request_text(request).await.map_err(plain)
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
        self.client.request_text(request).await.map(drop).map_err(plain)
    }

    pub(super) async fn delete(&self, path: &str) -> Result<()> {
        let request = Request::delete(path).body(Vec::new()).context("cannot build a request")?;
        self.client.request_text(request).await.map(drop).map_err(plain)
    }

    /// Applies a JSON merge patch.
    pub(super) async fn merge(&self, path: &str, patch: &Value) -> Result<Value> {
        let request = Request::patch(path)
            .header(CONTENT_TYPE, "application/merge-patch+json")
            .body(serde_json::to_vec(patch).context("cannot encode the patch")?)
            .context("cannot build a request")?;
        self.client.request::<Value>(request).await.map_err(plain)
    }

    async fn send(&self, method: Method, path: &str, object: &Value) -> Result<Value> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(object).context("cannot encode the object")?)
            .context("cannot build a request")?;
        self.client.request::<Value>(request).await.map_err(plain)
    }
}

/// The server's own words where there are some.
fn plain(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => anyhow!(status.message),
        error => anyhow::Error::new(error).context("cannot reach the cluster"),
    }
}
