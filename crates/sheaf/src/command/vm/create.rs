//! `sheaf vm create`: a machine from an image, in one line.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::manifest::{self, Source, Wish};
use super::upload;
use crate::cli::CreateArgs;
use crate::command::link::Link;

/// Room for an image whose size is not known before it is fetched.
const UNKNOWN_SIZE: &str = "10Gi";

pub(super) async fn run(args: &CreateArgs) -> Result<()> {
    let file = local(&args.image)?;
    let source = match (&file, args.image.strip_prefix("docker://")) {
        (Some(_), _) => Source::Upload,
        (None, Some(_)) => Source::Registry(args.image.clone()),
        (None, None) => Source::Url(args.image.clone()),
    };
    let size = match (&args.disk, &file) {
        (Some(size), _) => size.clone(),
        (None, Some(file)) => upload::virtual_size(file)?.to_string(),
        (None, None) => UNKNOWN_SIZE.to_owned(),
    };
    let user_data = match &args.user_data {
        Some(path) => Some(read(path)?),
        None => {
            let keys: Result<Vec<String>> = args.ssh_key.iter().map(|path| key(path)).collect();
            manifest::user_data(&args.machine.name, &keys?, args.password.as_deref())
        }
    };
    let wish = Wish {
        name: &args.machine.name,
        namespace: &args.machine.place.namespace,
        cpus: args.cpus,
        memory: &args.memory,
        storage_class: args.storage_class.as_deref(),
        efi: args.efi,
        started: !args.stopped,
        user_data,
    };
    let machine = manifest::machine(&wish, &source, &size);
    if args.dry_run {
        let text = serde_json::to_string_pretty(&machine).context("cannot print the machine")?;
        return crate::command::print(&format!("{text}\n"));
    }
    let link = Link::to(&args.machine.place).await?;
    link.post(&link.objects("virtualmachines"), &machine).await?;
    if let Some(file) = file {
        upload::run(&link, &format!("{}-disk", wish.name), &file).await?;
    }
    tell_next(wish.name, &link.namespace, args.stopped)
}

fn tell_next(name: &str, namespace: &str, stopped: bool) -> Result<()> {
    let place =
        if namespace == "default" { String::new() } else { format!(" --namespace {namespace}") };
    let first = if stopped { "start" } else { "console" };
    crate::command::print(&format!(
        "{name} is made. Next:\n  sheaf vm {first} {name}{place}\n  sheaf vm why {name}{place}\n"
    ))
}

/// The file that an image names; nothing for a URL.
fn local(image: &str) -> Result<Option<PathBuf>> {
    if let Some((scheme, _)) = image.split_once("://") {
        if ["http", "https", "docker"].contains(&scheme) {
            return Ok(None);
        }
        bail!("--image {image}: {scheme} is not supported; use http, https, docker or a file");
    }
    let path = PathBuf::from(image);
    if !path.is_file() {
        bail!("--image {image}: there is no such file");
    }
    Ok(Some(path))
}

fn key(path: &Path) -> Result<String> {
    let text = read(path)?;
    let line = text.trim();
    if line.contains("PRIVATE KEY") {
        bail!("--ssh-key {}: this is a private key; the public one ends in .pub", path.display());
    }
    if line.is_empty() || line.lines().count() != 1 {
        bail!("--ssh-key {}: must hold one public key", path.display());
    }
    Ok(line.to_owned())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
