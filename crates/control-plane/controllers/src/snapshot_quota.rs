//! Harvester's ResourceQuota reports how many bytes the snapshots of its namespace take. That
//! there is room for another one is checked when it is created.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hci::snapshot_usage::{QUOTA_NAME, SnapshotBytes};
use kube::Client;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::key::ObjectKey;
use crate::longhorn::SNAPSHOTS;
use crate::object::{is_merged, read};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::record::fields;
use crate::resource::{CLAIMS, Objects, Resource, VMS, is_refused};

const QUOTAS: Resource = Resource::new("harvesterhci.io", "v1beta1", "resourcequotas");

/// Every quota that changes, and all of them when a snapshot does: its object does not say which
/// namespace its volume belongs to.
#[derive(Debug, Default)]
pub(crate) struct SnapshotQuotaMapper(BTreeSet<Arc<str>>);

impl EventMapper for SnapshotQuotaMapper {
    type Key = ObjectKey;

    fn keys(&mut self, change: &ObjectChange) -> Vec<ObjectKey> {
        match change {
            ObjectChange::Object { kind, namespace, name, state } if QUOTAS.is(kind) => {
                if &**name != QUOTA_NAME {
                    return Vec::new();
                }
                if *state == ObjectState::Gone {
                    self.0.remove(namespace);
                    return Vec::new();
                }
                self.0.insert(Arc::clone(namespace));
                vec![ObjectKey::new(namespace, name)]
            }
            ObjectChange::Object { kind, .. } | ObjectChange::Missed(kind)
                if SNAPSHOTS.is(kind) =>
            {
                self.0.iter().map(|namespace| ObjectKey::new(namespace, QUOTA_NAME)).collect()
            }
            _ => Vec::new(),
        }
    }
}

pub(crate) struct SnapshotQuotaReconciler(Objects);

impl SnapshotQuotaReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }
}

impl Reconciler for SnapshotQuotaReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let (namespace, name) = (&*key.namespace, &*key.name);
        let found = self.0.get(QUOTAS, namespace, name).await.doing("get the quota")?;
        let Some(quota) = found else { return Ok(ReconcileResult::Done) };
        let claims = self.0.list(CLAIMS, namespace, "").await.doing("list the claims")?;
        let machines = self.0.list(VMS, namespace, "").await.doing("list the machines")?;
        let snapshots = self.0.list(SNAPSHOTS, hci::longhorn::NAMESPACE, "").await;
        let snapshots = snapshots.doing("list the snapshots")?;
        let bytes = SnapshotBytes::count(&claims, &machines, &snapshots);
        let Some(patch) = status(&quota, &bytes) else { return Ok(ReconcileResult::Done) };
        match self.0.merge_status(QUOTAS, namespace, name, &patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|_| ReconcileResult::Done).doing("write the quota's status"),
        }
    }
}

fields! {
    struct QuotaFields<'a> {
        spec: QuotaSpec<'a>,
        status: QuotaStatus<'a>,
    }

    struct QuotaSpec<'a> {
        snapshot_limit: SnapshotLimit<'a>,
    }

    struct SnapshotLimit<'a> {
        machines as "vmTotalSnapshotSizeQuota": BTreeMap<&'a str, IgnoredAny>,
    }

    struct QuotaStatus<'a> {
        snapshot_limit_status: SnapshotUsage<'a>,
    }

    struct SnapshotUsage<'a> {
        machines as "vmTotalSnapshotSizeUsage": BTreeMap<&'a str, IgnoredAny>,
    }
}

/// The patch that makes a quota say what its snapshots take, if it does not: of the namespace,
/// and of each machine that has a limit or snapshots.
fn status(quota: &Value, bytes: &SnapshotBytes) -> Option<Value> {
    let QuotaFields { spec, status } = read(quota);
    let limits = spec.snapshot_limit.machines;
    let is_listed = |name: &str, bytes: i64| bytes > 0 || limits.contains_key(name);
    let listed = bytes.machines.iter().filter(|(name, bytes)| is_listed(name, **bytes));
    let mut machines: Map<String, Value> =
        listed.map(|(name, bytes)| (name.clone(), json!(bytes))).collect();
    for name in status.snapshot_limit_status.machines.into_keys() {
        machines.entry(name).or_insert(Value::Null);
    }
    let patch = json!({"status": {"snapshotLimitStatus": {
        "namespaceTotalSnapshotSizeUsage": bytes.namespace,
        "vmTotalSnapshotSizeUsage": machines,
    }}});
    (!is_merged(quota, &patch)).then_some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[tokio::test]
    async fn a_quota_shows_what_snapshots_take() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        fake.create("/namespaces", "", json!({"metadata": {"name": "longhorn-system"}}));
        let limit = json!({"vmTotalSnapshotSizeQuota": {"web": 100, "other": 100}});
        let quota = json!({"metadata": {"name": QUOTA_NAME}, "spec": {"snapshotLimit": limit}});
        let quotas = "harvesterhci.io/resourcequotas";
        fake.create(quotas, "n", quota);
        let claim = json!({"metadata": {"name": "root"}, "spec": {"volumeName": "pvc-1"}});
        fake.create("/persistentvolumeclaims", "n", claim);
        let volumes = json!([{"name": "a", "persistentVolumeClaim": {"claimName": "root"}}]);
        let machine = json!({"metadata": {"name": "web"},
            "spec": {"template": {"spec": {"volumes": volumes}}}});
        fake.create("kubevirt.io/virtualmachines", "n", machine);
        let snapshot = json!({"metadata": {"name": "s"}, "spec": {"volume": "pvc-1"},
            "status": {"size": 30}});
        let snapshots = "longhorn.io/snapshots";
        fake.create(snapshots, "longhorn-system", snapshot);
        let reconciler = SnapshotQuotaReconciler::new(fake.client());
        let key = ObjectKey::new("n", QUOTA_NAME);
        let found = || fake.get(quotas, "n", QUOTA_NAME).unwrap()["status"].clone();
        reconciler.reconcile(&key).await.unwrap();
        let expected = json!({"snapshotLimitStatus": {"namespaceTotalSnapshotSizeUsage": 30,
            "vmTotalSnapshotSizeUsage": {"web": 30}}});
        assert_eq!(found(), expected);
        let quota = fake.get(quotas, "n", QUOTA_NAME).unwrap();
        let same = SnapshotBytes { namespace: 30, machines: [("web".to_owned(), 30)].into() };
        assert_eq!(status(&quota, &same), None, "nothing is written twice");
        let gone = SnapshotBytes::default();
        let patch = status(&quota, &gone).unwrap();
        let usage = &patch["status"]["snapshotLimitStatus"]["vmTotalSnapshotSizeUsage"];
        assert_eq!(usage, &json!({"web": null}), "a machine that is gone is left out");
    }
}
