//! Starts the agent: connects its parts.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Chain, Tasks};
use kube::Client;
use qemu::isolation::Isolation;
use qemu::process::{Binary, cgroup};
use qemu::{Launcher, RunDir, Spec};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::announce;
use crate::backup;
use crate::change_notifier::ChangeNotifier;
use crate::config::{Config, Network};
use crate::context::{Context, Users};
use crate::dhcp;
use crate::egress::Egress;
use crate::endpoint::{self, Endpoint, RequestGate};
use crate::event::Reporter;
use crate::health_check;
use crate::history::{self, UsageHistory};
use crate::host::{self, AcceleratorProbe};
use crate::host_guard;
use crate::image::Images;
use crate::link_monitor;
use crate::machine::{ATTACHMENTS, Attachment, Machines};
use crate::network::Networks;
use crate::node::{self, Findings};
use crate::ntp;
use crate::order::{self, StartOrder};
use crate::overlay;
use crate::own_addresses::OwnAddresses;
use crate::policy;
use crate::processors::{self, Processors};
use crate::service;
use crate::storage::StorageHandle;
use crate::uplink;
use crate::vmi;
use crate::volume::Volumes;

/// Where the kernel reports which processors and memory are near to each other.
const NODES: &str = "/sys/devices/system/node";

/// Why the agent cannot work at all. A fault that only keeps guests from running is no such
/// reason: the Node reports it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot make the directory {}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot start the proxy for imports")]
    Proxy(#[source] io::Error),
    #[error("cannot read the directory {}", path.display())]
    Scan { path: PathBuf, source: io::Error },
    #[error(
        "guests run as unprivileged users, which cannot enter {} (mode {mode:04o}): \
         run `chmod o+x {}`, or choose a data directory elsewhere with --data-dir",
        path.display(), path.display()
    )]
    Unreachable { path: PathBuf, mode: u32 },
}

/// Starts the agent's tasks; they end with `tasks`, and guests live on.
pub fn start(client: Client, config: Config, tasks: &Tasks) -> Result<(), StartError> {
    let dir = config.machines_dir();
    if rustix::process::geteuid().is_root() {
        check_reachable(&config.data_dir)?;
    }
    make(&dir).map_err(|source| StartError::Directory { path: dir.clone(), source })?;
    let found = scan(&dir).map_err(|source| StartError::Scan { path: dir.clone(), source })?;
    let notifier = ChangeNotifier::default();
    let known = Machines::default();
    let (addresses, own_addresses) = watch::channel(OwnAddresses::default());
    let own = own_addresses.clone();
    let storage =
        StorageHandle::start(client.clone(), &config, own, known.clone(), notifier.clone(), tasks)
            .map_err(|source| StartError::Directory {
                path: config.data_dir.join("storage"),
                source,
            })?;
    let egress = Egress::start(&config, tasks).map_err(StartError::Proxy)?;
    egress.follow(client.clone(), tasks);
    let (own, shared) = (client.clone(), storage.clone());
    let volumes = Volumes::start(own, &config, shared, &egress, notifier.clone(), tasks)
        .map_err(|failure| StartError::Directory { path: failure.path, source: failure.source })?;
    backup::start(client.clone(), &config, storage.clone(), egress.clone(), tasks);
    let (cluster, outside) = (egress.cluster(), egress.outside_cluster());
    let images = Images::start(client.clone(), &config, storage.clone(), egress, tasks);
    let (trial, trials) = watch::channel(AcceleratorProbe::default());
    let (reported, findings) = watch::channel(Findings::default());
    let reported = Arc::new(reported);
    let cache = config.agent_dir().join("probe.json");
    tasks.spawn("trial", host::run(cache, trial, notifier.clone(), tasks.stop_signal()));
    tasks.spawn("trial-report", report_found(trials.clone(), Arc::clone(&reported)));
    let node = node::run(client.clone(), config.clone(), findings, tasks.stop_signal());
    tasks.spawn("node", node);
    let observer = node::NodeObserver::new(client.clone(), &config, addresses);
    tasks.spawn("node-observer", observer.run(tasks.stop_signal()));
    let run = link_monitor::run(client.clone(), config.node_name.clone(), tasks.clone());
    tasks.spawn("link-monitors", run);
    let (name, dir) = (config.node_name.clone(), config.agent_dir());
    tasks.spawn("ntp", ntp::run(client.clone(), name, dir, tasks.stop_signal()));
    let all = tasks.clone();
    tasks.spawn("machines", async move {
        let networks =
            Networks::start(client.clone(), &config.network, &found.attachments, &all).await;
        let found_isolation = tokio::task::spawn_blocking(host::isolation).await.ok().cloned();
        let namespaces = host::has_namespaces()
            .then_some(Isolation { host_network: matches!(config.network, Network::User) });
        reported.send_modify(|report| {
            report.network = networks.shortcoming();
            report.isolation = found_isolation;
        });
        services(&client, &config, &networks, &all);
        policies(&client, &config, &networks, &all);
        if let (Some(network), Some(cluster)) = (networks.guarded(), cluster) {
            all.spawn("host-guard", host_guard::run(network, cluster, all.stop_signal()));
        }
        if let Some(target) = networks.overlay(&config.node_name) {
            all.spawn("overlay", overlay::run(client.clone(), target, all.stop_signal()));
        }
        if networks.has_services() {
            let run = announce::run(client.clone(), config.node_name.clone(), all.clone());
            all.spawn("announcements", run);
            let (own, name) = (client.clone(), config.node_name.clone());
            let run = health_check::run(own, name, outside, all.stop_signal());
            all.spawn("health-checks", run);
        }
        pools(&client, &config, &networks, &all);
        if let Some(target) = networks.uplinks() {
            let (name, dir) = (config.node_name.clone(), config.agent_dir());
            let run = uplink::run(client.clone(), name, dir, target, all.clone());
            all.spawn("uplinks", run);
        }
        let shared = MachineContext {
            networks,
            isolation: namespaces,
            trial: trials,
            volumes,
            images,
            storage,
            machines: known,
            notifier,
            own_addresses,
        };
        machines(client, config, found, shared, all).await;
    });
    Ok(())
}

