//! Importing, uploading, exporting, downloading and deleting images.

use std::io::{IsTerminal as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, StreamBody};
use serde_json::{Value, json};
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _};

use super::{ImageState, existing, existing_in, find, images, state, text};
use crate::cli::{CloneArgs, Image, ImageOptions, ImportArgs};
use crate::command::disk_file::check_not_empty;
use crate::command::image_address;
use crate::command::link::ClusterClient;
use crate::command::partial_file::PartialFile;
use crate::command::send::{ProgressLine, chunks, open, send};
use crate::command::table::size;
use crate::command::{interrupt, print};

const UPLOAD: &str = "/v1/harvester/harvesterhci.io.virtualmachineimages";
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Attempts in a row that transfer nothing, and the time between them.
const UPLOAD_ATTEMPTS: u32 = 20;
const RETRY_DELAY: Duration = Duration::from_secs(1);

pub(super) async fn import(args: &ImportArgs) -> Result<()> {
    check_url(&args.image.name, &args.url)?;
    let link = ClusterClient::to(&args.image.place).await?;
    let spec = json!({"sourceType": "download", "url": args.url, "retry": args.retry});
    let image = create(&link, &args.image.name, spec, &args.wish).await?;
    if args.no_wait {
        return print(&format!("{} is being imported\n", args.image.name));
    }
    finish(&link, &image).await
}

/// A node downloads the image, so it has to be a URL.
fn check_url(name: &str, url: &str) -> Result<()> {
    let file = url.strip_prefix("file://").unwrap_or(url);
    if Path::new(file).exists() {
        bail!("{file} is a file, not a URL; upload it with: sheaf image upload {name} {file}");
    }
    image_address::check_url(url)
        .map_err(|refused| anyhow!("{refused}; files are uploaded with `sheaf image upload`"))
}

pub(super) async fn export(
    volume: &str,
    image: &Image,
    wish: &ImageOptions,
    no_wait: bool,
) -> Result<()> {
    let link = ClusterClient::to(&image.place).await?;
    let spec = json!({
        "sourceType": "export-from-volume", "pvcName": volume, "pvcNamespace": link.namespace,
    });
    let made = create(&link, &image.name, spec, wish).await?;
    if no_wait {
        return print(&format!("{} is being created\n", image.name));
    }
    finish(&link, &made).await
}

/// Makes an image of another, encrypted or decrypted.
pub(super) async fn clone(args: &CloneArgs, operation: &str, class: Option<&str>) -> Result<()> {
    let link = ClusterClient::to(&args.image.place).await?;
    let namespace = args.source_namespace.as_deref().unwrap_or(&link.namespace);
    let source = existing_in(&link, namespace, &args.source).await?;
    let spec = json!({"sourceType": "clone", "securityParameters": {
        "cryptoOperation": operation, "sourceImageName": text(&source, "/metadata/name"),
        "sourceImageNamespace": namespace,
    }});
    let wish = ImageOptions { class: class.map(str::to_owned), checksum: None };
    let made = create(&link, &args.image.name, spec, &wish).await?;
    if args.no_wait {
        return print(&format!("{} is being imported\n", args.image.name));
    }
    finish(&link, &made).await
}

pub(super) async fn upload(image: &Image, file: &Path, wish: &ImageOptions) -> Result<()> {
    let shown = file.display();
    let length = check_not_empty(file)?;
    std::fs::File::open(file).with_context(|| format!("cannot read {shown}"))?;
    let link = ClusterClient::to(&image.place).await?;
    let found = find(&link, &image.name).await?;
    let made = match found {
        Some(found)
            if matches!(state(&found), ImageState::WaitsForUpload | ImageState::Failed(_)) =>
        {
            found
        }
        Some(_) => bail!("an image {} exists already", image.name),
        None => create(&link, &image.name, json!({"sourceType": "upload"}), wish).await?,
    };
    let name = &image.name;
    let continues = format!("the upload of {name} has stopped; the same command resumes it");
    interrupt::or_report(push(&link, &made, file, length), continues).await?;
    finish(&link, &made).await
}

