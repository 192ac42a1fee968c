//! The stages of a start once the API answers requests from this process: what follows the server's
//! own records, the parts of the API that are clients of it, the controllers, the agent.

use std::net::SocketAddr;
use std::sync::Arc;

use agent::NodeWire;
use anyhow::{Context as _, Result};
use apiserver::Api;
use auth::User;
use auth::pki::tls::Tls;
use auth::pki::token_keys::TokenKeys;
use auth::pki::{NodeFiles, Pki};
use auth::token::rotation::KeyLifetime;
use base::{Tasks, clock};
use controllers::{
    AlarmSender, ControllerClients, ControllerGroup, ControllerSet, Leadership, UploadProxy,
};
use futures_util::future::BoxFuture;
use gateway::Gateway;
use kube::Client;

use super::extensions::ExtensionHandles;
use super::live_settings::LiveSettings;
use super::token_keys::{SecretTokenMinter, TokenKeyRotation};
use super::{
    announce, first_settings, identities, managed, names, node_report, nodes, revocations, signer,
    tokens,
};
use crate::cli::{ServerArgs, StoreKind};
use crate::command::alarm_webhook::AlarmWebhooks;
use crate::command::join;
use crate::command::management::{EndRequest, ManagedEtcd};
use crate::command::node_tls::NodeTls;
use crate::command::oidc;
use crate::command::program::{self, ProgramFollower, ProgramStore};
use crate::data_dir::Layout;
use crate::in_process;
use crate::logging::LogLevel;

/// A server that is starting: what all stages need.
pub(super) struct StartingServer<'a> {
    pub(super) args: &'a ServerArgs,
    pub(super) layout: &'a Layout,
    pub(super) api: Api,
    pub(super) managed: Option<ManagedEtcd>,
    /// The name of its node, if it has an agent.
    pub(super) own: Option<String>,
    pub(super) listening: SocketAddr,
    pub(super) advertise: SocketAddr,
    pub(super) url: String,
    pub(super) end: EndRequest,
    pub(super) tasks: Tasks,
}

