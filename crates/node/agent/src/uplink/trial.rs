//! Carries out changes of this host's network as trials: takes the turn of this node, starts the
//! watchdog, applies, checks, and confirms or rolls back. `change` decides.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base::{Chain, clock};
use client::Fault;
use hci::host_network::{ConfirmMode, LEASE_NAME, LEASE_NAMESPACE, ROLLED_BACK, Turn, turn};
use hci::network::{CLUSTER_NETWORK_KEY, GROUP, VERSION, network_of};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, Client};
use net::{
    Confirmation, HostChange, HostRecord, HostUnit, LinkName, NewTrial, ObserveError, RecordError,
    RecordFile, Trial, TrialChecks, TrialEvent, UplinkReport, Uplinks, boot_id, host_parts,
    plan_host, restore,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::Instant;
use tracing::{info, warn};

use super::change::{self, TrialFacts, TrialStep, WantedUnit};
use super::health;
use crate::api::{is_conflict, present};

/// How long the watchdog may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request about the turn may take.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two rounds of checks, and two looks at a turn.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const TURN_INTERVAL: Duration = Duration::from_secs(5);

/// Why a trial cannot go on now.
#[derive(Debug, thiserror::Error)]
pub(super) enum HostTrialError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("cannot look at the links of this node")]
    Observe(#[from] ObserveError),
    #[error("cannot take the turn of this node")]
    Turn { source: Fault },
    #[error("the API server does not answer about the turn of this node")]
    TurnTimeout,
}

/// The end of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TrialEnd {
    Confirmed { bridge: LinkName },
    RolledBack { bridge: LinkName, reason: String },
}

/// The state of the host's network after a step.
#[derive(Debug)]
pub(super) struct HostOutcome {
    pub(super) record: HostRecord,
    pub(super) report: UplinkReport,
    /// When to look again.
    pub(super) wait: Option<Duration>,
    /// A change that waits, and for what.
    pub(super) waiting: Option<(LinkName, String)>,
    pub(super) end: Option<TrialEnd>,
}

/// The trials of this host.
pub(super) struct HostTrials {
    client: Client,
    node: String,
    dir: PathBuf,
    file: RecordFile,
    uplinks: Uplinks,
    watchdog: Option<Child>,
    healthy_since: Option<Instant>,
    failure: String,
}

impl HostTrials {
    pub(super) fn new(client: Client, node: String, dir: &Path, uplinks: Uplinks) -> Self {
        Self {
            client,
            node,
            dir: dir.to_owned(),
            file: RecordFile::new(dir),
            uplinks,
            watchdog: None,
            healthy_since: None,
            failure: "no check has passed".to_owned(),
        }
    }

    pub(super) fn record(&self) -> Result<HostRecord, RecordError> {
        self.file.load()
    }

    /// After a boot, builds what is confirmed before the API server is reached: it may be reached
    /// through that only. Does nothing where the bridges exist.
    pub(super) async fn build_confirmed(&self) -> Result<(), HostTrialError> {
        let record = self.file.load()?;
        let links = self.uplinks.observe().await?;
        let uplinks = record.confirmed.values().filter_map(|unit| unit.uplink.as_ref());
        let missing = uplinks.filter(|uplink| !links.contains_key(&uplink.bridge)).count();
        if missing > 0 && record.trial.is_none() {
            let (uplinks, interfaces) = host_parts(&record.confirmed);
            let report = self.uplinks.apply_host(&uplinks, &interfaces).await?;
            info!(steps = report.steps, "host network built as it was confirmed");
        }
        Ok(())
    }

