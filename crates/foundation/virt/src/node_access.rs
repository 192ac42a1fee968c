//! Which objects a machine needs on the node that runs it. Pure: the Node authorizer lets a node
//! read these and no others of their kinds.

use serde_json::Value;

use crate::v1::{VirtualMachineInstanceSpec, Volume};

/// Kinds of objects that a node reads only if something on it uses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeReference {
    Secret,
    ConfigMap,
    /// The account and its tokens.
    ServiceAccount,
}

/// The CA certificates that go onto the disk of a service account.
const ROOT_CA: &str = "kube-root-ca.crt";

/// Whether a machine with this specification uses the object.
pub fn uses(spec: &VirtualMachineInstanceSpec, kind: NodeReference, name: &str) -> bool {
    match kind {
        NodeReference::Secret => secrets(spec).contains(&name),
        NodeReference::ConfigMap => config_maps(spec).contains(&name),
        NodeReference::ServiceAccount => service_accounts(spec).contains(&name),
    }
}

/// The secrets that a machine with this specification uses.
pub fn secrets(spec: &VirtualMachineInstanceSpec) -> Vec<&str> {
    let mut names: Vec<Option<&String>> = Vec::new();
    for volume in &spec.volumes {
        names.extend(volume_secrets(volume));
    }
    let boot = spec.domain.firmware.as_ref().and_then(|firmware| firmware.kernel_boot.as_ref());
    let container = boot.and_then(|boot| boot.container.as_ref());
    names.push(container.and_then(|container| container.image_pull_secret.as_ref()));
    for credential in &spec.access_credentials {
        let key = credential.ssh_public_key.as_ref().and_then(|key| key.source.secret.as_ref());
        let password = credential.user_password.as_ref().and_then(|own| own.source.secret.as_ref());
        names.push(key.map(|secret| &secret.secret_name));
        names.push(password.map(|secret| &secret.secret_name));
    }
    names.into_iter().flatten().map(String::as_str).collect()
}

fn volume_secrets(volume: &Volume) -> Vec<Option<&String>> {
    let no_cloud = volume.cloud_init_no_cloud.as_ref();
    let config_drive = volume.cloud_init_config_drive.as_ref();
    let references = [
        no_cloud.and_then(|own| own.secret_ref.as_ref()),
        no_cloud.and_then(|own| own.network_data_secret_ref.as_ref()),
        config_drive.and_then(|own| own.secret_ref.as_ref()),
        config_drive.and_then(|own| own.network_data_secret_ref.as_ref()),
        volume.sysprep.as_ref().and_then(|own| own.secret.as_ref()),
    ];
    let mut names: Vec<Option<&String>> =
        references.into_iter().map(|it| it.and_then(|it| it.name.as_ref())).collect();
    names.push(volume.secret.as_ref().and_then(|own| own.secret_name.as_ref()));
    names.push(volume.container_disk.as_ref().and_then(|own| own.image_pull_secret.as_ref()));
    names
}

fn config_maps(spec: &VirtualMachineInstanceSpec) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for volume in &spec.volumes {
        let sysprep = volume.sysprep.as_ref().and_then(|own| own.config_map.as_ref());
        let own = volume.config_map.as_ref().and_then(|own| own.name.as_deref());
        names.extend(own);
        names.extend(sysprep.and_then(|map| map.name.as_deref()));
        names.extend(volume.service_account.is_some().then_some(ROOT_CA));
    }
    names
}

fn service_accounts(spec: &VirtualMachineInstanceSpec) -> Vec<&str> {
    let accounts = spec.volumes.iter().filter_map(|volume| volume.service_account.as_ref());
    accounts.filter_map(|own| own.service_account_name.as_deref()).collect()
}

/// The life of a token on the disk of a machine. The agent replaces it while the machine runs.
pub const TOKEN_SECONDS: i64 = 24 * 3600;

/// Why a node may not have the token of a service account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenDenial {
    #[error("node requested token not bound to a machine")]
    Unbound,
    #[error("node requested token bound to a machine on a different node")]
    OtherNode,
    #[error("node requested token of a service account that the machine does not use")]
    OtherAccount,
    #[error("node requested token with a lifetime of more than {TOKEN_SECONDS} seconds")]
    TooLong,
}

