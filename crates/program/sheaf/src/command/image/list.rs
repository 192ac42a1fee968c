//! `sheaf image list`: a line for each image.

use anyhow::Result;
use serde_json::Value;

use super::{GROUP, IMAGES, ImageState, images, state, text};
use crate::command::link::ClusterClient;
use crate::command::table::{align, size};

pub(super) async fn run(link: &ClusterClient, everywhere: bool) -> Result<()> {
    let path = if everywhere { format!("{GROUP}/{IMAGES}") } else { images(link) };
    let all = link.items(&path).await?;
    if all.is_empty() {
        let place =
            if everywhere { String::new() } else { format!(" in namespace {}", link.namespace) };
        eprintln!("No images{place}. Import one with: sheaf image import NAME URL");
        return Ok(());
    }
    crate::command::print(&table(&all, everywhere))
}

fn table(images: &[Value], everywhere: bool) -> String {
    let head = ["NAMESPACE", "NAME", "STATE", "SIZE", "DISK", "CLASS", "WHY"];
    let skip = usize::from(!everywhere);
    let mut rows = vec![head.iter().skip(skip).map(|cell| (*cell).to_owned()).collect()];
    for image in images {
        let bytes = |pointer: &str| {
            let count = image.pointer(pointer).and_then(Value::as_i64).filter(|bytes| *bytes > 0);
            count.map(size).unwrap_or_default()
        };
        let (word, why) = match state(image) {
            ImageState::Ready if is_encrypted(image) => ("ready, encrypted".to_owned(), None),
            ImageState::Ready => ("ready".to_owned(), None),
            ImageState::Coming(percent, trouble) => (format!("importing, {percent} %"), trouble),
            ImageState::WaitsForUpload => ("waits for upload".to_owned(), None),
            ImageState::Failed(why) => ("failed".to_owned(), Some(why)),
            ImageState::Going => ("deleting".to_owned(), None),
        };
        let cells = [
            text(image, "/metadata/namespace").to_owned(),
            text(image, "/spec/displayName").to_owned(),
            word,
            bytes("/status/size"),
            bytes("/status/virtualSize"),
            text(image, "/status/storageClassName").to_owned(),
            why.unwrap_or_default(),
        ];
        rows.push(cells.into_iter().skip(skip).collect());
    }
    align(&rows)
}

fn is_encrypted(image: &Value) -> bool {
    text(image, "/spec/securityParameters/cryptoOperation") == "encrypt"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_has_state_sizes_and_class() {
        let ready = json!({"metadata": {"namespace": "default"}, "spec": {"displayName": "debian"},
            "status": {"size": 3_i64 << 29, "virtualSize": 2_i64 << 30, "storageClassName": "lh-1",
                "conditions": [{"type": "Imported", "status": "True"}]}});
        let failed = json!({"metadata": {"namespace": "default"}, "spec": {"displayName": "x"},
            "status": {"conditions": [
                {"type": "Initialized", "status": "False", "message": "no such host"}]}});
        let expected = "\
NAME     STATE    SIZE      DISK    CLASS   WHY
debian   ready    1.5 GiB   2 GiB   lh-1    -
x        failed   -         -       -       no such host
";
        assert_eq!(table(&[ready, failed], false), expected);
    }
}
