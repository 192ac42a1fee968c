//! Certificates that are asked for, tokens to join with, and logins with those of another user.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PublicKeyData as _,
    SigningKey as _,
};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};

use crate::harness::{Http, Sheaf, assert_has, eventually, poll};

pub(crate) const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

fn whoami(http: &Http) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    http.post(REVIEWS, &review).ok()["status"]["userInfo"].clone()
}

fn request(name: &str, organization: &str, signer: &str, usages: &[&str]) -> (KeyPair, Value) {
    let key = KeyPair::generate().unwrap();
    let object = request_for(&key, name, organization, signer, usages);
    (key, object)
}

pub(crate) fn request_for(
    key: &KeyPair,
    name: &str,
    organization: &str,
    signer: &str,
    usages: &[&str],
) -> Value {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.distinguished_name.push(DnType::OrganizationName, organization);
    let pem = params.serialize_request(key).unwrap().pem().unwrap();
    json!({
        "metadata": {"generateName": "r-"},
        "spec": {"request": STANDARD.encode(pem), "signerName": signer, "usages": usages,
            "expirationSeconds": 3600},
    })
}

/// A kubeconfig for a certificate, on the server of the administrator.
fn with_certificate(server: &Sheaf, file: &str, certificate: &str, key: &KeyPair) -> Http {
    let mut config: Value =
        serde_json::to_value(kube::config::Kubeconfig::read_from(server.kubeconfig()).unwrap())
            .unwrap();
    config["users"][0]["user"] = json!({
        "client-certificate-data": certificate,
        "client-key-data": STANDARD.encode(key.serialize_pem()),
    });
    let path = server.scratch(file);
    std::fs::write(&path, config.to_string()).unwrap();
    Http::from_kubeconfig(&path)
}

fn certificate(http: &Http, name: &str) -> String {
    poll("the certificate is there", || {
        let request = http.get(&format!("{REQUESTS}/{name}")).ok();
        match request["status"]["certificate"].as_str() {
            Some(certificate) => Ok(certificate.to_owned()),
            None => Err(request["status"].to_string()),
        }
    })
}

#[test]
fn an_approved_request_becomes_a_certificate_that_logs_in() {
    let server = Sheaf::start();
    let http = server.http();
    let signer = "kubernetes.io/kube-apiserver-client";
    let (key, object) = request("jane", "dev", signer, &["client auth"]);
    let made = http.post(REQUESTS, &object).ok();
    let name = made["metadata"]["name"].as_str().unwrap();
    assert_eq!(made["spec"]["username"], "system:admin");
    server.kubectl().run(&format!("certificate approve {name}"));
    let certificate = certificate(&http, name);
    let jane = with_certificate(&server, "jane.kubeconfig", &certificate, &key);
    let user = whoami(&jane);
    assert_eq!(
        (&user["username"], &user["groups"]),
        (&json!("jane"), &json!(["dev", "system:authenticated"]))
    );

    // A request that the signer refuses says so.
    let (_, object) = request("jane", "dev", signer, &["server auth"]);
    let made = http.post(REQUESTS, &object).ok();
    let name = made["metadata"]["name"].as_str().unwrap();
    server.kubectl().run(&format!("certificate approve {name}"));
    eventually("it is refused", || {
        let request = http.get(&format!("{REQUESTS}/{name}")).ok();
        let conditions = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| {
            condition["type"] == "Failed"
                && condition["message"].as_str().unwrap().contains("usages did not match")
        })
    });
}

