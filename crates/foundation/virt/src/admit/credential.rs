//! Keys and passwords that are put into a guest.

use super::Causes;
use super::spec::CheckedSpec;
use crate::v1::SSHPublicKeyAccessCredential;

pub(super) fn check(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    for (index, credential) in judged.spec.access_credentials.iter().enumerate() {
        let at = judged.field(&format!("accessCredentials[{index}]"));
        if let Some(key) = &credential.ssh_public_key {
            check_key(judged, &at, key, causes);
        }
        if let Some(password) = &credential.user_password {
            let sources = usize::from(password.source.secret.is_some());
            let methods = usize::from(password.propagation_method.qemu_guest_agent.is_some());
            count(&at, "userPassword", sources, methods, causes);
        }
        if credential.ssh_public_key.is_some() == credential.user_password.is_some() {
            let message = format!("{at} must have exactly one access credential type set");
            causes.invalid(at, message);
        }
    }
}

fn check_key(
    judged: &CheckedSpec<'_>,
    at: &str,
    key: &SSHPublicKeyAccessCredential,
    causes: &mut Causes,
) {
    let field = format!("{at}.sshPublicKey.propagationMethod");
    let method = &key.propagation_method;
    let volumes = &judged.spec.volumes;
    let needed = [
        ("noCloud", method.no_cloud, volumes.iter().any(|one| one.cloud_init_no_cloud.is_some())),
        (
            "configDrive",
            method.config_drive,
            volumes.iter().any(|one| one.cloud_init_config_drive.is_some()),
        ),
    ];
    let mut methods = 0;
    for (kind, used, exists) in needed {
        if used.is_none() {
            continue;
        }
        methods += 1;
        if !exists {
            let message = format!(
                "{at} requires a {kind} volume to exist when the {kind} propagationMethod is in use."
            );
            causes.invalid(field.clone(), message);
        }
    }
    if let Some(agent) = &method.qemu_guest_agent {
        methods += 1;
        if agent.users.is_empty() {
            causes.invalid(
                format!("{field}.qemuGuestAgent.users"),
                format!("{at} requires at least one user to be present in the users list"),
            );
        }
    }
    count(at, "sshPublicKey", usize::from(key.source.secret.is_some()), methods, causes);
}

fn count(at: &str, kind: &str, sources: usize, methods: usize, causes: &mut Causes) {
    if sources != 1 {
        causes.invalid(
            format!("{at}.{kind}.source"),
            format!("{at} must have exactly one source set"),
        );
    }
    if methods != 1 {
        causes.invalid(
            format!("{at}.{kind}.propagationMethod"),
            format!("{at} must have exactly one propagationMethod set"),
        );
    }
}
