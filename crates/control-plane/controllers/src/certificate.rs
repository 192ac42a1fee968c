//! CertificateSigningRequests: approves those of nodes for themselves, and signs approved ones.

mod join;
mod plan;

use std::sync::Arc;

use hci::cluster::{WITNESS_ROLE, bootstrap_token_id};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde_json::{Value, json};
use tracing::{info, warn};

use self::join::{JoinFacts, JoinStep};
use self::plan::{CertificateStep, NodeClaim};
use crate::object;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{NODES, Objects, Resource, SECRETS, is_refused};

const REQUESTS: Resource = Resource::new("certificates.k8s.io", "v1", "certificatesigningrequests");
const KUBE_SYSTEM: &str = "kube-system";
const NODE_USER: &str = "system:node:";
/// More steps than a join has, in case others change the same objects.
const JOIN_STEPS: usize = 8;
const REVIEWS: Resource = Resource::new("authorization.k8s.io", "v1", "subjectaccessreviews");

/// A certificate signing request.
#[derive(Debug, Clone, Copy)]
pub struct CertificateAsk<'a> {
    /// PEM.
    pub request: &'a str,
    pub signer: &'a str,
    pub usages: &'a [String],
    pub seconds: Option<i64>,
}

/// The content of a reviewed certificate request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewedRequest {
    pub common_name: String,
    /// Pin of the key that asks.
    pub key: String,
    /// Whether it names the endpoint of the node in its common name and nothing else.
    pub is_own_endpoint: bool,
}

/// Why a certificate is not signed, in the words of the signer.
pub type SignerError = Box<dyn std::error::Error + Send + Sync>;

