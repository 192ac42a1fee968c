//! Rules for the values of single settings.

use std::net::IpAddr;

use serde_json::{Map, Value};
use types::Quantity;

use crate::node_network::NetworkSetting;

const HUNDRED_YEARS: u64 = 52_560_000;

pub(super) fn number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let strict = text == "0" || !text.starts_with(['0', '+', '-']);
    let number = text.parse::<u64>().ok().filter(|_| strict);
    let number = number.ok_or_else(|| format!("{text:?} is not a whole number of at least 0"))?;
    if number < least || number > most {
        return Err(format!("{number} is out of range: it has to be from {least} to {most}"));
    }
    Ok(number)
}

pub(super) fn accept(_: &Map<String, Value>) -> Result<(), String> {
    Ok(())
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn integer(fields: &Map<String, Value>, name: &str) -> Result<Option<i64>, String> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_i64() {
            Some(number) => Ok(Some(number)),
            None => Err(format!("{name} is {value}: it has to be a whole number")),
        },
    }
}

pub(super) fn overhead_ratio(value: &str) -> Result<(), String> {
    let ratio: f64 = value.parse().map_err(|_| format!("{value:?} is not a float"))?;
    if ratio == 0.0 {
        Ok(())
    } else if ratio < 1.0 {
        Err(format!("{value} can't be less than 1"))
    } else if ratio > 10.0 {
        Err(format!("{value} can't be greater than 10"))
    } else if ratio.is_nan() {
        Err(format!("{value:?} is not a float"))
    } else {
        Ok(())
    }
}

pub(super) fn token_lifetime(value: &str) -> Result<(), String> {
    let minutes = number(value, 0, u64::MAX)?;
    if minutes > HUNDRED_YEARS {
        return Err(format!("{minutes} exceeds 100 years"));
    }
    Ok(())
}

pub(super) fn registration_url(value: &str) -> Result<(), String> {
    // Older clients send the bare URL.
    let url = match serde_json::from_str::<Value>(value) {
        Ok(parsed) => parsed["url"].as_str().unwrap_or_default().to_owned(),
        Err(_) => value.to_owned(),
    };
    if url.is_empty() || url.starts_with("https://") || url.starts_with("http://") {
        return Ok(());
    }
    Err(format!("{url:?} is not a URL: it has to begin with https:// or http://"))
}

pub(super) fn rotation(fields: &Map<String, Value>) -> Result<(), String> {
    match integer(fields, "expiringInHours")? {
        Some(hours) if !(1..=8759).contains(&hours) => {
            Err(format!("expiringInHours is {hours}: it has to be from 1 to 8759"))
        }
        _ => Ok(()),
    }
}

pub(super) fn backup_target(fields: &Map<String, Value>) -> Result<(), String> {
    if fields.is_empty() {
        return Ok(());
    }
    let has = |name: &str| !text(fields, name).is_empty();
    if integer(fields, "refreshIntervalInSeconds")?.is_some_and(|seconds| seconds < 0) {
        return Err("refreshIntervalInSeconds must not be below 0".into());
    }
    match text(fields, "type") {
        "s3" if !has("accessKeyId") || !has("secretAccessKey") => {
            Err("S3 backup target should have access key and access key id".into())
        }
        "s3" if !has("bucketName") || !has("bucketRegion") => {
            Err("S3 backup target should have bucket name and region".into())
        }
        "s3" if !has("endpoint") => amazon_host(text(fields, "bucketRegion")),
        "s3" => Ok(()),
        "nfs" if !has("endpoint") => Err("NFS backup target should have endpoint".into()),
        "nfs"
            if ["accessKeyId", "secretAccessKey", "bucketName", "bucketRegion"]
                .into_iter()
                .any(has) =>
        {
            Err("NFS backup target should not have bucket name, bucket region or keys".into())
        }
        "nfs" => nfs_endpoint(text(fields, "endpoint")),
        "" => Ok(()),
        _ => Err("Invalid backup target type".into()),
    }
}

