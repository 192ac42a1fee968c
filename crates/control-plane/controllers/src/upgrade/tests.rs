//! Upgrades of simulated nodes, from seeds.

use std::collections::BTreeMap;

use hci::harvester::operation::{Upgrade, Version};
use hci::upgrade::{
    FINALIZED, INTENT, PAUSE_MAP, ProgramDigest, ProgramFailure, ProgramStep, SKIPPED_NODES,
};
use serde_json::{Value, json};

use super::plan::{NodeView, UpgradeFacts, UpgradePlan, plan};
use super::*;
use crate::fake::Fake;

fn digest(letter: char) -> ProgramDigest {
    ProgramDigest::parse(&letter.to_string().repeat(128)).unwrap()
}

fn node(name: &str) -> NodeView {
    let mut node = NodeView::of(&json!({"metadata": {"name": name}}));
    node.is_ready = true;
    node.is_management = name.starts_with('m');
    node.report.running = Some(digest('a'));
    node
}

/// A simulated cluster whose nodes carry out requests.
struct Cluster {
    upgrade: Value,
    nodes: Vec<NodeView>,
    degraded: Vec<String>,
    /// Programs that nodes on trial go back to.
    before: BTreeMap<String, ProgramDigest>,
}

impl Cluster {
    fn new(names: &[&str]) -> Self {
        let upgrade = json!({"metadata": {"name": "u", "uid": "uid", "annotations": {}},
            "spec": {"version": "v2"}});
        let nodes = names.iter().map(|name| node(name)).collect();
        Self { upgrade, nodes, degraded: Vec::new(), before: BTreeMap::new() }
    }

    fn plan(&self) -> Option<UpgradePlan> {
        let upgrade: Upgrade = serde_json::from_value(self.upgrade.clone()).unwrap();
        let version = json!({"metadata": {"name": "v2"},
            "spec": {"isoURL": "https://example.org/sheaf", "isoChecksum": digest('b')}});
        let version: Version = serde_json::from_value(version).unwrap();
        plan(&UpgradeFacts {
            upgrade: &upgrade,
            version: Some(&version),
            nodes: &self.nodes,
            degraded: &self.degraded,
            cluster_level: 1,
        })
    }

    /// Writes what is planned; answers whether anything changed.
    fn write(&mut self) -> bool {
        let Some(plan) = self.plan() else { return false };
        let patch = patch_of(&self.upgrade, &plan, Timestamp::UNIX_EPOCH);
        let mut is_changed = !is_merged(&self.upgrade, &patch);
        self.upgrade["metadata"]["labels"] = patch["metadata"]["labels"].clone();
        self.upgrade["status"] = patch["status"].clone();
        for (name, request) in plan.requests {
            let node = self.nodes.iter_mut().find(|node| node.name == name).unwrap();
            assert_ne!(node.request, request, "nothing is written twice");
            node.request = request;
            is_changed = true;
        }
        is_changed
    }