/// The signer, which has the key of the cluster's CA.
pub trait CertificateSigner: Send + Sync {
    /// The reviewed request; `None` if another signer is named. An error says why it will not be
    /// signed.
    fn review(&self, ask: &CertificateAsk<'_>) -> Result<Option<ReviewedRequest>, SignerError>;
    /// The certificate, PEM.
    fn sign(&self, ask: &CertificateAsk<'_>) -> Result<String, SignerError>;
}

/// Every request that changes.
#[derive(Debug, Default)]
pub(crate) struct CertificateRequestMapper;

impl EventMapper for CertificateRequestMapper {
    type Key = Arc<str>;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<Arc<str>> {
        match touch {
            ObjectChange::Object { kind, name, state: ObjectState::Live, .. }
                if REQUESTS.is(kind) =>
            {
                vec![Arc::clone(name)]
            }
            _ => vec![],
        }
    }
}

pub(crate) struct Authority {
    objects: Objects,
    signer: Arc<dyn CertificateSigner>,
}

impl Authority {
    pub(crate) fn new(client: Client, signer: Arc<dyn CertificateSigner>) -> Self {
        Self { objects: Objects(client), signer }
    }

    /// Whether the requester may have it without a manual approval.
    async fn may_have(&self, request: &Value, subresource: &str) -> Result<bool, ReconcileError> {
        let review = plan::review(request, subresource);
        let answer = self.objects.create(REVIEWS, "", &review).await.doing("review a request")?;
        Ok(answer["status"]["allowed"] == true)
    }

    /// Approves a request, or denies it.
    async fn decide(&self, request: &Value, patch: &Value) -> Result<(), ReconcileError> {
        let name = request["metadata"]["name"].as_str().unwrap_or("");
        let call = Request::new(REQUESTS.path("")).patch_subresource(
            "approval",
            name,
            &PatchParams::default(),
            &Patch::Merge(patch),
        );
        let call = call.map_err(kube::Error::BuildRequest).doing("decide about a request")?;
        self.objects.0.request::<Value>(call).await.map(drop).doing("decide about a request")
    }

    /// Approves the certificate of a node if it is for the one who asks.
    async fn consider(
        &self,
        request: &Value,
        reviewed: &ReviewedRequest,
        claim: NodeClaim,
    ) -> Result<(), ReconcileError> {
        let name = reviewed.common_name.strip_prefix(NODE_USER).unwrap_or_default();
        let user = request["spec"]["username"].as_str().unwrap_or_default();
        let approval = plan::approval(request);
        match claim {
            NodeClaim::Own => {
                let node: Option<Node> = self.read(NODES, "", name).await?;
                let is_allowed = join::may_renew(node.as_ref(), &reviewed.key)
                    && self.may_have(request, "selfnodeclient").await?;
                if is_allowed { self.decide(request, &approval).await } else { Ok(()) }
            }
            NodeClaim::OwnEndpoint => {
                let node: Option<Node> = self.read(NODES, "", name).await?;
                let is_allowed =
                    join::may_renew(node.as_ref(), &reviewed.key) && reviewed.is_own_endpoint;
                if is_allowed { self.decide(request, &approval).await } else { Ok(()) }
            }
            NodeClaim::New if !self.may_have(request, "nodeclient").await? => Ok(()),
            NodeClaim::New => match bootstrap_token_id(user) {
                Some(token) => self.join(request, token, name, &reviewed.key).await,
                None => self.decide(request, &approval).await,
            },
        }
    }

    /// One machine's way into the cluster, a step at a time.
    async fn join(
        &self,
        request: &Value,
        token: &str,
        name: &str,
        key: &str,
    ) -> Result<(), ReconcileError> {
        let path = format!("bootstrap-token-{token}");
        for _ in 0..JOIN_STEPS {
            let secret: Option<Secret> = self.read(SECRETS, KUBE_SYSTEM, &path).await?;
            let node: Option<Node> = self.read(NODES, "", name).await?;
            let label = format!("{WITNESS_ROLE}=true");
            let witnesses = self.objects.list(NODES, "", &label).await.doing("list witnesses")?;
            let witness = witnesses.first().map(object::name);
            let (secret, node) = (secret.as_ref(), node.as_ref());
            match join::step(&JoinFacts { token, secret, name, node, key, witness }) {
                JoinStep::Reserve(patch) | JoinStep::Complete(patch) => {
                    let written = self.objects.merge(SECRETS, KUBE_SYSTEM, &path, &patch).await;
                    written.map(drop).doing("record the use of a token")?;
                }
                JoinStep::CreateNode(node) => {
                    let made = self.objects.create(NODES, "", &node).await;
                    made.map(drop).doing("create a node that joins")?;
                    info!(node = name, token, "node joins");
                }
                JoinStep::Approve | JoinStep::NotOurs => {
                    return self.decide(request, &plan::approval(request)).await;
                }
                JoinStep::Deny { message } => {
                    warn!(node = name, token, reason = %message, "node is not let in");
                    return self.decide(request, &plan::denial(request, &message)).await;
                }
            }
        }
        Ok(())
    }

    async fn read<T: serde::de::DeserializeOwned>(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<T>, ReconcileError> {
        let found = self.objects.get(resource, namespace, name).await.doing("read an object")?;
        let typed = found.map(serde_json::from_value).transpose();
        typed.map_err(kube::Error::SerdeError).doing("read an object")
    }

    async fn write(&self, name: &str, patch: &Value) -> Result<ReconcileResult, ReconcileError> {
        match self.objects.merge_status(REQUESTS, "", name, patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|_| ReconcileResult::Done).doing("write a certificate"),
        }
    }
}

impl Reconciler for Authority {
    type Key = Arc<str>;

    async fn reconcile(&self, name: &Arc<str>) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(REQUESTS, "", name).await.doing("get a request")?;
        let Some(request) = found else { return Ok(ReconcileResult::Done) };
        let Some(parts) = plan::Parts::of(&request) else { return Ok(ReconcileResult::Done) };
        let ask = parts.ask();
        match plan::step(&request, &self.signer.review(&ask)) {
            CertificateStep::Nothing => Ok(ReconcileResult::Done),
            CertificateStep::Consider { reviewed, claim } => {
                self.consider(&request, &reviewed, claim).await?;
                Ok(ReconcileResult::Done)
            }
            CertificateStep::Refuse { message } => {
                self.write(name, &plan::failure(&request, &message, &base::clock::now_rfc3339()))
                    .await
            }
            CertificateStep::Sign => match self.signer.sign(&ask) {
                Ok(pem) => {
                    self.write(name, &json!({"status": {"certificate": plan::encoded(&pem)}})).await
                }
                Err(error) => {
                    let message = base::Chain(&*error).to_string();
                    let now = base::clock::now_rfc3339();
                    self.write(name, &plan::failure(&request, &message, &now)).await
                }
            },
        }
    }
}
