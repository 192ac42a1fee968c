//! `sheaf kube-apiserver`: the API server alone, started as upstream's is. No controllers,
//! no agent, no kinds of our own; certificates and keys are those of its options.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use apiserver::extension::Extensions;
use apiserver::{Api, Settings};
use auth::pki::tls::Tls;
use auth::pki::{GivenFiles, ServingNames, ensure_self_signed};
use auth::token::ServiceAccountTokens;
use auth::token::key::KeyRing;
use base::{Chain, Tasks, clock};
use store::Config;
use tokio::net::TcpListener;
use tracing::{error, info, warn};

use super::encryption;
use super::server::{self, names, tokens};
use crate::cli::LogFormat;
use crate::cli::kube_apiserver::{Options, Parsed, help};
use crate::{logging, text_file};

/// Files that others renew are checked this often.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

pub(super) fn run(words: Vec<String>) -> Result<()> {
    let flags = Parsed::parse(words)?;
    if flags.wants_help {
        return super::print(&help());
    }
    if flags.wants_version {
        let (major, minor) = apiserver::KUBERNETES;
        return super::print(&format!("Kubernetes v{major}.{minor}.0\n"));
    }
    let options = Options::read(&flags)?;
    let level = match options.verbosity {
        0..=3 => "info",
        4..=7 => "debug",
        _ => "trace",
    };
    logging::start(LogFormat::Text, level)?;
    for flag in &flags.unknown {
        warn!(flag, "this flag has no effect");
    }
    server::in_runtime(serve(&options))
}

async fn serve(options: &Options) -> Result<()> {
    if let Some(file) = &options.token_auth_file {
        tokens::check(file)?;
    }
    let mut config = Config::etcd(super::store::etcd_config(&options.etcd)?);
    if let Some(file) = &options.encryption_provider_config {
        config.sealing = Arc::new(encryption::configured(file)?);
    }
    let range = options
        .service_range
        .parse::<apiserver::Cidr>()
        .context("--service-cluster-ip-range is wrong")?;
    let bind = (options.bind_address, options.secure_port).into();
    let listener = server::listen(bind).await?;
    let listening = listener.local_addr().context("cannot read the address of the listener")?;
    let advertise = names::advertised(listening, options.advertise_address);
    let files = certificates(options, vec![advertise.ip(), range.first()])?;
    let tls = Tls::with(files.read().context("cannot use the certificates")?)
        .context("cannot set up TLS")?;
    let text = |path: &Option<PathBuf>| {
        path.as_ref().map_or(Ok(String::new()), |path| {
            text_file::read(path).with_context(|| format!("cannot read {}", path.display()))
        })
    };
    let settings = Settings {
        ca_pem: text(&options.client_ca_file)?,
        front_proxy_ca_pem: text(&options.front_proxy_ca_file)?,
        event_ttl: options.event_ttl,
        authorization: options.authorization.clone(),
        anonymous: options.anonymous,
        disabled_admission: options.disabled_admission.clone(),
        enabled_admission: options.enabled_admission.clone(),
        // A caller of this command runs the other parts of a cluster too.
        runs_pods: true,
        front_proxy: options.front_proxy.clone(),
        in_flight: options.in_flight,
        oidc: super::oidc::login(&options.oidc)?,
        bootstrap_tokens: options.bootstrap_tokens,
        audit: super::audit::config(&options.audit, None).await?,
        ..Settings::new(advertise, range, super::version::VERSION)
    };
    let tasks = Tasks::default();
    let api = Api::start(config, settings, Extensions::default(), accounts(options)?, &tasks)
        .await
        .context("cannot start")?;
    if let Some(file) = options.token_auth_file.clone() {
        tokens::follow(&api, file, &tasks)?;
    }
    serve_until_stopped(api, listener, tls, files, &tasks).await
}

