//! `sheaf login`, `sheaf setting` and `sheaf support-bundle`, thin over the API.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use futures_util::{AsyncReadExt as _, StreamExt as _};
use http::{Request, Uri};
use kube::api::{DynamicObject, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use super::link::{self, ClusterClient};
use super::partial_file::PartialFile;
use super::{interrupt, table, user};
use crate::cli::{LoginArgs, OperateCommand, SettingCommand, SupportBundleArgs};
use crate::text_file;

const SETTINGS: &str = "/apis/harvesterhci.io/v1beta1/settings";
const NAMESPACE: &str = "harvester-system";
/// A bundle is ready as soon as the controllers see it.
const READY_TIMEOUT: u32 = 60;

pub(super) fn run(command: &OperateCommand) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        match command {
            OperateCommand::Login(args) => login(args).await,
            OperateCommand::Setting(SettingCommand::Get { place, name }) => {
                get(&ClusterClient::to(place).await?, name.as_deref()).await
            }
            OperateCommand::Setting(SettingCommand::Set { place, name, value }) => {
                set(&ClusterClient::to(place).await?, name, value).await
            }
            OperateCommand::SupportBundle(args) => bundle(args).await,
        }
    })
}

async fn login(args: &LoginArgs) -> Result<()> {
    let url: Uri = args.url.parse().with_context(|| format!("{:?} is not a URL", args.url))?;
    if url.scheme_str() != Some("https") {
        bail!("{:?} does not begin with https://: a password would be sent readable", args.url);
    }
    let mut config = Config::new(url.clone());
    config.accept_invalid_certs = args.insecure_skip_tls_verify;
    config.connect_timeout = Some(Duration::from_secs(30));
    if let Some(path) = &args.certificate_authority {
        let pem =
            text_file::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        config.root_cert = Some(certificates(pem.as_bytes(), path)?);
    }
    let client = Client::try_from(config.clone()).context("cannot make a client")?;
    let password = user::ask(args.password.as_deref())?;
    let credentials = json!({"username": args.username, "password": password});
    let path = "/v3-public/localProviders/local?action=login";
    let answer = post(&client, &url, path, &credentials).await?;
    let token = answer["token"].as_str().context("the server answered without a token")?;
    config.auth_info.token = Some(token.to_owned().into());
    let client = Client::try_from(config).context("cannot make a client")?;
    let path = "/v1/management.cattle.io.clusters/local?action=generateKubeconfig";
    let answer = post(&client, &url, path, &json!({})).await?;
    let kubeconfig = answer["config"].as_str().context("the server sent no kubeconfig")?;
    write_private(&args.output, kubeconfig)
        .with_context(|| format!("cannot write {}", args.output.display()))?;
    super::print(&format!("logged in as {}: {}\n", args.username, args.output.display()))?;
    remind(&client, &args.username).await
}

/// Asks for another password if the one that was used must be changed. A server that does not answer
/// this has still logged the user in.
async fn remind(client: &Client, username: &str) -> Result<()> {
    let request = Request::get("/v3/users?me=true").body(Vec::new());
    let answer = client.request::<Value>(request.context("cannot build a request")?).await;
    let own = answer.unwrap_or_default()["data"][0].take();
    if !user::must_change(&own) {
        return Ok(());
    }
    super::print(&format!(
        "the password of {username} must be changed: sheaf user passwd {username}\n"
    ))
}

/// A file with a token is for its owner only.
fn write_private(path: &Path, content: &str) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(content.as_bytes())
}

/// The certificates in a PEM file, in the form that the client takes.
fn certificates(pem: &[u8], path: &Path) -> Result<Vec<Vec<u8>>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| anyhow!("{} is not PEM: {error}", path.display()))?;
    if all.is_empty() {
        bail!("{} has no certificate", path.display());
    }
    Ok(all.into_iter().map(|certificate| certificate.to_vec()).collect())
}

