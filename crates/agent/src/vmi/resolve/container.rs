//! Container disks: an image that is pulled to the node, under a throw-away overlay.

use qemu::machine::FileImage;
use virt::v1::{ContainerDiskSource, Volume};

use super::{ResolveError, Resolved, Resolver};
use crate::volume::{Policy, Wanted};

impl Resolver<'_> {
    pub(super) async fn container(
        &self,
        volume: &Volume,
        source: &ContainerDiskSource,
    ) -> Result<Resolved, ResolveError> {
        let wanted = Wanted {
            namespace: self.vmi.namespace.clone(),
            image: source.image.clone(),
            path: source.path.clone().filter(|path| !path.is_empty()),
            secret: source.image_pull_secret.clone().filter(|name| !name.is_empty()),
            policy: policy(source),
            user: self.vmi.uid.clone(),
        };
        let found = self.context.volumes.container_disk(&wanted).await;
        let disk = found.map_err(|source| ResolveError::ContainerDisk {
            volume: volume.name.clone(),
            source,
        })?;
        let mut resolved = self.overlay(volume, FileImage::raw(disk.path)).await?;
        resolved.group = disk.group.filter(|_| self.identity.is_some());
        Ok(resolved)
    }
}

/// As Kubernetes has it: what names no version may have changed.
fn policy(source: &ContainerDiskSource) -> Policy {
    match source.image_pull_policy.as_deref() {
        Some("Always") => Policy::Always,
        Some("IfNotPresent") => Policy::IfNotPresent,
        Some("Never") => Policy::Never,
        _ => {
            let name = source.image.rsplit('/').next().unwrap_or_default();
            let fixed = name.contains('@') || name.contains(':') && !name.ends_with(":latest");
            if fixed { Policy::IfNotPresent } else { Policy::Always }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_no_version_is_looked_up_each_time() {
        for (image, expected) in [
            ("registry:5000/disk", Policy::Always),
            ("registry:5000/disk:latest", Policy::Always),
            ("registry:5000/disk:1", Policy::IfNotPresent),
            ("disk@sha256:00", Policy::IfNotPresent),
        ] {
            let source = serde_json::json!({"image": image});
            let source: ContainerDiskSource = serde_json::from_value(source).unwrap();
            assert_eq!(policy(&source), expected, "{image}");
        }
    }
}
