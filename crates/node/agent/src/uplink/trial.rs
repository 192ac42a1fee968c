//! Carries out changes of this host's network as trials: takes the turn of this node, starts the
//! watchdog, applies, checks, and confirms or rolls back. `change` decides.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base::clock;
use hci::host_network::ConfirmMode;
use kube::Client;
use net::{
    Confirmation, HostChange, HostRecord, HostUnit, LinkName, NewTrial, ObserveError, RecordError,
    RecordFile, Trial, TrialChecks, TrialEvent, UplinkReport, Uplinks, boot_id, host_parts,
    plan_host, restore,
};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::Instant;
use tracing::{info, warn};

use super::change::{self, TrialFacts, TrialStep, WantedUnit};
use super::health;
use super::turn::{TurnError, Turns};

/// How long the watchdog may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two rounds of checks, and two checks of a turn.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const TURN_INTERVAL: Duration = Duration::from_secs(5);

/// Why a trial cannot go on now.
#[derive(Debug, thiserror::Error)]
pub(super) enum HostTrialError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("cannot read the links of this node")]
    Observe(#[from] ObserveError),
    #[error(transparent)]
    Turn(#[from] TurnError),
}

/// Why the process that would roll a trial back does not run.
#[derive(Debug, thiserror::Error)]
enum WatchdogStartError {
    #[error("cannot start the watchdog: {0}")]
    Spawn(#[source] std::io::Error),
    #[error("the watchdog did not report that it is ready")]
    NotReady,
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
    /// When to check again.
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
    turns: Turns,
    /// The lease for host network changes must be released: after the end of a trial was reported,
    /// and at start, since the watchdog cannot release it for a server that was killed.
    owes_turn: bool,
    is_started: bool,
    watchdog: Option<Child>,
    healthy_since: Option<Instant>,
}

impl HostTrials {
    pub(super) fn new(client: Client, node: String, dir: &Path, uplinks: Uplinks) -> Self {
        let turns = Turns::new(client.clone(), node.clone());
        Self {
            client,
            node,
            dir: dir.to_owned(),
            file: RecordFile::new(dir),
            uplinks,
            turns,
            owes_turn: true,
            is_started: false,
            watchdog: None,
            healthy_since: None,
        }
    }

    pub(super) fn record(&self) -> Result<HostRecord, RecordError> {
        self.file.load()
    }

    /// After a boot, builds what is confirmed before the API server is reached: it may be reached
    /// through that only. Does nothing where the bridges exist. A trial of an earlier boot is rolled
    /// back.
    pub(super) async fn build_confirmed(&mut self) -> Result<(), HostTrialError> {
        let record = self.file.load()?;
        if let Some(trial) = record.trial.as_ref().filter(|trial| trial.boot != boot_id()) {
            self.roll_back(trial.id, Some(change::interrupted_by_boot())).await?;
            return Ok(());
        }
        let links = self.uplinks.observe().await?;
        let uplinks = record.confirmed.values().filter_map(|unit| unit.uplink.as_ref());
        let missing = uplinks.filter(|uplink| !links.contains_key(&uplink.bridge)).count();
        if missing > 0 && record.trial.is_none() {
            let record = self.file.change(|mut record| {
                record.forget_leases();
                Ok(record)
            })?;
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
        // It rolled back while this process was busy.
        if self.watchdog.is_some() {
            self.finish().await;
        }
        let record = self.clear_leftovers(record).await?;
        let Some(change) = record.next(&units) else {
            let report = restore(&self.uplinks, &record).await?;
            return Ok(outcome(record, report));
        };
        let wish = wanted.get(&change.bridge).cloned();
        self.begin(record, change, wish).await
    }

    /// Clears the rest of an earlier trial. A removal that was rolled back has no object that
    /// could request another attempt: a start of the server is one.
    async fn clear_leftovers(&mut self, record: HostRecord) -> Result<HostRecord, HostTrialError> {
        if std::mem::replace(&mut self.owes_turn, false) {
            self.turns.release().await;
        }
        if std::mem::replace(&mut self.is_started, true) {
            return Ok(record);
        }
        Ok(self.file.change(|mut record| {
            record.rejected.retain(|_, own| own.unit.is_some());
            Ok(record)
        })?)
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
        let obstacle = self.obstacle(&change, wish.as_ref(), policy.deadline).await?;
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
        targets.new_path = wish.map(|own| own.peers).unwrap_or_default();
        let before = health::round(&self.client, &self.node, &targets).await;
        let confirmed = record.confirmed.get(&change.bridge);
        targets.new_path = change::new_path(&change, confirmed, &targets.new_path, &before);
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
        let record = self.file.change(|record| Ok(record.on(TrialEvent::Begun(Box::new(new)))?))?;
        let id = record.last_id;
        self.healthy_since = None;
        info!(trial = id, "trying a change of the host's network");
        if let Err(why) = self.start_watchdog(id).await {
            return self.roll_back(id, Some(TrialEvent::Failed(why.to_string()))).await;
        }
        let (uplinks, interfaces) = host_parts(&record.active());
        let report = self.uplinks.try_host(&uplinks, &interfaces).await?;
        if !report.failed.is_empty() {
            let why = report.failed.join("; ");
            return self.roll_back(id, Some(TrialEvent::Failed(why))).await;
        }
        let record = self.file.on(id, TrialEvent::Applied)?;
        Ok(HostOutcome { wait: Some(CHECK_INTERVAL), ..outcome(record, report) })
    }

    /// Why this node must not change its network now; otherwise it has its turn.
    async fn obstacle(
        &self,
        change: &HostChange,
        wish: Option<&WantedUnit>,
        deadline: i64,
    ) -> Result<Option<String>, HostTrialError> {
        let other = match wish.and_then(|own| own.rolled_back_on.clone()) {
            Some(other) => Some(other),
            None => self.turns.rolled_back_elsewhere(change).await?,
        };
        if let Some(other) = other {
            return Ok(Some(format!("the same change was rolled back on node {other}")));
        }
        let holder = self.turns.take(deadline).await?;
        Ok(holder
            .map(|holder| format!("node {holder} changes its network; one node does at a time")))
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
                let mut why = String::new();
                let judged = round.judge(&trial.checks.before, targets);
                let judged = judged.map_err(|failure| failure.to_string());
                match judged.and_then(|()| change::unleased(trial).map_or(Ok(()), Err)) {
                    Ok(()) => _ = self.healthy_since.get_or_insert_with(Instant::now),
                    Err(failure) => {
                        self.healthy_since = None;
                        warn!(trial = trial.id, reason = %failure, "a check after a change fails");
                        why = failure;
                    }
                }
                // The watchdog reports it, too.
                let record = self.file.on(trial.id, TrialEvent::Checked(why))?;
                Ok(HostOutcome { wait: Some(CHECK_INTERVAL), ..outcome(record, report) })
            }
        }
    }

    /// Restores what was confirmed; while steps fail, the next check tries again.
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

    /// Ends the watchdog. The turn is given back once the end was reported.
    async fn finish(&mut self) {
        self.healthy_since = None;
        self.owes_turn = true;
        if let Some(mut watchdog) = self.watchdog.take() {
            let _ = watchdog.kill().await;
        }
    }

    /// The process outlives this one, and rolls back at the deadline.
    async fn start_watchdog(&mut self, id: u64) -> Result<(), WatchdogStartError> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("sheaf").arg("network-watchdog").arg("--dir").arg(&self.dir);
        command.arg("--trial").arg(id.to_string()).process_group(0);
        let log = File::create(self.dir.join("network-watchdog.log"));
        let log = log.map_or_else(|_| Stdio::null(), Stdio::from);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().map_err(WatchdogStartError::Spawn)?;
        let Some(output) = child.stdout.take() else { return Err(WatchdogStartError::NotReady) };
        let mut said = String::new();
        let mut output = BufReader::new(output);
        let ready = tokio::time::timeout(START_TIMEOUT, output.read_line(&mut said)).await;
        if !matches!(ready, Ok(Ok(_))) || !said.starts_with("ready") {
            let _ = child.kill().await;
            return Err(WatchdogStartError::NotReady);
        }
        self.watchdog = Some(child);
        Ok(())
    }
}

fn outcome(record: HostRecord, report: UplinkReport) -> HostOutcome {
    HostOutcome { record, report, wait: None, waiting: None, end: None }
}
