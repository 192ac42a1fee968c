//! `sheaf witness`: a node that votes in etcd and does nothing else. It has a Node and a lease like
//! any other, and no guests, no storage and no API server.
//!
//! ```text
//!   token ─► node.crt ─► certificate of etcd ─► learner ─► voter ─► etcd is kept running
//! ```
//!
//! A witness that has joined needs no API server to start: without its vote there may be none.

mod certificate;

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use auth::kubeconfig::Credential;
use auth::pki::{NodeCertificate, NodeFiles};
use auth::token::join::JoinToken;
use base::{Stop, Tasks};
use client::ServerPool;
use quorum::{EtcdRecord, find_etcd};
use tokio::sync::watch;
use tracing::info;

use self::certificate::WitnessCertificate;
pub(in crate::command) use self::certificate::{CERTIFICATE_PATH, MemberRequest, SignedMember};
use super::super::management::{
    self, EndRequest, EtcdSupervisor, MemberJoin, PeerFollower, ProcessEnd,
};
use super::super::node_tls::NodeTls;
use super::super::program::{self, ProgramFollower};
use super::super::server::{SHUTDOWN_TIMEOUT, StopSignals, in_runtime, names, node_report};
use super::renewal::CertificateRenewal;
use super::servers::ServerFollower;
use super::{Membership, address_towards, connection, membership};
use crate::cli::{NodeRole, ServerArgs, WitnessArgs};
use crate::data_dir::Layout;
use crate::{logging, memory};

/// Whether `sheaf server` is to be a witness: its directory is that of one, or its role is.
pub(in crate::command) fn is_asked_for(args: &ServerArgs) -> Result<bool> {
    let layout = Layout::new(args.data.data_dir.as_deref())?;
    Ok(match Membership::load(&layout)? {
        Some(known) => known.is_witness(),
        None => args.join.is_some() && args.role == Some(NodeRole::Witness),
    })
}

pub(in crate::command) fn run(args: &WitnessArgs) -> Result<()> {
    logging::start(args.log_format, &args.log_level)?;
    let layout = Layout::new(args.data.data_dir.as_deref())?;
    program::hand_over(&layout)?;
    let known = Membership::load(&layout)?;
    let is_other = known.as_ref().is_some_and(|known| !known.is_witness());
    if layout.database().exists() || is_other {
        bail!(
            "the data directory {} is that of another node: choose another --data-dir for the \
             witness; nothing was changed",
            layout.root.display()
        );
    }
    let token = args.token.as_deref().map(JoinToken::parse).transpose()?;
    super::check_role(NodeRole::Witness, token.as_ref())?;
    let version = find_etcd().context("a witness needs etcd; nothing was changed")?;
    management::warn_if_outdated(version);
    let lock = layout.take()?;
    let end = in_runtime(serve(args, &layout, known, token))?;
    drop(lock);
    match end {
        None => Ok(()),
        Some(ProcessEnd::Upgrade) => program::begin_trial(&layout),
        Some(ProcessEnd::Restart) => management::restart(),
        Some(ProcessEnd::StandBy) => management::stand_by_and_restart(&layout),
        Some(ProcessEnd::Removed | ProcessEnd::Demoted | ProcessEnd::Promoted) => bail!(
            "this witness was removed from the cluster; to let it in again, remove its data \
             directory and create a token: sheaf token create --role witness"
        ),
    }
}

