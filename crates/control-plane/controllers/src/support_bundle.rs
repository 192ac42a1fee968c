//! Support bundles become ready for download, fail when their timeout passes before they were
//! downloaded, and are removed when they expire.
//!
//! The content of a bundle is collected while it is downloaded; here is only its life.

use std::time::Duration;

use base::clock;
use hci::cluster_setting::effective;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use crate::condition::{self, Condition};
use crate::key::ObjectKey;
use crate::object;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::record::{self, fields};
use crate::resource::{Objects, Resource, is_refused};

const BUNDLES: Resource = Resource::new("harvesterhci.io", "v1beta1", "supportbundles");
const SETTINGS: Resource = Resource::new("harvesterhci.io", "v1beta1", "settings");
const EXPIRATION: &str = "support-bundle-expiration";
const FILE_NAME: &str = "support-bundle-file-name";
/// Harvester's text for a bundle that took too long.
const TIMEOUT: &str = "fail to generate supportbundle: timeout";

/// Every support bundle that changes.
#[derive(Debug, Default)]
pub(crate) struct SupportBundleMapper;

impl EventMapper for SupportBundleMapper {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        match touch {
            ObjectChange::Object { kind, namespace, name, state: ObjectState::Live }
                if BUNDLES.is(kind) =>
            {
                vec![ObjectKey::new(namespace, name)]
            }
            _ => Vec::new(),
        }
    }
}

pub(crate) struct SupportBundleReconciler(Objects);

impl SupportBundleReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }

    async fn setting(&self, name: &str) -> Result<String, ReconcileError> {
        let setting = self.0.get(SETTINGS, "", name).await.doing("get a setting")?;
        Ok(effective(name, setting.as_ref()))
    }
}

impl Reconciler for SupportBundleReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found =
            self.0.get(BUNDLES, &key.namespace, &key.name).await.doing("get the support bundle")?;
        let Some(bundle) = found else { return Ok(ReconcileResult::Done) };
        let expiration = self.setting(EXPIRATION).await?;
        let file_name = self.setting(FILE_NAME).await?;
        let written = match plan(&bundle, &expiration, &file_name, clock::now()) {
            BundlePlan::Wait(left) => return Ok(ReconcileResult::Again(left)),
            BundlePlan::Keep => return Ok(ReconcileResult::Done),
            BundlePlan::Write(patch) => {
                self.0.merge(BUNDLES, &key.namespace, &key.name, &patch).await.map(drop)
            }
            BundlePlan::Remove => self
                .0
                .delete(BUNDLES, &key.namespace, &key.name, object::uid(&bundle))
                .await
                .map(drop),
        };
        match written {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|()| ReconcileResult::Done).doing("write the support bundle"),
        }
    }
}

/// The next step for a support bundle.
#[derive(Debug, PartialEq)]
enum BundlePlan {
    Write(Value),
    /// Nothing before this time has passed.
    Wait(Duration),
    Keep,
    Remove,
}

fields! {
    struct BundleFields<'a> {
        spec: BundleSpec,
        status: BundleStatus<'a>,
    }

    struct BundleSpec {
        /// In minutes.
        expiration: Option<i64>,
        /// In minutes; 0 is no limit.
        timeout: Option<i64>,
    }

    struct BundleStatus<'a> {
        state: &'a str,
    }
}

fn plan(bundle: &Value, expiration: &str, file_name: &str, now: Timestamp) -> BundlePlan {
    if object::is_deleting(bundle) {
        return BundlePlan::Keep;
    }
    let BundleFields { spec, status } = object::read(bundle);
    match status.state {
        "ready" | "error" => {}
        _ => return BundlePlan::Write(ready(bundle, file_name, now)),
    }
    let since = changed_at(bundle).unwrap_or(now);
    let own = spec.expiration.filter(|minutes| *minutes > 0);
    // Without a time a bundle stays until it is downloaded or deleted.
    let expires = left(own.or_else(|| expiration.parse().ok()), since, now);
    let fails = if status.state == "ready" { left(spec.timeout, since, now) } else { None };
    match (expires, fails) {
        (Some(Duration::ZERO), _) => BundlePlan::Remove,
        (_, Some(Duration::ZERO)) => BundlePlan::Write(failed(bundle, now)),
        (Some(one), Some(other)) => BundlePlan::Wait(one.min(other)),
        (Some(left), None) | (None, Some(left)) => BundlePlan::Wait(left),
        (None, None) => BundlePlan::Keep,
    }
}