#[test]
fn approving_and_signing_need_a_right_to_the_signer() {
    let server = Sheaf::start();
    let (http, kubectl) = (server.http(), server.kubectl());
    let signer = "kubernetes.io/kube-apiserver-client";
    let masters = request("mallory", "system:masters", signer, &["client auth"]).1;
    assert_has(
        http.post(REQUESTS, &masters).refused(403),
        "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
    );

    let resources = "certificatesigningrequests/approval,certificatesigningrequests/status";
    kubectl.run(&format!("create clusterrole csr --verb=get,update,patch --resource={resources},certificatesigningrequests"));
    kubectl.run("create clusterrolebinding csr --clusterrole=csr --user=jane");
    let made = http.post(REQUESTS, &request("bob", "dev", signer, &["client auth"]).1).ok();
    let path = format!("{REQUESTS}/{}", made["metadata"]["name"].as_str().unwrap());
    let jane = http.with("impersonate-user", "jane");
    let approval = json!({"status": {"conditions": [
        {"type": "Approved", "status": "True", "reason": "Test", "message": "test"}]}});
    assert_has(
        jane.merge(&format!("{path}/approval"), &approval).refused(403),
        "user not permitted to approve requests with signerName \"kubernetes.io/kube-apiserver-client\"",
    );
    let signed = json!({"status": {"certificate": STANDARD.encode("x")}});
    assert_has(
        jane.merge(&format!("{path}/status"), &signed).refused(403),
        "user not permitted to sign requests with signerName",
    );
    let role = json!({"metadata": {"name": "approve"}, "rules": [{
        "apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "verbs": ["approve"],
        "resourceNames": ["kubernetes.io/*"]}]});
    http.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).ok();
    kubectl.run("create clusterrolebinding approve --clusterrole=approve --user=jane");
    jane.merge(&format!("{path}/approval"), &approval).ok();
}

#[test]
fn a_node_joins_with_a_token_and_renews_by_itself() {
    let server = Sheaf::start();
    let http = server.http();
    let secret = json!({
        "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": "abcdef", "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": "system:bootstrappers:nodes",
        },
    });
    http.post("/api/v1/namespaces/kube-system/secrets", &secret).ok();
    for (name, role, group) in [
        ("join", "system:node-bootstrapper", "system:bootstrappers:nodes"),
        (
            "approve",
            "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
            "system:bootstrappers:nodes",
        ),
        (
            "renew",
            "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
            "system:nodes",
        ),
    ] {
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
        });
        http.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).ok();
    }
    let joining = server.bearer("abcdef.0123456789abcdef");
    assert_eq!(whoami(&joining)["username"], "system:bootstrap:abcdef");
    assert_eq!(server.bearer("abcdef.0123456789abcdee").get("/api").status, 401);
    let usages = &["client auth", "digital signature"];
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    let (key, object) = request("system:node:one", "system:nodes", signer, usages);
    let made = joining.post(REQUESTS, &object).ok();
    let first = certificate(&http, made["metadata"]["name"].as_str().unwrap());
    let node = with_certificate(&server, "node.kubeconfig", &first, &key);
    assert_eq!(whoami(&node)["username"], "system:node:one");

    // The secret gone, the token is.
    http.delete("/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef").ok();
    assert_eq!(joining.get("/api").status, 401);
}

/// An OpenID Connect issuer: two documents over TLS, and a key to sign with.
struct Provider {
    url: String,
    ca: String,
    key: Arc<Mutex<KeyPair>>,
}

impl Provider {
    fn start() -> Self {
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "issuer of a test");
        let ca = authority.self_signed(&authority_key).unwrap().pem();
        let issuer = Issuer::new(authority, authority_key);
        let serving = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let cert = CertificateParams::new(names).unwrap().signed_by(&serving, &issuer).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![cert.der().clone()],
                PrivateKeyDer::try_from(serving.serialize_der()).unwrap(),
            )
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let key = Arc::new(Mutex::new(KeyPair::generate().unwrap()));
        let (config, served, own) = (Arc::new(config), Arc::clone(&key), url.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut tls = BufReader::new(rustls::StreamOwned::new(connection, stream.unwrap()));
                let mut line = String::new();
                if tls.read_line(&mut line).is_err() {
                    continue;
                }
                let body = match line.contains("openid-configuration") {
                    true => json!({"issuer": own, "jwks_uri": format!("{own}/keys")}),
                    false => json!({"keys": [jwk(&served.lock().unwrap())]}),
                };
                let body = body.to_string();
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                let _ = tls.get_mut().write_all((head + &body).as_bytes());
                tls.get_mut().conn.send_close_notify();
                let _ = tls.get_mut().flush();
            }
        });
        Self { url, ca, key }
    }

    fn token(&self, claims: &Value) -> String {
        let key = self.key.lock().unwrap();
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({"alg": "ES256", "kid": jwk(&key)["kid"]});
        let text = format!("{}.{}", part(&header), part(claims));
        // A signature in a certificate is two numbers in ASN.1; in a token they lie bare.
        let der = key.sign(text.as_bytes()).unwrap();
        let mut bare = Vec::new();
        let mut at = 2;
        for _ in 0..2 {
            let length = usize::from(der[at + 1]);
            let number = &der[at + 2..at + 2 + length];
            let number: Vec<u8> = number.iter().copied().skip_while(|byte| *byte == 0).collect();
            bare.extend(vec![0; 32 - number.len()]);
            bare.extend(number);
            at += 2 + length;
        }
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(bare))
    }
}