async fn serve(
    args: &WitnessArgs,
    layout: &Layout,
    known: Option<Membership>,
    token: Option<JoinToken>,
) -> Result<Option<ProcessEnd>> {
    let (join, name) = (args.join.as_deref(), args.node_name.as_deref());
    let membership = membership(layout, known, (join, name), token.as_ref()).await?;
    let files = NodeFiles::open(&layout.pki()).context("cannot open the key of this node")?;
    let ca = files.ca_pem()?.context("the cluster's CA is missing from the data directory")?;
    let own = files.identity(NodeCertificate::Client)?;
    let own = own.context("the certificate of this node is missing from the data directory")?;
    // The address of a member does not change by itself.
    let address = match (management::record(layout)?, args.advertise_address) {
        (Some(record), _) => record.address,
        (None, Some(address)) => address,
        (None, None) => address_towards(&membership.urls)?,
    };
    let pool = connection::pool(&membership.urls, &ca, Credential::Certificate(&own)).await?;
    let tasks = Tasks::default();
    let mut signals = StopSignals::listen()?;
    let node = membership.node.clone();
    follow_cluster(layout, membership, files, &pool, &tasks).await?;
    agent::start_witness(pool.client(), agent_config(args, layout, &node, address), &tasks);
    let end = EndRequest::new();
    let follower = ProgramFollower {
        client: pool.client(),
        layout: layout.clone(),
        node: node.clone(),
        end: end.clone(),
    };
    tasks.spawn("programs", follower.run(tasks.stop_signal()));
    let member = WitnessMember {
        join: MemberJoin {
            client: pool.client(),
            layout: layout.clone(),
            node: node.clone(),
            address,
        },
        certificate: WitnessCertificate { client: pool.client(), layout: layout.clone(), address },
        end: end.clone(),
    };
    tasks.spawn("etcd member", member.run(tasks.stop_signal()));
    info!(node, %address, "serving as a witness");
    super::super::print(&format!(
        "\nSheaf is running: this machine is the witness {node} of a cluster.\n\n\
         On a management node:\n  sheaf node list\n  sheaf cluster status\n\n\
         Stop with Ctrl-C; etcd goes on running.\n\n"
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

/// Keeps the certificate of the node good, and follows the API servers and the members of etcd.
async fn follow_cluster(
    layout: &Layout,
    membership: Membership,
    files: NodeFiles,
    pool: &ServerPool,
    tasks: &Tasks,
) -> Result<()> {
    let node = membership.node.clone();
    let urls = watch::Sender::new(membership.urls.clone());
    let renewal = CertificateRenewal {
        files,
        // A witness has no endpoint that others connect to.
        wanted: &[NodeCertificate::Client],
        node: node.clone(),
        urls: urls.clone(),
        pool: pool.clone(),
        tls: NodeTls::new(),
    };
    renewal.apply().await.context("cannot use the certificate of this node")?;
    let renewal = Arc::new(renewal);
    let servers = ServerFollower {
        client: pool.client(),
        layout: layout.clone(),
        membership,
        urls,
        renewal: Arc::clone(&renewal),
    };
    let peers = PeerFollower { client: pool.client(), layout: layout.clone(), node };
    tasks.spawn("certificates", renewal.run(tasks.stop_signal()));
    tasks.spawn("servers", servers.run(tasks.stop_signal()));
    tasks.spawn("peers", peers.run(tasks.stop_signal()));
    Ok(())
}

/// The member of etcd of a witness, from its certificate to its removal.
struct WitnessMember {
    join: MemberJoin,
    certificate: WitnessCertificate,
    end: EndRequest,
}

impl WitnessMember {
    async fn run(self, mut stop: Stop) {
        tokio::select! {
            () = self.vote() => {}
            () = stop.requested() => {}
        }
    }

    async fn vote(&self) {
        let layout = &self.join.layout;
        // One that votes is started at once: the API may wait for its vote.
        if !management::is_server(layout).unwrap_or(false) {
            self.join.resume();
            self.certificate.until_good().await;
            self.join.until_voter().await;
        }
        tokio::join!(self.keep_running(), self.certificate.keep_good());
    }

    /// Returns only when this node is not a member any more.
    async fn keep_running(&self) {
        let layout = &self.join.layout;
        let process = management::record(layout)
            .and_then(|record| record.context("etcd.json is missing"))
            .and_then(|record: EtcdRecord| management::etcd_process(layout, &record));
        match process {
            Ok(process) => {
                let (layout, end) = (layout.clone(), self.end.clone());
                EtcdSupervisor { layout, process, end }.keep_running().await;
            }
            Err(failure) => {
                tracing::error!(error = %base::Chain(&*failure), "cannot run etcd");
            }
        }
    }
}

fn agent_config(args: &WitnessArgs, layout: &Layout, node: &str, address: IpAddr) -> agent::Config {
    let (major, minor) = apiserver::KUBERNETES;
    agent::Config {
        node_name: node.to_owned(),
        data_dir: layout.root.clone(),
        addresses: vec![address],
        version: super::super::version::VERSION.sheaf.to_owned(),
        kubernetes_version: format!("v{major}.{minor}.0"),
        network: agent::Network::User,
        import_allow: Vec::new(),
        cluster_ranges: Vec::new(),
        has_proxy: names::has_proxy(),
        role: agent::NodeRole::Witness,
        labels: args.node_labels.clone(),
        annotations: Vec::new(),
        wire: agent::NodeWire::default(),
        host_disk_paths: Vec::new(),
        max_image_size: 0,
        report: Arc::new(node_report::OwnFiles),
    }
}
