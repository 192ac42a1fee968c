//! `sheaf image`: commands for images by their display names, thin over the API.

mod list;
mod make;

use anyhow::{Context as _, Result, anyhow};
use serde_json::Value;

use super::link::ClusterClient;
use crate::cli::ImageCommand;

const GROUP: &str = "/apis/harvesterhci.io/v1beta1";
const IMAGES: &str = "virtualmachineimages";

pub(super) fn run(command: &ImageCommand) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(dispatch(command))
}

async fn dispatch(command: &ImageCommand) -> Result<()> {
    match command {
        ImageCommand::List { place, all_namespaces } => {
            list::run(&ClusterClient::to(place).await?, *all_namespaces).await
        }
        ImageCommand::Import(args) => make::import(args).await,
        ImageCommand::Upload { image, file, wish } => make::upload(image, file, wish).await,
        ImageCommand::Export { volume, image, wish, no_wait } => {
            make::export(volume, image, wish, *no_wait).await
        }
        ImageCommand::Encrypt { clone, class } => {
            make::clone(clone, "encrypt", Some(class.as_str())).await
        }
        ImageCommand::Decrypt { clone, class } => {
            make::clone(clone, "decrypt", class.as_deref()).await
        }
        ImageCommand::Download { image, file } => make::download(image, file).await,
        ImageCommand::Delete { image, no_wait } => make::delete(image, *no_wait).await,
    }
}

fn images(link: &ClusterClient) -> String {
    format!("{GROUP}/namespaces/{}/{IMAGES}", link.namespace)
}

/// The image that people call by this name, or whose object has it.
pub(super) async fn find(link: &ClusterClient, name: &str) -> Result<Option<Value>> {
    find_in(link, &link.namespace, name).await
}

async fn find_in(link: &ClusterClient, namespace: &str, name: &str) -> Result<Option<Value>> {
    let all = link.items(&format!("{GROUP}/namespaces/{namespace}/{IMAGES}")).await?;
    let shown = all.iter().find(|image| text(image, "/spec/displayName") == name);
    let called = || all.iter().find(|image| text(image, "/metadata/name") == name);
    Ok(shown.or_else(called).cloned())
}

/// The same, for those who cannot do without it.
async fn existing(link: &ClusterClient, name: &str) -> Result<Value> {
    existing_in(link, &link.namespace, name).await
}

async fn existing_in(link: &ClusterClient, namespace: &str, name: &str) -> Result<Value> {
    let missing = || {
        anyhow!(
            "there is no image {name} in namespace {namespace}; `sheaf image list -A` shows all"
        )
    };
    find_in(link, namespace, name).await?.ok_or_else(missing)
}

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn condition<'a>(image: &'a Value, kind: &str) -> Option<&'a Value> {
    let all = image.pointer("/status/conditions").and_then(Value::as_array);
    all.into_iter().flatten().find(|own| text(own, "/type") == kind)
}

/// How an image is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ImageState {
    Ready,
    /// Percent, and what held it up last.
    Coming(i64, Option<String>),
    WaitsForUpload,
    Failed(String),
    Going,
}

fn state(image: &Value) -> ImageState {
    let is = |kind: &str, status: &str| {
        condition(image, kind).is_some_and(|own| text(own, "/status") == status)
    };
    let message = |kind: &str| condition(image, kind).map_or("", |own| text(own, "/message"));
    if !text(image, "/metadata/deletionTimestamp").is_empty() {
        return ImageState::Going;
    }
    if is("Imported", "True") {
        return ImageState::Ready;
    }
    for kind in ["Imported", "Initialized"] {
        if is(kind, "False") {
            return ImageState::Failed(message(kind).to_owned());
        }
    }
    if is("RetryLimitExceeded", "True") {
        return ImageState::Failed(message("RetryLimitExceeded").to_owned());
    }
    let progress = image.pointer("/status/progress").and_then(Value::as_i64).unwrap_or(0);
    if text(image, "/spec/sourceType") == "upload" && progress == 0 {
        return ImageState::WaitsForUpload;
    }
    // Or what it waits for.
    let messages = [message("RetryLimitExceeded"), message("Initialized")];
    let trouble = messages.into_iter().find(|message| !message.is_empty());
    ImageState::Coming(progress, trouble.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_state_is_what_the_conditions_say() {
        let image = |conditions: Value| {
            json!({"spec": {"sourceType": "download"},
                "status": {"progress": 7, "conditions": conditions}})
        };
        let one =
            |kind: &str, status: &str| json!([{"type": kind, "status": status, "message": "m"}]);
        for (conditions, expected) in [
            (json!([]), ImageState::Coming(7, None)),
            (one("Imported", "True"), ImageState::Ready),
            (one("Imported", "False"), ImageState::Failed("m".into())),
            (one("Initialized", "False"), ImageState::Failed("m".into())),
            (one("Initialized", "Unknown"), ImageState::Coming(7, Some("m".into()))),
            (one("RetryLimitExceeded", "False"), ImageState::Coming(7, Some("m".into()))),
            (one("RetryLimitExceeded", "True"), ImageState::Failed("m".into())),
        ] {
            assert_eq!(state(&image(conditions.clone())), expected, "{conditions}");
        }
        let upload = json!({"spec": {"sourceType": "upload"}});
        assert_eq!(state(&upload), ImageState::WaitsForUpload);
    }
}
