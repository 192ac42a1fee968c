//! The controllers of virtual machines, and those of what their operators switch.

use std::sync::Arc;

use super::{ControllerGroup, Started};
use crate::alarm_receiver::AlarmSender;
use crate::hub::ChangeOutlet;
use crate::installation::UploadProxy;
use crate::{
    addon, alarm, alarm_receiver, announcement, balance, claim, cluster_setting, cpu_manager_job,
    data_import_cron, data_source, data_volume, dhcp, guest_address, host_network, installation,
    key_pair, link_monitor, load_balancer, local_volume, machine_quota, maintenance, node_network,
    node_requests, populator, project, snapshot_quota, storage_profile, support_bundle, upgrade,
    vm, vm_claims, vm_export, vm_history, vm_memory_dump, vm_pool, vm_template,
    vm_template_request, vmi, vmi_migration, vmi_replica_set,
};

impl Started<'_> {
    /// Those that make virtual machines.
    pub(super) fn machines(&self, uploads: Option<UploadProxy>, outlets: &mut Vec<ChangeOutlet>) {
        self.operations(outlets);
        self.networks(outlets);
        self.instances(outlets);
        self.specifications(outlets);
        self.disks(outlets);
        self.requests(outlets);
        let client = || self.clients.of(ControllerGroup::Machines);
        let exports = vm_export::Exports::default();
        let exporter =
            vm_export::ExportReconciler::new(client(), exports.0.clone(), uploads.clone());
        outlets.push(self.add("vm-export", exports, exporter));
        let reporter = installation::Reporter::new(client(), uploads);
        outlets.push(self.add("installation", installation::Installations, reporter));
    }

    /// Those of running machines: their nodes, addresses and migrations.
    fn instances(&self, outlets: &mut Vec<ChangeOutlet>) {
        let client = || self.clients.of(ControllerGroup::Machines);
        let waiting = vmi::WaitingInstances::default();
        let placer = vmi::VmiReconciler::new(client(), waiting.clone());
        outlets.push(self.add("vmi", waiting, placer));
        let claimed = guest_address::AddressMapper::default();
        let addresses = guest_address::AddressReconciler::new(client(), claimed.0.clone());
        outlets.push(self.add("guest-address", claimed, addresses));
        let migrations = vmi_migration::Migrations::default();
        let mover = vmi_migration::MigrationReconciler::new(client(), migrations.0.clone());
        outlets.push(self.add("vmi-migration", migrations, mover));
        let volumes = local_volume::LocalVolumeMapper::default();
        let settler = local_volume::LocalVolumeReconciler::new(client(), volumes.0.clone());
        outlets.push(self.add("local-volume", volumes, settler));
        let nodes = maintenance::MaintainedNodes::default();
        let drainer = maintenance::MaintenanceReconciler::new(client(), nodes.clone());
        outlets.push(self.add("maintenance", nodes, drainer));
    }

    /// Those of the objects that describe machines.
    fn specifications(&self, outlets: &mut Vec<ChangeOutlet>) {
        let client = || self.clients.of(ControllerGroup::Machines);
        let machines = vm::VmMapper::default();
        let reconciler = vm::VmReconciler::new(client(), machines.0.clone());
        outlets.push(self.add("vm", machines, reconciler));
        let halter = machine_quota::MachineQuotaReconciler::new(client());
        outlets.push(self.add("machine-quota", machine_quota::MachineQuotaMapper, halter));
        outlets.push(self.add(
            "vm-claims",
            vm_claims::VmClaimsMapper,
            vm_claims::VmClaimsReconciler::new(client()),
        ));
        let recorder = vm_history::HistoryReconciler::new(client());
        outlets.push(self.add("vm-history", vm_history::HistoryMapper, recorder));
        let reconciler = vm_template::VmTemplateReconciler::new(client());
        outlets.push(self.add("vm-template", vm_template::Templates, reconciler));
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
    }

    /// Those that make disks and fill them.
    fn disks(&self, outlets: &mut Vec<ChangeOutlet>) {
        let client = || self.clients.of(ControllerGroup::Machines);
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
    }

    /// Those that make machines and copies of them on request: sets, pools, templates, dumps.
    fn requests(&self, outlets: &mut Vec<ChangeOutlet>) {
        let client = || self.clients.of(ControllerGroup::Machines);
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
    }

    /// Delivers alarms; the sender makes the requests.
    pub(super) fn alarm_receivers(
        &self,
        sender: &Arc<dyn AlarmSender>,
        outlets: &mut Vec<ChangeOutlet>,
    ) {
        let client = self.clients.of(ControllerGroup::Alarms);
        let reconciler = alarm_receiver::ReceiverReconciler::new(client, Arc::clone(sender));
        let mapper = alarm_receiver::ReceiverMapper::default();
        outlets.push(self.add("alarm-receiver", mapper, reconciler));
    }

    /// Those that keep what operators of a cluster switch.
    fn operations(&self, outlets: &mut Vec<ChangeOutlet>) {
        let client = || self.clients.of(ControllerGroup::Operations);
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
            "cpu-manager-job",
            cpu_manager_job::CpuManagerMapper,
            cpu_manager_job::CpuManagerJobReconciler::new(client()),
        ));
        outlets.push(self.add(
            "balance",
            balance::BalanceMapper,
            balance::BalanceReconciler::new(client()),
        ));
        outlets.push(self.add(
            "project",
            project::ProjectMapper,
            project::ProjectReconciler::new(self.clients.of(ControllerGroup::Projects)),
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

    /// Those of networks: hosts, addresses and load balancers.
    fn networks(&self, outlets: &mut Vec<ChangeOutlet>) {
        let client = || self.clients.of(ControllerGroup::Operations);
        outlets.push(self.add(
            "host-network",
            host_network::HostNetworkMapper,
            host_network::HostNetworkReconciler::new(client()),
        ));
        outlets.push(self.add(
            "node-network",
            node_network::NodeNetworkMapper,
            node_network::NodeNetworkReconciler::new(client()),
        ));
        outlets.push(self.add(
            "link-monitor",
            link_monitor::LinkMonitorMapper,
            link_monitor::LinkMonitorReconciler::new(client()),
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
    }
}
