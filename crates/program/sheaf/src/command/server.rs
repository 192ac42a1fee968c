//! `sheaf server`: one node, from its first file to its last request.

mod certificates;
mod dashboard;
mod extensions;
mod first_settings;
mod identities;
mod live_settings;
mod managed;
pub(super) mod names;
pub(super) mod node_report;
mod nodes;
mod signer;
mod store_backups;
pub(super) mod tokens;
pub(super) mod vip;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent::NodeWire;
use anyhow::{Context as _, Result, bail};
use apiserver::{Api, Authorization, Settings};
use auth::pki::tls::Tls;
use auth::pki::{NodeFiles, Pki};
use auth::token::{ObjectRef, ServiceAccountTokens};
use base::{Tasks, clock};
use controllers::{ControllerSet, Leadership, UploadProxy};
use futures_util::future::BoxFuture;
use store::Config;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

use super::management::{self, EndRequest, ManagedEtcd, ProcessEnd};
use super::node_tls::NodeTls;
use super::program::{self, ProgramFollower, ProgramStore};
use super::{encryption, join};
use crate::cli::{EncryptedStore, ServerArgs, StoreKind};
use crate::data_dir::Layout;
use crate::logging::LogLevel;
use crate::{in_process, logging, memory};
use extensions::ExtensionHandles;
pub(super) use extensions::{PROGRAMS_PATH, UPLOADS_PATH};
use live_settings::LiveSettings;
use store_backups::{BackupSource, StoreBackups};
use vip::ClusterVip;

/// The issuer of service-account tokens, by upstream's default name.
pub(super) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// How long everything but the controllers may take to end after a signal.
pub(super) const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(1200);
/// How long to wait for a port that another process has: a server that was killed keeps it
/// until the kernel has torn the process down.
const PORT_TIMEOUT: Duration = Duration::from_secs(5);
const PORT_RETRY_DELAY: Duration = Duration::from_millis(100);

pub(super) fn run(args: &ServerArgs) -> Result<()> {
    if join::witness::is_asked_for(args)? {
        return join::witness::run(&args.into());
    }
    if join::is_asked_for(args)? {
        return join::run(args);
    }
    let layout = Layout::new(args.data.data_dir.as_deref())?;
    super::program::hand_over(&layout)?;
    let is_voter = management::is_voter(&layout)?;
    if (args.role.is_some() || args.token.is_some()) && !is_voter {
        bail!("--role and --token are for nodes that join: --join URL is missing");
    }
    let log = logging::start(args.log_format, &args.log_level)?;
    let lock = layout.take()?;
    let args = if is_voter { managed::effective(args, &layout)? } else { args.clone() };
    let end = in_runtime(serve(&args, &layout, log))?;
    drop(lock);
    managed::finish(end, &layout)
}

/// Runs a service to its end.
pub(super) fn in_runtime<T>(service: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("sheaf")
        // Under load, new requests are looked for this often: at the default of 61 tasks, who
        // asks for little would wait for dozens of those who flood.
        .event_interval(8)
        .on_thread_park(memory::before_sleep)
        .build()
        .context("cannot start the runtime")?;
    runtime.spawn(memory::limit_resident());
    let outcome = runtime.block_on(service);
    runtime.shutdown_timeout(Duration::from_millis(200));
    outcome
}

/// Listens on an address; waits a few seconds for one that is in use.
pub(super) async fn listen(address: SocketAddr) -> Result<TcpListener> {
    listen_within(address, PORT_TIMEOUT).await
}

async fn listen_within(address: SocketAddr, timeout: Duration) -> Result<TcpListener> {
    let deadline = tokio::time::Instant::now() + timeout;
    let mut logged = false;
    loop {
        match TcpListener::bind(address).await {
            Err(failure)
                if failure.kind() == std::io::ErrorKind::AddrInUse
                    && tokio::time::Instant::now() < deadline =>
            {
                if !logged {
                    logged = true;
                    info!(%address, "waiting for another process to release the port");
                }
                // The kernel notifies nobody when a port becomes free.
                tokio::time::sleep(PORT_RETRY_DELAY).await;
            }
            Err(failure) if failure.kind() == std::io::ErrorKind::AddrInUse => {
                return Err(failure).with_context(|| {
                    format!(
                        "cannot listen on {address}: another process has this port; stop it, or \
                         choose another port"
                    )
                });
            }
            outcome => return outcome.with_context(|| format!("cannot listen on {address}")),
        }
    }
}

