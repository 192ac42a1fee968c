//! Nodes fall silent and come back, on a fake API and a clock that is moved by hand.

mod simulation;

use hci::failover::{LOST, PortState, REJOINED, SIGHTINGS, SUSPECT, Sighting, Sightings};
use serde_json::json;

use super::*;
use crate::fake::Fake;
use crate::object::annotation;
use crate::object::text;

struct Cluster {
    fake: Fake,
    reconciler: NodeReconciler,
}

impl Cluster {
    fn new(workers: &[&str]) -> Self {
        let fake = Fake::new();
        for space in [LEASE_NAMESPACE, "kube-system", "default"] {
            fake.create("/namespaces", "", json!({"metadata": {"name": space}}));
        }
        let reconciler = NodeReconciler::new(fake.client());
        let cluster = Self { fake, reconciler };
        cluster.node("m", json!({"node-role.kubernetes.io/control-plane": "true"}), 40);
        for name in workers {
            cluster.node(name, json!({}), 6);
        }
        cluster
    }

    fn node(&self, name: &str, labels: Value, lease: u64) {
        self.fake.create(
            "/nodes",
            "",
            json!({
                "metadata": {"name": name, "labels": labels},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }),
        );
        let spec = json!({"leaseDurationSeconds": lease, "renewTime": "0"});
        let lease = json!({"metadata": {"name": name}, "spec": spec});
        self.fake.create("coordination.k8s.io/leases", LEASE_NAMESPACE, lease);
    }

    fn get(&self, name: &str) -> Value {
        self.fake.get("/nodes", "", name).unwrap()
    }

    async fn patch(&self, name: &str, patch: Value) {
        self.reconciler.objects.merge(NODES, "", name, &patch).await.unwrap();
    }

    async fn renew(&self, name: &str, time: u64) {
        let patch = json!({"spec": {"renewTime": time.to_string()}});
        let objects = &self.reconciler.objects;
        objects.merge(LEASES, LEASE_NAMESPACE, name, &patch).await.unwrap();
    }

    /// A second passes, in which these nodes renew their leases.
    async fn second(&self, at: u64, alive: &[&str]) {
        tokio::time::advance(Duration::from_secs(1)).await;
        for name in alive {
            self.renew(name, at).await;
        }
        self.reconciler.reconcile(&AllNodes).await.unwrap();
    }

    /// Every node that is asked answers so, and has not reached the suspect for `unreached` seconds.
    async fn answer(&self, suspect: &str, agent: PortState, storage: PortState, unreached: u64) {
        let Some(asked) = annotation(&self.get(suspect), SUSPECT).and_then(Suspicion::parse) else {
            return;
        };
        for observer in &asked.observers {
            let (token, unreached) = (asked.token.clone(), Some(unreached));
            let seen = Sighting { token, agent, storage, unreached };
            let all = Sightings([(suspect.to_owned(), seen)].into()).encode();
            self.patch(observer, json!({"metadata": {"annotations": {SIGHTINGS: all}}})).await;
        }
    }

    fn taints(&self, name: &str) -> Vec<String> {
        let node = self.get(name);
        let mut keys: Vec<String> = crate::object::list(&node, "/spec/taints")
            .iter()
            .map(|taint| text(taint, "/key").to_owned())
            .collect();
        keys.dedup();
        keys
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_is_declared_lost_and_returns_when_its_guests_are_gone() {
    let cluster = Cluster::new(&["a", "b"]);
    cluster.second(0, &["a", "b"]).await;
    let mut lost_at = 0;
    for at in 1..12 {
        cluster.second(at, &["b"]).await;
        cluster.answer("a", PortState::Silent, PortState::Silent, at.saturating_sub(2)).await;
        if lost_at == 0 && cluster.taints("a").contains(&LOST.to_owned()) {
            lost_at = at;
        }
    }
    assert_eq!(lost_at, 7, "observers are asked after 2 s, and fail for 4 s");
    assert_eq!(cluster.taints("b"), [""; 0]);
    let node = cluster.get("a");
    assert!(condition::is(&node, "Ready", "Unknown"));
    assert_eq!(text(&node, "/status/conditions/0/reason"), "NodeLost");

    // It renews its lease and says how it is, but an old guest may still run.
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    for at in 12..20 {
        cluster.second(at, &["a", "b"]).await;
        cluster.reconciler.objects.merge_status(NODES, "", "a", &ready).await.unwrap();
    }
    assert!(cluster.taints("a").contains(&LOST.to_owned()));
    let token = annotation(&cluster.get("a"), LOST).unwrap().to_owned();
    cluster.patch("a", json!({"metadata": {"annotations": {REJOINED: token}}})).await;
    cluster.second(20, &["a", "b"]).await;
    cluster.reconciler.objects.merge_status(NODES, "", "a", &ready).await.unwrap();
    cluster.second(21, &["a", "b"]).await;
    assert_eq!(cluster.taints("a"), [""; 0]);
    assert_eq!(annotation(&cluster.get("a"), LOST), None);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_others_reach_is_unreachable_and_not_lost() {
    let cluster = Cluster::new(&["a", "b"]);
    for at in 0..30 {
        cluster.second(at, &["b"]).await;
        cluster.answer("a", PortState::Refused, PortState::Open, 0).await;
    }
    assert_eq!(cluster.taints("a"), ["node.kubernetes.io/unreachable"]);
    assert_eq!(text(&cluster.get("a"), "/status/conditions/0/reason"), "AgentDown");
}

#[tokio::test(start_paused = true)]
async fn nodes_that_fall_silent_together_are_not_lost() {
    let cluster = Cluster::new(&["a", "b"]);
    for at in 0..30 {
        cluster.second(at, &[]).await;
        for node in ["a", "b"] {
            cluster.answer(node, PortState::Silent, PortState::Silent, at).await;
        }
    }
    for node in ["a", "b"] {
        assert_eq!(cluster.taints(node), ["node.kubernetes.io/unreachable"]);
        assert_eq!(text(&cluster.get(node), "/status/conditions/0/reason"), "PartialOutage");
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_store_takes_no_writes_no_node_is_silent() {
    let cluster = Cluster::new(&["a", "b"]);
    cluster.second(0, &["a", "b"]).await;
    cluster.fake.refuse("coordination.k8s.io/leases", 503);
    for at in 1..30 {
        cluster.second(at, &[]).await;
    }
    assert_eq!(cluster.taints("a"), [""; 0]);
    assert_eq!(annotation(&cluster.get("a"), SUSPECT), None);
}
