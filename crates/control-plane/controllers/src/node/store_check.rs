//! Whether the store takes writes: while it does not, no node can renew its lease, and none is to
//! blame for that.

use std::time::Duration;

use base::clock;
use serde_json::json;

use super::LEASES;
use crate::resource::{Objects, is_refused};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "sheaf-node-lifecycle";
/// A write that takes longer does not count.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// Writes a lease of its own to find out.
pub(super) struct StoreCheck {
    objects: Objects,
}

impl StoreCheck {
    pub(super) fn new(objects: Objects) -> Self {
        Self { objects }
    }

    pub(super) async fn is_writable(&self) -> bool {
        matches!(tokio::time::timeout(WRITE_TIMEOUT, self.write()).await, Ok(Ok(())))
    }

    async fn write(&self) -> Result<(), kube::Error> {
        let now = clock::rfc3339_micro(clock::now());
        let spec = json!({"holderIdentity": "sheaf-controllers", "renewTime": now});
        let patch = json!({ "spec": spec });
        match self.objects.merge(LEASES, NAMESPACE, NAME, &patch).await {
            Err(failure) if is_refused(&failure, 404) => {
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec,
                });
                self.objects.create(LEASES, NAMESPACE, &lease).await.map(drop)
            }
            written => written.map(drop),
        }
    }
}
