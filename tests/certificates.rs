//! Certificates that are asked for, tokens to join with, and logins with those of another user.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

use crate::harness::{Http, OidcIssuer, Sheaf, assert_has, eventually, poll};

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

#[test]
fn people_log_in_with_tokens_of_their_issuer() {
    let issuer = OidcIssuer::start();
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
    let forged = issuer.forged();
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
