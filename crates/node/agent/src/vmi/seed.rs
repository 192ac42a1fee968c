//! The content of the small disks that carry data into a guest: cloud-init, sysprep, secrets,
//! config maps and their like. Pure: objects are the input, files and a volume label the output;
//! the ISO image is written elsewhere.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;

use crate::machine::Vmi;

/// The content of one seed disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seed {
    pub(crate) label: String,
    /// Path below the root, and content.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    /// The part that the guest will not understand.
    pub(crate) complaint: Option<String>,
}

/// User data and network configuration, read from wherever they were.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CloudInit {
    pub(crate) user_data: Vec<u8>,
    pub(crate) network_data: Vec<u8>,
    /// Public keys from access credentials, in their order.
    pub(crate) ssh_keys: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct NoCloudMeta<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    instance_type: &'a str,
    instance_id: &'a str,
    local_hostname: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    public_keys: BTreeMap<String, &'a str>,
}

/// NoCloud. The instance is the virtual hardware, so that a restart is no new instance.
pub(crate) fn no_cloud(vmi: &Vmi, data: &CloudInit) -> Seed {
    let meta = NoCloudMeta {
        instance_type: instance_type(vmi),
        instance_id: vmi.firmware_uuid(),
        local_hostname: vmi.hostname(),
        public_keys: numbered(&data.ssh_keys),
    };
    let meta = serde_json::to_vec(&meta).expect("text is JSON");
    let mut files = vec![("user-data".into(), data.user_data.clone()), ("meta-data".into(), meta)];
    if !data.network_data.is_empty() {
        files.push(("network-config".into(), data.network_data.clone()));
    }
    Seed { label: "cidata".into(), files, complaint: complaint(&data.user_data) }
}

/// ConfigDrive, in OpenStack's layout. `tagged` lists devices that carry a tag.
pub(crate) fn config_drive(vmi: &Vmi, data: &CloudInit, tagged: &[Tagged]) -> Seed {
    let mut meta = json!({
        "instance_id": format!("{}.{}", vmi.name, vmi.namespace),
        "uuid": vmi.firmware_uuid(),
        "hostname": vmi.hostname(),
    });
    if !instance_type(vmi).is_empty() {
        meta["instance_type"] = instance_type(vmi).into();
    }
    if !tagged.is_empty() {
        meta["devices"] = json!(tagged);
    }
    if !data.ssh_keys.is_empty() {
        meta["public_keys"] = json!(numbered(&data.ssh_keys));
    }
    let path = |name: &str| format!("openstack/latest/{name}");
    let mut files = vec![
        (path("meta_data.json"), meta.to_string().into_bytes()),
        (path("user_data"), data.user_data.clone()),
    ];
    if !data.network_data.is_empty() {
        files.push((path("network_data.json"), data.network_data.clone()));
    }
    Seed { label: "config-2".into(), files, complaint: complaint(&data.user_data) }
}

/// A device that the guest is to know by a tag.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Tagged {
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) bus: &'static str,
    pub(crate) address: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) mac: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) serial: String,
    pub(crate) tags: Vec<String>,
}

/// One file per key.
pub(crate) fn keys(label: Option<&str>, data: BTreeMap<String, Vec<u8>>) -> Seed {
    Seed {
        label: label.filter(|label| !label.is_empty()).unwrap_or("cfgdata").into(),
        files: data.into_iter().collect(),
        complaint: None,
    }
}

/// The answer files of Windows' setup, under every name it searches.
pub(crate) fn sysprep(data: BTreeMap<String, Vec<u8>>) -> Seed {
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for (key, content) in data {
        // Setup searches these names without regard to case; people write both.
        let name = match key.to_ascii_lowercase().as_str() {
            "autounattend.xml" => "Autounattend.xml".into(),
            "unattend.xml" => "Unattend.xml".into(),
            _ => key,
        };
        files.push((name, content));
    }
    Seed { label: "unattendCD".into(), files, complaint: None }
}

/// How user data begins that a program in the guest reads: cloud-init, cloudbase-init, Ignition.
const BEGINNINGS: &[&str] = &[
    "#!",
    "#cloud-",
    "#include",
    "#part-handler",
    "#upstart-job",
    "## template:",
    "#ps1",
    "rem cmd",
    "<powershell>",
    "<script>",
    "content-type:",
    "mime-version:",
    "{",
];
const CLOUD_CONFIG: &str = "#cloud-config";

