//! From a scheduled object to a running process.
//!
//!   user ─► folder ─► network (recorded, then made) ─► volumes ─► machine ─► process ─► guest
//!
//! Every part may exist already from an attempt that failed or was killed; none is made twice. A
//! missing part makes the machine wait, with a condition that names it.

mod connect;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use base::Chain;
use client::Fault;
use qemu::Spec;
use qemu::machine::{Accelerator, Backing, Start};
use qemu::process::cgroup::Limits;
use qemu::process::{Confinement, LaunchError, ProcessUser};
use tokio::time::Instant;
use tracing::{debug, info, warn};
use virt::reason::NotSynchronized;

use super::actor::{LocalMachine, LoopControl, VmiActor};
use super::resolve::{ATTACHING, ResolveError, Resolved, Resolver};
use super::resume::{self, ResumeError, Resumed};
use super::state::StateDir;
use super::status::{MachineProblem, View};
use super::translate::{self, TranslateContext, TranslateError};
use super::view;
use crate::event::EventNote;
use crate::host::HostCapabilities;
use crate::machine::Vmi;
use crate::network::{ConnectError, InterfaceBackend};
use crate::order;
use crate::processors::{self, TooFew};

/// The reason of a machine that waits for its image.
const PULLING: &str = NotSynchronized::Pulling.as_str();

