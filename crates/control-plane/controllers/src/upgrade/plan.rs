//! The next step of an upgrade: pure. Only the objects keep state between reconciliations,
//! so that another server can go on at any time.
//!
//! ```text
//!   all nodes prepare ──► one node after the other: server, then storage ──► completed ──► final
//!          │ failure               │ failure │ abort                          │ abort
//!          ▼                       ▼         ▼                                │
//!        failed ◄────────────── failed    nodes go back, last one first ◄─────┘
//! ```

mod program;
mod progress;

use std::collections::{BTreeMap, BTreeSet};

use hci::cluster::CONTROL_PLANE;
use hci::harvester::operation::{Upgrade, Version};
use hci::upgrade::{
    ATTEMPT, FINALIZED, INTENT, PAUSE_MAP, ProgramDigest, ProgramReport, ProgramRequest,
    ProgramStep, SKIPPED_NODES, UPLOADED, UpgradeIntent,
};
use serde_json::Value;

use self::progress::Progress;
use crate::condition::{self, Condition};
use crate::object;

/// States of a node in an upgrade, as clients of Harvester know them.
const PRELOADING: &str = "Images preloading";
const PRELOADED: &str = "Images preloaded";
const SWITCHING: &str = "Post-draining";
const PAUSED: &str = "Upgrade-paused";
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";
/// The activity of a node, for messages.
const SERVER_RESTARTS: &str = "restarts with the new program";
const STORAGE_RESTARTS: &str = "restarts its storage process with the new program";

/// A node, as an upgrade sees it.
#[derive(Debug, Clone)]
pub(super) struct NodeView {
    pub(super) name: String,
    pub(super) is_management: bool,
    pub(super) is_ready: bool,
    pub(super) report: ProgramReport,
    pub(super) request: Option<ProgramRequest>,
}

impl NodeView {
    pub(super) fn of(node: &Value) -> Self {
        Self {
            name: object::name(node).to_owned(),
            is_management: object::label(node, CONTROL_PLANE).is_some(),
            is_ready: condition::is(node, "Ready", "True"),
            report: ProgramReport::of(node).unwrap_or_default(),
            request: ProgramRequest::of(node),
        }
    }

    fn runs(&self, digest: &ProgramDigest) -> bool {
        self.report.running.as_ref() == Some(digest)
    }

    fn is_prepared(&self, digest: &ProgramDigest) -> bool {
        self.runs(digest) || self.report.prepared.as_ref() == Some(digest)
    }

    fn is_done(&self, digest: &ProgramDigest) -> bool {
        self.is_ready && self.report.has_settled_on(digest)
    }
}

/// The facts that an upgrade is decided by.
#[derive(Debug)]
pub(super) struct UpgradeFacts<'a> {
    pub(super) upgrade: &'a Upgrade,
    pub(super) version: Option<&'a Version>,
    pub(super) nodes: &'a [NodeView],
    /// Volumes that lack a copy.
    pub(super) degraded: &'a [String],
    pub(super) cluster_level: u32,
}

/// The changes to write.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct UpgradePlan {
    /// Requests of nodes that differ from what they have; nothing removes one.
    pub(super) requests: Vec<(String, Option<ProgramRequest>)>,
    /// Of the label.
    pub(super) state: &'static str,
    pub(super) conditions: Vec<Condition>,
    /// State and message by node.
    pub(super) nodes: BTreeMap<String, (&'static str, String)>,
    /// The level that the cluster's data is raised to; no way back from then on.
    pub(super) finalize: Option<u32>,
}

