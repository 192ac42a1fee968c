//! The ServiceAccount `default` in every namespace, and the tokens of Secrets that ask
//! for one.
//!
//! A Secret of type `kubernetes.io/service-account-token` is filled in by us; how a token
//! is signed is not our business, see [`TokenMinter`].

mod plan;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Stop};
use client::{Catalog, CatalogKind, Update};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions};
use kube::{Api, Client};
use tokio::sync::{mpsc, watch};
use tracing::warn;

use self::plan::ServiceAccountStep;
use crate::active::{ActiveNamespaces, refused_by_namespace};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};

const DEFAULT: &str = "default";
const TOKENS: &str = "type=kubernetes.io/service-account-token";

const SIGN_RETRY: Duration = Duration::from_secs(60);

/// Signs the tokens that live in Secrets; they do not expire.
pub trait TokenMinter: Send + Sync {
    /// A token for the service account, bound to the name of the Secret that holds it.
    fn legacy_token(
        &self,
        namespace: &str,
        service_account: &str,
        service_account_uid: &str,
        secret: &str,
    ) -> Result<String, Box<dyn Error + Send + Sync>>;
}

/// Every active namespace, again whenever its default account is touched.
#[derive(Debug, Default)]
pub(crate) struct Accounts(ActiveNamespaces);

impl EventMapper for Accounts {
    type Key = Arc<str>;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<Self::Key> {
        self.0.keys(touch, ("serviceaccounts", DEFAULT))
    }
}

pub(crate) struct ServiceAccountReconciler {
    pub(crate) client: Client,
}

impl Reconciler for ServiceAccountReconciler {
    type Key = Arc<str>;

    async fn reconcile(&self, namespace: &Arc<str>) -> Result<ReconcileResult, ReconcileError> {
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), namespace);
        let found = accounts.get_opt(DEFAULT).await.doing("get the default service account")?;
        if found.is_some() {
            return Ok(ReconcileResult::Done);
        }
        let account = ServiceAccount {
            metadata: ObjectMeta { name: Some(DEFAULT.into()), ..ObjectMeta::default() },
            ..ServiceAccount::default()
        };
        match accounts.create(&PostParams::default(), &account).await {
            Err(failure) if refused_by_namespace(&failure) => Ok(ReconcileResult::Done),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(ReconcileResult::Done),
            created => {
                created.map(|_| ReconcileResult::Done).doing("create the default service account")
            }
        }
    }
}

/// A Secret to fill in, or an account whose Secrets have to go with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TokenKey {
    Secret { namespace: Arc<str>, name: Arc<str> },
    Account { namespace: Arc<str> },
}

#[derive(Debug, Default)]
pub(crate) struct Tokens;

impl EventMapper for Tokens {
    type Key = TokenKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<Self::Key> {
        match touch {
            // Secrets come only from the selected watch of `watch_secrets`.
            ObjectChange::Object { kind, namespace, name, state: ObjectState::Live }
                if kind.is("", "secrets") =>
            {
                vec![TokenKey::Secret { namespace: Arc::clone(namespace), name: Arc::clone(name) }]
            }
            ObjectChange::Object { kind, namespace, state: ObjectState::Gone, .. }
                if kind.is("", "serviceaccounts") =>
            {
                vec![TokenKey::Account { namespace: Arc::clone(namespace) }]
            }
            _ => vec![],
        }
    }
}

/// Which touches of the common feed concern [`Tokens`]: not those of all the other Secrets.
pub(crate) fn concerns_tokens(touch: &ObjectChange) -> bool {
    matches!(touch, ObjectChange::Object { kind, state: ObjectState::Gone, .. }
        if kind.is("", "serviceaccounts"))
}

pub(crate) struct TokenSecretReconciler {
    pub(crate) client: Client,
    pub(crate) root_ca: String,
    pub(crate) minter: Arc<dyn TokenMinter>,
}

impl Reconciler for TokenSecretReconciler {
    type Key = TokenKey;

    async fn reconcile(&self, key: &TokenKey) -> Result<ReconcileResult, ReconcileError> {
        match key {
            TokenKey::Secret { namespace, name } => {
                let secrets = Api::<Secret>::namespaced(self.client.clone(), namespace);
                match secrets.get_opt(name).await.doing("get the token's secret")? {
                    Some(secret) => self.fill(&secrets, namespace, secret).await,
                    None => Ok(ReconcileResult::Done),
                }
            }
            TokenKey::Account { namespace } => {
                let secrets = Api::<Secret>::namespaced(self.client.clone(), namespace);
                let params = ListParams::default().fields(TOKENS);
                for secret in secrets.list(&params).await.doing("list token secrets")? {
                    self.fill(&secrets, namespace, secret).await?;
                }
                Ok(ReconcileResult::Done)
            }
        }
    }
}

impl TokenSecretReconciler {
    async fn fill(
        &self,
        secrets: &Api<Secret>,
        namespace: &str,
        secret: Secret,
    ) -> Result<ReconcileResult, ReconcileError> {
        let Some(account) = plan::account_name(&secret) else { return Ok(ReconcileResult::Done) };
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), namespace);
        let found = accounts.get_opt(&account).await.doing("get the secret's service account")?;
        let name = secret.metadata.name.clone().unwrap_or_default();
        match plan::step(secret, found.as_ref(), &self.root_ca) {
            ServiceAccountStep::Nothing => {}
            ServiceAccountStep::Delete { uid } => {
                let preconditions = Preconditions { uid: Some(uid), resource_version: None };
                let params = DeleteParams::default().preconditions(preconditions);
                ignore_gone(secrets.delete(&name, &params).await.map(drop))
                    .doing("delete the token of an absent service account")?;
            }
            ServiceAccountStep::Write { mut secret, mint } => {
                if let Some(uid) = mint {
                    match self.minter.legacy_token(namespace, &account, &uid, &name) {
                        Ok(token) => plan::put_token(&mut secret, token),
                        Err(failure) => {
                            warn!(namespace, name, error = %Chain(&*failure), "cannot sign token");
                            return Ok(ReconcileResult::Again(SIGN_RETRY));
                        }
                    }
                }
                ignore_gone(
                    secrets.replace(&name, &PostParams::default(), &secret).await.map(drop),
                )
                .doing("fill in the token's secret")?;
            }
        }
        Ok(ReconcileResult::Done)
    }
}

fn ignore_gone(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other,
    }
}

/// Follows the Secrets that hold tokens, and only those.
pub(crate) async fn watch_secrets(
    client: Client,
    mut catalog: watch::Receiver<Arc<Catalog>>,
    touches: mpsc::Sender<ObjectChange>,
    mut stop: Stop,
) {
    let work = async {
        let secrets = loop {
            if let Some(kind) = served(&catalog.borrow_and_update(), "secrets") {
                break kind;
            }
            if catalog.changed().await.is_err() {
                return;
            }
        };
        let (sender, mut updates) = mpsc::channel::<Update>(16);
        let follow = client::follow(client, secrets, Some(TOKENS), sender);
        let forward = async {
            while let Some(update) = updates.recv().await {
                if let Some(touch @ ObjectChange::Object { .. }) = ObjectChange::of(&update)
                    && touches.send(touch).await.is_err()
                {
                    return;
                }
            }
        };
        tokio::join!(follow, forward);
    };
    tokio::select! {
        () = work => {}
        () = stop.requested() => {}
    }
}

fn served(catalog: &Catalog, plural: &str) -> Option<Arc<CatalogKind>> {
    catalog.resource("", plural).map(Arc::clone)
}