/// Starts the tasks of a node that runs nothing, a witness: it is registered, renews its lease, and
/// probes other nodes when asked. They end with `tasks`.
pub fn start_witness(client: Client, config: Config, tasks: &Tasks) {
    let (addresses, _) = watch::channel(OwnAddresses::default());
    let observer = node::NodeObserver::new(client.clone(), &config, addresses);
    tasks.spawn("node-observer", observer.run(tasks.stop_signal()));
    // Nothing is found out about a host on which nothing runs; the channel stays open with
    // `reported`.
    let (reported, findings) = watch::channel(Findings::default());
    let stop = tasks.stop_signal();
    tasks.spawn("node", async move {
        node::run(client, config, findings, stop).await;
        drop(reported);
    });
}

/// Makes services reachable, where guests have a network of the node.
fn services(client: &Client, config: &Config, networks: &Networks, tasks: &Tasks) {
    let Some((target, guests)) = networks.services() else {
        info!("services have no addresses on this node, whose guests have user-mode networks");
        return;
    };
    let ipv4 = |address: &IpAddr| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    };
    let addresses = config.addresses.iter().filter_map(ipv4).collect();
    let node = service::ServiceNode { name: config.node_name.clone(), addresses, guests };
    let run = service::run(client.clone(), node, target, tasks.stop_signal());
    tasks.spawn("services", run);
}

/// Enforces network policies, where guests have a network of the node.
fn policies(client: &Client, config: &Config, networks: &Networks, tasks: &Tasks) {
    let Some(target) = networks.policies(&config.node_name) else {
        info!(
            "network policies are not enforced on this node, whose guests have user-mode networks"
        );
        return;
    };
    tasks.spawn("policies", policy::run(client.clone(), target, tasks.stop_signal()));
}

/// Answers DHCP requests on networks with a pool, where guests have networks of the node.
fn pools(client: &Client, config: &Config, networks: &Networks, tasks: &Tasks) {
    let (client, node) = (client.clone(), config.node_name.clone());
    match networks.dhcp(&node) {
        Some(target) => tasks.spawn("dhcp", dhcp::run(client, target, tasks.clone())),
        None => tasks.spawn("dhcp", dhcp::withdraw(client, node)),
    }
}

/// State that machines share with the rest of the agent.
struct MachineContext {
    networks: Networks,
    isolation: Option<Isolation>,
    trial: watch::Receiver<AcceleratorProbe>,
    volumes: Volumes,
    images: Images,
    storage: StorageHandle,
    machines: Machines,
    notifier: ChangeNotifier,
    own_addresses: watch::Receiver<OwnAddresses>,
}

/// The machines found in their folders.
#[derive(Debug, Default)]
struct FoundMachines {
    uids: Vec<String>,
    users: BTreeSet<u32>,
    attachments: Vec<Attachment>,
    processors: BTreeMap<String, Vec<usize>>,
}