impl<'a> UpgradeFacts<'a> {
    fn note(&self, key: &str) -> Option<&'a str> {
        self.upgrade.metadata.annotations.get(key).map(String::as_str)
    }

    fn uid(&self) -> &'a str {
        self.upgrade.metadata.uid.as_deref().unwrap_or_default()
    }

    fn id(&self, step: &str) -> String {
        format!("{}/{}/{step}", self.uid(), self.note(ATTEMPT).unwrap_or("1"))
    }

    fn is_completed(&self) -> bool {
        let conditions = self.upgrade.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|own| own.r#type == "Completed" && own.status == "True")
    }

    /// The level that the data of the cluster has once the upgrade is final: that of the oldest
    /// program, and never less than before.
    pub(super) fn final_level(&self) -> u32 {
        let levels = self.nodes.iter().map(|node| node.report.level);
        levels.min().unwrap_or_default().max(self.cluster_level)
    }

    /// Nodes in the order of their upgrade: those with the API first, so that no node is newer
    /// than the API that it uses.
    fn members(&self) -> Vec<&'a NodeView> {
        let skipped: BTreeSet<&str> =
            self.note(SKIPPED_NODES).unwrap_or_default().split(',').map(str::trim).collect();
        let mut members: Vec<&NodeView> =
            self.nodes.iter().filter(|node| !skipped.contains(&*node.name)).collect();
        members.sort_by_key(|node| (!node.is_management, &node.name));
        members
    }

    /// The node that was asked to restart and has neither done so nor failed. Other steps wait for
    /// it: it may begin at any time.
    fn in_flight(&self, members: &[&'a NodeView]) -> Option<(&'a NodeView, ProgramStep)> {
        members.iter().find_map(|node| {
            let request = node.request.as_ref().filter(|own| own.id.starts_with(self.uid()))?;
            let report = &node.report;
            let is_over = match request.step {
                ProgramStep::Prepare => true,
                ProgramStep::Run => node.runs(&request.digest) && !report.is_trial,
                ProgramStep::Storage => {
                    !node.runs(&request.digest) || report.has_settled_on(&request.digest)
                }
            };
            let is_failed = report.failure_of(request).is_some();
            (!is_over && !is_failed).then_some((*node, request.step))
        })
    }

    /// Whether an administrator has to let the node go on.
    fn is_paused(&self, node: &str) -> bool {
        let map: BTreeMap<String, String> =
            serde_json::from_str(self.note(PAUSE_MAP).unwrap_or_default()).unwrap_or_default();
        map.get(node).is_some_and(|state| state == "pause")
    }

    fn request(&self, digest: &ProgramDigest, step: ProgramStep, id: &str) -> ProgramRequest {
        let url = self.version.and_then(|version| version.spec.iso_url.clone());
        ProgramRequest {
            id: self.id(id),
            digest: digest.clone(),
            step,
            url: url.filter(|url| !url.starts_with(UPLOADED)),
            cluster_level: self.cluster_level,
        }
    }
}

/// The next step; nothing for an upgrade that is over.
pub(super) fn plan(facts: &UpgradeFacts<'_>) -> Option<UpgradePlan> {
    let intent = UpgradeIntent::parse(facts.note(INTENT)).unwrap_or(UpgradeIntent::Pause);
    let is_final = facts.note(FINALIZED).is_some();
    let mut plan = UpgradePlan::default();
    let progress = match program::digest(facts) {
        _ if facts.is_completed() && is_final => return None,
        Ok(_) if facts.is_completed() && intent == UpgradeIntent::Finalize => {
            plan.finalize = Some(facts.final_level());
            Progress::Completed
        }
        Ok(_) if facts.is_completed() && intent != UpgradeIntent::Abort => Progress::Completed,
        Ok(digest) => match (facts.in_flight(&facts.members()), intent) {
            (Some((node, step)), intent) => plan.wait_for(node, step, intent),
            (None, UpgradeIntent::Abort) => plan.go_back(facts, &digest),
            (None, intent) => plan.go_on(facts, &digest, intent),
        },
        Err(error) => Progress::Failed(error.to_string()),
    };
    let members = facts.members();
    let is_over = matches!(progress, Progress::Completed | Progress::Aborted);
    let is_member = |node: &NodeView| members.iter().any(|own| own.name == node.name);
    plan.withdraw(facts, |node| is_over || !is_member(node));
    plan.state = progress.label();
    plan.conditions = progress.conditions();
    Some(plan)
}