    fn completed(&self) -> (String, String, String) {
        let conditions = condition::of(&self.upgrade);
        let own = condition::find(&conditions, "Completed").unwrap();
        let text = |field: &str| own[field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"), text("message"))
    }

    fn set(&mut self, key: &str, value: &str) {
        self.upgrade["metadata"]["annotations"][key] = value.into();
    }

    /// A node does the next thing that it is asked for; answers whether there was one.
    fn work(&mut self, index: usize, fails: bool) -> bool {
        let node = &mut self.nodes[index];
        let Some(request) = node.request.clone() else { return false };
        let report = &mut node.report;
        if report.failure_of(&request).is_some() {
            return false;
        }
        let is_running = report.running.as_ref() == Some(&request.digest);
        let is_idle = match request.step {
            ProgramStep::Prepare => is_running || report.prepared.as_ref() == Some(&request.digest),
            ProgramStep::Run => is_running && !report.is_trial,
            ProgramStep::Storage => !report.is_storage_outdated,
        };
        if is_idle {
            return false;
        }
        if fails {
            let message = "it does not start".to_owned();
            report.failure = Some(ProgramFailure { id: request.id, message });
            if report.is_trial {
                report.is_trial = false;
                report.running = self.before.remove(&node.name);
            }
            return true;
        }
        match request.step {
            ProgramStep::Prepare => report.prepared = Some(request.digest),
            ProgramStep::Run if report.is_trial => {
                report.is_trial = false;
                report.previous = self.before.remove(&node.name);
                report.is_storage_outdated = !report.is_storage_outdated;
            }
            ProgramStep::Run => {
                let before = report.running.replace(request.digest).unwrap();
                self.before.insert(node.name.clone(), before);
                report.is_trial = true;
            }
            ProgramStep::Storage => report.is_storage_outdated = false,
        }
        true
    }

    /// Whether anything is left to do after one more step of all.
    fn step(&mut self) -> bool {
        let is_written = self.write();
        is_written | (0..self.nodes.len()).any(|index| self.work(index, false))
    }

    fn settle(&mut self) {
        for _ in 0..500 {
            if !self.step() {
                return;
            }
        }
        panic!("no end: {} {:?}", self.running(), self.completed());
    }

    fn running(&self) -> String {
        let letter = |node: &NodeView| {
            node.report.running.as_ref().map_or('-', |own| own.as_str().chars().next().unwrap())
        };
        self.nodes.iter().map(letter).collect()
    }
}

#[test]
fn nodes_with_the_api_come_first_and_one_at_a_time() {
    let mut cluster = Cluster::new(&["w1", "m2", "m1", "w2"]);
    let mut order = Vec::new();
    for _ in 0..100 {
        cluster.step();
        for node in &cluster.nodes {
            if node.report.is_trial && !order.contains(&node.name) {
                order.push(node.name.clone());
            }
        }
        assert!(cluster.nodes.iter().filter(|node| node.report.is_trial).count() <= 1);
    }
    assert_eq!(order, ["m1", "m2", "w1", "w2"]);
    assert_eq!((cluster.running().as_str(), cluster.completed().0.as_str()), ("bbbb", "True"));
    assert!(cluster.nodes.iter().all(|node| node.request.is_none()), "nothing is asked any more");
}

#[test]
fn nothing_is_switched_until_every_node_can() {
    let mut cluster = Cluster::new(&["m1", "w1"]);
    cluster.write();
    assert!(cluster.work(0, false) && cluster.work(1, true));
    cluster.settle();
    assert_eq!(cluster.running(), "aa");
    let (status, reason, message) = cluster.completed();
    assert_eq!((&*status, &*reason, &*message), ("False", "Failed", "node w1: it does not start"));
    // The next attempt is another request.
    cluster.set(hci::upgrade::ATTEMPT, "2");
    cluster.settle();
    assert_eq!((cluster.running().as_str(), cluster.completed().0.as_str()), ("bb", "True"));
}

#[test]
fn obstacles_are_named_and_waited_for() {
    type Hinder = fn(&mut Cluster);
    let cases: [(Hinder, &str); 4] = [
        (|cluster| cluster.set(INTENT, "pause"), "paused; go on: sheaf upgrade resume"),
        (
            |cluster| cluster.set(PAUSE_MAP, r#"{"m1":"pause"}"#),
            "node m1 waits for an administrator (harvesterhci.io/node-upgrade-pause-map)",
        ),
        (
            |cluster| cluster.nodes[1].is_ready = false,
            "waiting for node w1 to be ready; leave it out: sheaf upgrade skip w1",
        ),
        (
            |cluster| cluster.degraded.push("pvc-1".into()),
            "waiting for volume pvc-1 to have all its copies",
        ),
    ];
    for (hinder, expected) in cases {
        let mut cluster = Cluster::new(&["m1", "w1"]);
        hinder(&mut cluster);
        cluster.settle();
        assert_eq!((cluster.running().as_str(), &*cluster.completed().2), ("aa", expected));
    }
    let mut cluster = Cluster::new(&["m1", "w1"]);
    cluster.nodes[1].is_ready = false;
    cluster.set(SKIPPED_NODES, "w1");
    cluster.settle();
    assert_eq!((cluster.running().as_str(), cluster.completed().0.as_str()), ("ba", "True"));
}

#[test]
fn a_completed_upgrade_can_be_undone_until_it_is_final() {
    let mut cluster = Cluster::new(&["m1", "w1"]);
    cluster.settle();
    cluster.set(INTENT, "abort");
    cluster.settle();
    assert_eq!(cluster.running(), "aa");
    assert_eq!(cluster.completed().1, "Aborted");
    assert!(cluster.nodes.iter().all(|node| node.request.is_none()));
    assert!(cluster.nodes.iter().all(|node| !node.report.is_storage_outdated));

    let mut cluster = Cluster::new(&["m1", "w1"]);
    cluster.settle();
    cluster.set(INTENT, "finalize");
    for node in &mut cluster.nodes {
        node.report.level = 2;
    }
    assert_eq!(cluster.plan().unwrap().finalize, Some(2));
    cluster.set(FINALIZED, "now");
    cluster.set(INTENT, "abort");
    assert_eq!(cluster.plan(), None);
    assert_eq!(cluster.running(), "bb");
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn whatever_fails_and_whenever_it_is_aborted_every_node_ends_with_a_program_that_works() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let mut cluster = Cluster::new(&["m1", "m2", "m3", "w1", "w2"]);
        for _ in 0..200 {
            match dice.roll(20) {
                0 => cluster.set(INTENT, ["", "pause", "abort"][dice.roll(3) as usize]),
                1 => cluster.set(hci::upgrade::ATTEMPT, &dice.roll(100).to_string()),
                2..=8 => drop(cluster.write()),
                _ => {
                    let index = dice.roll(5) as usize;
                    cluster.work(index, dice.roll(10) == 0);
                }
            }
            let on_trial = cluster.nodes.iter().filter(|node| node.report.is_trial);
            let names: Vec<String> = on_trial.map(|node| node.name.clone()).collect();
            assert!(names.len() <= 1, "seed {seed}: {names:?} at once");
        }
        // An end is always within reach.
        cluster.set(INTENT, "abort");
        cluster.set(hci::upgrade::ATTEMPT, "last");
        cluster.settle();
        assert_eq!(
            (cluster.running().as_str(), &*cluster.completed().1),
            ("aaaaa", "Aborted"),
            "seed {seed}"
        );
        cluster.set(INTENT, "");
        cluster.set(hci::upgrade::ATTEMPT, "again");
        cluster.settle();
        assert_eq!(
            (cluster.running().as_str(), &*cluster.completed().0),
            ("bbbbb", "True"),
            "seed {seed}"
        );
    }
}

#[tokio::test]
async fn the_newest_upgrade_asks_the_nodes() {
    let fake = Fake::new();
    fake.create("/namespaces", "", json!({"metadata": {"name": NAMESPACE}}));
    let ready = json!([{"type": "Ready", "status": "True"}]);
    fake.create("/nodes", "", json!({"metadata": {"name": "n1"}, "status": {"conditions": ready}}));
    let version = json!({"metadata": {"name": "v2"},
        "spec": {"isoURL": "sheaf://programs", "isoChecksum": digest('b')}});
    fake.create("harvesterhci.io/versions", NAMESPACE, version);
    let upgrade = json!({"metadata": {"name": "u"}, "spec": {"version": "v2"}});
    fake.create("harvesterhci.io/upgrades", NAMESPACE, upgrade);
    let reconciler = UpgradeReconciler::new(fake.client(), UpgradeMapper::default());
    reconciler.reconcile(&ObjectKey::new(NAMESPACE, "u")).await.unwrap();
    let node = fake.get("/nodes", "", "n1").unwrap();
    let request = hci::upgrade::ProgramRequest::of(&node).unwrap();
    assert_eq!((request.step, request.url), (ProgramStep::Prepare, None));
    let upgrade = fake.get("harvesterhci.io/upgrades", NAMESPACE, "u").unwrap();
    assert_eq!(upgrade["metadata"]["labels"][STATE_LABEL], "PreparingNodes");
    assert_eq!(upgrade["status"]["nodeStatuses"]["n1"]["state"], "Images preloading");
}

#[test]
fn an_upgrade_is_final_after_a_day() {
    let upgrade = |notes: Value| {
        let completed = json!({"type": "Completed", "status": "True",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        json!({"metadata": {"annotations": notes}, "status": {"conditions": [completed]}})
    };
    let at = |time: &str| time.parse::<Timestamp>().unwrap();
    for (notes, now, expected) in [
        (json!({}), "2026-01-01T23:00:00Z", Some(3600)),
        (json!({}), "2026-01-03T00:00:00Z", Some(0)),
        (json!({FINALIZED: "x"}), "2026-01-03T00:00:00Z", None),
    ] {
        let left = finalized_in(&upgrade(notes), at(now));
        assert_eq!(left, expected.map(Duration::from_secs));
    }
}
