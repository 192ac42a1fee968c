//! Which kinds the API server serves, read from its discovery and kept for a moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Catalog, CatalogKind};
use kube::Client;
use parking_lot::Mutex;

use crate::error::SteveError;
use crate::type_name;

/// How long a catalog counts as current. A type that it does not have is searched at once.
const FRESH: Duration = Duration::from_secs(30);
/// How often types that do not exist may cause a read.
const MISS_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(crate) struct KindCache(Mutex<Option<(Arc<Catalog>, Instant)>>);

impl KindCache {
    pub(crate) async fn get(&self, client: &Client) -> Result<Arc<Catalog>, SteveError> {
        self.newer_than(client, FRESH).await
    }

    /// A type by its name, in the catalog that has it.
    pub(crate) async fn find(
        &self,
        client: &Client,
        name: &str,
    ) -> Result<(Arc<Catalog>, Arc<CatalogKind>), SteveError> {
        for age in [FRESH, MISS_INTERVAL] {
            let catalog = self.newer_than(client, age).await?;
            if let Some(kind) = type_name::find(&catalog, name) {
                let kind = kind.clone();
                return Ok((catalog, kind));
            }
        }
        Err(SteveError::no_such_type(name))
    }

    async fn newer_than(&self, client: &Client, age: Duration) -> Result<Arc<Catalog>, SteveError> {
        let known = self.0.lock().clone();
        if let Some((catalog, since)) = known
            && since.elapsed() < age
        {
            return Ok(catalog);
        }
        let now = Instant::now();
        let catalog = client::discover(client).await;
        let catalog = Arc::new(catalog.map_err(|error| SteveError::unavailable(&error))?);
        *self.0.lock() = Some((catalog.clone(), now));
        Ok(catalog)
    }
}
