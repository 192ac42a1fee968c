//! `sheaf vm create`: a machine from an image. Everything that can be checked is checked before
//! the first object is created, and a machine whose image cannot be uploaded is deleted again.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::manifest::{self, BootSource, VmRequest};
use super::{upload, user_data};
use crate::cli::CreateArgs;
use crate::command::disk_file::{self, DiskSize};
use crate::command::link::ClusterClient;
use crate::command::volume::quantity;
use crate::command::{image, image_address, interrupt};

/// The name is also a label of the instance.
const LONGEST_NAME: usize = 63;
/// Room for an image whose size is not known before it is fetched.
const UNKNOWN_SIZE: &str = "10Gi";

pub(super) async fn run(args: &CreateArgs) -> Result<()> {
    if args.machine.name.len() > LONGEST_NAME {
        bail!("the name of a machine has at most {LONGEST_NAME} characters");
    }
    let DiskOrigin { source, file, size } = origin(args).await?;
    let size = disk_size(args.disk, &size)?;
    let user_data = user_data::of(args)?;
    let wish = VmRequest {
        name: &args.machine.name,
        namespace: &args.machine.place.namespace,
        cpus: args.cpus,
        memory: &quantity(args.memory),
        storage_class: args.storage_class.as_deref(),
        efi: args.efi,
        started: !args.stopped,
        user_data,
    };
    let machine = manifest::machine(&wish, &source, &size);
    if args.dry_run {
        let text = serde_json::to_string_pretty(&machine).context("cannot print the machine")?;
        let claim = manifest::claim(&machine, &source, &size);
        let claim = claim.map(|claim| serde_json::to_string_pretty(&claim)).transpose();
        let claim = claim.context("cannot print the claim")?;
        let more = claim.map_or_else(String::new, |claim| format!("{claim}\n"));
        return crate::command::print(&format!("{text}\n{more}"));
    }
    let link = ClusterClient::to(&args.machine.place).await?;
    if let Some(class) = &args.storage_class {
        check_class(&link, class).await?;
    }
    let made = link.post(&link.objects("virtualmachines"), &machine).await?;
    if let Some(claim) = manifest::claim(&made, &source, &size) {
        link.post(&link.core("persistentvolumeclaims"), &claim).await?;
    }
    if let Some(file) = file {
        send_image(&link, wish.name, &file).await?;
    }
    print_next_steps(wish.name, &link.namespace, args.stopped)
}

/// Refuses a storage class that does not exist. A user who may not read classes is not told.
async fn check_class(link: &ClusterClient, class: &str) -> Result<()> {
    let found = link.find(&format!("/apis/storage.k8s.io/v1/storageclasses/{class}")).await;
    if matches!(found, Ok(None)) {
        bail!(
            "--storage-class {class}: there is no storage class {class}; `kubectl get storageclass` \
             lists them"
        );
    }
    Ok(())
}

/// Uploads the image of a new machine. A machine without its image is of no use: it is deleted
/// if that fails or is interrupted.
async fn send_image(link: &ClusterClient, name: &str, file: &Path) -> Result<()> {
    let disk = format!("{name}-disk");
    let stopped = "the upload has stopped";
    let sent = interrupt::or_report(upload::run(link, &disk, file), stopped).await;
    let Err(failure) = sent else { return Ok(()) };
    match link.delete(&link.machine(name)).await {
        Ok(()) => Err(failure.context(format!("machine {name} was not created"))),
        Err(_) => Err(failure.context(format!(
            "machine {name} has no image; delete it with: sheaf vm delete {name}"
        ))),
    }
}

/// The size of the disk: as asked for, if the image fits, or that of the image.
fn disk_size(asked: Option<u64>, image: &ImageSize) -> Result<String> {
    match (asked, image) {
        (Some(asked), ImageSize::Known(image)) if asked < *image => {
            bail!("--disk {}: the image needs at least {}", quantity(asked), quantity(*image))
        }
        (Some(asked), _) => Ok(quantity(asked)),
        (None, ImageSize::Known(image)) => Ok(quantity(*image)),
        (None, ImageSize::Remote) => Ok(UNKNOWN_SIZE.to_owned()),
        (None, ImageSize::Unknown(why)) => {
            bail!("{why}, so the size of its disk is not known; add --disk SIZE")
        }
    }
}

fn print_next_steps(name: &str, namespace: &str, stopped: bool) -> Result<()> {
    let place =
        if namespace == "default" { String::new() } else { format!(" --namespace {namespace}") };
    let first = if stopped { "start" } else { "console" };
    crate::command::print(&format!(
        "machine {name} is created. Next:\n  sheaf vm {first} {name}{place}\n  sheaf vm why {name}{place}\n"
    ))
}

