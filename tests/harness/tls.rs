//! TLS without a client around it, for tests that check the connection itself.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::Kubeconfig;
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use tokio_rustls::TlsConnector;

use super::server::Sheaf;

/// A connector that trusts the server and proves to be the administrator.
pub(crate) fn tls(sheaf: &Sheaf, protocols: &[&[u8]]) -> TlsConnector {
    let file = Kubeconfig::read_from(sheaf.kubeconfig()).unwrap();
    let user = file.auth_infos[0].auth_info.clone().unwrap();
    // The type hides the key from everything but serialization.
    let key = serde_json::to_value(&user).unwrap()["client-key-data"].clone();
    let certificate = decode(&user.client_certificate_data.unwrap());
    let chain = CertificateDer::pem_slice_iter(&certificate).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(&decode(key.as_str().unwrap())).unwrap();
    let mut config = trusting(&file).with_client_auth_cert(chain, key).unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

/// A connector that trusts the server and proves nothing.
pub(crate) fn anonymous_tls(sheaf: &Sheaf) -> TlsConnector {
    let file = Kubeconfig::read_from(sheaf.kubeconfig()).unwrap();
    TlsConnector::from(Arc::new(trusting(&file).with_no_client_auth()))
}

fn decode(text: &str) -> Vec<u8> {
    STANDARD.decode(text).unwrap()
}

fn trusting(file: &Kubeconfig) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let cluster = file.clusters[0].cluster.clone().unwrap();
    let mut roots = RootCertStore::empty();
    let ca = decode(&cluster.certificate_authority_data.unwrap());
    roots.add(CertificateDer::from_pem_slice(&ca).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
}
