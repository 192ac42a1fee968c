//! The way of a machine into a cluster, from a token to a certificate.
//!
//! ```text
//!   token ─► /cacerts, pin ─► checks ─► request ─► approved ─► node.crt ─► cluster.json
//! ```
//!
//! Each step can be repeated: the key is made once, and the cluster knows it again.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use auth::kubeconfig::Credential;
use auth::pki::{NodeCertificate, NodeFiles};
use auth::token::join::JoinToken;
use base::clock;
use http::Request;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec,
};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use tracing::info;

use super::membership::Membership;
use super::plan::{self, JoinFacts, NameState};
use super::{cluster_ca, connection};
use crate::command::version::VERSION;
use crate::data_dir::Layout;

/// The controllers decide at once; a server that is just starting takes a moment.
const DECISION_TIMEOUT: Duration = Duration::from_secs(60);

/// Joins the cluster of `token` as `node`.
pub(super) async fn join(
    layout: &Layout,
    token: &JoinToken,
    urls: Vec<String>,
    node: &str,
) -> Result<Membership> {
    let (url, ca_pem) = cluster_ca::fetch(&urls, &token.ca).await?;
    let files = NodeFiles::open(&layout.pki()).context("cannot set up the key of this node")?;
    let bearer = token.bearer();
    let client = connection::client(&url, &ca_pem, Credential::Token(&bearer)).await?;
    let facts = read_facts(&client, token, node, &files.key_pin()).await?;
    let problems = plan::problems(&facts);
    if !problems.is_empty() {
        let list: String = problems.iter().map(|problem| format!("\n  - {problem}")).collect();
        bail!("this machine cannot join the cluster at {url}; nothing was changed:{list}");
    }
    files.store_ca(&ca_pem).context("cannot store the cluster's CA")?;
    info!(node, %url, "asking the cluster for a certificate");
    let which = NodeCertificate::Client;
    let pem = certificate(&client, &files, which, node).await?;
    files.store(which, &pem).context("cannot store the certificate")?;
    let mut urls = urls;
    urls.retain(|other| *other != url);
    urls.insert(0, url);
    let membership = Membership {
        cluster: token.ca.clone(),
        node: node.to_owned(),
        role: token.role.clone(),
        urls,
    };
    membership.save(layout)?;
    info!(node, "joined the cluster");
    Ok(membership)
}

/// Collects the facts for the checks.
async fn read_facts(
    client: &Client,
    token: &JoinToken,
    node: &str,
    key: &str,
) -> Result<JoinFacts> {
    let request = Request::get("/version").body(kube::client::Body::empty());
    let answer = client.send(request.context("cannot build a request")?).await;
    let answer = answer.context("cannot speak to the server")?;
    let date = answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
    let server_time = date.and_then(http_date);
    let body = answer.into_body().collect_bytes().await;
    let body = body.context("cannot speak to the server")?;
    let version: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let git_version = version["gitVersion"].as_str().unwrap_or_default();
    let nodes = Api::<Node>::all(client.clone());
    let name = match nodes.get_opt(node).await {
        Ok(None) => NameState::Free,
        Ok(Some(found)) => {
            let notes = found.metadata.annotations.unwrap_or_default();
            let is_own = notes.get(hci::cluster::NODE_KEY).is_some_and(|own| own == key);
            if is_own { NameState::Own } else { NameState::Taken }
        }
        Err(kube::Error::Api(status)) if status.code == 401 => NameState::Unknown,
        Err(failure) => return Err(failure).context("cannot ask for the node's name"),
    };
    Ok(JoinFacts {
        node: node.to_owned(),
        now: clock::now(),
        server_time,
        own_version: VERSION.sheaf.to_owned(),
        server_version: plan::sheaf_version(git_version).map(str::to_owned),
        token_id: token.id.clone(),
        token_expires: token.exp,
        name,
    })
}

/// The time in a Date header.
fn http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::parse(text).ok().map(|time| time.timestamp())
}

/// Asks for a certificate and waits until it is decided.
pub(super) async fn certificate(
    client: &Client,
    files: &NodeFiles,
    which: NodeCertificate,
    node: &str,
) -> Result<String> {
    let pem = files.request(which, node).context("cannot make a certificate request")?;
    let requests = Api::<CertificateSigningRequest>::all(client.clone());
    let request = CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some(format!("{node}-")), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: which.signer().to_owned(),
            usages: Some(which.usages().map(str::to_owned).to_vec()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let made = requests.create(&PostParams::default(), &request).await;
    let made = made.context("the cluster refuses the certificate request")?;
    let name = made.metadata.name.unwrap_or_default();
    let decided =
        await_condition(requests, &name, |request: Option<&CertificateSigningRequest>| {
            request.is_some_and(is_decided)
        });
    let decided = tokio::time::timeout(DECISION_TIMEOUT, decided).await.map_err(|_| {
        anyhow!(
            "the cluster has not decided about the certificate request {name} within {} s; \
             `kubectl describe csr {name}` shows more. Run the same command again to go on",
            DECISION_TIMEOUT.as_secs()
        )
    })?;
    let decided = decided.context("cannot wait for the certificate")?;
    let status = decided.and_then(|request| request.status).unwrap_or_default();
    if let Some(certificate) = status.certificate.filter(|pem| !pem.0.is_empty()) {
        return String::from_utf8(certificate.0).context("the certificate is not text");
    }
    let refused =
        status.conditions.unwrap_or_default().into_iter().find(|it| is_refusal(&it.type_));
    let message = refused.and_then(|it| it.message).unwrap_or_default();
    bail!("the cluster refuses: {message}")
}

fn is_refusal(kind: &str) -> bool {
    matches!(kind, "Denied" | "Failed")
}

fn is_decided(request: &CertificateSigningRequest) -> bool {
    request.status.as_ref().is_some_and(|status| {
        status.certificate.as_ref().is_some_and(|pem| !pem.0.is_empty())
            || status.conditions.iter().flatten().any(|it| is_refusal(&it.type_))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_a_response_is_read() {
        let time = http_date("Mon, 16 Nov 2026 18:18:40 GMT").unwrap();
        assert_eq!(time.to_string(), "2026-11-16T18:18:40Z");
        assert_eq!(http_date("yesterday"), None);
    }
}