/// The answer to a POST; errors of the REST API are not those of Kubernetes.
async fn post(client: &Client, url: &Uri, path: &str, body: &Value) -> Result<Value> {
    let request = Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(kube::client::Body::from(body.to_string().into_bytes()))
        .context("cannot build a request")?;
    let answer = client.send(request).await.map_err(|error| link::describe(error, url))?;
    let status = answer.status();
    let bytes = http_body_util::BodyExt::collect(answer.into_body())
        .await
        .context("cannot read the answer")?
        .to_bytes();
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if !status.is_success() {
        bail!(
            "the server refused ({status}): {}",
            answer["message"].as_str().unwrap_or("no reason")
        );
    }
    Ok(answer)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

async fn get(link: &ClusterClient, name: Option<&str>) -> Result<()> {
    if let Some(name) = name {
        let setting = existing(link, name).await?;
        let value = match text(&setting, "value") {
            "" => text(&setting, "default"),
            value => value,
        };
        return super::print(&format!("{value}\n"));
    }
    let mut rows = vec![["NAME", "VALUE", "IN EFFECT"].map(str::to_owned).to_vec()];
    for setting in link.items(SETTINGS).await? {
        let value = text(&setting, "value");
        let shown = if value.is_empty() { text(&setting, "default") } else { value };
        let mut conditions = setting["status"]["conditions"].as_array().into_iter().flatten();
        let configured = conditions.find(|own| own["type"] == "configured");
        let effect = match configured {
            _ if value.is_empty() => "default",
            Some(own) if own["status"] == "True" => "yes",
            Some(own) => text(own, "message"),
            None => "",
        };
        rows.push(vec![text(&setting["metadata"], "name").into(), shown.into(), effect.into()]);
    }
    super::print(&table::align(&rows))
}

async fn existing(link: &ClusterClient, name: &str) -> Result<Value> {
    let setting = link.find(&format!("{SETTINGS}/{name}")).await?;
    setting.with_context(|| {
        format!("setting {name:?} does not exist; `sheaf setting get` lists all settings")
    })
}

async fn set(link: &ClusterClient, name: &str, value: &str) -> Result<()> {
    existing(link, name).await?;
    let patch = json!({"value": value});
    link.merge(&format!("{SETTINGS}/{name}"), &patch).await?;
    super::print(&format!("setting {name} changed\n"))
}

async fn bundle(args: &SupportBundleArgs) -> Result<()> {
    let link = ClusterClient::to(&args.place).await?;
    // Before the bundle is made: it would be for nothing.
    let given = args.output.as_deref().map(PartialFile::create).transpose()?;
    let path = format!("/apis/harvesterhci.io/v1beta1/namespaces/{NAMESPACE}/supportbundles");
    let object = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "SupportBundle",
        "metadata": {"generateName": "bundle-", "namespace": NAMESPACE},
        "spec": {
            "description": args.description,
            "extraCollectionNamespaces": args.extra_namespaces,
        },
    });
    let created = link.post(&path, &object).await?;
    let name = text(&created["metadata"], "name");
    let continues = format!("support bundle {name} is removed, and nothing was saved");
    let saved = interrupt::or_report(save(&link, name, args.output.as_deref(), given), continues);
    match saved.await {
        Ok(output) => super::print(&format!("{}\n", output.display())),
        Err(failure) => {
            if let Err(error) = link.delete(&format!("{path}/{name}")).await {
                super::print(&format!(
                    "support bundle {name} stays until it expires: {error:#}\n"
                ))?;
            }
            Err(failure)
        }
    }
}

/// Downloads a bundle to the file that was opened, or to one that is called as the bundle says.
async fn save(
    link: &ClusterClient,
    name: &str,
    output: Option<&Path>,
    given: Option<(PartialFile, File)>,
) -> Result<PathBuf> {
    let file = ready_file(link, name).await?;
    let output = output.map_or_else(|| PathBuf::from(file), Path::to_owned);
    let (partial, mut target) = match given {
        Some(given) => given,
        None => PartialFile::create(&output)?,
    };
    let url = format!("/v1/harvester/supportbundles/{name}/download");
    let request = Request::get(url).body(Vec::new()).context("cannot build a request")?;
    let mut reader = std::pin::pin!(link.client.request_stream(request).await?);
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = reader.read(&mut buffer).await.context("the download broke off")?;
        if count == 0 {
            break;
        }
        let chunk = buffer.get(..count).unwrap_or_default();
        target.write_all(chunk).with_context(|| format!("cannot write {}", output.display()))?;
    }
    target.sync_all().with_context(|| format!("cannot write {}", output.display()))?;
    partial.complete()?;
    Ok(output)
}

/// Waits until a bundle can be downloaded, and says what its file is called.
async fn ready_file(link: &ClusterClient, name: &str) -> Result<String> {
    let kind = GroupVersionKind::gvk("harvesterhci.io", "v1beta1", "SupportBundle");
    let resource = ApiResource::from_gvk_with_plural(&kind, "supportbundles");
    let bundles: Api<DynamicObject> =
        Api::namespaced_with(link.client.clone(), NAMESPACE, &resource);
    let params =
        WatchParams::default().fields(&format!("metadata.name={name}")).timeout(READY_TIMEOUT);
    let mut events = std::pin::pin!(bundles.watch(&params, "0").await?);
    while let Some(event) = events.next().await {
        let (WatchEvent::Added(bundle) | WatchEvent::Modified(bundle)) = event? else { continue };
        let status = &bundle.data["status"];
        if text(status, "state") == "ready" {
            return Ok(text(status, "filename").to_owned());
        }
    }
    bail!("support bundle {name} is not ready after {READY_TIMEOUT} s")
}
