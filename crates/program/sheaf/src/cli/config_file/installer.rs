//! Keys of Harvester's installer, so that its files for unattended machines can be kept.
//!
//! Keys that configure the cluster or the node become flags. Keys about the operating system,
//! which Sheaf does not install, are ignored with a message. Keys that ask for something that is
//! not there yet are errors: a machine that came up without it would surprise.

use serde_json::{Map, Value};

use super::{KeyError, Translation, normal, object, scalar, unknown, wrong};

/// The port that a URL without one means.
const API_PORT: u16 = 6443;
const OPERATING_SYSTEM: &str = "the operating system is not installed or configured by Sheaf";

/// Translates a top-level key; false if it is none of the installer's.
pub(super) fn translate(
    key: &str,
    value: &Value,
    into: &mut Translation,
) -> Result<bool, KeyError> {
    match normal(key).as_str() {
        "scheme-version" if *value == 1 => {}
        "scheme-version" => return Err(wrong(key, "1", value)),
        "server-url" => into.flag("join", &join_url(key, &scalar(key, value)?)?),
        "sans" => {
            let names = value.as_array().ok_or_else(|| wrong(key, "a list", value))?;
            for name in names {
                into.flag("tls-san", &scalar(key, name)?);
            }
        }
        "install" => install(object(key, value)?, into)?,
        "os" => operating_system(object(key, value)?, into)?,
        "system-settings" => pairs(key, value, "system-setting", into)?,
        "runtime" | "shutdown" => into.ignored.push((key.to_owned(), OPERATING_SYSTEM)),
        _ => return Ok(false),
    }
    Ok(true)
}

/// A URL with its port: Harvester's files name the address alone, or port 443.
fn join_url(key: &str, url: &str) -> Result<String, KeyError> {
    let expected = "a URL such as https://10.0.0.1:6443";
    let wrong = || wrong(key, expected, &Value::from(url));
    let host = url.trim_end_matches('/').strip_prefix("https://").ok_or_else(wrong)?;
    if host.is_empty() || host.contains('/') {
        return Err(wrong());
    }
    // The last colon of an IPv6 address is inside its brackets.
    let after_address = host.rfind(']').map_or(0, |end| end + 1);
    let (name, port) = match host[after_address..].rfind(':') {
        Some(colon) => (&host[..after_address + colon], &host[after_address + colon + 1..]),
        None => (host, "443"),
    };
    let port: u16 = port.parse().map_err(|_| wrong())?;
    let port = if port == 443 { API_PORT } else { port };
    Ok(format!("https://{name}:{port}"))
}

fn install(keys: &Map<String, Value>, into: &mut Translation) -> Result<(), KeyError> {
    let unsupported = |key: &str, reason| KeyError::Unsupported { key: key.to_owned(), reason };
    for (key, value) in keys {
        let path = format!("install.{key}");
        match normal(key).as_str() {
            "mode" => match value.as_str() {
                Some("create" | "join") => {}
                _ => return Err(wrong(&path, "create or join", value)),
            },
            "role" => match value.as_str() {
                // The first node of a cluster manages it, and nodes that join are workers.
                Some("default") | None => {}
                Some(role) => into.flag("role", role),
            },
            "cluster-service-cidr" => {
                into.flag("service-cluster-ip-range", &scalar(&path, value)?);
            }
            "cluster-pod-cidr" => into.flag("guest-network", &scalar(&path, value)?),
            "vip" => into.flag("vip", &scalar(&path, value)?),
            "vip-mode" if value.as_str() == Some("static") => {}
            "vip-mode" => {
                let reason = "expected static: choose an address for install.vip";
                return Err(unsupported(&path, reason));
            }
            "vip-hw-addr" => {
                into.ignored.push((path, "a static address has no MAC address of its own"));
            }
            "management-interface" => {
                let reason = "the address of this machine is configured by its operating system";
                into.ignored.push((path, reason));
            }
            "cluster-dns" => into.ignored.push((path, "guests ask the gateway of their network")),
            "addons" | "harvester" => {
                into.ignored.push((path, "configure it through the API after the first start"));
            }
            name if INSTALLER_ONLY.contains(&name) => {
                into.ignored.push((path, OPERATING_SYSTEM));
            }
            _ => return Err(unknown(&path, std::iter::empty())),
        }
    }
    Ok(())
}

/// How the installer itself runs, and what it writes to disks.
const INSTALLER_ONLY: [&str; 21] = [
    "automatic",
    "skipchecks",
    "config-url",
    "silent",
    "debug",
    "tty",
    "poweroff",
    "device",
    "data-disk",
    "iso-url",
    "wipe-all-disks",
    "wipe-disks-list",
    "force-efi",
    "force-gpt",
    "force-mbr",
    "no-format",
    "persistent-partition-size",
    "with-net-images",
    "raw-disk-image-path",
    "webhooks",
    "networks",
];

fn operating_system(keys: &Map<String, Value>, into: &mut Translation) -> Result<(), KeyError> {
    for (key, value) in keys {
        let path = format!("os.{key}");
        match normal(key).as_str() {
            "hostname" => into.flag("node-name", &scalar(&path, value)?),
            "labels" => pairs(&path, value, "node-label", into)?,
            _ => into.ignored.push((path, OPERATING_SYSTEM)),
        }
    }
    Ok(())
}

/// A map whose pairs are given one by one, as `--flag=name=value`.
fn pairs(key: &str, value: &Value, flag: &str, into: &mut Translation) -> Result<(), KeyError> {
    for (name, value) in object(key, value)? {
        into.flag(flag, &format!("{name}={}", scalar(&format!("{key}.{name}"), value)?));
    }
    Ok(())
}
