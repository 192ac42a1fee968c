//! Opening a target: a bucket with credentials, or a directory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::{Certificate, ClientOptions, ObjectStore, RetryConfig};

use crate::store::BackupStore;

/// For one request, retries not included. A block has at most 16 MiB.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For a request with its retries: well below the time after which a lock expires.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_RETRIES: usize = 5;

/// The keys of a bucket, under the names of Longhorn's secrets.
#[derive(Clone, Default)]
pub struct Credentials {
    /// `AWS_ACCESS_KEY_ID`
    pub access_key: String,
    /// `AWS_SECRET_ACCESS_KEY`
    pub secret_key: String,
    /// `AWS_ENDPOINTS`: the server, if it is not Amazon's.
    pub endpoint: String,
    /// `AWS_CERT`: certificates to trust, PEM.
    pub certificate: String,
    /// `VIRTUAL_HOSTED_STYLE`: the bucket is part of the host name.
    pub virtual_hosted_style: bool,
    /// `HTTPS_PROXY`
    pub proxy: String,
    /// `NO_PROXY`: hosts that are reached without the proxy, separated by commas.
    pub no_proxy: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "credentials for {}", self.endpoint)
    }
}

/// Why a target cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error("the secret of the backup target has no AWS_ACCESS_KEY_ID or no AWS_SECRET_ACCESS_KEY")]
    NoKeys,
    #[error("AWS_ENDPOINTS {endpoint:?} is invalid: it must begin with https:// or http://")]
    Endpoint { endpoint: String },
    #[error("AWS_CERT has no certificate in PEM")]
    Certificate(#[source] object_store::Error),
    #[error("cannot use bucket {bucket}")]
    Bucket { bucket: String, source: object_store::Error },
    #[error("cannot use directory {path}")]
    Directory { path: String, source: object_store::Error },
}

impl BackupStore {
    /// Opens a bucket; nothing is sent yet.
    pub fn bucket(
        bucket: &str,
        region: &str,
        path: &str,
        credentials: &Credentials,
    ) -> Result<Self, TargetError> {
        if credentials.access_key.is_empty() || credentials.secret_key.is_empty() {
            return Err(TargetError::NoKeys);
        }
        let mut options = ClientOptions::new()
            .with_timeout(REQUEST_TIMEOUT)
            .with_connect_timeout(CONNECT_TIMEOUT);
        if !credentials.certificate.is_empty() {
            let found = Certificate::from_pem_bundle(credentials.certificate.as_bytes());
            for own in found.map_err(TargetError::Certificate)? {
                options = options.with_root_certificate(own);
            }
        }
        if !credentials.proxy.is_empty() {
            options = options.with_proxy_url(&credentials.proxy);
            if !credentials.no_proxy.is_empty() {
                options = options.with_proxy_excludes(&credentials.no_proxy);
            }
        }
        let endpoint = credentials.endpoint.trim_end_matches('/');
        let is_plain = endpoint.starts_with("http://");
        let has_endpoint = !endpoint.is_empty();
        if has_endpoint && !is_plain && !endpoint.starts_with("https://") {
            return Err(TargetError::Endpoint { endpoint: endpoint.to_owned() });
        }
        let retry = RetryConfig {
            max_retries: MAX_RETRIES,
            retry_timeout: RETRY_TIMEOUT,
            ..RetryConfig::default()
        };
        let region = if region.is_empty() { "us-east-1" } else { region };
        let hosted = credentials.virtual_hosted_style || !has_endpoint;
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_region(region)
            .with_access_key_id(&credentials.access_key)
            .with_secret_access_key(&credentials.secret_key)
            .with_virtual_hosted_style_request(hosted)
            .with_client_options(options.with_allow_http(is_plain))
            .with_disable_bulk_delete(true)
            .with_retry(retry);
        if has_endpoint {
            builder = builder.with_endpoint(server(endpoint, bucket, hosted));
        }
        let failed = |source| TargetError::Bucket { bucket: bucket.to_owned(), source };
        let store: Arc<dyn ObjectStore> = Arc::new(builder.build().map_err(failed)?);
        Ok(Self::new(store, path))
    }

    /// Opens a directory, a mounted share for instance.
    pub fn directory(path: &Path) -> Result<Self, TargetError> {
        let failed = |source| TargetError::Directory { path: path.display().to_string(), source };
        let store = LocalFileSystem::new_with_prefix(path).map_err(failed)?;
        Ok(Self::new(Arc::new(store.with_automatic_cleanup(true)), ""))
    }
}

/// With a bucket in its host name, a server is addressed by all of it.
fn server(endpoint: &str, bucket: &str, hosted: bool) -> String {
    match endpoint.split_once("://") {
        Some((scheme, host)) if hosted => format!("{scheme}://{bucket}.{host}"),
        _ => endpoint.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_needs_keys_and_a_server_with_a_scheme() {
        let open = |credentials: &Credentials| {
            BackupStore::bucket("b", "r", "", credentials).map_err(|own| own.to_string())
        };
        let mut own = Credentials::default();
        assert!(open(&own).unwrap_err().contains("AWS_ACCESS_KEY_ID"));
        (own.access_key, own.secret_key) = ("a".into(), "s".into());
        assert!(open(&own).is_ok());
        own.endpoint = "minio.example.org".into();
        assert!(open(&own).unwrap_err().contains("must begin with https://"));
        own.endpoint = "http://minio.example.org:9000/".into();
        assert!(open(&own).is_ok());
        assert!(!format!("{own:?}").contains('s') || !format!("{own:?}").contains("secret"));
        assert_eq!(server("https://h", "b", true), "https://b.h");
        assert_eq!(server("https://h", "b", false), "https://h");
    }
}
