//! `sheaf server`: one node, from its first file to its last request. `serve` has the stages of a start
//! in their order.

mod announce;
mod certificates;
mod dashboard;
mod extensions;
mod first_settings;
mod flags;
mod identities;
mod listen;
mod live_settings;
mod managed;
mod map_feed;
pub(super) mod names;
pub(super) mod node_report;
mod nodes;
mod revocations;
mod signals;
mod signer;
mod stages;
mod store_backups;
mod store_config;
mod token_keys;
pub(super) mod tokens;
pub(super) mod vip;

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use apiserver::{Api, Authorization, Cidr, Settings};
use auth::pki::tls::Tls;
use auth::pki::token_keys::TokenKeys;
use auth::pki::{Pki, ServingNames};
use auth::token::rotation::LONGEST_TOKEN;
use base::{Tasks, clock};
use tracing::info;

use super::management::{self, EndRequest, ProcessEnd};
use super::node_tls::NodeTls;
use super::{encryption, join};
use crate::cli::{ServerArgs, StoreKind};
use crate::data_dir::Layout;
use crate::logging::LogLevel;
use crate::{logging, memory};
use certificates::CertificateRenewal;
pub(super) use extensions::{PROGRAMS_PATH, UPLOADS_PATH};
use listen::Sockets;
pub(super) use listen::listen;
pub(super) use signals::StopSignals;
use stages::StartingServer;

/// The issuer of service-account tokens, by upstream's default name.
pub(super) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// How long everything but the controllers may take to end after a signal.
pub(super) const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(1200);
/// How long the controllers may take before: longer than their own limits for the end of their work
/// and for giving their lease back, and shorter than systemd waits (`TimeoutStopSec`).
pub(super) const CONTROLLERS_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn run(args: &ServerArgs) -> Result<()> {
    flags::check(args)?;
    if join::witness::is_asked_for(args)? {
        return join::witness::run(&args.into());
    }
    if join::is_asked_for(args)? {
        return join::run(args);
    }
    let layout = Layout::new(args.data.data_dir.as_deref())?;
    super::program::hand_over(&layout)?;
    let is_server = management::is_server(&layout)?;
    if (args.role.is_some() || args.token.is_some()) && !is_server {
        bail!("--role and --token are for nodes that join: --join URL is missing");
    }
    let log = logging::start(args.log_format, &args.log_level)?;
    let lock = layout.take()?;
    let args = if is_server { managed::effective(args, &layout)? } else { args.clone() };
    let end = in_runtime(serve(&args, &layout, log))?;
    drop(lock);
    managed::finish(end, &layout)
}

/// Runs a service to its end.
pub(super) fn in_runtime<T>(service: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("sheaf")
        // The interval at which new requests are polled under load: at the default of 61 tasks, a
        // client with few requests would wait for dozens of those that flood.
        .event_interval(8)
        .on_thread_park(memory::before_sleep)
        .build()
        .context("cannot start the runtime")?;
    runtime.spawn(memory::limit_resident());
    let outcome = runtime.block_on(service);
    runtime.shutdown_timeout(Duration::from_millis(200));
    outcome
}

