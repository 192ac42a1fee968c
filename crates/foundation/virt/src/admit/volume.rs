//! Admission of the volumes behind disks.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::Causes;
use super::spec::CheckedSpec;
use crate::api::atom::LocalObjectReference;
use crate::v1::{HostDisk, Volume};

pub(super) fn check(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let all = judged.field("volumes");
    let volumes = &judged.spec.volumes;
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, volume) in volumes.iter().enumerate() {
        let at = format!("{all}[{index}]");
        let other = *first.entry(&volume.name).or_insert(index);
        if other != index {
            let message = format!("{at} and {all}[{other}] must not have the same Name.");
            causes.invalid(format!("{at}.name"), message);
        }
        if volume.data_volume.as_ref().is_some_and(|source| source.name.is_empty()) {
            causes.required(format!("{at}.name"), "DataVolume 'name' must be set");
        }
        if sources(volume) != 1 {
            let message = format!("{at} must have exactly one source type set");
            causes.invalid(at.clone(), message);
        }
        check_cloud_init(&at, volume, causes);
        if volume.downward_metrics.is_some() && !judged.config.has("DownwardMetrics") {
            causes.invalid(
                at.clone(),
                "downwardMetrics disks are not allowed: DownwardMetrics feature gate is not enabled.",
            );
        }
        if let Some(disk) = &volume.host_disk {
            check_host_disk(&at, disk, judged.config.has("HostDisk"), causes);
        }
        check_names(&at, volume, causes);
    }
    at_most_one(&all, volumes, causes);
    for (index, volume) in volumes.iter().enumerate() {
        let path = volume.container_disk.as_ref().and_then(|disk| disk.path.as_deref());
        if let Some(path) = path.filter(|path| !path.is_empty()) {
            check_path(&format!("{all}[{index}].containerDisk"), path, causes);
        }
    }
}

fn sources(volume: &Volume) -> usize {
    let sources = [
        volume.persistent_volume_claim.is_some(),
        volume.sysprep.is_some(),
        volume.cloud_init_no_cloud.is_some(),
        volume.cloud_init_config_drive.is_some(),
        volume.container_disk.is_some(),
        volume.ephemeral.is_some(),
        volume.empty_disk.is_some(),
        volume.host_disk.is_some(),
        volume.data_volume.is_some(),
        volume.config_map.is_some(),
        volume.secret.is_some(),
        volume.downward_api.is_some(),
        volume.service_account.is_some(),
        volume.downward_metrics.is_some(),
        volume.memory_dump.is_some(),
        volume.container_path.is_some(),
    ];
    sources.into_iter().filter(|used| *used).count()
}

/// User data or network data of cloud-init.
struct CloudInitPart<'a> {
    /// `userData` or `networkData`.
    name: &'static str,
    secret: Option<&'a LocalObjectReference>,
    encoded: &'a str,
    plain: &'a str,
}

/// The longest data that is in the object itself.
const MOST_BYTES: usize = 2048;

fn check_cloud_init(at: &str, volume: &Volume, causes: &mut Causes) {
    let text = |text: &'_ Option<String>| text.as_deref().unwrap_or_default().to_owned();
    let (kind, texts, secrets) = if let Some(source) = &volume.cloud_init_no_cloud {
        (
            "cloudInitNoCloud",
            [
                &source.user_data_base64,
                &source.user_data,
                &source.network_data_base64,
                &source.network_data,
            ]
            .map(text),
            [source.secret_ref.as_ref(), source.network_data_secret_ref.as_ref()],
        )
    } else if let Some(source) = &volume.cloud_init_config_drive {
        (
            "cloudInitConfigDrive",
            [
                &source.user_data_base64,
                &source.user_data,
                &source.network_data_base64,
                &source.network_data,
            ]
            .map(text),
            [source.secret_ref.as_ref(), source.network_data_secret_ref.as_ref()],
        )
    } else {
        return;
    };
    let at = format!("{at}.{kind}");
    let [user64, user, network64, network] = &texts;
    let [user_secret, network_secret] = secrets;
    let user =
        CloudInitPart { name: "userData", secret: user_secret, encoded: user64, plain: user };
    let network = CloudInitPart {
        name: "networkData",
        secret: network_secret,
        encoded: network64,
        plain: network,
    };
    let users = check_part(&at, kind, &user, "userdatasource", "UserDataSecretRef", causes);
    let networks =
        check_part(&at, kind, &network, "networkdata source", "NetworkDataSecretRef", causes);
    if users == 0 && networks == 0 {
        let message =
            format!("{at} must have at least one userdatasource or one networkdatasource set.");
        causes.invalid(at, message);
    }
}