/// Why the guest would ignore this user data. It gets it all the same: only the guest knows.
fn complaint(user_data: &[u8]) -> Option<String> {
    // The guest unpacks compressed data.
    let text = std::str::from_utf8(user_data).ok()?;
    if text.trim().is_empty() {
        return None;
    }
    let begins = |with: &&str| text.get(..with.len()).is_some_and(|s| s.eq_ignore_ascii_case(with));
    if !BEGINNINGS.iter().any(begins) {
        return Some(format!("it does not begin with {CLOUD_CONFIG:?} or \"#!\""));
    }
    if text.lines().next()?.trim_end() != CLOUD_CONFIG {
        return None;
    }
    // Of two equal keys the last one counts in the guest, too.
    let options =
        serde_saphyr::options! { duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins };
    match serde_saphyr::from_str_with_options::<serde_json::Value>(text, options) {
        Ok(value) if value.is_object() || value.is_null() => None,
        Ok(_) => Some("it is not a map of settings".into()),
        Err(failure) => {
            // Without the excerpt: it may hold a password.
            let failure = failure.without_snippet().to_string();
            Some(format!("it is not YAML: {}", failure.lines().next().unwrap_or_default()))
        }
    }
}

fn instance_type(vmi: &Vmi) -> &str {
    let name = |kind: &str| vmi.annotations.get(&format!("kubevirt.io/{kind}-name"));
    name("instancetype").or_else(|| name("cluster-instancetype")).map_or("", String::as_str)
}

fn numbered(keys: &[String]) -> BTreeMap<String, &str> {
    keys.iter().enumerate().map(|(index, key)| (index.to_string(), key.trim())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::machine::fixture::vmi;

    fn file<'a>(seed: &'a Seed, name: &str) -> &'a str {
        let (_, content) = seed.files.iter().find(|(path, _)| path == name).unwrap();
        std::str::from_utf8(content).unwrap()
    }

    fn data() -> CloudInit {
        CloudInit {
            user_data: b"#cloud-config\n".to_vec(),
            network_data: Vec::new(),
            ssh_keys: vec!["ssh-ed25519 AAAA".into()],
        }
    }

    #[test]
    fn no_cloud_says_who_the_guest_is() {
        let vmi = vmi(json!({"domain": {"firmware": {"uuid": "u-1"}}, "hostname": "web"}));
        let seed = no_cloud(&vmi, &data());
        assert_eq!(seed.label, "cidata");
        assert_eq!(
            file(&seed, "meta-data"),
            r#"{"instance-id":"u-1","local-hostname":"web","public-keys":{"0":"ssh-ed25519 AAAA"}}"#
        );
        assert_eq!(file(&seed, "user-data"), "#cloud-config\n");
        assert_eq!(seed.files.len(), 2);
    }

    #[test]
    fn config_drive_has_openstack_layout() {
        let mut vmi = vmi(json!({"domain": {"firmware": {"uuid": "u-1"}}}));
        vmi.annotations.insert("kubevirt.io/instancetype-name".into(), "small".into());
        let mut data = data();
        data.network_data = b"{}".to_vec();
        let seed = config_drive(&vmi, &data, &[]);
        assert_eq!(seed.label, "config-2");
        assert_eq!(
            file(&seed, "openstack/latest/meta_data.json"),
            r#"{"hostname":"vm","instance_id":"vm.ns","instance_type":"small","public_keys":{"0":"ssh-ed25519 AAAA"},"uuid":"u-1"}"#
        );
        assert_eq!(file(&seed, "openstack/latest/network_data.json"), "{}");
    }

    #[test]
    fn user_data_that_a_guest_would_ignore_is_reported() {
        for good in [
            "",
            "#cloud-config\n",
            "#cloud-config\npassword: x\npassword: y\n",
            "#!/bin/sh\necho: [",
            "Content-Type: multipart/mixed; boundary=x\n\n: [",
            "#ps1_sysnative\n",
            "{\"ignition\": {}}",
        ] {
            assert_eq!(complaint(good.as_bytes()), None, "{good}");
        }
        assert_eq!(complaint(&[0x1f, 0x8b, 8, 0xff]), None);
        for (bad, why) in [
            ("password: x\n", "it does not begin with \"#cloud-config\" or \"#!\""),
            ("#cloud-config\n- a\n", "it is not a map of settings"),
            ("#cloud-config\nusers: [a\nx: secret", "it is not YAML: "),
            ("#cloud-config\na: b: c\n", "it is not YAML: "),
        ] {
            let message = complaint(bad.as_bytes()).unwrap();
            assert!(message.starts_with(why) && !message.contains("secret"), "{bad}: {message}");
        }
    }

    #[test]
    fn sysprep_files_have_the_names_that_setup_searches() {
        let data = BTreeMap::from([("autounattend.xml".to_owned(), b"<a/>".to_vec())]);
        assert_eq!(file(&sysprep(data), "Autounattend.xml"), "<a/>");
    }
}