async fn serve_until_stopped(
    api: Api,
    listener: TcpListener,
    tls: Tls,
    files: GivenFiles,
    tasks: &Tasks,
) -> Result<()> {
    let address = listener.local_addr().context("cannot read the address of the listener")?;
    let mut signals = server::StopSignals::listen()?;
    tasks.spawn("server", apiserver::serve(api, listener, tls.clone(), tasks.clone()));
    follow(tls, files, tasks);
    info!(%address, "serving");
    signals.received().await;
    info!("stopping");
    tasks.stop(server::SHUTDOWN_TIMEOUT).await;
    Ok(())
}

/// The certificate that was named, or the one in the directory, which is made if need be.
fn certificates(options: &Options, addresses: Vec<std::net::IpAddr>) -> Result<GivenFiles> {
    let (cert, key) = match &options.serving {
        Some(pair) => pair.clone(),
        None => {
            let in_dir = |name| options.cert_dir.join(name);
            let pair = (in_dir("apiserver.crt"), in_dir("apiserver.key"));
            let names = ServingNames { dns: Vec::new(), addresses };
            let made = ensure_self_signed(&pair.0, &pair.1, &names, clock::now())
                .context("cannot make a certificate")?;
            if made {
                info!(file = %pair.0.display(), "generated self-signed certificate");
            }
            pair
        }
    };
    Ok(GivenFiles {
        cert,
        key,
        client_ca: options.client_ca_file.clone(),
        front_proxy_ca: options.front_proxy_ca_file.clone(),
        front_proxy_names: options.front_proxy.allowed_names.clone(),
    })
}

/// The keys of service accounts: those that were named, or new ones in the directory.
fn accounts(options: &Options) -> Result<ServiceAccountTokens> {
    let accounts = &options.accounts;
    let mut files: Vec<PathBuf> = accounts.signing_key_file.iter().cloned().collect();
    files.extend(accounts.key_files.iter().cloned());
    if accounts.signing_key_file.is_none() {
        let own = options.cert_dir.join("sa.key");
        if !own.exists() {
            let ring = KeyRing::generate().context("cannot make a key for tokens")?;
            auth::kubeconfig::write_kubeconfig(&own, &ring.to_pem())
                .with_context(|| format!("cannot write {}", own.display()))?;
        }
        warn!(file = %own.display(), "--service-account-signing-key-file is missing, using a key of our own");
        files.insert(0, own);
    }
    let mut pem = String::new();
    for file in &files {
        pem += &text_file::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        pem.push('\n');
    }
    let ring = KeyRing::parse(&pem).context("cannot use the keys of service accounts")?;
    let mut issuers = accounts.issuers.clone();
    if issuers.is_empty() {
        issuers.push(server::ISSUER.to_owned());
    }
    let older = issuers.split_off(1);
    Ok(ServiceAccountTokens::new(issuers.remove(0), older, accounts.audiences.clone(), &ring))
}

/// Takes over certificates that another program has renewed.
fn follow(tls: Tls, files: GivenFiles, tasks: &Tasks) {
    let mut stop = tasks.stop_signal();
    tasks.spawn("certificates", async move {
        let mut seen = changed(&files);
        loop {
            tokio::select! {
                () = stop.requested() => return,
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
            }
            let now = changed(&files);
            if now == seen {
                continue;
            }
            seen = now;
            match files.read() {
                Ok(material) => match tls.replace(material) {
                    Ok(()) => info!("certificates reloaded"),
                    Err(failure) => error!(error = %Chain(&failure), "cannot use new certificates"),
                },
                Err(failure) => error!(error = %Chain(&failure), "cannot read new certificates"),
            }
        }
    });
}

fn changed(files: &GivenFiles) -> Vec<Option<std::time::SystemTime>> {
    let named = [
        Some(&files.cert),
        Some(&files.key),
        files.client_ca.as_ref(),
        files.front_proxy_ca.as_ref(),
    ];
    let modified = |path: &PathBuf| std::fs::metadata(path).and_then(|file| file.modified()).ok();
    named.into_iter().map(|path| path.and_then(modified)).collect()
}
