//! `sheaf server --join`: a node of another server's cluster. It runs the agent and the storage
//! process and nothing of the control plane, as a client with the rights of one node. One that
//! joined as a management node does so until it votes in etcd; then it is a server. A witness votes
//! and runs nothing (`witness`).

mod cluster_ca;
pub(super) mod connection;
mod enroll;
mod membership;
mod plan;
mod renewal;
mod servers;
pub(super) mod witness;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use agent::{GuestNetwork, NodeWire, StorageWire};
use anyhow::{Context as _, Result, bail};
use auth::kubeconfig::Credential;
use auth::pki::{NodeCertificate, NodeFiles};
use auth::token::join::JoinToken;
use base::Tasks;
use tokio::sync::watch;
use tracing::info;

pub(super) use self::membership::Membership;
use self::renewal::CertificateRenewal;
use self::servers::ServerFollower;
use super::management::candidate::Candidate;
use super::management::{self, EndRequest, MemberJoin, ProcessEnd, RoleFollower};
use super::node_tls::NodeTls;
use super::program::{self, ProgramFollower};
use super::server::{SHUTDOWN_TIMEOUT, StopSignals, in_runtime, names, node_report};
use crate::cli::{NodeRole, ServerArgs};
use crate::data_dir::Layout;
use crate::{logging, memory};

/// Whether this data directory is that of a node of another server's cluster, or is to be.
pub(super) fn is_asked_for(args: &ServerArgs) -> Result<bool> {
    let layout = Layout::new(args.data.data_dir.as_deref())?;
    let is_joining = args.join.is_some() || layout.membership().exists();
    Ok(is_joining && !management::is_server(&layout)?)
}

pub(super) fn run(args: &ServerArgs) -> Result<()> {
    logging::start(args.log_format, &args.log_level)?;
    let layout = Layout::new(args.data.data_dir.as_deref())?;
    super::program::hand_over(&layout)?;
    if layout.database().exists() {
        bail!(
            "the data directory {} has a cluster of its own: choose another --data-dir to join \
             another cluster; nothing was changed",
            layout.root.display()
        );
    }
    let token = args.token.as_deref().map(JoinToken::parse).transpose()?;
    if let Some(role) = args.role {
        check_role(role, token.as_ref())?;
    } else if token.as_ref().is_some_and(|token| token.role == NodeRole::Witness.word()) {
        bail!("the token is for a witness: run `sheaf witness` with it instead of `sheaf server`");
    }
    let lock = layout.take()?;
    let end = in_runtime(serve(args, &layout, token))?;
    drop(lock);
    match end {
        Some(ProcessEnd::Upgrade) => super::program::begin_trial(&layout),
        Some(ProcessEnd::Demoted) => management::demote_and_restart(&layout),
        Some(ProcessEnd::Promoted) => management::promote_and_restart(&layout),
        Some(_) => management::restart(),
        None => Ok(()),
    }
}

/// Fails if a token is for another role.
fn check_role(role: NodeRole, token: Option<&JoinToken>) -> Result<()> {
    match token.filter(|token| token.role != role.word()) {
        None => Ok(()),
        Some(token) => bail!(
            "the token is for a {} node, not for --role {}: create another with `sheaf token \
             create --role {}`",
            token.role,
            role.word(),
            role.word()
        ),
    }
}

async fn serve(
    args: &ServerArgs,
    layout: &Layout,
    token: Option<JoinToken>,
) -> Result<Option<ProcessEnd>> {
    let known = Membership::load(layout)?;
    let given = (args.join.as_deref(), args.node_name.as_deref());
    let membership = membership(layout, known, given, token.as_ref()).await?;
    work(args, layout, membership).await
}

/// The cluster that this directory belongs to; joined if it belongs to none. `join` is a URL of it,
/// and `name` that of the node, if they were given.
async fn membership(
    layout: &Layout,
    known: Option<Membership>,
    (join, name): (Option<&str>, Option<&str>),
    token: Option<&JoinToken>,
) -> Result<Membership> {
    let mut urls: Vec<String> =
        join.iter().map(|url| url.trim_end_matches('/').to_owned()).collect();
    let mut add = |more: &[String]| {
        let fresh = more.iter().filter(|url| Some(url.as_str()) != join).cloned();
        urls.extend(fresh);
    };
    match (known, token) {
        (Some(known), token) => {
            known.check(&layout.root, name, token.map(|token| token.ca.as_str()))?;
            add(&known.urls);
            Ok(Membership { urls, ..known })
        }
        (None, None) => bail!(
            "this machine has not joined yet: --token is needed; create one with `sheaf token \
             create` on the management node"
        ),
        (None, Some(token)) => {
            add(&token.urls);
            enroll::join(layout, token, urls, &names::node(name)?).await
        }
    }
}

