//! `sheaf volume`: commands for volumes by the names of their claims, thin over the API.

mod grow;
mod list;
mod make;
mod salvage;
mod status;
mod wait;

pub(super) use wait::obstacle;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::link::ClusterClient;
use crate::cli::{VolumeClaim, VolumeCommand};

const LONGHORN: &str = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system";

pub(super) fn run(command: &VolumeCommand) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(dispatch(command))
}

async fn dispatch(command: &VolumeCommand) -> Result<()> {
    match command {
        VolumeCommand::List { place, all_namespaces } => {
            list::run(&ClusterClient::to(place).await?, *all_namespaces).await
        }
        VolumeCommand::Create(new) => make::create(new).await,
        VolumeCommand::Grow { volume, size, no_wait } => grow::run(volume, *size, *no_wait).await,
        VolumeCommand::Snapshot(taking) => make::snapshot(taking).await,
        VolumeCommand::Clone { volume, new, size, no_wait } => {
            make::clone(volume, new, *size, *no_wait).await
        }
        VolumeCommand::Delete { volume, no_wait } => make::delete(volume, *no_wait).await,
        VolumeCommand::Status { volume } => status::run(volume).await,
        VolumeCommand::Salvage { volume, replica, yes } => {
            salvage::run(volume, replica.as_deref(), *yes).await
        }
    }
}

fn claim_path(link: &ClusterClient, name: &str) -> String {
    link.core(&format!("persistentvolumeclaims/{name}"))
}

/// The claim, or a complaint that helps.
async fn find_claim(link: &ClusterClient, volume: &VolumeClaim) -> Result<Value> {
    let name = &volume.name;
    match link.find(&claim_path(link, name)).await? {
        Some(claim) => Ok(claim),
        None => bail!(
            "there is no volume {name} in namespace {}; `sheaf volume list -A` shows all",
            link.namespace
        ),
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Machines that have a claim as a disk.
fn users<'a>(machines: &'a [Value], claim: &Value) -> Vec<&'a str> {
    let (name, namespace) = (text(claim, "/metadata/name"), text(claim, "/metadata/namespace"));
    let uses = |machine: &&Value| {
        let volumes = machine.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
        text(machine, "/metadata/namespace") == namespace
            && volumes.into_iter().flatten().any(|volume| {
                text(volume, "/persistentVolumeClaim/claimName") == name
                    || text(volume, "/dataVolume/name") == name
            })
    };
    machines.iter().filter(uses).map(|machine| text(machine, "/metadata/name")).collect()
}

/// Bytes of a size as the API writes it: `10Gi`, `1073741824`.
fn bytes(quantity: &str) -> Option<i64> {
    let digits = quantity.find(|c: char| !c.is_ascii_digit()).unwrap_or(quantity.len());
    let (number, unit) = quantity.split_at(digits);
    let factor: i64 = match unit {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        _ => return None,
    };
    number.parse::<i64>().ok()?.checked_mul(factor)
}

/// The same the other way round, in the largest unit that is exact.
pub(super) fn quantity(bytes: u64) -> String {
    let units = [(40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
    let whole =
        units.iter().find(|(shift, _)| bytes >> shift > 0 && bytes.is_multiple_of(1 << shift));
    whole.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// A size of the API for people; one that cannot be read is shown as it is.
fn human(quantity: &str) -> String {
    bytes(quantity).map_or_else(|| quantity.to_owned(), super::table::size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_both_ways() {
        for (text, size) in
            [("1Gi", 1 << 30), ("1536Mi", 3 << 29), ("4096", 4096), ("1G", 1_000_000_000)]
        {
            assert_eq!(bytes(text), Some(size), "{text}");
        }
        assert_eq!((bytes("x"), bytes("1.5Gi"), bytes("9999999999Ti")), (None, None, None));
        assert_eq!(
            (quantity(3 << 29), quantity(10 << 30), quantity(7)),
            ("1536Mi".into(), "10Gi".into(), "7".into())
        );
        assert_eq!((human("1536Mi"), human("1.5Gi")), ("1.5 GiB".to_owned(), "1.5Gi".to_owned()));
    }
}
