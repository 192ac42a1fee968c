//! `sheaf upgrade`: brings a program to the cluster and follows its upgrade, which controllers
//! carry out.

mod view;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use futures_util::{Stream, TryStreamExt as _};
use hci::upgrade::{
    ATTEMPT, CheckedObjects, FINALIZED, INTENT, ProgramDigest, SKIP_CHECKS, SKIPPED_NODES,
    UPLOADED, check,
};
use http::Request;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http_body_util::{BodyExt as _, StreamBody};
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::link::ClusterClient;
use super::program::{check_file, digest_of};
use super::send::{ProgressLine, chunks, send};
use super::server::UPLOADS_PATH;
use super::{interrupt, print};
use crate::cli::{ClusterScope, UpgradeAction, UpgradeArgs};
use view::{Outcome, UpgradeView};

const NAMESPACE: &str = "harvester-system";
const GROUP: &str = "/apis/harvesterhci.io/v1beta1/namespaces/harvester-system";
const NODES: &str = "/api/v1/nodes";
/// How long a server may take to come back.
const SILENCE: Duration = Duration::from_secs(300);
/// How long the failure of the last attempt may stay after another was asked for.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn run(args: &UpgradeArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        match &args.action {
            None => begin(args).await,
            Some(UpgradeAction::Status { place }) => status(place).await,
            Some(UpgradeAction::Pause { place }) => {
                note(place, INTENT, "pause").await?;
                print("no further node is begun; go on: sheaf upgrade resume\n")
            }
            Some(UpgradeAction::Resume { place }) => {
                note(place, INTENT, "").await?;
                print("the upgrade goes on\n")
            }
            Some(UpgradeAction::Retry { place }) => retry(place).await,
            Some(UpgradeAction::Skip { place, nodes }) => skip(place, nodes).await,
            Some(UpgradeAction::Abort { place, no_wait }) => abort(place, *no_wait).await,
            Some(UpgradeAction::Finalize { place }) => finalize(place).await,
        }
    })
}

/// The program that is to be run everywhere.
struct NewProgram {
    digest: ProgramDigest,
    url: String,
    /// Of the Version object.
    name: String,
}

async fn begin(args: &UpgradeArgs) -> Result<()> {
    let Some(binary) = &args.binary else {
        bail!("--binary FILE|URL is needed, or one of: status, pause, resume, retry, skip, abort");
    };
    let is_url = binary.starts_with("http://") || binary.starts_with("https://");
    let program = match is_url {
        true => at_url(binary, args)?,
        false => in_file(Path::new(binary), args)?,
    };
    let cluster = ClusterClient::to(&args.place).await?;
    let nodes = cluster.items(NODES).await?;
    let findings = findings(&cluster, &nodes).await?;
    if args.dry_run {
        print(&view::dry_run(&program.name, &program.digest, &nodes))?;
    }
    for finding in &findings {
        eprintln!("sheaf: {finding}");
    }
    if !findings.is_empty() && !args.skip_checks {
        bail!("the cluster is not ready for an upgrade; begin nevertheless with --skip-checks");
    }
    if args.dry_run {
        return Ok(());
    }
    if !is_url {
        upload(&cluster, Path::new(binary), &program.digest).await?;
    }
    let upgrade = create(&cluster, &program, args.skip_checks).await?;
    if args.no_wait {
        return print(&format!("upgrade {upgrade} has begun\n"));
    }
    follow_to_end(&cluster, &upgrade, Outcome::Open).await
}

fn at_url(url: &str, args: &UpgradeArgs) -> Result<NewProgram> {
    let Some(sum) = &args.checksum else {
        bail!("--checksum is needed with a URL: the output of sha512sum for the program");
    };
    let digest = ProgramDigest::parse(sum).context("--checksum is wrong")?;
    let name = args.name.clone().unwrap_or_else(|| format!("sheaf-{}", digest.short()));
    Ok(NewProgram { digest, url: url.to_owned(), name })
}

fn in_file(path: &Path, args: &UpgradeArgs) -> Result<NewProgram> {
    let read = || format!("cannot read --binary {}", path.display());
    check_file(path).with_context(read)?;
    let digest = digest_of(path).with_context(read)?;
    if let Some(sum) = args.checksum.as_deref().filter(|sum| *sum != digest.as_str()) {
        bail!("{} has the SHA-512 sum {digest}, not {sum}", path.display());
    }
    // It may be for another architecture than this machine, whose nodes report theirs.
    let found = std::path::absolute(path).ok().and_then(|path| version_of(&path));
    let version = found.map_or_else(|| "sheaf".to_owned(), |version| format!("v{version}"));
    let name = args.name.clone().unwrap_or_else(|| format!("{version}-{}", digest.short()));
    Ok(NewProgram { digest, url: UPLOADED.to_owned(), name })
}

fn version_of(path: &Path) -> Option<String> {
    let output = Command::new(path).args(["version", "--output", "json"]).output().ok()?;
    let reply: Value = serde_json::from_slice(&output.stdout).ok()?;
    reply["sheafVersion"].as_str().map(str::to_owned)
}