/// The life of a node that has joined. It needs no server to begin: guests are managed at
/// once, and the rest follows when a server answers.
async fn work(
    args: &ServerArgs,
    layout: &Layout,
    membership: Membership,
) -> Result<Option<ProcessEnd>> {
    let files = NodeFiles::open(&layout.pki()).context("cannot open the key of this node")?;
    let ca = files.ca_pem()?.context("the cluster's CA is missing from the data directory")?;
    let own = files.identity(NodeCertificate::Client)?;
    let own = own.context("the certificate of this node is missing from the data directory")?;
    let address = match args.advertise_address {
        Some(address) => address,
        None => address_towards(&membership.urls)?,
    };
    let pool = connection::pool(&membership.urls, &ca, Credential::Certificate(&own)).await?;
    let tls = NodeTls::new();
    let wire = NodeWire {
        endpoint: Some(tls.endpoint(SocketAddr::new(address, args.agent_port))),
        peers: Some(tls.peers()),
        storage: Some(storage_wire(&files, SocketAddr::new(address, args.storage_port))),
    };
    let Membership { node, role, cluster, .. } = membership.clone();
    let urls = watch::Sender::new(membership.urls.clone());
    let renewal = CertificateRenewal {
        files,
        wanted: &[NodeCertificate::Client, NodeCertificate::Serving],
        node: node.clone(),
        urls: urls.clone(),
        pool: pool.clone(),
        tls,
    };
    renewal.apply().await.context("cannot use the certificates of this node")?;
    let tasks = Tasks::default();
    let mut signals = StopSignals::listen()?;
    agent::start(
        pool.client(),
        agent_config(args, layout, &node, address, wire, &membership.urls),
        &tasks,
    )
    .context("cannot start the agent")?;
    let renewal = Arc::new(renewal);
    let servers = ServerFollower {
        client: pool.client(),
        layout: layout.clone(),
        membership,
        urls,
        renewal: Arc::clone(&renewal),
    };
    tasks.spawn("certificates", renewal.run(tasks.stop_signal()));
    tasks.spawn("servers", servers.run(tasks.stop_signal()));
    let end = EndRequest::new();
    let follower = ProgramFollower {
        client: pool.client(),
        layout: layout.clone(),
        node: node.clone(),
        end: end.clone(),
    };
    tasks.spawn("programs", follower.run(tasks.stop_signal()));
    let (client, node) = (pool.client(), node.clone());
    let follower =
        RoleFollower { client, node: node.clone(), role: role.clone(), end: end.clone() };
    tasks.spawn("role", follower.run(tasks.stop_signal()));
    if role == NodeRole::Management.word() {
        let member = MemberJoin {
            client: pool.client(),
            layout: layout.clone(),
            node: node.clone(),
            address,
        };
        let candidate = Candidate { member, args: args.clone(), pin: cluster, end: end.clone() };
        tasks.spawn("candidate", candidate.run(tasks.stop_signal()));
    }
    info!(node, %address, role, "serving as a worker");
    super::print(&format!(
        "\nSheaf is running: this machine is the node {node} of a cluster.\n\n\
         On the management node:\n  kubectl get nodes\n  sheaf node list\n\n\
         Stop with Ctrl-C; machines go on running.\n\n"
    ))?;
    memory::give_back();
    let trial = program::on_trial(pool.client(), node)?;
    let end = tokio::select! {
        () = signals.received() => None,
        () = trial => None,
        end = end.requested() => Some(end),
    };
    info!("stopping");
    tasks.stop(SHUTDOWN_TIMEOUT).await;
    Ok(end)
}

/// Where the storage process of a node listens, with the node's certificate.
pub(super) fn storage_wire(files: &NodeFiles, address: SocketAddr) -> StorageWire {
    StorageWire {
        address,
        ca: files.ca_file(),
        certificate: files.certificate_file(NodeCertificate::Client),
        key: files.key_file(),
    }
}

fn agent_config(
    args: &ServerArgs,
    layout: &Layout,
    node: &str,
    address: IpAddr,
    wire: NodeWire,
    urls: &[String],
) -> agent::Config {
    let (major, minor) = apiserver::KUBERNETES;
    agent::Config {
        node_name: node.to_owned(),
        data_dir: layout.root.clone(),
        addresses: vec![address],
        version: super::version::VERSION.sheaf.to_owned(),
        kubernetes_version: format!("v{major}.{minor}.0"),
        network: match args.guest_network {
            GuestNetwork::User => agent::Network::User,
            GuestNetwork::Nat(cidr) => agent::Network::Nat {
                bridge: args.guest_bridge.clone(),
                cidr,
                host_tcp: api_ports(urls),
            },
        },
        import_allow: args.import_allow.clone(),
        cluster_ranges: args.service_cluster_ip_range.parse().into_iter().collect(),
        has_proxy: names::has_proxy(),
        role: agent::NodeRole::Worker,
        labels: args.node_labels.clone(),
        annotations: Vec::new(),
        wire,
        host_disk_paths: args.host_disk_paths.clone(),
        max_image_size: args.max_image_size,
        report: Arc::new(node_report::OwnFiles),
    }
}

/// The ports of the API, which guests may reach on every node.
fn api_ports(urls: &[String]) -> BTreeSet<u16> {
    let uris = urls.iter().filter_map(|url| url.parse::<http::Uri>().ok());
    uris.map(|uri| uri.port_u16().unwrap_or(443)).collect()
}

/// The address of this machine on the way to the first server that has one.
fn address_towards(urls: &[String]) -> Result<IpAddr> {
    let towards = |url: &String| -> Option<IpAddr> {
        let uri: http::Uri = url.parse().ok()?;
        let host = uri.host()?.trim_matches(['[', ']']).to_owned();
        let ip = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6());
        let any = if ip { "[::]:0" } else { "0.0.0.0:0" };
        // Nothing is sent: connecting chooses the address.
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect((host.as_str(), uri.port_u16().unwrap_or(443))).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    let found = urls.iter().find_map(towards);
    found.context("cannot determine the address of this machine; use --advertise-address")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_address_is_that_on_the_way_to_the_server() {
        let urls = ["nonsense".to_owned(), "https://127.0.0.1:6443".to_owned()];
        assert_eq!(address_towards(&urls).unwrap().to_string(), "127.0.0.1");
        assert!(address_towards(&[]).is_err());
    }

    #[test]
    fn guests_reach_the_ports_of_the_api() {
        let urls = ["nonsense", "https://10.0.0.1:6443", "https://api.example.org"];
        assert_eq!(api_ports(&urls.map(str::to_owned)), BTreeSet::from([443, 6443]));
    }
}