fn ready(bundle: &Value, file_name: &str, now: Timestamp) -> Value {
    let mut conditions = condition::of(bundle);
    condition::set(&mut conditions, &Condition::new("Initialized", "True"), now);
    let prefix = if file_name.is_empty() { "supportbundle" } else { file_name };
    let name = object::name(bundle);
    let stamp = clock::rfc3339(now).replace(':', "-");
    json!({"status": {
        "state": "ready", "progress": 100, "conditions": conditions,
        "filename": format!("{prefix}_{name}_{stamp}.zip"),
    }})
}

/// A bundle was not collected, that is downloaded, in its time.
fn failed(bundle: &Value, now: Timestamp) -> Value {
    let mut conditions = condition::of(bundle);
    let failure =
        Condition { message: TIMEOUT.to_owned(), ..Condition::new("Initialized", "False") };
    condition::set(&mut conditions, &failure, now);
    json!({"status": {"state": "error", "conditions": conditions}})
}

/// The part of a time in minutes that is left; nothing if there is no such time.
fn left(minutes: Option<i64>, since: Timestamp, now: Timestamp) -> Option<Duration> {
    let seconds = minutes?.checked_mul(60).filter(|seconds| *seconds > 0)?;
    let left = seconds.saturating_sub(now.as_second().saturating_sub(since.as_second()));
    Some(Duration::from_secs(u64::try_from(left).unwrap_or(0)))
}

fn changed_at(bundle: &Value) -> Option<Timestamp> {
    record::condition::condition(bundle, "Initialized")?.last_transition_time.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::text;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_bundle_is_ready_then_expires() {
        let mut bundle = json!({"metadata": {"name": "b"}, "spec": {"expiration": 1}});
        let BundlePlan::Write(patch) = plan(&bundle, "30", "", at(0)) else { panic!("not ready") };
        assert_eq!(patch["status"]["progress"], 100);
        assert_eq!(text(&patch, "/status/filename"), "supportbundle_b_1970-01-01T00-00-00Z.zip");
        bundle["status"] = patch["status"].clone();
        assert_eq!(plan(&bundle, "30", "", at(10)), BundlePlan::Wait(Duration::from_secs(50)));
        assert_eq!(plan(&bundle, "30", "", at(60)), BundlePlan::Remove);
        bundle["spec"] = json!({});
        assert_eq!(plan(&bundle, "2", "", at(60)), BundlePlan::Wait(Duration::from_secs(60)));
        assert_eq!(plan(&bundle, "0", "", at(9000)), BundlePlan::Keep);
        bundle["metadata"]["deletionTimestamp"] = "t".into();
        assert_eq!(plan(&bundle, "1", "", at(9000)), BundlePlan::Keep);
    }

    #[test]
    fn a_bundle_that_is_not_downloaded_in_its_time_fails() {
        let mut bundle = json!({"metadata": {"name": "b"}, "spec": {"timeout": 1}});
        let BundlePlan::Write(patch) = plan(&bundle, "30", "", at(0)) else { panic!("not ready") };
        bundle["status"] = patch["status"].clone();
        assert_eq!(plan(&bundle, "30", "", at(10)), BundlePlan::Wait(Duration::from_secs(50)));
        let BundlePlan::Write(patch) = plan(&bundle, "30", "", at(60)) else {
            panic!("still ready")
        };
        bundle["status"]["state"] = patch["status"]["state"].clone();
        bundle["status"]["conditions"] = patch["status"]["conditions"].clone();
        assert_eq!(patch["status"]["state"], "error");
        assert_eq!(text(&patch, "/status/conditions/0/message"), TIMEOUT);
        assert_eq!(plan(&bundle, "30", "", at(120)), BundlePlan::Wait(Duration::from_secs(1740)));
        assert_eq!(plan(&bundle, "30", "", at(1860)), BundlePlan::Remove);
    }

    #[test]
    fn a_setting_names_the_file() {
        let bundle = json!({"metadata": {"name": "b"}});
        let BundlePlan::Write(patch) = plan(&bundle, "30", "mine", at(0)) else {
            panic!("not ready")
        };
        assert!(text(&patch, "/status/filename").starts_with("mine_b_"));
    }
}