/// The boot source of a machine.
struct DiskOrigin {
    source: BootSource,
    /// The file to upload.
    file: Option<PathBuf>,
    size: ImageSize,
}

/// How large the disk in an image is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ImageSize {
    Known(u64),
    /// It is known only when a node has fetched it.
    Remote,
    /// It cannot be read from the file; the reason.
    Unknown(String),
}

async fn origin(args: &CreateArgs) -> Result<DiskOrigin> {
    if let Some(known) = known(args).await? {
        return Ok(known);
    }
    let file = local(&args.image)?;
    let source = match (&file, args.image.strip_prefix(image_address::REGISTRY)) {
        (Some(_), _) => BootSource::Upload,
        (None, Some(_)) => BootSource::Registry(args.image.clone()),
        (None, None) => BootSource::Url(args.image.clone()),
    };
    let size = match &file {
        None => ImageSize::Remote,
        Some(file) => {
            let size = disk_file::inspect(file).with_context(|| format!("--image {}", args.image));
            match size? {
                DiskSize::Known(size) => ImageSize::Known(size),
                DiskSize::Unknown(why) => ImageSize::Unknown(why),
            }
        }
    };
    Ok(DiskOrigin { source, file, size })
}

/// An image of the cluster, if there is one of this name and no file.
async fn known(args: &CreateArgs) -> Result<Option<DiskOrigin>> {
    let name = &args.image;
    if name.contains("://") || name.contains('/') || Path::new(name).is_file() {
        return Ok(None);
    }
    let link = ClusterClient::to(&args.machine.place).await?;
    let Some(found) = image::find(&link, name).await? else { return Ok(None) };
    let class = image::text(&found, "/status/storageClassName").to_owned();
    let size = found["status"]["virtualSize"].as_u64().filter(|size| *size > 0);
    let Some(size) = size.filter(|_| !class.is_empty()) else {
        bail!("--image {name}: the image is not ready; `sheaf image list` shows its progress");
    };
    if args.storage_class.is_some() {
        bail!("--storage-class: a machine of image {name} uses the image's own class {class}");
    }
    let place = image::text(&found, "/metadata/namespace");
    let id = format!("{place}/{}", image::text(&found, "/metadata/name"));
    let source = BootSource::Image { id, class };
    Ok(Some(DiskOrigin { source, file: None, size: ImageSize::Known(size) }))
}

/// The file that an image names; nothing for a URL.
fn local(image: &str) -> Result<Option<PathBuf>> {
    if let Some((scheme, _)) = image.split_once("://") {
        let checked = match scheme {
            "http" | "https" => image_address::check_url(image),
            "docker" => image_address::check_registry(image),
            _ => bail!(
                "--image {image}: {scheme} is not supported; use http, https, docker or a file"
            ),
        };
        return checked.map(|()| None).context("--image");
    }
    let path = PathBuf::from(image);
    if path.exists() && !path.is_file() {
        bail!("--image {image}: this is neither a file nor the name of an image");
    }
    if !path.is_file() {
        bail!("--image {image}: there is no such image and no such file");
    }
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_a_file_or_an_address() {
        let here = tempfile::NamedTempFile::new().unwrap();
        let path = here.path().display().to_string();
        assert_eq!(local(&path).unwrap(), Some(here.path().to_owned()));
        for address in ["http://example.org/a", "docker://example.org/a"] {
            assert_eq!(local(address).unwrap(), None);
        }
        for (wrong, expected) in [
            ("http://", "is not a URL"),
            ("docker://", "is not the name of an image"),
            ("ftp://x/y", "ftp is not supported"),
            ("/", "neither a file nor"),
            ("none", "no such image and no such file"),
        ] {
            let refused = format!("{:#}", local(wrong).unwrap_err());
            assert!(refused.contains("--image") && refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn a_disk_holds_its_image() {
        let known = ImageSize::Known(2 << 30);
        assert_eq!(disk_size(Some(4 << 30), &known).unwrap(), "4Gi");
        assert_eq!(disk_size(None, &known).unwrap(), "2Gi");
        let refused = disk_size(Some(1 << 30), &known).unwrap_err().to_string();
        assert_eq!(refused, "--disk 1Gi: the image needs at least 2Gi");
        assert_eq!(disk_size(None, &ImageSize::Remote).unwrap(), UNKNOWN_SIZE);
        let unknown = ImageSize::Unknown("x.gz is compressed".into());
        assert_eq!(disk_size(Some(1 << 30), &unknown).unwrap(), "1Gi");
        assert!(disk_size(None, &unknown).unwrap_err().to_string().contains("--disk"));
    }
}