async fn findings(cluster: &ClusterClient, nodes: &[Value]) -> Result<Vec<String>> {
    let volumes = cluster.items("/apis/longhorn.io/v1beta2/volumes").await?;
    let backups = cluster.items("/apis/harvesterhci.io/v1beta1/virtualmachinebackups").await?;
    let migrations = cluster.items("/apis/kubevirt.io/v1/virtualmachineinstancemigrations").await?;
    let objects =
        CheckedObjects { nodes, volumes: &volumes, backups: &backups, migrations: &migrations };
    Ok(check(&objects).iter().map(ToString::to_string).collect())
}

async fn upload(cluster: &ClusterClient, path: &Path, digest: &ProgramDigest) -> Result<()> {
    let file = tokio::fs::File::open(path).await;
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    let size = file.metadata().await.context("cannot read its size")?.len();
    let progress = ProgressLine::new(size).of("the program");
    let request = Request::put(format!("{UPLOADS_PATH}{digest}"))
        .header(CONTENT_TYPE, "application/octet-stream")
        .header(CONTENT_LENGTH, size)
        .body(StreamBody::new(chunks(file, progress)).boxed_unsync())
        .context("cannot build a request")?;
    let (code, body) = send(cluster, request).await.context("the upload failed")?;
    if code.is_success() {
        return Ok(());
    }
    let status: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    bail!("the server refused the program: {}", status["message"].as_str().unwrap_or(code.as_str()))
}

/// Creates the Version, unless there is one of the same program, and the Upgrade.
async fn create(cluster: &ClusterClient, program: &NewProgram, unchecked: bool) -> Result<String> {
    let NewProgram { digest, url, name } = program;
    match cluster.find(&format!("{GROUP}/versions/{name}")).await? {
        Some(found) if found["spec"]["isoChecksum"] == digest.as_str() => {}
        Some(_) => bail!("there is another version {name}: choose a name with --name"),
        None => {
            let version = json!({
                "apiVersion": "harvesterhci.io/v1beta1", "kind": "Version",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"isoURL": url, "isoChecksum": digest},
            });
            cluster.post(&format!("{GROUP}/versions"), &version).await?;
        }
    }
    let mut upgrade = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "Upgrade",
        "metadata": {"generateName": "hvst-upgrade-", "namespace": NAMESPACE},
        "spec": {"version": name},
    });
    if unchecked {
        upgrade["metadata"]["annotations"] = json!({SKIP_CHECKS: "true"});
    }
    let made = cluster.post(&format!("{GROUP}/upgrades"), &upgrade).await?;
    Ok(made["metadata"]["name"].as_str().unwrap_or_default().to_owned())
}

async fn follow_to_end(cluster: &ClusterClient, upgrade: &str, before: Outcome) -> Result<()> {
    let continues = "the upgrade goes on. `sheaf upgrade status` shows how far it is, `sheaf \
                     upgrade abort` takes it back";
    interrupt::or_report(follow(cluster, upgrade, before), continues).await
}

/// The upgrade as it changes.
fn changes(
    cluster: &ClusterClient,
    name: &str,
) -> impl Stream<Item = watcher::Result<DynamicObject>> + use<> {
    let kind = GroupVersionKind::gvk("harvesterhci.io", "v1beta1", "Upgrade");
    let resource = ApiResource::from_gvk_with_plural(&kind, "upgrades");
    let upgrades: Api<DynamicObject> =
        Api::namespaced_with(cluster.client.clone(), NAMESPACE, &resource);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    watcher(upgrades, config).default_backoff().applied_objects()
}

/// Prints each step until the upgrade is over. Servers restart meanwhile. The failure `before` is
/// that of an earlier attempt, unless the controllers leave it for a while.
async fn follow(cluster: &ClusterClient, name: &str, mut before: Outcome) -> Result<()> {
    let mut changes = std::pin::pin!(changes(cluster, name));
    let mut last = String::new();
    let mut answered = Instant::now();
    let attempt_deadline = answered + ATTEMPT_TIMEOUT;
    loop {
        let next = match &before {
            Outcome::Failed(message) => {
                match timeout_at(attempt_deadline, changes.try_next()).await {
                    Ok(next) => next,
                    Err(_) => return Err(failed(message)),
                }
            }
            _ => changes.try_next().await,
        };
        let upgrade = match next {
            Ok(Some(upgrade)) => upgrade,
            Ok(None) => bail!("the upgrade {name} is gone"),
            // The server restarts; the watch begins again.
            Err(_) if answered.elapsed() < SILENCE => continue,
            Err(failure) => {
                return Err(failure).with_context(|| {
                    format!(
                        "the cluster at {} has not answered for {} s; the upgrade goes on: sheaf \
                         upgrade status",
                        cluster.config.cluster_url,
                        SILENCE.as_secs()
                    )
                });
            }
        };
        answered = Instant::now();
        let upgrade = serde_json::to_value(&upgrade).context("cannot read the upgrade")?;
        let view = UpgradeView::of(&upgrade);
        if before != Outcome::Open && view.outcome() == before {
            continue;
        }
        before = Outcome::Open;
        let line = view.line();
        if line != last {
            print(&format!("{line}\n"))?;
            last = line;
        }
        match view.outcome() {
            Outcome::Open => {}
            Outcome::Completed => {
                return print("all nodes are upgraded; undo it: sheaf upgrade abort\n");
            }
            Outcome::Aborted => return print("all nodes have gone back\n"),
            Outcome::Failed(message) => return Err(failed(&message)),
        }
    }
}