    /// One step towards what is wanted.
    pub(super) async fn step(
        &mut self,
        wanted: &BTreeMap<LinkName, WantedUnit>,
        confirmed: Option<u64>,
    ) -> Result<HostOutcome, HostTrialError> {
        let units: BTreeMap<LinkName, HostUnit> =
            wanted.iter().map(|(bridge, own)| (bridge.clone(), own.unit.clone())).collect();
        self.adopt_existing(&units).await?;
        let record = self.file.change(|mut record| {
            record.follow_vlans(&units);
            Ok(record)
        })?;
        if let Some(trial) = record.trial.clone() {
            return self.follow(&trial, &record, &units, confirmed).await;
        }
        let Some(change) = record.next(&units) else {
            let report = restore(&self.uplinks, &record).await?;
            return Ok(outcome(record, report));
        };
        let wish = wanted.get(&change.bridge).cloned();
        self.begin(record, change, wish).await
    }

    /// A host without a record has the uplinks that an earlier version of this program made.
    async fn adopt_existing(
        &self,
        units: &BTreeMap<LinkName, HostUnit>,
    ) -> Result<(), HostTrialError> {
        if self.file.exists() {
            return Ok(());
        }
        let links = self.uplinks.observe().await?;
        let existing = units.iter().filter(|(bridge, _)| links.contains_key(*bridge));
        self.file.change(|mut record| {
            for (bridge, unit) in existing {
                record.adopt(HostChange { bridge: bridge.clone(), unit: Some(unit.clone()) });
            }
            Ok(record)
        })?;
        Ok(())
    }

    async fn begin(
        &mut self,
        record: HostRecord,
        change: HostChange,
        wish: Option<WantedUnit>,
    ) -> Result<HostOutcome, HostTrialError> {
        let policy = wish.as_ref().map(|own| own.policy.clone()).unwrap_or_default();
        let (uplinks, interfaces) = host_parts(&record.with(&change));
        let steps = plan_host(&uplinks, &interfaces, &self.uplinks.observe().await?).steps;
        if steps.is_empty() || policy.mode == ConfirmMode::Never {
            let record = self.file.change(|mut record| {
                record.adopt(change);
                Ok(record)
            })?;
            let report = restore(&self.uplinks, &record).await?;
            return Ok(HostOutcome { wait: Some(Duration::ZERO), ..outcome(record, report) });
        }
        let obstacle = match self.rolled_back_elsewhere(&change).await? {
            Some(other) => Some(format!("the same change was rolled back on node {other}")),
            None => self.take_turn(policy.deadline).await?.map(|holder| {
                format!("node {holder} changes its network; one node does at a time")
            }),
        };
        if let Some(why) = obstacle {
            let report = restore(&self.uplinks, &record).await?;
            let waiting = Some((change.bridge, why));
            return Ok(HostOutcome {
                wait: Some(TURN_INTERVAL),
                waiting,
                ..outcome(record, report)
            });
        }
        let mut targets = health::targets(&self.client, &self.node).await;
        targets.new_path = wish.map(|own| own.new_path).unwrap_or_default();
        let before = health::round(&self.client, &self.node, &targets).await;
        let new = NewTrial {
            change,
            confirmation: match policy.mode {
                ConfirmMode::Manual => Confirmation::Manual,
                ConfirmMode::Auto | ConfirmMode::Never => Confirmation::Auto,
            },
            boot: boot_id(),
            deadline: clock::now().as_second() + policy.deadline,
            checks: TrialChecks { targets, before },
        };
        let record = self.file.change(|record| Ok(record.on(TrialEvent::Begun(new))?))?;
        let id = record.last_id;
        self.healthy_since = None;
        "no check has passed".clone_into(&mut self.failure);
        info!(trial = id, "trying a change of the host's network");
        if let Err(why) = self.start_watchdog(id).await {
            return self.roll_back(id, Some(TrialEvent::Failed(why))).await;
        }
        let report = restore(&self.uplinks, &record).await?;
        if !report.failed.is_empty() {
            let why = report.failed.join("; ");
            return self.roll_back(id, Some(TrialEvent::Failed(why))).await;
        }
        let record = self.file.on(id, TrialEvent::Applied)?;
        Ok(HostOutcome { wait: Some(CHECK_INTERVAL), ..outcome(record, report) })
    }

