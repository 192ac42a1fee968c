//! Content of container images: disks, under a throw-away overlay, and kernels to boot.

use qemu::machine::{FileImage, Kernel};
use virt::v1::{ContainerDiskSource, KernelBootContainer, Volume};

use super::{ResolveError, Resolved, Resolver};
use crate::volume::{ContainerDisk, Content, PullPolicy, WantedContainerDisk};

/// A kernel from an image, and the groups that may read its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundKernel {
    pub(crate) kernel: Kernel,
    pub(crate) groups: Vec<u32>,
}

impl Resolver<'_> {
    pub(super) async fn container(
        &self,
        volume: &Volume,
        source: &ContainerDiskSource,
    ) -> Result<Resolved, ResolveError> {
        let policy = policy(&source.image, source.image_pull_policy.as_deref());
        let wanted = WantedContainerDisk {
            namespace: self.vmi.namespace.clone(),
            image: source.image.clone(),
            path: source.path.clone().filter(|path| !path.is_empty()),
            content: Content::Disk,
            secret: source.image_pull_secret.clone().filter(|name| !name.is_empty()),
            policy,
            user: self.asking(policy),
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

    /// The kernel that is to be loaded without a boot loader, if there is one.
    pub(crate) async fn kernel(&self) -> Result<Option<FoundKernel>, ResolveError> {
        let firmware = self.vmi.spec.domain.firmware.as_ref();
        let Some(boot) = firmware.and_then(|firmware| firmware.kernel_boot.as_ref()) else {
            return Ok(None);
        };
        let Some(container) = &boot.container else { return Ok(None) };
        let Some(image) = self.boot_file(container, container.kernel_path.as_deref()).await? else {
            return Err(ResolveError::Volume {
                volume: "kernelBoot".into(),
                problem: "an initrd needs a kernelPath beside it".into(),
            });
        };
        let initrd = self.boot_file(container, container.initrd_path.as_deref()).await?;
        let groups = [Some(&image), initrd.as_ref()].into_iter().flatten();
        let groups = groups.filter_map(|file| file.group).collect();
        let kernel = Kernel {
            image: image.path,
            initrd: initrd.map(|file| file.path),
            arguments: boot.kernel_args.clone().unwrap_or_default(),
        };
        Ok(Some(FoundKernel { kernel, groups }))
    }

    /// Machines share a pull, unless each start has to check for a newer image.
    fn asking(&self, policy: PullPolicy) -> String {
        if policy == PullPolicy::Always { self.vmi.uid.clone() } else { String::new() }
    }

    async fn boot_file(
        &self,
        container: &KernelBootContainer,
        path: Option<&str>,
    ) -> Result<Option<ContainerDisk>, ResolveError> {
        let Some(path) = path.filter(|path| !path.is_empty()) else { return Ok(None) };
        let policy = policy(&container.image, container.image_pull_policy.as_deref());
        let wanted = WantedContainerDisk {
            namespace: self.vmi.namespace.clone(),
            image: container.image.clone(),
            path: Some(path.to_owned()),
            content: Content::Plain,
            secret: container.image_pull_secret.clone().filter(|name| !name.is_empty()),
            policy,
            user: self.asking(policy),
        };
        let found = self.context.volumes.container_disk(&wanted).await;
        let named = |source| ResolveError::ContainerDisk { volume: "kernelBoot".into(), source };
        found.map(Some).map_err(named)
    }
}

/// As in Kubernetes: an image without a version may have changed.
fn policy(image: &str, wanted: Option<&str>) -> PullPolicy {
    match wanted {
        Some("Always") => PullPolicy::Always,
        Some("IfNotPresent") => PullPolicy::IfNotPresent,
        Some("Never") => PullPolicy::Never,
        _ => {
            let name = image.rsplit('/').next().unwrap_or_default();
            let fixed = name.contains('@') || name.contains(':') && !name.ends_with(":latest");
            if fixed { PullPolicy::IfNotPresent } else { PullPolicy::Always }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_a_version_is_pulled_each_time() {
        for (image, expected) in [
            ("registry:5000/disk", PullPolicy::Always),
            ("registry:5000/disk:latest", PullPolicy::Always),
            ("registry:5000/disk:1", PullPolicy::IfNotPresent),
            ("disk@sha256:00", PullPolicy::IfNotPresent),
        ] {
            assert_eq!(policy(image, None), expected, "{image}");
            assert_eq!(policy(image, Some("Never")), PullPolicy::Never);
        }
    }
}
