//! Starts the API server: connects its parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use auth::token::ServiceAccountTokens;
use base::{Tasks, Workloads};
use parking_lot::Mutex;
use store::{Config, Store};

use crate::access::identity::Authenticator;
use crate::access::oidc::Oidc;
use crate::access::rights::Rights;
use crate::admission::hooks::Hooks;
use crate::aggregation::{self, Aggregation};
use crate::api::{Api, ApiState, Settings};
use crate::audit::Audit;
use crate::endpoints::openapi::Documents;
use crate::endpoints::traffic::Traffic;
use crate::extension::Extensions;
use crate::fairness::{self, Fairness};
use crate::http::connections::ConnectionTable;
use crate::outbound::Outbound;
use crate::schemas::catalog::Catalog;
use crate::schemas::cleanup;
use crate::schemas::migration;
use crate::schemas::refresh;
use crate::schemas::served::ServedKind;
use crate::setup::api_services;
use crate::setup::bootstrap::{self, BootstrapError};
use crate::setup::server_lease;
use crate::verbs::expiry;
use crate::verbs::item::ObjectShape;
use crate::verbs::watch::WatchLimit;

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot open the store")]
    Store(#[source] store::OpenError),
    #[error(transparent)]
    Audit(#[from] crate::audit::AuditError),
    #[error("cannot write the first objects")]
    Bootstrap(#[from] BootstrapError),
}

impl Api {
    /// Opens the store, brings the server into its first state and starts its background work.
    pub async fn start(
        config: Config,
        settings: Settings,
        extensions: Extensions,
        tokens: ServiceAccountTokens,
        tasks: &Tasks,
    ) -> Result<Self, StartError> {
        let store = Store::open(config, ObjectShape, tasks).await.map_err(StartError::Store)?;
        let built_in = kinds::builtin().iter().map(|row| Arc::new(ServedKind::built_in(row)));
        let audit = settings.audit.clone().map(|audit| Audit::start(audit, tasks)).transpose()?;
        let fairness = Fairness::new(settings.in_flight);
        let oidc = settings.oidc.clone().map(|login| Oidc::start(login, tasks));
        let limits = settings.connections;
        let api = Self::from_state(ApiState {
            store,
            catalog: ArcSwap::from_pointee(Catalog::new(built_in.collect(), 0)),
            catalog_changed: Arc::default(),
            catalog_update: Mutex::new(()),
            rights: Rights::default(),
            hooks: Hooks::default(),
            outbound: Outbound::default(),
            aggregation: Aggregation::default(),
            authenticator: Authenticator::new(tokens),
            documents: Documents::default(),
            settings,
            extensions,
            tasks: tasks.clone(),
            ready: AtomicBool::new(false),
            traffic: Traffic::default(),
            audit,
            fairness,
            oidc,
            connections: Arc::new(ConnectionTable::new(limits)),
            watch_limit: WatchLimit::new(limits.watches_per_user),
        });
        refresh::catalog(&api);
        bootstrap::run(&api).await?;
        // The first request already belongs where the objects say.
        fairness::refresh(&api);
        refresh::follow(&api, tasks);
        fairness::dangling::start(&api, tasks);
        cleanup::start(&api, tasks);
        api_services::start(&api, tasks);
        aggregation::start(&api, tasks);
        expiry::start(&api, tasks);
        migration::start(&api, tasks);
        server_lease::start(&api, tasks);
        api.ready.store(true, Ordering::Release);
        Ok(api)
    }

    /// The known tokens and their users; the binary uses it to load a changed token file.
    pub fn authenticator(&self) -> &Authenticator {
        &self.authenticator
    }

    /// Where those who work beside the server count what they do.
    pub fn loads(&self) -> &Workloads {
        &self.extensions.loads
    }

    /// Whether `/readyz` would say yes.
    pub fn is_ready(&self) -> bool {
        crate::endpoints::health::is_ready(self)
    }

    /// Writes a consistent copy of the store to `path` while requests go on.
    pub async fn backup(&self, path: &std::path::Path) -> Result<(), store::BackupError> {
        self.store.backup(path).await
    }
}