fn failed(message: &str) -> anyhow::Error {
    anyhow!(
        "the upgrade failed: {message}; try again with `sheaf upgrade retry`, or go back with \
         `sheaf upgrade abort`"
    )
}

async fn latest(cluster: &ClusterClient) -> Result<Value> {
    let mut all = cluster.items(&format!("{GROUP}/upgrades")).await?;
    let age = |upgrade: &Value| {
        let created = upgrade["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
        (created.to_owned(), upgrade["metadata"]["name"].as_str().unwrap_or_default().to_owned())
    };
    all.sort_by_key(age);
    all.pop().context("there was no upgrade of this cluster: begin one with sheaf upgrade --binary")
}

async fn status(place: &ClusterScope) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    let upgrade = latest(&cluster).await?;
    let nodes = cluster.items(NODES).await?;
    print(&UpgradeView::of(&upgrade).describe(&nodes))
}

/// Writes an annotation of the last upgrade; answers its name.
async fn note(place: &ClusterScope, key: &str, value: &str) -> Result<String> {
    let cluster = ClusterClient::to(place).await?;
    let upgrade = latest(&cluster).await?;
    let name = upgrade["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let is_final = upgrade["metadata"]["annotations"].get(FINALIZED).is_some();
    let outcome = UpgradeView::of(&upgrade).outcome();
    match (value, outcome) {
        _ if is_final => bail!("upgrade {name} is final; nothing was changed"),
        ("finalize", outcome) if outcome != Outcome::Completed => {
            bail!("upgrade {name} has not completed; nothing was changed")
        }
        ("pause" | "", Outcome::Completed | Outcome::Aborted) => {
            bail!("upgrade {name} is over; nothing was changed")
        }
        _ => {}
    }
    let value = Some(value).filter(|value| !value.is_empty());
    let patch = json!({"metadata": {"annotations": {key: value}}});
    cluster.merge(&format!("{GROUP}/upgrades/{name}"), &patch).await?;
    Ok(name)
}

async fn finalize(place: &ClusterScope) -> Result<()> {
    let name = note(place, INTENT, "finalize").await?;
    let cluster = ClusterClient::to(place).await?;
    let mut changes = std::pin::pin!(changes(&cluster, &name));
    let is_final = async {
        while let Some(upgrade) = changes.try_next().await? {
            if upgrade.metadata.annotations.is_some_and(|notes| notes.contains_key(FINALIZED)) {
                return Ok::<_, watcher::Error>(());
            }
        }
        Ok(())
    };
    let done = tokio::time::timeout(SILENCE, is_final).await;
    done.context("no controller has made the upgrade final yet")?.context("cannot watch it")?;
    print("the upgrade is final: it cannot be undone any more\n")
}

async fn retry(place: &ClusterScope) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    let upgrade = latest(&cluster).await?;
    let last = upgrade["metadata"]["annotations"][ATTEMPT].as_str();
    let next = last.and_then(|last| last.parse::<u32>().ok()).unwrap_or(1) + 1;
    let before = UpgradeView::of(&upgrade).failure();
    let name = note(place, ATTEMPT, &next.to_string()).await?;
    follow_to_end(&cluster, &name, before).await
}

async fn skip(place: &ClusterScope, nodes: &[String]) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    let known = cluster.items(NODES).await?;
    for node in nodes {
        if known.iter().all(|own| own["metadata"]["name"] != node.as_str()) {
            bail!("there is no node {node}; nothing was changed");
        }
    }
    let upgrade = latest(&cluster).await?;
    let before = upgrade["metadata"]["annotations"][SKIPPED_NODES].as_str().unwrap_or_default();
    let mut all: Vec<&str> = before.split(',').filter(|name| !name.is_empty()).collect();
    all.extend(nodes.iter().map(String::as_str));
    all.sort_unstable();
    all.dedup();
    note(place, SKIPPED_NODES, &all.join(",")).await?;
    print(&format!("left out: {}\n", all.join(", ")))
}

async fn abort(place: &ClusterScope, no_wait: bool) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    let before = UpgradeView::of(&latest(&cluster).await?).failure();
    let name = note(place, INTENT, "abort").await?;
    if no_wait {
        return print("nodes go back to the program before\n");
    }
    follow_to_end(&cluster, &name, before).await
}
