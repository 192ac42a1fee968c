//! Certificates that were asked for: approves those of nodes for themselves, and signs what
//! has been approved.

mod plan;

use std::sync::Arc;

use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde_json::{Value, json};

use self::plan::CertificateStep;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{Objects, Resource, is_refused};

const REQUESTS: Resource = Resource::new("certificates.k8s.io", "v1", "certificatesigningrequests");
const REVIEWS: Resource = Resource::new("authorization.k8s.io", "v1", "subjectaccessreviews");

/// What somebody asks to be signed.
#[derive(Debug, Clone, Copy)]
pub struct CertificateAsk<'a> {
    /// PEM.
    pub request: &'a str,
    pub signer: &'a str,
    pub usages: &'a [String],
    pub seconds: Option<i64>,
}

/// Who has the key of the cluster's authority.
pub trait CertificateSigner: Send + Sync {
    /// The common name that is asked for; nothing if the signer is somebody else. Or why
    /// it will not be signed.
    fn review(&self, ask: &CertificateAsk<'_>) -> Result<Option<String>, String>;
    /// The certificate, PEM.
    fn sign(
        &self,
        ask: &CertificateAsk<'_>,
    ) -> Result<String, Box<dyn std::error::Error + Send + Sync>>;
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

    /// Whether the one who asks may have it without anybody looking.
    async fn may_have(&self, request: &Value, subresource: &str) -> Result<bool, ReconcileError> {
        let review = plan::review(request, subresource);
        let answer = self.objects.create(REVIEWS, "", &review).await.doing("review a request")?;
        Ok(answer["status"]["allowed"] == true)
    }

    async fn approve(&self, request: &Value) -> Result<(), ReconcileError> {
        let patch = plan::approval(request);
        let name = request["metadata"]["name"].as_str().unwrap_or("");
        let call = Request::new(REQUESTS.path("")).patch_subresource(
            "approval",
            name,
            &PatchParams::default(),
            &Patch::Merge(&patch),
        );
        let call = call.map_err(kube::Error::BuildRequest).doing("approve a request")?;
        self.objects.0.request::<Value>(call).await.map(drop).doing("approve a request")
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
            CertificateStep::Consider { subresource } => {
                if self.may_have(&request, subresource).await? {
                    self.approve(&request).await?;
                }
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