/// Without an endpoint the region is a part of the name of Amazon's host.
fn amazon_host(region: &str) -> Result<(), String> {
    let host = format!("s3.{region}.amazonaws.com");
    if !region.contains('.') && is_host_name(&host) {
        return Ok(());
    }
    Err(format!(
        "failed to connect to backup target, reason: {host:?} is not a name of a host: bucketRegion \
         may have letters, digits and \"-\""
    ))
}

fn nfs_endpoint(endpoint: &str) -> Result<(), String> {
    let rest = endpoint.strip_prefix("nfs://").unwrap_or(endpoint);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.trim_end_matches(':').is_empty() {
        return Err("NFS path must follow format: nfs://<server-address>:/<share-name>/".into());
    }
    if path.trim_matches('/').is_empty() {
        return Err("cannot find nfs path".into());
    }
    Ok(())
}

pub(super) fn migration(fields: &Map<String, Value>) -> Result<(), String> {
    for name in ["nodeDrainTaintKey", "network"] {
        if fields.contains_key(name) {
            return Err(format!("{name} is not allowed to be set"));
        }
    }
    for (name, value) in fields {
        let expected = match name.as_str() {
            "parallelOutboundMigrationsPerNode" | "parallelMigrationsPerCluster" => {
                (!is_count(value, u64::from(u32::MAX))).then_some("a whole number from 0 on")
            }
            "completionTimeoutPerGiB" | "progressTimeout" | "utilityVolumesTimeout" => {
                (!is_count(value, i64::MAX.unsigned_abs())).then_some("seconds, from 0 on")
            }
            "maxDowntimeMs" => {
                let is_valid = value != 0 && is_count(value, 2_000_000);
                (!is_valid).then_some("milliseconds, 1 to 2000000")
            }
            "bandwidthPerMigration" => {
                (!is_bandwidth(value)).then_some("bytes per second, for example 64Mi")
            }
            "allowAutoConverge"
            | "unsafeMigrationOverride"
            | "allowPostCopy"
            | "allowWorkloadDisruption"
            | "disableTLS"
            | "matchSELinuxLevelOnMigration" => (!value.is_boolean()).then_some("true or false"),
            // As upstream: fields that KubeVirt does not know are ignored.
            _ => None,
        };
        if let Some(expected) = expected {
            return Err(format!("{name} is {value}: it has to be {expected}"));
        }
    }
    Ok(())
}

fn is_count(value: &Value, most: u64) -> bool {
    value.as_u64().is_some_and(|count| count <= most)
}

fn is_bandwidth(value: &Value) -> bool {
    let text = value.as_str().map(str::to_owned).or_else(|| Some(value.as_u64()?.to_string()));
    text.is_some_and(|text| {
        text.parse::<Quantity>().is_ok_and(|own| own >= Quantity::from_bytes(0))
    })
}

pub(super) fn ntp_servers(fields: &Map<String, Value>) -> Result<(), String> {
    let servers = fields.get("ntpServers").and_then(Value::as_array);
    let mut seen: Vec<&str> = Vec::new();
    for server in servers.into_iter().flatten() {
        let Some(server) = server.as_str() else {
            return Err(format!("ntpServers has {server}: it has to be a text"));
        };
        if server.starts_with("http://") || server.starts_with("https://") {
            return Err(format!("ntp server {server} should not start with http:// or https://"));
        }
        if server.parse::<IpAddr>().is_err() && !is_host_name(server) {
            return Err(format!("{server} is not a valid address or fully qualified domain name"));
        }
        if seen.contains(&server) {
            return Err(format!("duplicate NTP server: {server}"));
        }
        seen.push(server);
    }
    Ok(())
}

fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.contains('.') && name.len() <= 253 && name.split('.').all(is_label)
}

pub(super) fn overcommit(fields: &Map<String, Value>) -> Result<(), String> {
    for name in ["cpu", "memory", "storage"] {
        if let Some(percent) = integer(fields, name)?
            && percent < 100
        {
            return Err(format!(
                "Cannot undercommit. Should be greater than or equal to 100 but got {percent}"
            ));
        }
    }
    Ok(())
}