async fn serve(args: &ServerArgs, layout: &Layout, log: LogLevel) -> Result<Option<ProcessEnd>> {
    let managed = match args.store {
        StoreKind::Sqlite => Box::pin(management::open_store(layout)).await?,
        StoreKind::Etcd => None,
    };
    let (config, made) = store_config(args, layout, managed.as_ref()).await?;
    let service_range = args
        .service_cluster_ip_range
        .parse::<apiserver::Cidr>()
        .context("--service-cluster-ip-range is wrong")?;
    let listener = listen(args.listen).await?;
    let browsers = dashboard::open(args).await?;
    let listening = listener.local_addr().context("cannot tell the address listened on")?;
    let advertise = names::advertised(listening, args.advertise_address);
    let vip = ClusterVip::open(args, layout, &listener, browsers.as_ref())?;
    let mut names = names::serving(args, advertise, service_range.first());
    names.addresses.extend(vip.as_ref().map(|vip| IpAddr::V4(vip.address)));
    let (pki, changes) =
        Pki::open(&layout.pki(), &names, clock::now()).context("cannot set up certificates")?;
    for change in &changes {
        info!(file = change.file, reason = ?change.reason, "certificate written");
    }
    let tls = Tls::new(&pki).context("cannot set up TLS")?;
    let tasks = Tasks::default();
    let settings = Settings {
        ca_pem: pki.ca_pem(),
        front_proxy_ca_pem: pki.front_proxy_ca_pem(),
        event_ttl: Duration::from_secs(args.event_ttl),
        audit: super::audit::config(&args.audit, Some(layout.audit_log())).await?,
        oidc: super::oidc::login(&args.oidc)?,
        bootstrap_tokens: true,
        authorization: vec![Authorization::Node, Authorization::Rbac],
        connections: args.connections.limits()?,
        owns_endpoints: managed.is_none(),
        ..Settings::new(advertise, service_range, super::version::VERSION)
    };
    let mint =
        || ServiceAccountTokens::new(ISSUER, Vec::new(), Vec::new(), pki.service_account_keys());
    let (tokens, minter) = (mint(), SecretTokenMinter(mint()));
    let (extensions, handles) = extensions::new(args.ui_dir.clone());
    let ExtensionHandles { door, rest, root_ca, management: peers, what_if, programs } = handles;
    root_ca.set(pki.ca_pem());
    let started = Api::start(config, settings, extensions, tokens, &tasks).await;
    if started.is_err() {
        encryption::give_up(made.as_deref());
    }
    let api = match (started, &managed) {
        (Err(failure), Some(_)) => return Ok(Some(managed::retry(&failure).await)),
        (started, _) => started.context("cannot start")?,
    };
    certificates::identify(&api, &pki);
    managed::open(&peers, args, layout, &api, managed.as_ref());
    let steve = in_process::client(api.clone(), identities::steve());
    let gateway = in_process::client(api.clone(), identities::gateway());
    let node_tls = nodes::GatewayTls::default();
    node_tls.renew(&pki)?;
    let own = if args.no_agent { None } else { Some(names::node(args.node_name.as_deref())?) };
    let reached = nodes::ClusterNodes {
        own: own.clone(),
        socket: layout.agent_socket(),
        client: gateway.clone(),
        tls: node_tls.clone(),
    };
    let reached = Arc::new(reached);
    let reports =
        node_report::ClusterReports { client: gateway.clone(), nodes: Arc::clone(&reached) };
    door.open(gateway, steve.clone(), reached);
    what_if.open(steve.clone());
    programs.open(ProgramStore::new(layout));
    let live = LiveSettings { client: steve, log, tls: tls.clone() };
    rest.open(live.client.clone(), &pki.ca_pem(), Arc::new(reports));
    let password = first_login(args, layout, live.client.clone()).await?;
    live.follow(&tasks);
    first_settings::apply(
        in_process::client(api.clone(), identities::controllers()),
        &args.system_settings,
    )
    .await;
    tokens::follow(&api, args.token_auth_file.clone().unwrap_or_else(|| layout.tokens()), &tasks)?;
    if let Some(backups) = store_backups(args, layout, managed.as_ref()) {
        tasks.spawn("store-backups", backups.run(tasks.stop_signal()));
    }
    let url = names::url(advertise);
    certificates::write_kubeconfig(layout, &pki, &url)?;
    let reconcilers = Tasks::default();
    let is_alone = args.store == StoreKind::Sqlite && managed.is_none();
    start_controllers(args, layout, &api, &pki, (minter, is_alone), listening, &reconcilers);
    let node_files = own.as_deref().map(|name| node_files(layout, &pki, name)).transpose()?;
    let agent_tls = NodeTls::new();
    if let (Some(node), Some(files)) = (&own, &node_files) {
        agent_tls.apply(files).context("cannot use the certificates of this node")?;
        let managed = managed.as_ref();
        start_agent(args, layout, advertise, &api, (node, files, &agent_tls, managed), &tasks)?;
    }
    let whose = (own.as_deref(), managed.as_ref());
    let end = managed::start(args, layout, advertise, &api, whose, &tasks);
    let trial = follow_programs(layout, &api, &url, own.as_deref(), &end, &tasks).await?;
    // Before the first request is answered: its sender may stop the server at once.
    let mut signals = StopSignals::listen()?;
    tasks.spawn("server", apiserver::serve(api.clone(), listener, tls.clone(), tasks.clone()));
    let serve = |listener| dashboard::serve(listener, args, api.clone(), tls.clone(), &tasks);
    let dashboard = browsers.map(serve).transpose()?;
    if let Some(vip) = vip {
        let node = own.clone().unwrap_or_else(|| names::identity(listening));
        vip.start(node, &api, &tls, &tasks);
    }
    let keeper = certificates::CertificateKeeper {
        pki,
        names,
        tls,
        layout: layout.clone(),
        url: url.clone(),
        api,
        root_ca,
        node_tls,
        agent_tls,
        node: own.zip(node_files),
    };
    tasks.spawn("certificates", keeper.run(tasks.stop_signal()));
    announce(layout, &url, dashboard.as_deref(), advertise, password.as_deref())?;
    // This thread did most of the start and has nothing more to do.
    memory::give_back();
    let end = tokio::select! {
        () = signals.received() => None,
        () = trial => None,
        end = end.requested() => Some(end),
    };
    info!("stopping");
    // Controllers end first: they give their lease back through the API.
    reconcilers.stop(SHUTDOWN_TIMEOUT / 3).await;
    tasks.stop(SHUTDOWN_TIMEOUT).await;
    Ok(end)
}