async fn serve(args: &ServerArgs, layout: &Layout, log: LogLevel) -> Result<Option<ProcessEnd>> {
    // Errors in flags and their files are found before anything is made.
    let audit = super::audit::config(&args.audit, Some(layout.audit_log())).await?;
    let managed = match args.store {
        StoreKind::Sqlite => Box::pin(management::open_store(layout)).await?,
        StoreKind::Etcd => None,
    };
    let service_range = args.service_cluster_ip_range.parse::<Cidr>();
    let service_range = service_range.context("--service-cluster-ip-range is wrong")?;
    let (sockets, names) = Sockets::open(args, layout, service_range).await?;
    let (config, made) = store_config::store_config(args, layout, managed.as_ref()).await?;
    let (pki, tls) = open_certificates(layout, &names)?;
    let tasks = Tasks::default();
    let settings = Settings {
        owns_endpoints: managed.is_none(),
        audit,
        ..api_settings(args, &pki, &sockets, service_range)?
    };
    let keys = TokenKeys::open(&layout.pki()).context("cannot use the token keys")?;
    let (extensions, handles) = extensions::new(args.ui_dir.clone());
    let root_ca = handles.root_ca.clone();
    root_ca.set(pki.ca_pem());
    let started = Api::start(config, settings, extensions, token_keys::tokens(&keys), &tasks).await;
    if started.is_err() {
        encryption::give_up(made.as_deref());
    }
    let api = match (started, &managed) {
        (Err(failure), Some(_)) => return Ok(Some(managed::retry(&failure).await)),
        (started, _) => started.context("cannot start")?,
    };
    certificates::identify(&api, &pki);
    let Sockets { api: listener, browsers, vip, listening, advertise } = sockets;
    let server = StartingServer {
        args,
        layout,
        api: api.clone(),
        managed,
        own: if args.no_agent { None } else { Some(names::node(args.node_name.as_deref())?) },
        listening,
        advertise,
        url: names::url(advertise),
        end: EndRequest::new(),
        tasks: tasks.clone(),
    };
    Box::pin(server.follow_own_records(keys)).await?;
    let gateway_tls = server.open_extensions(handles, &pki)?;
    let password = server.apply_settings(log, &tls).await?;
    if let Some(backups) = store_config::store_backups(args, layout, server.managed.as_ref()) {
        tasks.spawn("store-backups", backups.run(tasks.stop_signal()));
    }
    certificates::write_kubeconfig(layout, &pki, &server.url)?;
    let reconcilers = server.start_controllers(&pki);
    let agent_tls = NodeTls::new();
    let node_files = server.start_agent(&pki, &agent_tls)?;
    managed::start(&server);
    let trial = server.follow_programs().await?;
    // Before the first request is answered: its sender may stop the server at once.
    let mut signals = StopSignals::listen()?;
    tasks.spawn("server", apiserver::serve(api.clone(), listener, tls.clone(), tasks.clone()));
    let serve = |listener| dashboard::serve(listener, args, api.clone(), tls.clone(), &tasks);
    let dashboard = browsers.map(serve).transpose()?;
    if let Some(vip) = vip {
        let node = server.own.clone().unwrap_or_else(|| names::identity(listening));
        vip.start(node, &api, &tls, &tasks);
    }
    let StartingServer { own, url, end, .. } = server;
    announce::announce(layout, &url, dashboard.as_deref(), advertise, password.as_deref())?;
    let layout = layout.clone();
    let node = own.zip(node_files);
    let renewal = CertificateRenewal {
        pki,
        names,
        tls,
        layout,
        url,
        api,
        root_ca,
        gateway_tls,
        agent_tls,
        node,
    };
    tasks.spawn("certificates", renewal.run(tasks.stop_signal()));
    // This thread did most of the start and has nothing more to do.
    memory::give_back();
    let end = tokio::select! {
        () = signals.received() => None,
        () = trial => None,
        end = end.requested() => Some(end),
    };
    info!("stopping");
    // Controllers end first: they give their lease back through the API, so that others need not
    // wait until it expires.
    reconcilers.stop(CONTROLLERS_TIMEOUT).await;
    tasks.stop(SHUTDOWN_TIMEOUT).await;
    Ok(end)
}

/// The certificates of this server, made or renewed where they have to be.
fn open_certificates(layout: &Layout, names: &ServingNames) -> Result<(Pki, Tls)> {
    let opened = Pki::open(&layout.pki(), names, clock::now());
    let (pki, changes) = opened.context("cannot set up certificates")?;
    for change in &changes {
        info!(file = change.file, reason = ?change.reason, "certificate written");
    }
    let tls = Tls::new(&pki).context("cannot set up TLS")?;
    Ok((pki, tls))
}

fn api_settings(
    args: &ServerArgs,
    pki: &Pki,
    sockets: &Sockets,
    service_range: Cidr,
) -> Result<Settings> {
    Ok(Settings {
        ca_pem: pki.ca_pem(),
        front_proxy_ca_pem: pki.front_proxy_ca_pem(),
        event_ttl: Duration::from_secs(args.event_ttl),
        oidc: super::oidc::login(&args.oidc)?,
        bootstrap_tokens: true,
        longest_token: Some(LONGEST_TOKEN.unsigned_abs()),
        authorization: vec![Authorization::Node, Authorization::Rbac],
        connections: args.connections.limits()?,
        ..Settings::new(sockets.advertise, service_range, super::version::VERSION)
    })
}