impl UpgradePlan {
    fn ask(&mut self, node: &NodeView, request: ProgramRequest) {
        if node.request.as_ref() != Some(&request) {
            self.requests.push((node.name.clone(), Some(request)));
        }
    }

    /// Removes requests of this upgrade to nodes that have nothing more to do for it.
    fn withdraw(&mut self, facts: &UpgradeFacts<'_>, is_free: impl Fn(&NodeView) -> bool) {
        for node in facts.nodes.iter().filter(|node| is_free(node)) {
            let own = node.request.as_ref().filter(|own| own.id.starts_with(facts.uid()));
            if own.is_some() {
                self.requests.push((node.name.clone(), None));
            }
        }
    }

    fn wait_for(&mut self, node: &NodeView, step: ProgramStep, intent: UpgradeIntent) -> Progress {
        let message = match step {
            _ if !node.is_ready && !node.report.is_trial => format!(
                "node {} restarts and is not ready; leave it out: sheaf upgrade skip {}",
                node.name, node.name
            ),
            ProgramStep::Storage => format!("node {} {STORAGE_RESTARTS}", node.name),
            _ => format!("node {} {SERVER_RESTARTS}", node.name),
        };
        self.nodes.insert(node.name.clone(), (SWITCHING, message.clone()));
        match intent {
            UpgradeIntent::Abort => Progress::GoingBack(message),
            _ => Progress::Upgrading(message),
        }
    }

    fn go_on(
        &mut self,
        facts: &UpgradeFacts<'_>,
        digest: &ProgramDigest,
        intent: UpgradeIntent,
    ) -> Progress {
        let members = facts.members();
        let mut failure = None;
        for node in &members {
            let complaint = self.prepare(facts, node, digest);
            failure = failure.or(complaint);
        }
        if let Some(message) = failure {
            return Progress::Failed(message);
        }
        if members.iter().any(|node| !node.is_prepared(digest)) {
            return Progress::Preparing;
        }
        match members.iter().find(|node| !node.is_done(digest)) {
            None => Progress::Completed,
            Some(node) => self.advance(facts, &members, node, digest, intent),
        }
    }

    /// Has a node fetch and check the program; answers why it cannot.
    fn prepare(
        &mut self,
        facts: &UpgradeFacts<'_>,
        node: &NodeView,
        digest: &ProgramDigest,
    ) -> Option<String> {
        let (state, message) = match () {
            () if node.is_done(digest) => (SUCCEEDED, String::new()),
            () if node.is_prepared(digest) => (PRELOADED, String::new()),
            () => {
                let request = facts.request(digest, ProgramStep::Prepare, "prepare");
                match node.report.failure_of(&request) {
                    Some(message) => (FAILED, message.to_owned()),
                    None => {
                        self.ask(node, request);
                        (PRELOADING, "the node fetches and checks the program".to_owned())
                    }
                }
            }
        };
        let failure = (state == FAILED).then(|| format!("node {}: {message}", node.name));
        self.nodes.insert(node.name.clone(), (state, message));
        failure
    }