/// Follows requests for programs; the answer resolves when this process was on trial and is to end.
async fn follow_programs(
    layout: &Layout,
    api: &Api,
    url: &str,
    own: Option<&str>,
    end: &EndRequest,
    tasks: &Tasks,
) -> Result<BoxFuture<'static, ()>> {
    let Some(node) = own else { return Ok(Box::pin(std::future::pending())) };
    let follower = ProgramFollower {
        client: in_process::client(api.clone(), identities::node(node)),
        layout: layout.clone(),
        node: node.to_owned(),
        end: end.clone(),
    };
    tasks.spawn("programs", follower.run(tasks.stop_signal()));
    // Over the network, as others reach this server.
    let client = program::node_client(layout, url).await?;
    Ok(Box::pin(program::on_trial(client, node.to_owned())?))
}

/// Backups of a store that is ours to look after, unless they are switched off.
fn store_backups(
    args: &ServerArgs,
    layout: &Layout,
    managed: Option<&ManagedEtcd>,
) -> Option<StoreBackups> {
    if args.store == StoreKind::Etcd || args.store_backup_hours == 0 {
        return None;
    }
    Some(StoreBackups {
        source: managed.map_or_else(
            || BackupSource::File(layout.database()),
            |managed| BackupSource::Etcd(managed.config()),
        ),
        directory: layout.store_backups(),
        interval: Duration::from_secs(u64::from(args.store_backup_hours) * 3600),
        keep: usize::try_from(args.store_backup_keep).unwrap_or(usize::MAX),
    })
}

