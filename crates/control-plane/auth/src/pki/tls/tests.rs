use std::path::Path;

use jiff::SignedDuration;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, ServerConnection};

use super::super::{Identity, ServingNames};
use super::*;

fn open(dir: &Path) -> Pki {
    Pki::open(dir, &ServingNames::default(), base::clock::now()).unwrap().0
}

fn client(ca_pem: &str, identity: Option<&Identity>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for cert in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(cert.unwrap()).unwrap();
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { cert_pem, key_pem }) => {
            let certs = CertificateDer::pem_slice_iter(cert_pem.as_bytes());
            let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).unwrap();
            builder.with_client_auth_cert(certs.map(Result::unwrap).collect(), key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// Runs a handshake in memory; returns the server's end of an established connection, or the error
/// of either side.
fn connect(
    server: Arc<ServerConfig>,
    client: ClientConfig,
    name: &'static str,
) -> Result<ServerConnection, rustls::Error> {
    let name = ServerName::try_from(name).unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name)?;
    let mut server = ServerConnection::new(server)?;
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets()?;
        let mut wire = Vec::new();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets()?;
    }
    Ok(server)
}

#[test]
fn a_client_is_known_by_its_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let pki = open(dir.path());
    let tls = Tls::new(&pki).unwrap();
    let config = client(&pki.ca_pem(), Some(&pki.admin()));
    let connection = connect(tls.config(), config, "kubernetes.default.svc").unwrap();
    assert_eq!(connection.alpn_protocol(), Some(&b"h2"[..]));
    let peer = tls.peer(connection.peer_certificates().unwrap(), base::clock::now()).unwrap();
    assert_eq!(peer, Peer::User(User::new("system:admin", ["system:masters"])));
}

#[test]
fn several_groups_survive_the_handshake() {
    let dir = tempfile::tempdir().unwrap();
    let pki = open(dir.path());
    let tls = Tls::new(&pki).unwrap();
    let (ttl, now) = (SignedDuration::from_hours(1), base::clock::now());
    let alice = pki.issue_client("alice", &["a", "b", "c"], ttl, now).unwrap();
    let config = client(&pki.ca_pem(), Some(&alice));
    let connection = connect(tls.config(), config, "127.0.0.1").unwrap();
    let peer = tls.peer(connection.peer_certificates().unwrap(), now).unwrap();
    assert_eq!(peer, Peer::User(User::new("alice", ["a", "b", "c"])));
}

#[test]
fn a_client_needs_no_certificate_but_a_foreign_one_is_refused() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (pki, other) = (open(dir.path()), open(elsewhere.path()));
    let tls = Tls::new(&pki).unwrap();
    let connection = connect(tls.config(), client(&pki.ca_pem(), None), "localhost").unwrap();
    assert!(connection.peer_certificates().is_none());
    let foreign = client(&pki.ca_pem(), Some(&other.admin()));
    assert!(connect(tls.config(), foreign, "localhost").is_err());
    // The front proxy may connect as well; its rights are checked later.
    let proxy = client(&pki.ca_pem(), Some(&pki.front_proxy()));
    assert!(connect(tls.config(), proxy, "localhost").is_ok());
}

#[test]
fn the_server_answers_only_to_its_names() {
    let dir = tempfile::tempdir().unwrap();
    let pki = open(dir.path());
    let tls = Tls::new(&pki).unwrap();
    for (name, expected) in [("localhost", true), ("::1", true), ("evil.example", false)] {
        let outcome = connect(tls.config(), client(&pki.ca_pem(), None), name);
        assert_eq!(outcome.is_ok(), expected, "{name}");
    }
}

#[test]
fn renewed_certificates_are_taken_over_without_a_new_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let mut pki = open(dir.path());
    let tls = Tls::new(&pki).unwrap();
    let config = tls.config();
    let names = ServingNames { dns: vec!["new.example".into()], ..ServingNames::default() };
    assert!(connect(config.clone(), client(&pki.ca_pem(), None), "new.example").is_err());
    pki.renew_if_due(&names, base::clock::now()).unwrap();
    tls.reload(&pki).unwrap();
    assert!(connect(config, client(&pki.ca_pem(), None), "new.example").is_ok());
}

#[test]
fn a_chosen_certificate_is_shown_to_those_who_ask_for_its_name() {
    let (own_dir, other_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let own = open(own_dir.path());
    let names = ServingNames { dns: vec!["vms.example".into()], ..ServingNames::default() };
    let other = Pki::open(other_dir.path(), &names, base::clock::now()).unwrap().0;
    let tls = Tls::new(&own).unwrap();
    let shows = |pki: &Pki, name| connect(tls.config(), client(&pki.ca_pem(), None), name).is_ok();
    assert!(!shows(&other, "vms.example"));
    let Identity { cert_pem, key_pem } = other.serving();
    tls.choose(Some((&cert_pem, &key_pem))).unwrap();
    assert!(shows(&other, "vms.example"));
    assert!(shows(&own, "127.0.0.1"), "an address gets the own certificate");
    assert!(tls.choose(Some((&cert_pem, "no key"))).is_err());
    assert!(shows(&other, "vms.example"), "a wrong key changes nothing");
    tls.choose(None).unwrap();
    assert!(!shows(&other, "vms.example"));
}

#[test]
fn protocols_and_ciphers_can_be_restricted_while_running() {
    let dir = tempfile::tempdir().unwrap();
    let pki = open(dir.path());
    let tls = Tls::new(&pki).unwrap();
    let agreed = || {
        let connection = connect(tls.config(), client(&pki.ca_pem(), None), "localhost").ok()?;
        let (version, suite) =
            (connection.protocol_version()?, connection.negotiated_cipher_suite()?);
        Some((version, suite.suite()))
    };
    assert_eq!(agreed().unwrap().0, rustls::ProtocolVersion::TLSv1_3);
    tls.restrict(&["TLSv1.2"], &["ECDHE-ECDSA-AES128-GCM-SHA256"]).unwrap();
    let suite = rustls::CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    assert_eq!(agreed(), Some((rustls::ProtocolVersion::TLSv1_2, suite)));
    tls.restrict(&["TLSv1.3"], &["TLS_CHACHA20_POLY1305_SHA256"]).unwrap();
    let suite = rustls::CipherSuite::TLS13_CHACHA20_POLY1305_SHA256;
    assert_eq!(agreed(), Some((rustls::ProtocolVersion::TLSv1_3, suite)));
    let browser = connect(tls.browser_config(), client(&pki.ca_pem(), None), "localhost").unwrap();
    assert_eq!(browser.negotiated_cipher_suite().unwrap().suite(), suite);
    let before = agreed();
    assert!(tls.restrict(&["TLSv1.1"], &["TLS_AES_128_GCM_SHA256"]).is_err());
    assert!(tls.restrict(&["TLSv1.3"], &["AES128-SHA"]).is_err());
    assert_eq!(agreed(), before, "a refused value changes nothing");
}
