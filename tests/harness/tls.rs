//! TLS without a client around it, for tests that look at the connection itself.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::Kubeconfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::server::Sheaf;

/// A connector that trusts the server and proves to be the administrator.
pub(crate) fn tls(sheaf: &Sheaf, protocols: &[&[u8]]) -> TlsConnector {
    let file = Kubeconfig::read_from(sheaf.kubeconfig()).unwrap();
    let cluster = file.clusters[0].cluster.clone().unwrap();
    let user = file.auth_infos[0].auth_info.clone().unwrap();
    // The type hides the key from everything but serialization.
    let key = serde_json::to_value(&user).unwrap()["client-key-data"].clone();
    let decode = |text: String| STANDARD.decode(text).unwrap();
    let mut roots = RootCertStore::empty();
    let ca = decode(cluster.certificate_authority_data.unwrap());
    roots.add(CertificateDer::from_pem_slice(&ca).unwrap()).unwrap();
    let certificate = decode(user.client_certificate_data.unwrap());
    let chain = CertificateDer::pem_slice_iter(&certificate).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(&decode(key.as_str().unwrap().to_owned())).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}