    /// One node goes on, unless something is in the way.
    fn advance(
        &mut self,
        facts: &UpgradeFacts<'_>,
        members: &[&NodeView],
        node: &NodeView,
        digest: &ProgramDigest,
        intent: UpgradeIntent,
    ) -> Progress {
        let request = if node.runs(digest) && !node.report.is_trial {
            facts.request(digest, ProgramStep::Storage, "storage")
        } else {
            facts.request(digest, ProgramStep::Run, "run")
        };
        if let Some(message) = node.report.failure_of(&request) {
            self.nodes.insert(node.name.clone(), (FAILED, message.to_owned()));
            return Progress::Failed(format!("node {}: {message}", node.name));
        }
        let is_begun = node.request.as_ref() == Some(&request);
        let obstacle = (!is_begun).then(|| obstacle(facts, members, node, intent)).flatten();
        if let Some(obstacle) = obstacle {
            let state = if obstacle.is_pause { PAUSED } else { PRELOADED };
            self.nodes.insert(node.name.clone(), (state, obstacle.message.clone()));
            return Progress::Upgrading(obstacle.message);
        }
        let message = match request.step {
            ProgramStep::Storage if !node.report.is_storage_outdated => "becomes ready",
            ProgramStep::Storage => STORAGE_RESTARTS,
            _ => SERVER_RESTARTS,
        };
        self.ask(node, request);
        self.nodes.insert(node.name.clone(), (SWITCHING, format!("the node {message}")));
        Progress::Upgrading(format!("node {} {message}", node.name))
    }

    /// Nodes that run the program go back to the one before, the last one first.
    fn go_back(&mut self, facts: &UpgradeFacts<'_>, digest: &ProgramDigest) -> Progress {
        let members = facts.members();
        for node in members.iter().rev() {
            let previous = node.report.previous.as_ref().filter(|previous| *previous != digest);
            let target = match (node.runs(digest), previous) {
                (true, Some(previous)) => previous.clone(),
                (true, None) => {
                    let message = format!("node {} has no program to go back to", node.name);
                    self.nodes.insert(node.name.clone(), (FAILED, message.clone()));
                    return Progress::Failed(message);
                }
                // It has gone back, or never went on; storage may still have to follow.
                (false, _) => match &node.report.running {
                    Some(running) if !node.is_done(running) && is_asked_back(facts, node) => {
                        running.clone()
                    }
                    _ => continue,
                },
            };
            // One on trial has been asked already, and goes on by itself.
            let request = match node.runs(digest) || node.report.is_trial {
                true => facts.request(&target, ProgramStep::Run, "abort"),
                false => facts.request(&target, ProgramStep::Storage, "abort-storage"),
            };
            if let Some(message) = node.report.failure_of(&request) {
                self.nodes.insert(node.name.clone(), (FAILED, message.to_owned()));
                return Progress::Failed(format!("node {}: {message}", node.name));
            }
            self.ask(node, request);
            let message = "the node goes back to the program before".to_owned();
            self.nodes.insert(node.name.clone(), (SWITCHING, message));
            return Progress::GoingBack(format!("node {} goes back", node.name));
        }
        Progress::Aborted
    }
}

/// Whether this upgrade has asked the node to go back.
fn is_asked_back(facts: &UpgradeFacts<'_>, node: &NodeView) -> bool {
    let asked = node.request.as_ref().map(|request| request.id.as_str());
    asked == Some(&*facts.id("abort")) || asked == Some(&*facts.id("abort-storage"))
}

struct Obstacle {
    message: String,
    /// An administrator wants it so.
    is_pause: bool,
}

/// Why a node does not go on yet.
fn obstacle(
    facts: &UpgradeFacts<'_>,
    members: &[&NodeView],
    node: &NodeView,
    intent: UpgradeIntent,
) -> Option<Obstacle> {
    let pause = |message: String| Some(Obstacle { message, is_pause: true });
    let wait = |message: String| Some(Obstacle { message, is_pause: false });
    if intent == UpgradeIntent::Pause {
        return pause("paused; go on: sheaf upgrade resume".to_owned());
    }
    if facts.is_paused(&node.name) {
        return pause(format!("node {} waits for an administrator ({PAUSE_MAP})", node.name));
    }
    if let Some(other) = members.iter().find(|own| !own.is_ready) {
        return wait(format!(
            "waiting for node {} to be ready; leave it out: sheaf upgrade skip {}",
            other.name, other.name
        ));
    }
    let volume = facts.degraded.first()?;
    wait(format!("waiting for volume {volume} to have all its copies"))
}