    async fn follow(
        &mut self,
        trial: &Trial,
        record: &HostRecord,
        units: &BTreeMap<LinkName, HostUnit>,
        confirmed: Option<u64>,
    ) -> Result<HostOutcome, HostTrialError> {
        let boot = boot_id();
        let facts = TrialFacts {
            now: clock::now().as_second(),
            boot: &boot,
            is_wanted: record.is_wanted(units),
            confirmed,
            healthy_for: self.healthy_since.map(|since| since.elapsed()),
            failure: &self.failure,
        };
        let bridge = trial.change.bridge.clone();
        match change::step(trial, &facts) {
            TrialStep::RollBack(event) => self.roll_back(trial.id, Some(event)).await,
            TrialStep::Restore => self.roll_back(trial.id, None).await,
            TrialStep::Confirm => {
                let record = self.file.on(trial.id, TrialEvent::Confirmed)?;
                info!(trial = trial.id, "change of the host's network is confirmed");
                self.finish().await;
                let report = restore(&self.uplinks, &record).await?;
                let end = Some(TrialEnd::Confirmed { bridge });
                Ok(HostOutcome { wait: Some(Duration::ZERO), end, ..outcome(record, report) })
            }
            TrialStep::Check => {
                let report = restore(&self.uplinks, record).await?;
                let targets = &trial.checks.targets;
                let round = health::round(&self.client, &self.node, targets).await;
                match round.judge(&trial.checks.before, targets) {
                    Ok(()) => {
                        self.healthy_since.get_or_insert_with(Instant::now);
                    }
                    Err(failure) => {
                        self.healthy_since = None;
                        self.failure = failure.to_string();
                        warn!(trial = trial.id, reason = %failure, "a check after a change fails");
                    }
                }
                let record = record.clone();
                Ok(HostOutcome { wait: Some(CHECK_INTERVAL), ..outcome(record, report) })
            }
        }
    }

    /// Restores what was confirmed; while steps fail, the next look tries again.
    async fn roll_back(
        &mut self,
        id: u64,
        event: Option<TrialEvent>,
    ) -> Result<HostOutcome, HostTrialError> {
        let mut record = match event {
            Some(event) => self.file.on(id, event)?,
            None => self.file.load()?,
        };
        let report = restore(&self.uplinks, &record).await?;
        let mut end = None;
        let bridge = record.trial.as_ref().map(|trial| trial.change.bridge.clone());
        if let Some(bridge) = bridge.filter(|_| report.failed.is_empty()) {
            record = self.file.on(id, TrialEvent::Restored)?;
            let reason = record.rejected.get(&bridge).map(|own| own.reason.clone());
            let reason = reason.unwrap_or_default();
            end = Some(TrialEnd::RolledBack { bridge, reason });
            warn!(trial = id, "change of the host's network is rolled back");
            self.finish().await;
        }
        Ok(HostOutcome { wait: Some(CHECK_INTERVAL), end, ..outcome(record, report) })
    }

    /// A node that tried the same version of the uplink and rolled it back.
    async fn rolled_back_elsewhere(
        &self,
        change: &HostChange,
    ) -> Result<Option<String>, HostTrialError> {
        let (Some(unit), Some(network)) = (&change.unit, network_of(change.bridge.as_str())) else {
            return Ok(None);
        };
        let revision = unit.revision.split(';').next().unwrap_or_default();
        if unit.uplink.is_none() || revision.is_empty() {
            return Ok(None);
        }
        let resource = super::kind(GROUP, VERSION, "VlanStatus", "vlanstatuses");
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let params = ListParams::default().labels(&format!("{CLUSTER_NETWORK_KEY}={network}"));
        let listed = tokio::time::timeout(TURN_TIMEOUT, api.list(&params)).await;
        let listed = listed.map_err(|_| HostTrialError::TurnTimeout)?;
        let listed = listed.map_err(|failure| HostTrialError::Turn { source: Fault(failure) })?;
        let mut others = listed.items.iter().filter(|status| {
            let notes = status.metadata.annotations.as_ref();
            notes.and_then(|notes| notes.get(ROLLED_BACK)).is_some_and(|own| own == revision)
        });
        let node = others.find_map(|status| status.data["status"]["node"].as_str());
        Ok(node.filter(|other| *other != self.node).map(str::to_owned))
    }