/// Where objects are stored and how, and a key that was made for it.
async fn store_config(
    args: &ServerArgs,
    layout: &Layout,
    managed: Option<&ManagedEtcd>,
) -> Result<(Config, Option<PathBuf>)> {
    let store = match args.store {
        StoreKind::Sqlite => EncryptedStore::Embedded,
        StoreKind::Etcd => EncryptedStore::Etcd,
    };
    let flags = &args.encryption;
    let own = flags.encryption_key_file.clone().unwrap_or_else(|| layout.encryption_keys());
    let seals = flags.encrypts_secrets(store);
    // Objects were encrypted before they were moved into etcd.
    let is_file = store == EncryptedStore::Embedded && managed.is_none();
    if seals && is_file {
        encryption::note_plain_secrets(layout, &own)?;
    }
    let chosen = encryption::choose(flags, &own, seals)?;
    let made = chosen.made();
    if seals && is_file {
        let sealing = encryption::choose(flags, &own, seals)?.sealing;
        let rewritten = encryption::encrypt_plain_secrets(layout, sealing).await;
        if rewritten.is_err() {
            encryption::give_up(made.as_deref());
        }
        rewritten?;
    }
    let mut config = match (args.store, managed) {
        (StoreKind::Sqlite, Some(managed)) => Config::etcd(managed.config()),
        (StoreKind::Sqlite, None) => Config::sqlite(layout.database()),
        (StoreKind::Etcd, _) => Config::etcd(super::store::etcd_config(&args.etcd)?),
    };
    config.sealing = Arc::new(chosen.sealing);
    Ok((config, made))
}

fn start_controllers(
    args: &ServerArgs,
    layout: &Layout,
    api: &Api,
    pki: &Pki,
    (minter, is_alone): (SecretTokenMinter, bool),
    listening: SocketAddr,
    tasks: &Tasks,
) {
    let identity = names::identity(listening);
    let user = identities::controllers();
    let leadership = if is_alone { Leadership::Sole } else { Leadership::Lease { identity } };
    let signer = Arc::new(signer::Signer { dir: layout.pki() });
    let duties = ControllerSet::Cluster { root_ca: pki.ca_pem(), minter: Arc::new(minter), signer };
    let url = names::url(names::advertised(listening, args.advertise_address));
    let uploads = Some(UploadProxy { url, ca: pki.ca_pem() });
    let config = controllers::Config { leadership, duties, uploads, loads: api.loads().clone() };
    controllers::start(in_process::client(api.clone(), user), config, tasks);
}

/// The key and the certificate of this server's own node, for its storage process.
fn node_files(layout: &Layout, pki: &Pki, node: &str) -> Result<NodeFiles> {
    let files = NodeFiles::open(&layout.pki()).context("cannot set up the key of this node")?;
    pki.issue_node(&files, node, clock::now()).context("cannot issue the node's certificate")?;
    Ok(files)
}