/// Whether a node may have a token: for an account of a machine on it, for as long as the machine
/// exists, and a day at most. `machine` is the VirtualMachineInstance that the token is bound to.
pub fn check_token(
    node: &str,
    account: &str,
    seconds: i64,
    machine: Option<&Value>,
) -> Result<(), TokenDenial> {
    let machine = machine.ok_or(TokenDenial::Unbound)?;
    if machine["status"]["nodeName"] != node {
        return Err(TokenDenial::OtherNode);
    }
    let spec = serde_json::from_value::<VirtualMachineInstanceSpec>(machine["spec"].clone());
    if !spec.is_ok_and(|spec| uses(&spec, NodeReference::ServiceAccount, account)) {
        return Err(TokenDenial::OtherAccount);
    }
    if seconds > TOKEN_SECONDS { Err(TokenDenial::TooLong) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_uses_what_its_specification_names() {
        let spec: VirtualMachineInstanceSpec = serde_json::from_value(json!({
            "domain": {"devices": {}, "firmware": {"kernelBoot": {"container":
                {"image": "i", "imagePullSecret": "boot"}}}},
            "volumes": [
                {"name": "a", "cloudInitNoCloud":
                    {"secretRef": {"name": "user"}, "networkDataSecretRef": {"name": "net"}}},
                {"name": "b", "cloudInitConfigDrive": {"secretRef": {"name": "drive"}}},
                {"name": "c", "secret": {"secretName": "disk"}},
                {"name": "d", "configMap": {"name": "settings"}},
                {"name": "e", "sysprep": {"secret": {"name": "answers"}}},
                {"name": "f", "sysprep": {"configMap": {"name": "answer-map"}}},
                {"name": "g", "containerDisk": {"image": "i", "imagePullSecret": "pull"}},
                {"name": "h", "serviceAccount": {"serviceAccountName": "robot"}},
            ],
            "accessCredentials": [
                {"sshPublicKey": {"source": {"secret": {"secretName": "keys"}},
                    "propagationMethod": {"noCloud": {}}}},
                {"userPassword": {"source": {"secret": {"secretName": "passwords"}},
                    "propagationMethod": {"qemuGuestAgent": {}}}},
            ],
        }))
        .unwrap();
        let secrets =
            ["boot", "user", "net", "drive", "disk", "answers", "pull", "keys", "passwords"];
        for name in secrets {
            assert!(uses(&spec, NodeReference::Secret, name), "{name}");
            assert!(!uses(&spec, NodeReference::ConfigMap, name), "{name}");
        }
        for name in ["settings", "answer-map", ROOT_CA] {
            assert!(uses(&spec, NodeReference::ConfigMap, name), "{name}");
            assert!(!uses(&spec, NodeReference::Secret, name), "{name}");
        }
        assert!(uses(&spec, NodeReference::ServiceAccount, "robot"));
        assert!(!uses(&spec, NodeReference::ServiceAccount, "default"));
        assert!(!uses(&spec, NodeReference::Secret, ""));
    }

    #[test]
    fn a_node_gets_short_tokens_for_its_own_machines() {
        let machine = json!({
            "spec": {"domain": {"devices": {}}, "volumes": [
                {"name": "a", "serviceAccount": {"serviceAccountName": "robot"}}]},
            "status": {"nodeName": "n1"},
        });
        for (node, account, seconds, machine, expected) in [
            ("n1", "robot", TOKEN_SECONDS, Some(&machine), Ok(())),
            ("n1", "robot", 600, None, Err(TokenDenial::Unbound)),
            ("n2", "robot", 600, Some(&machine), Err(TokenDenial::OtherNode)),
            ("n1", "admin", 600, Some(&machine), Err(TokenDenial::OtherAccount)),
            ("n1", "robot", TOKEN_SECONDS + 1, Some(&machine), Err(TokenDenial::TooLong)),
        ] {
            assert_eq!(check_token(node, account, seconds, machine), expected, "{node} {account}");
        }
    }
}
