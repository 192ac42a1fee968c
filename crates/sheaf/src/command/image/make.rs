//! Importing, uploading, exporting and deleting images.

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use http::Request;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};

use super::{State, find, images, state, text};
use crate::cli::{Image, ImageWish, ImportArgs};
use crate::command::link::Link;
use crate::command::print;
use crate::command::send::{Progress, chunks, send};
use crate::command::table::size;

const UPLOAD: &str = "/v1/harvester/harvesterhci.io.virtualmachineimages";
const PAUSE: Duration = Duration::from_millis(200);

pub(super) async fn import(args: &ImportArgs) -> Result<()> {
    let link = Link::to(&args.image.place).await?;
    let spec = json!({"sourceType": "download", "url": args.url, "retry": args.retry});
    let image = create(&link, &args.image.name, spec, &args.wish).await?;
    if args.no_wait {
        return print(&format!("{} is asked for\n", args.image.name));
    }
    finish(&link, &image).await
}

pub(super) async fn export(
    volume: &str,
    image: &Image,
    wish: &ImageWish,
    no_wait: bool,
) -> Result<()> {
    let link = Link::to(&image.place).await?;
    let spec = json!({
        "sourceType": "export-from-volume", "pvcName": volume, "pvcNamespace": link.namespace,
    });
    let made = create(&link, &image.name, spec, wish).await?;
    if no_wait {
        return print(&format!("{} is asked for\n", image.name));
    }
    finish(&link, &made).await
}

pub(super) async fn upload(image: &Image, file: &Path, wish: &ImageWish) -> Result<()> {
    let shown = file.display();
    let input =
        tokio::fs::File::open(file).await.with_context(|| format!("cannot read {shown}"))?;
    let data = input.metadata().await.with_context(|| format!("cannot read {shown}"))?;
    if !data.is_file() {
        bail!("{shown} is not a file");
    }
    let link = Link::to(&image.place).await?;
    let found = find(&link, &image.name).await?;
    let made = match found {
        Some(found) if matches!(state(&found), State::WaitsForUpload | State::Failed(_)) => found,
        Some(_) => bail!("there is an image {} already", image.name),
        None => create(&link, &image.name, json!({"sourceType": "upload"}), wish).await?,
    };
    let (namespace, name) = (text(&made, "/metadata/namespace"), text(&made, "/metadata/name"));
    let length = data.len();
    let request = Request::post(format!("{UPLOAD}/{namespace}/{name}?action=upload&size={length}"))
        .header(HOST, link.config.cluster_url.host().unwrap_or(""))
        .header(CONTENT_TYPE, "application/octet-stream")
        .header(CONTENT_LENGTH, length)
        .body(StreamBody::new(chunks(input, Progress::new(length))).boxed_unsync())
        .context("cannot build a request")?;
    let (code, body) = send(&link, request).await.context("the upload failed")?;
    if !code.is_success() {
        let status: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let why = status["message"].as_str().unwrap_or(code.as_str());
        bail!("{why}; the same command sends it again");
    }
    finish(&link, &made).await
}

async fn create(link: &Link, name: &str, mut spec: Value, wish: &ImageWish) -> Result<Value> {
    spec["displayName"] = json!(name);
    if let Some(checksum) = &wish.checksum {
        spec["checksum"] = json!(checksum);
    }
    let mut meta = json!({"namespace": link.namespace});
    // What people call it is the object's name where that is possible.
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

/// Waits until an image is there, and shows how far it is where there is somebody to see it.
async fn finish(link: &Link, image: &Value) -> Result<()> {
    let (name, shown) = (text(image, "/metadata/name"), text(image, "/spec/displayName"));
    let path = format!("{}/{name}", images(link));
    let visible = std::io::stderr().is_terminal();
    let (mut told, mut trouble) = (-1, None);
    loop {
        let Some(now) = link.find(&path).await? else { bail!("somebody deleted {shown}") };
        match state(&now) {
            State::Ready => {
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
            State::Failed(why) => bail!(
                "{shown} cannot be imported: {why}\n\
                 `sheaf image delete {shown}` takes it back"
            ),
            State::Going => bail!("somebody deletes {shown}"),
            State::Coming(percent, held_up) => {
                if visible && percent != told {
                    told = percent;
                    eprint!("\rimporting {shown}: {percent:3} %");
                }
                if held_up.is_some() && held_up != trouble {
                    let why = held_up.as_deref().unwrap_or_default();
                    eprintln!("\r{why}; it will be tried again");
                    trouble = held_up;
                }
            }
            State::WaitsForUpload => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}

pub(super) async fn delete(image: &Image, no_wait: bool) -> Result<()> {
    let link = Link::to(&image.place).await?;
    let shown = &image.name;
    let Some(found) = find(&link, shown).await? else {
        bail!(
            "there is no image {shown} in namespace {}; `sheaf image list -A` shows all",
            link.namespace
        );
    };
    let path = format!("{}/{}", images(&link), text(&found, "/metadata/name"));
    link.delete(&path).await?;
    let uid = text(&found, "/metadata/uid");
    if no_wait {
        return print(&format!("{shown} is being deleted\n"));
    }
    let is_there = |now: Option<Value>| now.is_some_and(|now| text(&now, "/metadata/uid") == uid);
    while is_there(link.find(&path).await?) {
        tokio::time::sleep(PAUSE).await;
    }
    print(&format!("{shown} is deleted\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_say_is_a_name_where_it_can_be() {
        for (text, expected) in
            [("debian-12", true), ("Debian", false), ("a.b", false), ("-a", false), ("", false)]
        {
            assert_eq!(is_name(text), expected, "{text}");
        }
    }
}