fn start_agent(
    args: &ServerArgs,
    layout: &Layout,
    advertise: SocketAddr,
    api: &Api,
    (node, files, tls, managed): (&str, &NodeFiles, &NodeTls, Option<&ManagedEtcd>),
    tasks: &Tasks,
) -> Result<()> {
    let node_name = node.to_owned();
    let user = identities::node(&node_name);
    // No other machine reaches a loopback address.
    let is_reachable = !advertise.ip().is_loopback();
    let storage = SocketAddr::new(advertise.ip(), args.storage_port);
    let storage = is_reachable.then(|| join::storage_wire(files, storage));
    let endpoint = SocketAddr::new(advertise.ip(), args.agent_port);
    let endpoint = is_reachable.then(|| tls.endpoint(endpoint));
    let peers = is_reachable.then(|| tls.peers());
    let (major, minor) = apiserver::KUBERNETES;
    let config = agent::Config {
        node_name,
        data_dir: layout.root.clone(),
        addresses: vec![advertise.ip()],
        version: super::version::VERSION.sheaf.to_owned(),
        kubernetes_version: format!("v{major}.{minor}.0"),
        network: names::guest_network(args, advertise),
        import_allow: args.import_allow.clone(),
        cluster_ranges: args.service_cluster_ip_range.parse().into_iter().collect(),
        has_proxy: names::has_proxy(),
        role: match managed {
            Some(_) => agent::NodeRole::ManagementPeer,
            None => agent::NodeRole::Management,
        },
        labels: args.node_labels.clone(),
        annotations: managed::annotations(managed, advertise),
        wire: NodeWire { endpoint, peers, storage },
        host_disk_paths: args.host_disk_paths.clone(),
        report: Arc::new(node_report::OwnFiles),
    };
    let client = in_process::client(api.clone(), user);
    agent::start(client, config, tasks).context("cannot start the agent")
}

/// Tokens that live in Secrets, for those who still want them.
struct SecretTokenMinter(ServiceAccountTokens);

impl controllers::TokenMinter for SecretTokenMinter {
    fn legacy_token(
        &self,
        namespace: &str,
        service_account: &str,
        service_account_uid: &str,
        secret: &str,
    ) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        let account = ObjectRef::new(service_account, service_account_uid);
        Ok(self.0.issue_legacy(namespace, &account, secret))
    }
}

/// Creates the user `admin` at the first start. The password is returned, and written to a file
/// that only the owner of the data directory reads.
async fn first_login(
    args: &ServerArgs,
    layout: &Layout,
    client: kube::Client,
) -> Result<Option<String>> {
    let users = steve::Users::new(client);
    let made = users.bootstrap(args.admin_password.as_deref()).await;
    let made = made.context("cannot create the user admin")?;
    if let Some(password) = &made {
        let path = layout.admin_password();
        auth::kubeconfig::write_kubeconfig(&path, &format!("{password}\n"))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(made)
}

/// Prints the information that a person needs now, to standard output.
fn announce(
    layout: &Layout,
    url: &str,
    dashboard: Option<&str>,
    advertise: SocketAddr,
    password: Option<&str>,
) -> Result<()> {
    info!(%advertise, dashboard, "serving");
    let kubeconfig = layout.admin_kubeconfig();
    let kubeconfig = kubeconfig.display();
    let dashboard = dashboard.map_or_else(String::new, |url| format!("  dashboard   {url}\n"));
    let login = password.map_or_else(String::new, |password| {
        format!("  login       admin, password {password} (change it: sheaf user passwd admin)\n")
    });
    super::print(&format!(
        "\nSheaf is running.\n\n{dashboard}  URL         {url}\n  kubeconfig  {kubeconfig}\n{login}\n\
         Try next, in another terminal:\n  \
         export KUBECONFIG={kubeconfig}\n  \
         kubectl get nodes,storageclasses\n  \
         sheaf vm create web --image FILE|URL --ssh-key ~/.ssh/id_ed25519.pub\n  \
         sheaf vm console web\n\n\
         Stop with Ctrl-C.\n\n"
    ))
}

/// SIGTERM and Ctrl-C. From [`StopSignals::listen`] on they end nothing by themselves.
pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub(super) fn listen() -> Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot wait for Ctrl-C")?,
        })
    }

    /// Waits for the first, those that came since `listen` included.
    pub(super) async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_waited_for() {
        let old = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = old.local_addr().unwrap();
        let refused = listen_within(address, Duration::ZERO).await.unwrap_err();
        assert!(format!("{refused:#}").contains("another process has this port"), "{refused:#}");
        let waiting = tokio::spawn(listen_within(address, Duration::from_secs(60)));
        tokio::task::yield_now().await;
        drop(old);
        assert_eq!(waiting.await.unwrap().unwrap().local_addr().unwrap(), address);
    }
}
