//! Starting all controllers, in one place at a time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::{Stop, Tasks, Workloads};
use client::{Catalog, Election, Term, Timing, Update};
use kube::Client;
use tokio::sync::{mpsc, watch};

use crate::certificate::{self, CertificateSigner};
use crate::hub::{ChangeHub, ChangeOutlet};
use crate::installation::UploadProxy;
use crate::reconcile::{self, EventMapper, ObjectChange, Reconciler};
use crate::service_account::TokenMinter;
use crate::{
    addon, alarm, announcement, api_endpoints, balance, claim, cluster_setting, data_import_cron,
    data_source, data_volume, dhcp, hub, image, installation, key_pair, load_balancer, longhorn,
    maintenance, node_requests, populator, project, snapshot_quota, storage_profile,
    storage_protection, support_bundle, upgrade, vm, vm_backup, vm_backup_schedule, vm_claims,
    vm_clone, vm_export, vm_memory_dump, vm_pool, vm_restore, vm_snapshot, vm_template,
    vm_template_request, vmi, vmi_migration, vmi_replica_set,
};
use crate::{
    endpoints, garbage, guest_address, horizontal_pod_autoscaler, namespace, node, quota,
    role_aggregation, root_ca, service_account,
};

/// Changes on their way to one reader.
const QUEUE: usize = 256;
/// How long the controllers may take to end.
const STOP_LIMIT: Duration = Duration::from_millis(1500);

/// What the controllers have to be told.
#[derive(Debug, Clone)]
pub struct Config {
    pub leadership: Leadership,
    pub duties: ControllerSet,
    /// Where images are uploaded to, if these controllers are to tell.
    pub uploads: Option<UploadProxy>,
    /// Where the work done is counted.
    pub loads: Workloads,
}

/// How much of a cluster is left to these controllers.
#[derive(Clone)]
pub enum ControllerSet {
    /// All that upstream's controller manager does for a cluster without pods, and virtual
    /// machines.
    Cluster {
        /// The bundle that clients inside the cluster trust the server by, PEM.
        root_ca: String,
        minter: Arc<dyn TokenMinter>,
        signer: Arc<dyn CertificateSigner>,
    },
    /// Virtual machines only: the cluster has controllers of its own for the rest.
    Machines,
}

impl fmt::Debug for ControllerSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Cluster { .. } => "Cluster",
            Self::Machines => "Machines",
        })
    }
}

/// Who runs the controllers when there are several servers.
#[derive(Debug, Clone)]
pub enum Leadership {
    /// There is only this one; nothing has to be written to know that.
    Sole,
    /// Whoever holds the lease `kube-system/sheaf-controllers`. The identity must be unique
    /// among the servers and should survive a restart, which then costs no pause.
    Lease { identity: String },
}

/// Runs the controllers as tasks of `tasks` until those are stopped.
pub fn start(client: Client, config: Config, tasks: &Tasks) {
    let mut stop = tasks.stop_signal();
    match config.leadership.clone() {
        Leadership::Sole => tasks.spawn("controllers", async move {
            let running = run_all(&client, &config);
            stop.requested().await;
            running.stop(STOP_LIMIT).await;
        }),
        Leadership::Lease { identity } => {
            let election = Election {
                namespace: "kube-system".into(),
                name: "sheaf-controllers".into(),
                identity,
                timing: Timing::default(),
            };
            let lead = {
                let client = client.clone();
                move |mut term: Term| {
                    // A leader that was stopped for a while writes nothing afterwards.
                    let running = run_all(&term.fenced(client.clone()), &config);
                    async move {
                        term.over().await;
                        running.stop(STOP_LIMIT).await;
                    }
                }
            };
            tasks.spawn("controllers", client::campaign(client, election, stop, lead));
        }
    }
}

/// Starts everything once; the tasks end together.
fn run_all(client: &Client, config: &Config) -> Tasks {
    let tasks = Tasks::default();
    let (updates, received) = mpsc::channel(QUEUE);
    let (catalog_sender, catalog) = watch::channel(Arc::<Catalog>::default());
    let mut outlets = Vec::new();

    let started = Started { client, catalog: &catalog, tasks: &tasks, loads: &config.loads };
    let collector = match &config.duties {
        ControllerSet::Cluster { root_ca, minter, signer } => {
            started.cluster(root_ca, minter, &mut outlets);
            let authority = certificate::Authority::new(client.clone(), Arc::clone(signer));
            outlets.push(started.add(
                "certificate",
                certificate::CertificateRequestMapper,
                authority,
            ));
            started.storage(&mut outlets);
            Some(started.collector())
        }
        ControllerSet::Machines => None,
    };
    started.machines(config.uploads.clone(), &mut outlets);
    let hub = ChangeHub { updates: received, collector, outlets };
    tasks.spawn("hub", hub.run(tasks.stop_signal()));
    let (client, mut stop) = (client.clone(), tasks.stop_signal());
    tasks.spawn("feed", async move {
        tokio::select! {
            () = client::feed(client, updates, catalog_sender) => {}
            () = stop.requested() => {}
        }
    });
    tasks
}

