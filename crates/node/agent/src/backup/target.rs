//! Opening a backup target with the credentials of its secret.

use ::backup::{BackupStore, Credentials, StoreError, TargetError, TargetUrl, UrlError};
use client::Fault;
use hci::longhorn::NAMESPACE;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::BackupContext;
use super::mount::{self, MountError};
use super::object::TargetObject;
use crate::api::present;

/// Why a target cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenTargetError {
    #[error("the backup target is not set")]
    Unset,
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error("cannot read secret {NAMESPACE}/{name} of the backup target")]
    Request { name: String, source: Fault },
    #[error("secret {NAMESPACE}/{name} of the backup target does not exist")]
    NoSecret { name: String },
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Mount(#[from] MountError),
    // A directory of the node may hold anything.
    #[error("backup target vfs:// is not supported: it must be s3:// or nfs://")]
    Directory,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl BackupContext {
    pub(super) async fn open(&self, target: &TargetObject) -> Result<BackupStore, OpenTargetError> {
        if target.url.is_empty() {
            return Err(OpenTargetError::Unset);
        }
        match TargetUrl::parse(&target.url)? {
            TargetUrl::S3 { bucket, region, path } => {
                let credentials = self.credentials(&target.secret).await?;
                Ok(BackupStore::bucket(&bucket, &region, &path, &credentials)?)
            }
            TargetUrl::Nfs { host, share, options } => {
                let at = mount::share(&self.mounts, &host, &share, options.as_deref()).await?;
                Ok(BackupStore::directory(&at)?)
            }
            TargetUrl::Directory { .. } => Err(OpenTargetError::Directory),
        }
    }

    async fn credentials(&self, name: &str) -> Result<Credentials, OpenTargetError> {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), NAMESPACE);
        let request =
            |source| OpenTargetError::Request { name: name.to_owned(), source: Fault(source) };
        let found = present(secrets.get(name).await).map_err(request)?;
        let missing = || OpenTargetError::NoSecret { name: name.to_owned() };
        let data = found.ok_or_else(missing)?.data.unwrap_or_default();
        let text = |key: &str| {
            data.get(key)
                .map(|own| String::from_utf8_lossy(&own.0).into_owned())
                .unwrap_or_default()
        };
        let outbound = self.egress.outbound();
        let endpoint = text("AWS_ENDPOINTS");
        let chosen = if endpoint.starts_with("http://") {
            outbound.http_proxy()
        } else {
            outbound.https_proxy()
        };
        // The secret of the target is more specific than the settings of the cluster.
        let (proxy, no_proxy) = match text("HTTPS_PROXY") {
            own if !own.is_empty() => (own, text("NO_PROXY")),
            _ => (chosen.unwrap_or_default().to_owned(), outbound.no_proxy().to_owned()),
        };
        Ok(Credentials {
            access_key: text("AWS_ACCESS_KEY_ID"),
            secret_key: text("AWS_SECRET_ACCESS_KEY"),
            endpoint,
            certificate: format!("{}\n{}", text("AWS_CERT"), outbound.ca()).trim().to_owned(),
            virtual_hosted_style: text("VIRTUAL_HOSTED_STYLE") == "true",
            proxy,
            no_proxy,
        })
    }
}