/// Returns how many sources a part has.
fn check_part(
    at: &str,
    kind: &str,
    part: &CloudInitPart<'_>,
    noun: &str,
    better: &str,
    causes: &mut Causes,
) -> usize {
    let mut count = 0;
    let mut length = 0;
    let has_name =
        |secret: &LocalObjectReference| secret.name.as_deref().is_some_and(|n| !n.is_empty());
    if part.secret.is_some_and(has_name) {
        count += 1;
    }
    if !part.encoded.is_empty() {
        count += 1;
        match BASE64_STANDARD.decode(part.encoded) {
            Ok(data) => length = data.len(),
            Err(_) => {
                // The kind is twice in upstream's text.
                let field = format!("{at}.{}Base64", part.name);
                let message =
                    format!("{field}.{kind}.{}Base64 is not a valid base64 value.", part.name);
                causes.invalid(field, message);
            }
        }
    }
    if !part.plain.is_empty() {
        count += 1;
        length = part.plain.len();
    }
    if count > 1 {
        causes.invalid(at, format!("{at} must have only one {noun} set."));
    }
    if length > MOST_BYTES {
        let name = part.name.to_ascii_lowercase();
        let message = format!(
            "{at} {name} exceeds {MOST_BYTES} byte limit. Should use {better} for larger data."
        );
        causes.invalid(at, message);
    }
    count
}

fn check_host_disk(at: &str, disk: &HostDisk, allowed: bool, causes: &mut Causes) {
    if !allowed {
        causes.invalid(at, "HostDisk feature gate is not enabled");
    }
    let field = |part: &str| format!("{at}.hostDisk.{part}");
    if disk.path.is_empty() {
        let path = field("path");
        let message = format!("{path} is required for hostDisk volume");
        causes.not_found(path, message);
    }
    let kind = disk.r#type.as_str();
    if !matches!(kind, "Disk" | "DiskOrCreate") {
        let message = format!(
            "{} has invalid value '{kind}', allowed are 'Disk' or 'DiskOrCreate'",
            field("type")
        );
        causes.invalid(field("type"), message);
    }
    let capacity = disk.capacity.as_ref().and_then(|capacity| capacity.amount());
    if kind == "Disk" && capacity.is_some_and(|capacity| !capacity.is_zero()) {
        let message = format!(
            "{} is allowed to pass only with {} equal to 'DiskOrCreate'",
            field("capacity"),
            field("type")
        );
        causes.invalid(field("capacity"), message);
    }
}

fn check_names(at: &str, volume: &Volume, causes: &mut Causes) {
    let named = [
        ("configMap.name", volume.config_map.as_ref().map(|source| &source.name)),
        ("secret.secretName", volume.secret.as_ref().map(|source| &source.secret_name)),
        (
            "serviceAccount.serviceAccountName",
            volume.service_account.as_ref().map(|source| &source.service_account_name),
        ),
    ];
    for (field, name) in named {
        let Some(name) = name else { continue };
        if name.as_deref().unwrap_or_default().is_empty() {
            let field = format!("{at}.{field}");
            let message = format!("{field} is a required field");
            causes.invalid(field, message);
        }
    }
}

fn at_most_one(all: &str, volumes: &[Volume], causes: &mut Causes) {
    let count = |used: fn(&Volume) -> bool| volumes.iter().filter(|volume| used(volume)).count();
    let kinds = [
        ("serviceAccount", count(|volume| volume.service_account.is_some())),
        ("downwardMetric", count(|volume| volume.downward_metrics.is_some())),
        ("memory dump", count(|volume| volume.memory_dump.is_some())),
    ];
    for (kind, _) in kinds.into_iter().filter(|(_, count)| *count > 1) {
        causes.invalid(all, format!("{all} must have max one {kind} volume set"));
    }
}

/// A file inside an image: absolute, not the root, without `.` and `..`.
pub(super) fn check_path(field: &str, path: &str, causes: &mut Causes) {
    if path == "/" {
        causes.invalid(field, format!("{field} must not point to root"));
        return;
    }
    let inner = path.strip_suffix('/').unwrap_or(path).strip_prefix('/');
    let plain = |inner: &str| inner.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if !inner.is_some_and(plain) {
        let message =
            format!("{field} must be an absolute path to a file without relative components");
        causes.invalid(field, message);
    }
}