impl StartingServer<'_> {
    pub(super) fn client(&self, user: User) -> Client {
        in_process::client(self.api.clone(), user)
    }

    /// Revoked certificates and keys of tokens, before the first request from outside.
    pub(super) async fn follow_own_records(&self, keys: TokenKeys) -> Result<()> {
        let client = self.client(identities::api_server());
        revocations::follow(&self.api, client.clone(), &self.tasks);
        let lifetime = KeyLifetime::new(self.args.token_key_lifetime);
        let mut rotation = TokenKeyRotation { api: self.api.clone(), client, keys, lifetime };
        rotation.begin().await?;
        self.tasks.spawn("token keys", rotation.run(self.tasks.stop_signal()));
        Ok(())
    }

    /// Opens the parts of the API that reach nodes and other servers.
    pub(super) fn open_extensions(
        &self,
        handles: ExtensionHandles,
        pki: &Pki,
    ) -> Result<nodes::GatewayTls> {
        let ExtensionHandles { gateway, rest, root_ca: _, management, what_if, programs } = handles;
        managed::open(&management, self);
        let client = self.client(identities::gateway());
        let tls = nodes::GatewayTls::default();
        tls.renew(pki)?;
        let reached = Arc::new(nodes::ClusterNodes {
            own: self.own.clone(),
            socket: self.layout.agent_socket(),
            client: client.clone(),
            tls: tls.clone(),
        });
        let reports =
            node_report::ClusterReports { client: client.clone(), nodes: Arc::clone(&reached) };
        let steve = self.client(identities::steve());
        let streams = self.args.connections.max_streams_per_user;
        gateway.open(Gateway::new(client, steve.clone(), reached).with_streams_per_user(streams));
        what_if.open(steve.clone());
        programs.open(ProgramStore::new(self.layout));
        let oidc = oidc::provider(&self.args.oidc, &self.args.oidc_login)?;
        rest.open(steve, &pki.ca_pem(), Arc::new(reports), oidc);
        Ok(tls)
    }

    /// The first user, settings and static tokens; answers with the password that was made.
    pub(super) async fn apply_settings(&self, log: LogLevel, tls: &Tls) -> Result<Option<String>> {
        let client = self.client(identities::steve());
        let password = announce::first_login(self.args, self.layout, client.clone()).await?;
        LiveSettings { client, log, tls: tls.clone() }.follow(&self.tasks);
        let controllers = self.client(identities::controllers());
        first_settings::apply(controllers, &self.args.system_settings).await;
        let file = self.args.token_auth_file.clone();
        tokens::follow(&self.api, file.unwrap_or_else(|| self.layout.tokens()), &self.tasks)?;
        Ok(password)
    }

    /// Starts the controllers, which end before the rest does.
    pub(super) fn start_controllers(&self, pki: &Pki) -> Tasks {
        let tasks = Tasks::default();
        let is_alone = self.args.store == StoreKind::Sqlite && self.managed.is_none();
        let identity = names::identity(self.listening);
        let leadership = if is_alone { Leadership::Sole } else { Leadership::Lease { identity } };
        let signer = Arc::new(signer::Signer { dir: self.layout.pki() });
        let minter = Arc::new(SecretTokenMinter(self.api.clone()));
        let duties = ControllerSet::Cluster { root_ca: pki.ca_pem(), minter, signer };
        let uploads = Some(UploadProxy { url: self.url.clone(), ca: pki.ca_pem() });
        let clients = ControllerClients::new(|group| self.client(identities::controller(group)));
        let webhooks = AlarmWebhooks::new(clients.of(ControllerGroup::Alarms));
        let alarm_sender: Option<Arc<dyn AlarmSender>> = Some(Arc::new(webhooks));
        let loads = self.api.loads().clone();
        let config = controllers::Config { leadership, duties, uploads, alarm_sender, loads };
        controllers::start(clients, config, &tasks);
        tasks
    }

    /// Starts the agent of this server's own node, with the node's key and certificate.
    pub(super) fn start_agent(&self, pki: &Pki, tls: &NodeTls) -> Result<Option<NodeFiles>> {
        let Some(node) = &self.own else { return Ok(None) };
        let files = NodeFiles::open(&self.layout.pki());
        let files = files.context("cannot set up the key of this node")?;
        pki.issue_node(&files, node, clock::now())
            .context("cannot issue the node's certificate")?;
        tls.apply(&files).context("cannot use the certificates of this node")?;
        let client = self.client(identities::node(node));
        agent::start(client, self.agent_config(node, &files, tls), &self.tasks)
            .context("cannot start the agent")?;
        Ok(Some(files))
    }

    fn agent_config(&self, node: &str, files: &NodeFiles, tls: &NodeTls) -> agent::Config {
        let (args, address) = (self.args, self.advertise.ip());
        // No other machine reaches a loopback address.
        let is_reachable = !address.is_loopback();
        let at = |port| SocketAddr::new(address, port);
        let (major, minor) = apiserver::KUBERNETES;
        agent::Config {
            node_name: node.to_owned(),
            data_dir: self.layout.root.clone(),
            addresses: vec![address],
            version: crate::command::version::VERSION.sheaf.to_owned(),
            kubernetes_version: format!("v{major}.{minor}.0"),
            network: names::guest_network(args, self.advertise),
            import_allow: args.import_allow.clone(),
            cluster_ranges: args.service_cluster_ip_range.parse().into_iter().collect(),
            has_proxy: names::has_proxy(),
            role: match self.managed {
                Some(_) => agent::NodeRole::ManagementPeer,
                None => agent::NodeRole::Management,
            },
            labels: args.node_labels.clone(),
            annotations: managed::annotations(self.managed.as_ref(), self.advertise),
            wire: NodeWire {
                endpoint: is_reachable.then(|| tls.endpoint(at(args.agent_port))),
                peers: is_reachable.then(|| tls.peers()),
                storage: is_reachable.then(|| join::storage_wire(files, at(args.storage_port))),
            },
            host_disk_paths: args.host_disk_paths.clone(),
            max_image_size: args.max_image_size,
            report: Arc::new(node_report::OwnFiles),
        }
    }

    /// Follows requests for programs; the answer resolves when this process was on trial and is to
    /// end.
    pub(super) async fn follow_programs(&self) -> Result<BoxFuture<'static, ()>> {
        let Some(node) = &self.own else { return Ok(Box::pin(std::future::pending())) };
        let follower = ProgramFollower {
            client: self.client(identities::node(node)),
            layout: self.layout.clone(),
            node: node.clone(),
            end: self.end.clone(),
        };
        self.tasks.spawn("programs", follower.run(self.tasks.stop_signal()));
        // Over the network, as others reach this server.
        let client = program::node_client(self.layout, &self.url).await?;
        Ok(Box::pin(program::on_trial(client, node.clone())?))
    }
}