pub(super) fn certificates(value: &str) -> Result<(), String> {
    if value.contains("-----BEGIN CERTIFICATE-----") && value.contains("-----END CERTIFICATE-----")
    {
        return Ok(());
    }
    Err("failed to parse cert PEM: it has to hold certificates".into())
}

pub(super) fn serving_certificates(fields: &Map<String, Value>) -> Result<(), String> {
    for name in ["ca", "publicCertificate"] {
        match text(fields, name) {
            "" => {}
            value => certificates(value).map_err(|error| format!("{name}: {error}"))?,
        }
    }
    let key = text(fields, "privateKey");
    let is_key = key.contains("-----BEGIN ") && key.contains("PRIVATE KEY-----");
    if !key.is_empty() && !is_key {
        return Err("privateKey: failed to parse key PEM".into());
    }
    if key.is_empty() != text(fields, "publicCertificate").is_empty() {
        return Err("publicCertificate and privateKey have to be given together".into());
    }
    Ok(())
}

pub(super) fn tls_parameters(fields: &Map<String, Value>) -> Result<(), String> {
    const PROTOCOLS: [&str; 6] = ["SSLv2", "SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"];
    for protocol in text(fields, "protocols").split_whitespace() {
        if !PROTOCOLS.contains(&protocol) {
            return Err(format!(
                "Unsupported SSL protocol: {protocol}; possible are {}",
                PROTOCOLS.join(", ")
            ));
        }
    }
    Ok(())
}

pub(super) fn network(fields: &Map<String, Value>) -> Result<(), String> {
    let text = Value::Object(fields.clone()).to_string();
    NetworkSetting::parse(&text).map(drop).map_err(|error| error.to_string())
}

/// Files on several machines use a network of their own, or that of the storage.
pub(super) fn rwx_network(fields: &Map<String, Value>) -> Result<(), String> {
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("share-storage-network", Value::Bool(_)) | ("network", Value::Null) => {}
            ("share-storage-network", _) => {
                return Err(format!("{name} is {value}: it has to be true or false"));
            }
            ("network", Value::Object(own)) => network(own)?,
            ("network", _) => return Err(format!("{name} is {value}: it has to be an object")),
            _ => return Err(format!("unknown field {name:?}")),
        }
    }
    Ok(())
}

/// Mebibytes in pages of two.
pub(super) fn hugepages(value: &str) -> Result<(), String> {
    match number(value, 0, u64::MAX)? {
        0 => Err("longhorn-v2-data-engine-memory-size must be greater than zero".into()),
        size if size % 2 != 0 => {
            Err("longhorn-v2-data-engine-memory-size must be evenly divisible by two".into())
        }
        _ => Ok(()),
    }
}

pub(super) fn label(value: &str) -> Result<(), String> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = |byte: Option<&u8>| byte.is_some_and(|byte| inner(*byte));
    let bytes = value.as_bytes();
    let good = value.len() <= 63
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|byte| inner(*byte) || *byte == b'-');
    if good { Ok(()) } else { Err(format!("{value:?} is not a lowercase RFC 1123 label")) }
}

pub(super) fn bundle_image(fields: &Map<String, Value>) -> Result<(), String> {
    if fields.is_empty() {
        return Ok(());
    }
    for name in ["repository", "tag", "imagePullPolicy"] {
        if text(fields, name).trim().is_empty() {
            return Err(format!("image {name} can't be blank"));
        }
    }
    Ok(())
}

pub(super) fn force_reset(fields: &Map<String, Value>) -> Result<(), String> {
    if integer(fields, "period")?.is_some_and(|period| period <= 0) {
        return Err("period value should be greater than 0".into());
    }
    if integer(fields, "vmMigrationTimeout")?.is_some_and(|timeout| timeout < 0) {
        return Err("vmMigrationTimeout value should be greater than or equal to 0".into());
    }
    Ok(())
}
