//! All controllers together, against a small server.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use serde_json::{Value, json};

use crate::fake::Fake;
use crate::{
    CertificateAsk, CertificateSigner, Config, ControllerSet, Leadership, ReviewedRequest,
    SignerError, TokenMinter, start,
};

const MAPS: &str = "/configmaps";
const PODS: &str = "/pods";

struct Minter;

impl TokenMinter for Minter {
    fn legacy_token(
        &self,
        namespace: &str,
        service_account: &str,
        service_account_uid: &str,
        secret: &str,
    ) -> Result<String, Box<dyn Error + Send + Sync>> {
        Ok(format!("{namespace} {service_account} {service_account_uid} {secret}"))
    }
}

/// Starts all controllers on a server with the namespace `n`.
/// Signs nothing.
struct NoSigner;

impl CertificateSigner for NoSigner {
    fn review(&self, _: &CertificateAsk<'_>) -> Result<Option<ReviewedRequest>, SignerError> {
        Ok(None)
    }

    fn sign(&self, _: &CertificateAsk<'_>) -> Result<String, SignerError> {
        Err("there is no signer".into())
    }
}

pub(crate) fn duties() -> ControllerSet {
    let (minter, signer) = (Arc::new(Minter), Arc::new(NoSigner));
    ControllerSet::Cluster { root_ca: "pem".into(), minter, signer }
}

fn cluster(leadership: Leadership) -> (Fake, Tasks) {
    let (fake, tasks) = (Fake::new(), Tasks::default());
    fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
    let config = Config {
        leadership,
        duties: duties(),
        uploads: None,
        alarm_sender: None,
        loads: Default::default(),
    };
    start(fake.client(), config, &tasks);
    (fake, tasks)
}