fn jwk(key: &KeyPair) -> Value {
    let point = key.der_bytes();
    let (x, y) = point[1..].split_at(32);
    let id = URL_SAFE_NO_PAD.encode(&x[..9]);
    json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": id,
        "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y)})
}

#[test]
fn people_log_in_with_tokens_of_their_issuer() {
    let issuer = Provider::start();
    let mut server = Sheaf::prepared(&[]);
    let ca = server.scratch("issuer.pem");
    std::fs::write(&ca, &issuer.ca).unwrap();
    server.set_arguments(vec![
        format!("--oidc-issuer-url={}", issuer.url),
        "--oidc-client-id=sheaf".to_owned(),
        "--oidc-username-claim=email".to_owned(),
        "--oidc-groups-claim=groups".to_owned(),
        "--oidc-groups-prefix=oidc:".to_owned(),
        "--oidc-signing-algs=ES256".to_owned(),
        format!("--oidc-ca-file={}", ca.display()),
    ]);
    server.begin();
    let claims = |changes: &[(&str, Value)]| {
        let mut claims = json!({"iss": issuer.url, "aud": "sheaf", "sub": "1",
            "email": "jane@example.com", "groups": ["ops"], "exp": 4_000_000_000_u64});
        for (name, value) in changes {
            claims[*name] = value.clone();
        }
        claims
    };
    let user = whoami(&server.bearer(&issuer.token(&claims(&[]))));
    assert_eq!(user["username"], "jane@example.com");
    assert_eq!(user["groups"], json!(["oidc:ops", "system:authenticated"]));
    for wrong in [("aud", json!("other")), ("exp", json!(1)), ("email_verified", json!(false))] {
        let token = issuer.token(&claims(std::slice::from_ref(&wrong)));
        assert_eq!(server.bearer(&token).get("/api").status, 401, "{wrong:?}");
    }
    // Keys may be replaced at any time; a token with a new one makes the server query them again.
    *issuer.key.lock().unwrap() = KeyPair::generate().unwrap();
    let token = issuer.token(&claims(&[]));
    eventually("the new key is known", || server.bearer(&token).get("/api").status == 200);
    let forged = Provider {
        url: issuer.url.clone(),
        ca: String::new(),
        key: Arc::new(Mutex::new(KeyPair::generate().unwrap())),
    };
    assert_eq!(server.bearer(&forged.token(&claims(&[]))).get("/api").status, 401);
    assert_has(server.bearer(&token).get("/api").text(), "APIVersions");
}

#[test]
fn a_cluster_says_whom_to_trust() {
    let server = Sheaf::start();
    let http = server.http();
    let bundles = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
    let pem = std::fs::read_to_string(server.data().join("pki/ca.crt")).unwrap();
    let bundle = |name: &str, pem: &str| json!({"metadata": {"name": name}, "spec": {"signerName": "example.com/ca", "trustBundle": pem}});
    http.post(bundles, &bundle("example.com:ca:one", &pem)).ok();
    assert_has(
        http.post(bundles, &bundle("one", &pem)).refused(422),
        "must be named with prefix example.com:ca:",
    );
    assert_has(
        http.post(bundles, &bundle("example.com:ca:two", "x")).refused(422),
        "at least one trust anchor must be provided",
    );
    let found = http.get(&format!("{bundles}?fieldSelector=spec.signerName%3Dexample.com/ca")).ok();
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
}