/// Why a machine is not started now.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error(transparent)]
    Volume(#[from] ResolveError),
    #[error(transparent)]
    Network(#[from] ConnectError),
    #[error(transparent)]
    Translate(#[from] TranslateError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("this node cannot run guests: {what}")]
    NoQemu { what: String },
    #[error("no free user id for another machine")]
    NoUser,
    #[error(transparent)]
    Processors(#[from] TooFew),
    #[error("the machine {before} starts first (sheaf.io/start-order)")]
    Order { before: String, until: Instant },
    #[error("cannot {doing} {}", path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Resume(#[from] ResumeError),
    #[error("cannot read the network {name}")]
    Definition { name: String, source: Fault },
}

impl StartError {
    fn trouble(&self) -> MachineProblem {
        let reason = match self {
            Self::Volume(failure) => failure.reason(),
            Self::Network(_) | Self::Definition { .. } => NotSynchronized::Network,
            Self::NoQemu { .. } => NotSynchronized::Node,
            Self::Processors(_) => NotSynchronized::Processors,
            Self::Order { .. } => NotSynchronized::StartOrder,
            _ => NotSynchronized::Domain,
        };
        MachineProblem::new(reason, Chain(self).to_string())
    }
}

impl VmiActor {
    pub(super) async fn launch(&mut self, vmi: &Arc<Vmi>) -> LoopControl {
        if let Some(at) = self.retry.not_before() {
            return LoopControl::Wait(Some(at));
        }
        match self.try_launch(vmi).await {
            Ok(()) => {
                info!(namespace = vmi.namespace, name = vmi.name, "guest started");
                self.trouble = None;
                self.awaited.set(&self.context.client, BTreeSet::new());
                self.retry.succeeded();
                LoopControl::Again
            }
            Err(failure) => {
                let trouble = failure.trouble();
                let known = self.trouble.as_ref();
                if trouble.reason == PULLING {
                    // The progress is in the condition; the start is reported once.
                    if known.is_none_or(|known| known.reason != PULLING) {
                        info!(message = trouble.message, "guest waits for an image");
                        let note = EventNote::normal(PULLING, trouble.message.clone());
                        self.report(vmi, note);
                    }
                } else if trouble.reason == ATTACHING {
                    debug!(message = trouble.message, "guest waits for a volume");
                } else if known != Some(&trouble) {
                    warn!(
                        namespace = vmi.namespace,
                        name = vmi.name,
                        reason = trouble.reason,
                        error = trouble.message,
                        "guest cannot be started yet"
                    );
                    let note = EventNote::warning("SyncFailed", trouble.message.clone());
                    self.report(vmi, note);
                }
                self.trouble = Some(trouble.clone());
                let view = View { phase: vmi.phase(), trouble: Some(trouble), guest: None };
                if let Err(after) = self.write(vmi, &view).await {
                    return after;
                }
                match failure {
                    StartError::Order { until, .. } => LoopControl::Wait(Some(until)),
                    // The notifier wakes this up when there is one.
                    StartError::NoQemu { .. } => LoopControl::Wait(None),
                    StartError::Volume(failure) => {
                        self.later_or_with(failure.awaited(&vmi.namespace).into_iter().collect())
                    }
                    _ => self.later(),
                }
            }
        }
    }

    async fn try_launch(&mut self, vmi: &Arc<Vmi>) -> Result<(), StartError> {
        let host = self.host()?;
        let now = order::uptime();
        if let Some(hold) = self.context.order.hold(vmi, now) {
            let until = Instant::now() + hold.until.saturating_sub(now);
            return Err(StartError::Order { before: hold.before, until });
        }
        let identity = self.identity()?;
        let failed = |doing| {
            let path = self.dir.path().to_path_buf();
            move |source| StartError::File { doing, path, source }
        };
        // From here on there is something to clean up, even if nothing comes of it.
        self.local = LocalMachine::Unstarted;
        self.dir.create(identity.as_ref()).map_err(failed("make"))?;
        let outlets = self.connect(vmi, identity.as_ref()).await?;
        let resolver = Resolver {
            context: &self.context,
            vmi,
            dir: &self.dir,
            identity: identity.as_ref(),
            migration: None,
        };
        let volumes = resolver.all().await?;
        let kernel = resolver.kernel().await?;
        let state = StateDir::of(&self.context, vmi, &self.dir);
        let mut machine = self.machine(vmi, &host, &volumes, &outlets, &state)?;
        let mut groups = shared_groups(&host, &volumes);
        if let Some(found) = kernel {
            groups.extend(found.groups);
            machine.kernel = Some(found.kernel);
        }
        state.provide(&host, &machine, identity.as_ref())?;
        let own = self.processors(vmi, machine.cpu.count())?;
        if let Some(own) = own.as_deref().filter(|_| mirrors_numa(vmi)) {
            let page = match machine.memory.backing {
                Backing::HugePages(page) => page,
                Backing::Anonymous => 0,
            };
            machine.numa = self.context.processors.mirror(own, machine.memory.guest, page);
        }
        let identity = identity.map(|identity| ProcessUser { groups, ..identity });
        let confinement = Confinement {
            identity,
            limits: Some(limits(vmi, &machine)),
            cgroup: self.context.cgroup.clone(),
            isolation: self.context.isolation,
        };
        let resumed = resume::source(vmi, &self.context.config.agent_dir());
        if let Some(memory) = &resumed {
            resume::note(&self.dir, memory).map_err(failed("write a note into"))?;
            machine.start = Start::Incoming;
        }
        let spec = Spec { machine, confinement };
        let running = self.context.launcher.launch(&self.dir, spec).await?;
        self.disks.found = volumes;
        self.attend(running.clone()).await;
        if let Some(own) = own {
            let each: Vec<Vec<usize>> = own.iter().map(|cpu| vec![*cpu]).collect();
            if let Err(failure) = running.pin(&each).await {
                warn!(error = %Chain(&failure), "cannot pin machine to its CPUs");
            }
        }
        if resumed.is_some() {
            self.resume_saved(vmi).await?;
        }
        running.begin().await.map_err(LaunchError::from)?;
        Ok(())
    }

    /// This host's capabilities for guests.
    pub(super) fn host(&self) -> Result<HostCapabilities, StartError> {
        let trial = self.context.trial.borrow().clone();
        trial.host.ok_or_else(|| {
            let what = match trial.virtualization {
                crate::host::Virtualization::Missing { what } => what,
                _ => "it is being found out how".into(),
            };
            StartError::NoQemu { what }
        })
    }

    /// Starts the QEMU of a guest that comes from another node; it waits for the stream.
    pub(super) async fn launch_incoming(
        &mut self,
        vmi: &Vmi,
        host: &HostCapabilities,
        machine: qemu::Machine,
        identity: Option<ProcessUser>,
        mut groups: Vec<u32>,
    ) -> Result<qemu::RunningMachine, StartError> {
        let own = self.processors(vmi, machine.cpu.count())?;
        groups.extend(shared_groups(host, &BTreeMap::new()));
        let confinement = Confinement {
            identity: identity.map(|identity| ProcessUser { groups, ..identity }),
            limits: Some(limits(vmi, &machine)),
            cgroup: self.context.cgroup.clone(),
            isolation: self.context.isolation,
        };
        let spec = Spec { machine, confinement };
        let running = self.context.launcher.launch(&self.dir, spec).await?;
        if let Some(own) = own {
            let each: Vec<Vec<usize>> = own.iter().map(|cpu| vec![*cpu]).collect();
            if let Err(failure) = running.pin(&each).await {
                warn!(error = %Chain(&failure), "cannot pin machine to its CPUs");
            }
        }
        Ok(running)
    }

    /// A guest that cannot go on ends: its next run boots.
    async fn resume_saved(&mut self, vmi: &Vmi) -> Result<(), StartError> {
        let LocalMachine::Running(live) = &self.local else { return Ok(()) };
        let live = live.clone();
        match live.resume().await {
            Ok(Resumed::FromMemory) => {
                live.set_clock_and_report(self.context.reporter.clone(), vmi.reference());
                Ok(())
            }
            Ok(Resumed::NotNeeded) => Ok(()),
            Err(failure) => {
                let exit = live.running.kill().await;
                self.end(exit);
                Err(failure.into())
            }
        }
    }

    fn machine(
        &self,
        vmi: &Vmi,
        host: &HostCapabilities,
        volumes: &BTreeMap<String, Resolved>,
        outlets: &BTreeMap<String, InterfaceBackend>,
        state: &StateDir,
    ) -> Result<qemu::Machine, StartError> {
        let volumes: BTreeMap<_, _> = volumes
            .iter()
            .map(|(name, resolved)| (name.clone(), resolved.backing.clone()))
            .collect();
        let around = TranslateContext {
            host,
            volumes: &volumes,
            outlets,
            nvram: state.nvram.clone(),
            tpm: state.tpm.clone(),
        };
        Ok(translate::machine(vmi, &around)?)
    }

    /// Processors of the machine's own, if it asks for them; noted before it uses them.
    fn processors(&self, vmi: &Vmi, count: u32) -> Result<Option<Vec<usize>>, StartError> {
        let cpu = vmi.spec.domain.cpu.as_ref();
        if cpu.is_none_or(|cpu| cpu.dedicated_cpu_placement != Some(true)) {
            return Ok(None);
        }
        let own = self.context.processors.take(&vmi.uid, count as usize)?;
        let path = self.dir.path().join(processors::RECORD);
        let failed = |source| StartError::File { doing: "write", path, source };
        self.dir.store(processors::RECORD, &own).map_err(failed)?;
        Ok(Some(own))
    }

    /// The user of the machine; the same for every attempt.
    pub(super) fn identity(&mut self) -> Result<Option<ProcessUser>, StartError> {
        if self.uid.is_none() {
            self.uid = self.context.users.take();
            if self.uid.is_none() && self.context.users.are_many() {
                return Err(StartError::NoUser);
            }
        }
        Ok(self.uid.map(|uid| ProcessUser { uid, gid: uid, groups: Vec::new() }))
    }
}

fn mirrors_numa(vmi: &Vmi) -> bool {
    let numa = vmi.spec.domain.cpu.as_ref().and_then(|cpu| cpu.numa.as_ref());
    numa.is_some_and(|numa| numa.guest_mapping_passthrough.is_some())
}

/// The groups that give the machine's user what it needs beside its own files.
fn shared_groups(host: &HostCapabilities, volumes: &BTreeMap<String, Resolved>) -> Vec<u32> {
    let mut groups: Vec<u32> = volumes.values().filter_map(|volume| volume.group).collect();
    if host.accelerator == Accelerator::Kvm {
        groups.extend(crate::host::kvm_group());
    }
    groups
}

/// The memory that translated code may take where there is no KVM.
const TRANSLATIONS: u64 = 1 << 30;

/// Guests share disks of the host equally: nothing in a machine says otherwise.
const IO_WEIGHT: u32 = 100;

/// Processor time as the resources say, and the memory that guest and QEMU need together.
fn limits(vmi: &Vmi, machine: &qemu::Machine) -> Limits {
    let resources = vmi.spec.domain.resources.as_ref();
    let milli = |map: &virt::api::atom::Map<virt::api::atom::Quantity>| {
        let amount = map.get("cpu")?.amount()?;
        u32::try_from(amount.millis()).ok()
    };
    let weight = resources.and_then(|resources| milli(&resources.requests));
    Limits {
        // A request of one whole processor is an ordinary weight of 100.
        cpu_weight: weight.map(|milli| (milli / 10).clamp(1, 10_000)),
        cpu_quota: resources.and_then(|resources| milli(&resources.limits)),
        io_weight: Some(IO_WEIGHT),
        memory: Some(memory(vmi, machine)),
    }
}

/// The guest's memory, as far as it can grow, and what QEMU needs beside it.
fn memory(vmi: &Vmi, machine: &qemu::Machine) -> u64 {
    let guest = machine.memory.guest.max(machine.memory.max);
    let translations = match machine.accelerator {
        Accelerator::Kvm => 0,
        Accelerator::Tcg => TRANSLATIONS,
    };
    guest + view::overhead(vmi, machine) + translations
}