    /// Takes the turn of this node; answers with the node that has it.
    async fn take_turn(&self, deadline: i64) -> Result<Option<String>, HostTrialError> {
        let leases = Api::<Lease>::namespaced(self.client.clone(), LEASE_NAMESPACE);
        let taken = async {
            let found = present(leases.get(LEASE_NAME).await)?;
            let found = found.map(|lease| json!(lease));
            let now = clock::now().as_second();
            match turn(found.as_ref(), &self.node, now, deadline) {
                Turn::Wait { holder } => Ok(Some(holder)),
                Turn::Take(object) => write_lease(&leases, &object, found.is_some()).await,
            }
        };
        let taken = tokio::time::timeout(TURN_TIMEOUT, taken).await;
        let taken = taken.map_err(|_| HostTrialError::TurnTimeout)?;
        match taken {
            // Another node was faster.
            Err(failure) if is_conflict(&failure) => Ok(Some("another".to_owned())),
            taken => taken.map_err(|failure| HostTrialError::Turn { source: Fault(failure) }),
        }
    }

    /// Ends the watchdog and gives the turn back; one that is not given back ends by itself.
    async fn finish(&mut self) {
        self.healthy_since = None;
        if let Some(mut watchdog) = self.watchdog.take() {
            let _ = watchdog.kill().await;
        }
        let leases = Api::<Lease>::namespaced(self.client.clone(), LEASE_NAMESPACE);
        let released = async {
            let Some(mut lease) = present(leases.get(LEASE_NAME).await)? else { return Ok(()) };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(self.node.as_str()) {
                return Ok(());
            }
            spec.holder_identity = Some(String::new());
            leases.replace(LEASE_NAME, &PostParams::default(), &lease).await.map(drop)
        };
        match tokio::time::timeout(TURN_TIMEOUT, released).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => {
                warn!(error = %Chain(&Fault(failure)), "turn of this node is not given back");
            }
            Err(_) => warn!("turn of this node is not given back: the API server does not answer"),
        }
    }

    /// The process outlives this one, and rolls back at the deadline.
    async fn start_watchdog(&mut self, id: u64) -> Result<(), String> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("sheaf").arg("network-watchdog").arg("--dir").arg(&self.dir);
        command.arg("--trial").arg(id.to_string()).process_group(0);
        let log = File::create(self.dir.join("network-watchdog.log"));
        let log = log.map_or_else(|_| Stdio::null(), Stdio::from);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let child = command.spawn();
        let mut child = child.map_err(|why| format!("the watchdog does not start: {why}"))?;
        let Some(output) = child.stdout.take() else { return Err("no output".to_owned()) };
        let mut said = String::new();
        let mut output = BufReader::new(output);
        let ready = tokio::time::timeout(START_TIMEOUT, output.read_line(&mut said)).await;
        if !matches!(ready, Ok(Ok(_))) || !said.starts_with("ready") {
            let _ = child.kill().await;
            return Err("the watchdog does not start".to_owned());
        }
        self.watchdog = Some(child);
        Ok(())
    }
}

async fn write_lease(
    leases: &Api<Lease>,
    object: &Value,
    exists: bool,
) -> kube::Result<Option<String>> {
    let lease: Lease = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
    let params = PostParams::default();
    if exists {
        leases.replace(LEASE_NAME, &params, &lease).await?;
    } else {
        leases.create(&params, &lease).await?;
    }
    Ok(None)
}

fn outcome(record: HostRecord, report: UplinkReport) -> HostOutcome {
    HostOutcome { record, report, wait: None, waiting: None, end: None }
}