/// Uploads a file, and resumes when the connection breaks.
async fn push(link: &ClusterClient, image: &Value, file: &Path, length: u64) -> Result<()> {
    let (namespace, name) = (text(image, "/metadata/namespace"), text(image, "/metadata/name"));
    let path = format!("{UPLOAD}/{namespace}/{name}?action=upload");
    let (mut tries, mut furthest) = (0, 0);
    loop {
        let sent = push_once(link, &path, file, length, &mut furthest, &mut tries).await;
        let failure = match sent {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        let object = format!("{}/{name}", images(link));
        let now = link.find(&object).await.unwrap_or_default();
        if now.is_some_and(|now| matches!(state(&now), ImageState::Ready)) {
            return Ok(());
        }
        tries += 1;
        if let Some(refused) = failure.downcast_ref::<Refused>() {
            let shown = text(image, "/spec/displayName");
            bail!("the image was refused: {refused}; `sheaf image delete {shown}` removes it");
        }
        if tries > UPLOAD_ATTEMPTS {
            return Err(failure.context("the upload failed"));
        }
        eprintln!("\rthe upload was interrupted and is resumed: {failure:#}");
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

/// The server refused the image; a retry would not help.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Refused {
    message: String,
}

async fn push_once(
    link: &ClusterClient,
    path: &str,
    file: &Path,
    length: u64,
    furthest: &mut u64,
    tries: &mut u32,
) -> Result<()> {
    let status = link.find(path).await?.unwrap_or_default();
    let at = status["offset"].as_u64().unwrap_or(0).min(length);
    if at > *furthest {
        (*furthest, *tries) = (at, 0);
    }
    let shown = file.display();
    let mut input =
        tokio::fs::File::open(file).await.with_context(|| format!("cannot read {shown}"))?;
    input.seek(SeekFrom::Start(at)).await.with_context(|| format!("cannot read {shown}"))?;
    let body = StreamBody::new(chunks(input, ProgressLine::after(at, length))).boxed_unsync();
    let request = Request::post(format!("{path}&size={length}&offset={at}"))
        .header(CONTENT_TYPE, "application/octet-stream")
        .header(CONTENT_LENGTH, length - at)
        .body(body)
        .context("cannot build a request")?;
    let (code, body) = send(link, request).await?;
    if code.is_success() {
        return Ok(());
    }
    let status: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let message = status["message"].as_str().unwrap_or(code.as_str()).to_owned();
    match code {
        StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE => bail!(message),
        _ => Err(Refused { message }.into()),
    }
}

/// Writes the data of an image to a file, with holes where it has nothing.
pub(super) async fn download(image: &Image, file: &Path) -> Result<()> {
    let link = ClusterClient::to(&image.place).await?;
    let found = existing(&link, &image.name).await?;
    let (partial, output) = PartialFile::create(file)?;
    let continues = "nothing was saved; the image stays in the cluster";
    let fetched = fetch(&link, &found, output.into(), file);
    let length = interrupt::or_report(fetched, continues).await?;
    partial.complete()?;
    let bytes = i64::try_from(length).map(size).unwrap_or_default();
    print(&format!("image {} is in {}: a raw disk of {bytes}\n", image.name, file.display()))
}

/// Writes the content of an image to `output`, and says how many bytes it has.
async fn fetch(
    link: &ClusterClient,
    image: &Value,
    mut output: tokio::fs::File,
    file: &Path,
) -> Result<u64> {
    let (namespace, name) = (text(image, "/metadata/namespace"), text(image, "/metadata/name"));
    let request = Request::get(format!("{UPLOAD}/{namespace}/{name}/download?format=raw"))
        .body(Empty::new().map_err(|never| match never {}).boxed_unsync())
        .context("cannot build a request")?;
    let answer = open(link, request).await.context("the download failed")?;
    let code = answer.status();
    if !code.is_success() {
        let body = answer.into_body().collect().await?.to_bytes();
        let status: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        bail!("{}", status["message"].as_str().unwrap_or(code.as_str()));
    }
    let length = answer.headers().get(CONTENT_LENGTH).and_then(|text| text.to_str().ok());
    let length: u64 = length.and_then(|text| text.parse().ok()).unwrap_or(0);
    let failed = || format!("cannot write {}", file.display());
    let mut body = answer.into_body();
    let mut got: u64 = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.context("the download was interrupted")?.into_data() else { continue };
        got += data.len() as u64;
        let written = if data.iter().all(|byte| *byte == 0) {
            let step = i64::try_from(data.len()).unwrap_or(0);
            output.seek(SeekFrom::Current(step)).await.map(drop)
        } else {
            output.write_all(&data).await
        };
        written.with_context(failed)?;
    }
    if got != length {
        bail!("the download was interrupted after {got} of {length} bytes");
    }
    output.set_len(length).await.with_context(failed)?;
    output.sync_all().await.with_context(failed)?;
    Ok(length)
}

async fn create(
    link: &ClusterClient,
    name: &str,
    mut spec: Value,
    wish: &ImageOptions,
) -> Result<Value> {
    spec["displayName"] = json!(name);
    if let Some(checksum) = &wish.checksum {
        spec["checksum"] = json!(checksum);
    }
    let mut meta = json!({"namespace": link.namespace});
    // The display name is the name of the object where that is possible.
    if is_name(name) {
        meta["name"] = json!(name);
    } else {
        meta["generateName"] = json!("image-");
    }
    if let Some(class) = &wish.class {
        meta["annotations"] = json!({"harvesterhci.io/storageClassName": class});
    }
    let image = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": meta, "spec": spec,
    });
    link.post(&images(link), &image).await
}

fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= 63
        && text.bytes().all(|byte| plain(byte) || byte == b'-')
        && text.bytes().next().is_some_and(plain)
        && text.bytes().last().is_some_and(plain)
}

/// Waits until an image is imported.
async fn finish(link: &ClusterClient, image: &Value) -> Result<()> {
    let shown = text(image, "/spec/displayName");
    let continues = format!(
        "the import of {shown} continues in the cluster; `sheaf image list` shows its progress, \
         `sheaf image delete {shown}` stops it"
    );
    interrupt::or_report(until_imported(link, image), continues).await
}

/// Waits until an image is imported, and shows the progress on a terminal.
async fn until_imported(link: &ClusterClient, image: &Value) -> Result<()> {
    let (name, shown) = (text(image, "/metadata/name"), text(image, "/spec/displayName"));
    let path = format!("{}/{name}", images(link));
    let visible = std::io::stderr().is_terminal();
    let (mut shown_percent, mut trouble) = (-1, None);
    loop {
        let Some(now) = link.find(&path).await? else { bail!("{shown} was deleted") };
        match state(&now) {
            ImageState::Ready => {
                if visible {
                    eprintln!("\rimporting {shown}: done ");
                }
                let bytes = now["status"]["virtualSize"].as_i64().map(size).unwrap_or_default();
                let class = text(&now, "/status/storageClassName");
                return print(&format!(
                    "{shown} is ready: a disk of {bytes}, storage class {class}. Next:\n  \
                     sheaf vm create NAME --image {shown}\n"
                ));
            }
            ImageState::Failed(why) => bail!(
                "{shown} cannot be imported: {why}\n\
                 `sheaf image delete {shown}` removes it"
            ),
            ImageState::Going => bail!("{shown} is being deleted"),
            ImageState::Coming(percent, held_up) => {
                if visible && percent != shown_percent {
                    shown_percent = percent;
                    eprint!("\rimporting {shown}: {percent:3} %");
                }
                if held_up.is_some() && held_up != trouble {
                    let why = held_up.as_deref().unwrap_or_default();
                    eprintln!("\r{why}; the import is retried");
                    trouble = held_up;
                }
            }
            ImageState::WaitsForUpload => {}
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

pub(super) async fn delete(image: &Image, no_wait: bool) -> Result<()> {
    let link = ClusterClient::to(&image.place).await?;
    let found = existing(&link, &image.name).await?;
    let path = format!("{}/{}", images(&link), text(&found, "/metadata/name"));
    link.delete(&path).await?;
    let uid = text(&found, "/metadata/uid");
    if no_wait {
        return print(&format!("{} is being deleted\n", image.name));
    }
    let name = &image.name;
    let continues = format!(
        "{name} is still being deleted in the cluster; `sheaf image list` shows it until it is gone"
    );
    interrupt::or_report(until_deleted(&link, &path, uid), continues).await?;
    print(&format!("{name} is deleted\n"))
}

async fn until_deleted(link: &ClusterClient, path: &str, uid: &str) -> Result<()> {
    let is_there = |now: Option<Value>| now.is_some_and(|now| text(&now, "/metadata/uid") == uid);
    while is_there(link.find(path).await?) {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_display_name_is_a_name_where_it_can_be() {
        for (text, expected) in
            [("debian-12", true), ("Debian", false), ("a.b", false), ("-a", false), ("", false)]
        {
            assert_eq!(is_name(text), expected, "{text}");
        }
    }

    #[test]
    fn importing_a_file_suggests_to_upload_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display().to_string();
        for url in [path.clone(), format!("file://{path}")] {
            let refusal = check_url("debian", &url).unwrap_err().to_string();
            let hint = format!("upload it with: sheaf image upload debian {path}");
            assert!(refusal.ends_with(&hint), "{refusal}");
        }
        let refusal = check_url("debian", "debian.qcow2").unwrap_err().to_string();
        assert!(refusal.contains("sheaf image upload"), "{refusal}");
        for url in ["http://x/i", "HTTPS://x/i"] {
            check_url("debian", url).unwrap();
        }
    }
}