struct Started<'a> {
    client: &'a Client,
    catalog: &'a watch::Receiver<Arc<Catalog>>,
    tasks: &'a Tasks,
    loads: &'a Workloads,
}

impl Started<'_> {
    /// What collects garbage, and where it learns of changes.
    fn collector(&self) -> mpsc::Sender<Update> {
        let (collector, collected) = mpsc::channel(QUEUE);
        let stop = self.tasks.stop_signal();
        let garbage = garbage::run(self.client.clone(), self.catalog.clone(), collected, stop);
        self.tasks.spawn("garbage", garbage);
        collector
    }

    /// Those that every cluster needs.
    fn cluster(
        &self,
        root_ca: &str,
        minter: &Arc<dyn TokenMinter>,
        outlets: &mut Vec<ChangeOutlet>,
    ) {
        let client = || self.client.clone();
        let catalog = || self.catalog.clone();
        let root_ca = || root_ca.to_owned();

        let finalizer = namespace::NamespaceReconciler { client: client(), catalog: catalog() };
        outlets.push(self.add("namespace", namespace::Terminating::default(), finalizer));
        let creator = service_account::ServiceAccountReconciler { client: client() };
        outlets.push(self.add("service-account", service_account::Accounts::default(), creator));
        let publisher = root_ca::RootCaReconciler { client: client(), root_ca: root_ca() };
        outlets.push(self.add("root-ca", root_ca::Published::default(), publisher));
        let aggregator = role_aggregation::Aggregator { client: client() };
        outlets.push(self.add("role-aggregation", role_aggregation::Roles, aggregator));
        let counter = quota::QuotaReconciler::new(client(), catalog());
        outlets.push(self.add("quota", quota::Quotas::default(), counter));
        let protector = storage_protection::StorageProtectionReconciler { client: client() };
        let waiting = storage_protection::Waiting::default();
        outlets.push(self.add("storage-protection", waiting, protector));
        let services = endpoints::Services::default();
        outlets.push(self.add(
            "endpoints",
            services,
            endpoints::EndpointsReconciler::new(client()),
        ));
        outlets.push(self.add("node", node::Nodes, node::NodeReconciler::new(client())));
        outlets.push(self.add(
            "api-endpoints",
            node::Nodes,
            api_endpoints::ApiEndpointsReconciler::new(client()),
        ));
        let autoscaler = horizontal_pod_autoscaler::AutoscalerReconciler::new(client(), catalog());
        outlets.push(self.add(
            "horizontal-pod-autoscaler",
            horizontal_pod_autoscaler::Autoscalers,
            autoscaler,
        ));

        let minter = Arc::clone(minter);
        let filler =
            service_account::TokenSecretReconciler { client: client(), root_ca: root_ca(), minter };
        let mut tokens = self.add("token", service_account::Tokens, filler);
        tokens.wants = service_account::concerns_tokens;
        let secrets = tokens.touches.clone();
        let stop = self.tasks.stop_signal();
        self.tasks.spawn(
            "token-secrets",
            service_account::watch_secrets(client(), catalog(), secrets, stop),
        );
        outlets.push(tokens);
    }

    /// Those that keep what operators of a cluster switch.
    fn operations(&self, outlets: &mut Vec<ChangeOutlet>) {
        let client = || self.client.clone();
        outlets.push(self.add("addon", addon::AddonMapper, addon::AddonReconciler::new(client())));
        outlets.push(self.add(
            "cluster-setting",
            cluster_setting::SettingMapper,
            cluster_setting::SettingReconciler::new(client()),
        ));
        outlets.push(self.add(
            "snapshot-quota",
            snapshot_quota::SnapshotQuotaMapper::default(),
            snapshot_quota::SnapshotQuotaReconciler::new(client()),
        ));
        outlets.push(self.add("alarm", alarm::AlarmMapper, alarm::AlarmReconciler::new(client())));
        outlets.push(self.add(
            "balance",
            balance::BalanceMapper,
            balance::BalanceReconciler::new(client()),
        ));
        outlets.push(self.add(
            "announcement",
            announcement::AnnouncementMapper,
            announcement::AnnouncementReconciler::new(client()),
        ));
        outlets.push(self.add(
            "load-balancer",
            load_balancer::BalancerMapper::default(),
            load_balancer::BalancerReconciler::new(client()),
        ));
        outlets.push(self.add(
            "dhcp",
            dhcp::DhcpMapper::default(),
            dhcp::DhcpReconciler::new(client()),
        ));
        outlets.push(self.add(
            "project",
            project::ProjectMapper,
            project::ProjectReconciler::new(client()),
        ));
        let upgrades = upgrade::UpgradeMapper::default();
        let upgrader = upgrade::UpgradeReconciler::new(client(), upgrades.clone());
        outlets.push(self.add("upgrade", upgrades, upgrader));
        outlets.push(self.add(
            "support-bundle",
            support_bundle::SupportBundleMapper,
            support_bundle::SupportBundleReconciler::new(client()),
        ));
    }

    /// Those that make virtual machines.
    fn machines(&self, uploads: Option<UploadProxy>, outlets: &mut Vec<ChangeOutlet>) {
        let client = || self.client.clone();
        self.operations(outlets);
        let waiting = vmi::Waiting::default();
        let placer = vmi::VmiReconciler::new(client(), waiting.clone());
        outlets.push(self.add("vmi", waiting, placer));
        let claimed = guest_address::AddressMapper::default();
        let addresses = guest_address::AddressReconciler::new(client(), claimed.0.clone());
        outlets.push(self.add("guest-address", claimed, addresses));
        let migrations = vmi_migration::Migrations::default();
        let mover = vmi_migration::MigrationReconciler::new(client(), migrations.0.clone());
        outlets.push(self.add("vmi-migration", migrations, mover));
        let nodes = maintenance::MaintainedNodes::default();
        let drainer = maintenance::MaintenanceReconciler::new(client(), nodes.clone());
        outlets.push(self.add("maintenance", nodes, drainer));
        let machines = vm::VmMapper::default();
        let keeper = vm::VmReconciler::new(client(), machines.0.clone());
        outlets.push(self.add("vm", machines, keeper));
        outlets.push(self.add(
            "vm-claims",
            vm_claims::VmClaimsMapper,
            vm_claims::VmClaimsReconciler::new(client()),
        ));
        let librarian = vm_template::VmTemplateReconciler::new(client());
        outlets.push(self.add("vm-template", vm_template::Templates, librarian));
        outlets.push(self.add(
            "node-requests",
            node_requests::PodMapper,
            node_requests::NodeRequestsReconciler::new(client()),
        ));
        outlets.push(self.add(
            "key-pair",
            key_pair::KeyPairs,
            key_pair::KeyPairReconciler::new(client()),
        ));
        let unbound = claim::ClaimMapper::default();
        let binder = claim::ClaimReconciler::new(client(), unbound.0.clone());
        outlets.push(self.add("claim", unbound, binder));
        let filled = data_volume::Filled::default();
        let filler = data_volume::DataVolumeReconciler::new(client(), filled.0.clone());
        outlets.push(self.add("data-volume", filled, filler));
        let sources = data_source::Sources::default();
        let pointed = data_source::SourceReconciler::new(client(), sources.0.clone());
        outlets.push(self.add("data-source", sources, pointed));
        let crons = data_import_cron::Crons::default();
        let importer = data_import_cron::CronReconciler::new(client(), crons.0.clone());
        outlets.push(self.add("data-import-cron", crons, importer));
        let populated = populator::Populated::default();
        let populators = populator::PopulatorReconciler::new(client(), populated.0.clone());
        outlets.push(self.add("populator", populated, populators));
        let profiles = storage_profile::ProfileReconciler::new(client());
        outlets.push(self.add("storage-profile", storage_profile::Profiles, profiles));
        let sets = vmi_replica_set::Sets::default();
        let replicator = vmi_replica_set::ReplicaSetReconciler::new(client(), sets.0.clone());
        outlets.push(self.add("vmi-replica-set", sets, replicator));
        let pools = vm_pool::Pools::default();
        let pooler = vm_pool::VmPoolReconciler::new(client(), pools.0.clone());
        outlets.push(self.add("vm-pool", pools, pooler));
        let requests = vm_template_request::TemplateRequests::default();
        let templates =
            vm_template_request::TemplateRequestReconciler::new(client(), requests.0.clone());
        outlets.push(self.add("vm-template-request", requests, templates));
        let dumps = vm_memory_dump::MemoryDumps::default();
        let dumper = vm_memory_dump::MemoryDumpReconciler::new(client(), dumps.0.clone());
        outlets.push(self.add("vm-memory-dump", dumps, dumper));
        let exports = vm_export::Exports::default();
        let exporter =
            vm_export::ExportReconciler::new(client(), exports.0.clone(), uploads.clone());
        outlets.push(self.add("vm-export", exports, exporter));
        let reporter = installation::Reporter::new(client(), uploads);
        outlets.push(self.add("installation", installation::Installations, reporter));
    }

    /// Those that make replicated volumes. Another cluster may have Longhorn itself, which
    /// would not share them.
    fn storage(&self, outlets: &mut Vec<ChangeOutlet>) {
        let client = || self.client.clone();
        let claimed = longhorn::provision::Claimed::default();
        let provisioner = longhorn::provision::Provisioner::new(client(), claimed.0.clone());
        outlets.push(self.add("volume-provision", claimed, provisioner));
        let watched = longhorn::volume::Watched::default();
        let keeper = longhorn::volume::VolumeReconciler::new(client(), watched.clone());
        outlets.push(self.add("volume", watched, keeper));
        let photographer = longhorn::snapshot::SnapshotReconciler::new(client());
        outlets.push(self.add("snapshot", longhorn::snapshot::SnapshotMapper, photographer));
        let archivist = longhorn::volume_snapshot::VolumeSnapshotReconciler::new(client());
        outlets.push(self.add(
            "volume-snapshot",
            longhorn::volume_snapshot::VolumeSnapshotMapper,
            archivist,
        ));
        outlets.push(self.add(
            "backup-target",
            longhorn::backup_target::BackupTargetMapper,
            longhorn::backup_target::BackupTargetReconciler::new(client()),
        ));
        outlets.push(self.add(
            "backup",
            longhorn::backup::BackupMapper,
            longhorn::backup::BackupReconciler::new(client()),
        ));
        let asked = vm_snapshot::VmSnapshotMapper::default();
        let photographer = vm_snapshot::VmSnapshotReconciler::new(client(), asked.0.clone());
        outlets.push(self.add("vm-snapshot", asked, photographer));
        let wanted = vm_restore::VmRestoreMapper::default();
        let restorer = vm_restore::VmRestoreReconciler::new(client(), wanted.0.clone());
        outlets.push(self.add("vm-restore", wanted, restorer));
        let asked = vm_clone::VmCloneMapper::default();
        let cloner = vm_clone::VmCloneReconciler::new(client(), asked.0.clone());
        outlets.push(self.add("vm-clone", asked, cloner));
        let clerk = vm_backup::VmBackupReconciler::new(client());
        outlets.push(self.add("vm-backup", vm_backup::VmBackupMapper, clerk));
        let schedules = vm_backup_schedule::ScheduleMapper::default();
        let scheduler = vm_backup_schedule::ScheduleReconciler::new(client(), schedules.0.clone());
        outlets.push(self.add("vm-backup-schedule", schedules, scheduler));
        let stored = image::Stored::default();
        let importer = image::ImageReconciler::new(client(), stored.waiting.clone());
        outlets.push(self.add("image", stored, importer));
        let jobs = longhorn::recurring_job::JobReconciler::new(client());
        outlets.push(self.add("recurring-job", longhorn::recurring_job::Jobs, jobs));
        let conditions = longhorn::node_condition::ConditionReconciler::new(client());
        outlets.push(self.add("storage-node", longhorn::node_condition::Nodes, conditions));
        let marker = longhorn::eviction::EvictionReconciler::new(client());
        outlets.push(self.add("eviction", longhorn::eviction::Nodes, marker));
    }

    fn add<I, R>(&self, name: &'static str, interest: I, reconciler: R) -> ChangeOutlet
    where
        I: EventMapper + Send + 'static,
        I::Key: 'static,
        R: Reconciler<Key = I::Key> + Send + Sync + 'static,
    {
        let (touches, received) = mpsc::channel::<ObjectChange>(QUEUE);
        let stop: Stop = self.tasks.stop_signal();
        let load = self.loads.of(name);
        let run = reconcile::run(name, interest, reconciler, received, load, stop);
        self.tasks.spawn(name, run);
        ChangeOutlet { touches, wants: hub::everything }
    }
}