async fn machines(
    client: Client,
    config: Config,
    found: FoundMachines,
    shared: MachineContext,
    tasks: Tasks,
) {
    let MachineContext { networks, isolation, trial, volumes, images, storage, machines, .. } =
        shared;
    let (notifier, own_addresses) = (shared.notifier, shared.own_addresses);
    let is_root = rustix::process::geteuid().is_root();
    let cgroup = match cgroup::detect() {
        Ok(layout) if is_root => layout,
        Ok(_) => None,
        Err(failure) => {
            warn!(error = %Chain(&failure), "guests have no control groups");
            None
        }
    };
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let context = Arc::new(Context {
        processors: Processors::new(count, processors::nodes(Path::new(NODES)), found.processors),
        order: StartOrder::open(config.agent_dir().join("boot"), order::boot(), notifier.clone()),
        reporter: Reporter::new(client.clone(), &config.node_name),
        client,
        config,
        networks,
        launcher: Launcher::new(tasks.clone(), Binary::default()),
        users: Users::new(is_root, found.users),
        trial,
        cgroup,
        isolation,
        volumes: volumes.clone(),
        storage,
        notifier,
    });
    let migrations =
        vmi::IncomingMigrations::new(Arc::clone(&context), machines.clone(), tasks.clone());
    let history = UsageHistory::default();
    let sampled = history::run(history.clone(), machines.clone(), tasks.stop_signal());
    tasks.spawn("usage-history", sampled);
    let report = Arc::clone(&context.config.report);
    let endpoint =
        Endpoint { machines: machines.clone(), volumes, images, migrations, history, report };
    let endpoint = Arc::new(endpoint);
    match endpoint::listen(&context.config.socket()) {
        Ok(listener) => {
            let serve = endpoint::serve(Arc::clone(&endpoint), listener, tasks.stop_signal());
            tasks.spawn("endpoint", serve);
        }
        Err(failure) => error!(error = %Chain(&failure), "console endpoint is unreachable"),
    }
    if let Some(wire) = context.config.wire.endpoint.clone() {
        let (node, client) = (context.config.node_name.clone(), context.client.clone());
        let gate = RequestGate::new(node, client, wire.grants.clone());
        let further = endpoint::FurtherListener::new(own_addresses, wire.address.port());
        let serve = endpoint::serve_remote(endpoint, wire, (gate, further), tasks.stop_signal());
        tasks.spawn("node-endpoint", serve);
    }
    tasks.spawn("state", vmi::sweep(Arc::clone(&context), tasks.stop_signal()));
    let stop = tasks.stop_signal();
    vmi::run(context, machines, found.uids, tasks, stop).await;
}

async fn report_found(
    mut trials: watch::Receiver<AcceleratorProbe>,
    reported: Arc<watch::Sender<Findings>>,
) {
    while trials.changed().await.is_ok() {
        let found = trials.borrow_and_update().virtualization.clone();
        reported.send_modify(|report| report.virtualization = found);
    }
}

/// Fails if another user cannot enter a directory above the data directory, as below root's home.
fn check_reachable(data_dir: &Path) -> Result<(), StartError> {
    let unreadable = |source| StartError::Scan { path: data_dir.to_owned(), source };
    // The way that the kernel takes, without symbolic links.
    let real = data_dir.canonicalize().map_err(unreadable)?;
    for path in real.ancestors().skip(1) {
        let mode = path.metadata().map_err(unreadable)?.permissions().mode() & 0o7777;
        if mode & 0o001 == 0 {
            return Err(StartError::Unreachable { path: path.to_owned(), mode });
        }
    }
    Ok(())
}

/// Makes the directory of machines. Their users must be able to pass through the directories
/// above it, and only pass.
fn make(dir: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o711).create(dir)?;
    if rustix::process::geteuid().is_root() {
        let above = dir.ancestors().take(3);
        for path in above {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o711))?;
        }
    }
    Ok(())
}

fn scan(dir: &Path) -> io::Result<FoundMachines> {
    let mut found = FoundMachines::default();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let Ok(uid) = entry.file_name().into_string() else { continue };
        let folder = RunDir::new(entry.path());
        match folder.load::<Vec<Attachment>>(ATTACHMENTS) {
            Ok(attachments) => found.attachments.extend(attachments.unwrap_or_default()),
            Err(failure) => warn!(uid, error = %failure, "cannot read a machine's network"),
        }
        if let Ok(Some(spec)) = folder.load::<Spec>("machine.json") {
            found.users.extend(spec.confinement.identity.map(|identity| identity.uid));
        }
        if let Ok(Some(own)) = folder.load::<Vec<usize>>(processors::RECORD) {
            found.processors.insert(uid.clone(), own);
        }
        found.uids.push(uid);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_that_guests_cannot_enter_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap().join("home");
        let data = home.join("data");
        std::fs::create_dir_all(&data).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&data, &link).unwrap();
        let set = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set(dir.path(), 0o711);
        set(&home, 0o700);
        for path in [&data, &link] {
            let refused = check_reachable(path).unwrap_err();
            assert!(
                matches!(&refused, StartError::Unreachable { path, mode: 0o700 } if *path == home)
            );
            assert!(refused.to_string().contains(&format!("chmod o+x {}", home.display())));
        }
        set(&home, 0o711);
        // The data directory's own mode is set by `make`.
        set(&data, 0o700);
        assert!(check_reachable(&data).is_ok());
    }
}
