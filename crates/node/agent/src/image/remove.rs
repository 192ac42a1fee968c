//! Removes an image from the disks of this node, and lets its object go. Refuses while a replica
//! here begins with the image.

use std::path::PathBuf;

use client::Fault;
use hci::longhorn::FINALIZER;
use kube::Client;
use kube::api::{DynamicObject, ListParams};
use serde_json::json;
use tracing::info;

use super::files::Folder;
use crate::api::{merge, present};
use crate::storage::longhorn;

/// Why an image is not removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RemoveError {
    #[error("replica {replica} begins with it")]
    Used { replica: String },
    #[error("cannot check image users or release the image")]
    Request(#[source] Fault),
    #[error("cannot remove {}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("its removal was interrupted")]
    Interrupted,
}

/// Removes an image from this node's disks, unless a replica here needs it, and lets it go.
pub(super) async fn remove(
    client: &Client,
    node: &str,
    name: &str,
    from: Vec<PathBuf>,
) -> Result<(), RemoveError> {
    let request = |failure| RemoveError::Request(Fault(failure));
    let replicas = longhorn(client, "Replica", "replicas");
    let replicas = replicas.list(&ListParams::default()).await.map_err(request)?;
    let uses = |it: &&DynamicObject| {
        it.data["spec"]["backingImage"] == name && it.data["spec"]["nodeID"] == node
    };
    if let Some(user) = replicas.items.iter().find(uses) {
        let replica = user.metadata.name.clone().unwrap_or_default();
        return Err(RemoveError::Used { replica });
    }
    for path in from {
        let folder = Folder(path.clone());
        let removed = tokio::task::spawn_blocking(move || folder.remove()).await;
        let removed = removed.map_err(|_| RemoveError::Interrupted)?;
        removed.map_err(|source| RemoveError::File { path, source })?;
    }
    let api = longhorn(client, "BackingImage", "backingimages");
    let Some(found) = present(api.get_metadata(name).await).map_err(request)? else {
        return Ok(());
    };
    let finalizers = found.metadata.finalizers.unwrap_or_default();
    let rest: Vec<&String> = finalizers.iter().filter(|own| *own != FINALIZER).collect();
    let patch = json!({"metadata": {
        "resourceVersion": found.metadata.resource_version, "finalizers": rest,
    }});
    present(merge(&api, name, &patch).await).map_err(request)?;
    info!(image = name, "image is removed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::tests::refusing;

    #[tokio::test]
    async fn nothing_is_removed_while_its_users_are_not_known() {
        let (client, _) = refusing(403);
        let folder = tempfile::tempdir().unwrap();
        let removed = remove(&client, "one", "i", vec![folder.path().to_owned()]).await;
        assert!(matches!(removed, Err(RemoveError::Request(_))), "{removed:?}");
        assert!(folder.path().exists());
    }
}