fn sole() -> (Fake, Tasks) {
    cluster(Leadership::Sole)
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn owned(name: &str, kind: &str, owner: &str, uid: &str) -> Value {
    let api_version = if kind == "Thing" { "a.io/v1" } else { "v1" };
    json!({"metadata": {"name": name, "ownerReferences": [{"apiVersion": api_version,
        "kind": kind, "name": owner, "uid": uid, "blockOwnerDeletion": true}]}})
}

pub(crate) async fn stop(tasks: &Tasks) {
    tasks.stop(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn dependents_go_with_their_owner_and_strangers_stay() {
    let (fake, tasks) = sole();
    let uid = fake.create(MAPS, "n", named("owner"));
    let middle = fake.create(PODS, "n", owned("middle", "ConfigMap", "owner", &uid));
    fake.create(PODS, "n", owned("leaf", "Pod", "middle", &middle));
    fake.create(PODS, "n", named("stranger"));
    fake.delete(MAPS, "n", "owner", "Background");
    fake.until("dependents gone", |fake| {
        fake.get(PODS, "n", "middle").is_none() && fake.get(PODS, "n", "leaf").is_none()
    })
    .await;
    assert!(fake.get(PODS, "n", "stranger").is_some());
    stop(&tasks).await;
}

#[tokio::test]
async fn an_object_made_for_an_owner_that_never_was_is_collected() {
    let (fake, tasks) = sole();
    fake.create(PODS, "n", owned("p", "ConfigMap", "never", "no-such-uid"));
    fake.until("collected", |fake| fake.get(PODS, "n", "p").is_none()).await;
    stop(&tasks).await;
}

#[tokio::test]
async fn an_owner_deleted_in_the_foreground_waits_for_its_dependents() {
    let (fake, tasks) = sole();
    let uid = fake.create(MAPS, "n", named("owner"));
    let mut pod = owned("p", "ConfigMap", "owner", &uid);
    pod["metadata"]["finalizers"] = json!(["a/b"]);
    fake.create(PODS, "n", pod);
    fake.delete(MAPS, "n", "owner", "Foreground");
    fake.until("dependent deleted", |fake| {
        fake.get(PODS, "n", "p").is_some_and(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
    })
    .await;
    assert!(fake.get(MAPS, "n", "owner").is_some());
    fake.merge(PODS, "n", "p", &json!({"metadata": {"finalizers": []}}));
    fake.until("owner gone", |fake| fake.get(MAPS, "n", "owner").is_none()).await;
    stop(&tasks).await;
}

#[tokio::test]
async fn orphans_outlive_their_owner() {
    let (fake, tasks) = sole();
    let uid = fake.create(MAPS, "n", named("owner"));
    fake.create(PODS, "n", owned("p", "ConfigMap", "owner", &uid));
    fake.delete(MAPS, "n", "owner", "Orphan");
    fake.until("owner gone", |fake| fake.get(MAPS, "n", "owner").is_none()).await;
    let pod = fake.get(PODS, "n", "p").unwrap();
    assert_eq!(pod["metadata"]["ownerReferences"], json!([]));
    stop(&tasks).await;
}

#[tokio::test]
async fn an_owner_in_another_namespace_is_absent_and_the_user_is_notified() {
    let (fake, tasks) = sole();
    fake.create("/namespaces", "", named("m"));
    let uid = fake.create(MAPS, "m", named("owner"));
    fake.create(PODS, "n", owned("p", "ConfigMap", "owner", &uid));
    fake.until("collected and reported", |fake| {
        let reported = fake.any("/events", |event| event["reason"] == "OwnerRefInvalidNamespace");
        reported && fake.get(PODS, "n", "p").is_none()
    })
    .await;
    assert!(fake.get(MAPS, "m", "owner").is_some());
    stop(&tasks).await;
}

#[tokio::test]
async fn kinds_that_are_defined_later_are_followed() {
    let (fake, tasks) = sole();
    fake.until("started", |fake| fake.get("/serviceaccounts", "n", "default").is_some()).await;
    fake.add_kind("a.io", "things", "Thing");
    fake.create("apiextensions.k8s.io/customresourcedefinitions", "", named("things.a.io"));
    let uid = fake.create("a.io/things", "n", named("thing"));
    fake.create(PODS, "n", owned("p", "Thing", "thing", &uid));
    fake.delete("a.io/things", "n", "thing", "Background");
    fake.until("collected", |fake| fake.get(PODS, "n", "p").is_none()).await;
    stop(&tasks).await;
}

#[tokio::test]
async fn a_deleted_namespace_is_emptied_and_says_what_holds_it() {
    let (fake, tasks) = sole();
    fake.until("populated", |fake| fake.get(MAPS, "n", "kube-root-ca.crt").is_some()).await;
    fake.create("/secrets", "n", named("plain"));
    let held = json!({"metadata": {"name": "held", "finalizers": ["a/b"]}});
    fake.create(MAPS, "n", held);
    fake.delete("/namespaces", "", "n", "Background");
    let reports = |fake: &Fake, text: &str| {
        fake.get("/namespaces", "", "n").is_some_and(|own| own["status"].to_string().contains(text))
    };
    fake.until("condition", |fake| reports(fake, "a/b in 1 resource instances")).await;
    assert!(reports(&fake, "configmaps. has 1 resource instances"));
    assert!(fake.get("/secrets", "n", "plain").is_none());
    fake.merge(MAPS, "n", "held", &json!({"metadata": {"finalizers": []}}));
    fake.until("gone", |fake| fake.get("/namespaces", "", "n").is_none()).await;
    stop(&tasks).await;
}

#[tokio::test]
async fn every_namespace_has_its_account_and_the_root_ca() {
    let (fake, tasks) = sole();
    let has = |fake: &Fake, namespace: &str| {
        let ca = fake.get(MAPS, namespace, "kube-root-ca.crt");
        fake.get("/serviceaccounts", namespace, "default").is_some()
            && ca.is_some_and(|ca| ca["data"] == json!({"ca.crt": "pem"}))
    };
    fake.until("first", |fake| has(fake, "n")).await;
    fake.create("/namespaces", "", named("late"));
    fake.until("second", |fake| has(fake, "late")).await;
    fake.delete("/serviceaccounts", "n", "default", "Background");
    fake.merge(MAPS, "n", "kube-root-ca.crt", &json!({"data": {"ca.crt": "forged"}}));
    fake.delete(MAPS, "late", "kube-root-ca.crt", "Background");
    fake.until("restored", |fake| has(fake, "n") && has(fake, "late")).await;
    stop(&tasks).await;
}

#[tokio::test]
async fn a_token_secret_is_filled_and_goes_with_its_account() {
    let (fake, tasks) = sole();
    let uid = fake.create("/serviceaccounts", "n", named("robot"));
    let secret = json!({"type": "kubernetes.io/service-account-token", "metadata": {"name": "s",
        "annotations": {"kubernetes.io/service-account.name": "robot"}}});
    fake.create("/secrets", "n", secret);
    let filled = |fake: &Fake| {
        fake.get("/secrets", "n", "s").filter(|secret| !secret["data"]["token"].is_null())
    };
    fake.until("filled", |fake| filled(fake).is_some()).await;
    let secret = filled(&fake).unwrap();
    assert_eq!(secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"], uid);
    fake.delete("/serviceaccounts", "n", "robot", "Background");
    fake.until("gone", |fake| fake.get("/secrets", "n", "s").is_none()).await;
    stop(&tasks).await;
}

#[tokio::test]
async fn rules_of_roles_are_gathered() {
    let (fake, tasks) = sole();
    let roles = "rbac.authorization.k8s.io/clusterroles";
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    fake.create(
        roles,
        "",
        json!({"metadata": {"name": "all"}, "rules": [],
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "all"}}]}}),
    );
    let part = json!({"metadata": {"name": "part", "labels": {"to": "all"}}, "rules": rules});
    fake.create(roles, "", part);
    let gathered = |fake: &Fake| fake.get(roles, "", "all").unwrap()["rules"] == rules;
    fake.until("gathered", gathered).await;
    stop(&tasks).await;
}

#[tokio::test]
async fn quotas_say_what_is_used_and_give_back_what_goes() {
    let (fake, tasks) = sole();
    fake.create("/secrets", "n", named("a"));
    fake.create("/secrets", "n", named("b"));
    fake.create(
        "/resourcequotas",
        "n",
        json!({"metadata": {"name": "q"}, "spec": {"hard": {"secrets": "5"}}}),
    );
    let used = |fake: &Fake| fake.get("/resourcequotas", "n", "q").unwrap()["status"].clone();
    let expected = json!({"hard": {"secrets": "5"}, "used": {"secrets": "2"}});
    fake.until("counted", |fake| used(fake) == expected).await;
    fake.delete("/secrets", "n", "a", "Background");
    fake.until("given back", |fake| used(fake)["used"]["secrets"] == "1").await;
    stop(&tasks).await;
}

#[tokio::test]
async fn a_claim_is_held_until_no_pod_uses_it() {
    let (fake, tasks) = sole();
    let claims = "/persistentvolumeclaims";
    let spec = json!({"nodeName": "node", "containers": [],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
    fake.create(PODS, "n", json!({"metadata": {"name": "p"}, "spec": spec}));
    fake.create(claims, "n", named("c"));
    let protected = |fake: &Fake| {
        let claim = fake.get(claims, "n", "c").unwrap();
        claim["metadata"]["finalizers"] == json!(["kubernetes.io/pvc-protection"])
    };
    fake.until("protected", protected).await;
    fake.delete(claims, "n", "c", "Background");
    assert!(fake.get(claims, "n", "c").is_some());
    fake.delete(PODS, "n", "p", "Background");
    fake.until("released", |fake| fake.get(claims, "n", "c").is_none()).await;
    stop(&tasks).await;
}

#[tokio::test]
async fn the_holder_of_the_lease_works_and_gives_it_up_at_the_end() {
    let (fake, tasks) = cluster(Leadership::Lease { identity: "here".into() });
    fake.create("/namespaces", "", named("kube-system"));
    let leases = "coordination.k8s.io/leases";
    let holder = |fake: &Fake| {
        let lease = fake.get(leases, "kube-system", "sheaf-controllers")?;
        Some(lease["spec"]["holderIdentity"].as_str()?.to_owned())
    };
    fake.until("held", |fake| holder(fake).as_deref() == Some("here")).await;
    fake.until("working", |fake| fake.get(MAPS, "n", "kube-root-ca.crt").is_some()).await;
    stop(&tasks).await;
    assert_eq!(holder(&fake).as_deref(), Some(""));
}
