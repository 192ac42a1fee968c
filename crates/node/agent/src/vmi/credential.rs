//! Access credentials that reach a running guest through its agent: public keys and passwords.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use client::Fault;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use qemu::guest_agent::{AgentError, GuestAgent, Replace};
use virt::v1::AccessCredential;

use crate::api::present;
use crate::context::Context;
use crate::machine::{CredentialsState, Vmi};

/// A digest of the credentials that were sent, so that they are not sent again and again.
#[derive(Debug, Default)]
pub(super) struct Credentials {
    sent: Option<u64>,
}

type Data = BTreeMap<String, Vec<u8>>;

/// The task of one credential.
#[derive(Debug, PartialEq, Eq, Hash)]
enum CredentialTask {
    Keys { user: String, keys: Vec<String> },
    Password { user: String, password: String },
}

/// Why the Secret of a credential is not sent.
#[derive(Debug, thiserror::Error)]
enum SecretError {
    #[error("secret {name} does not exist")]
    Missing { name: String },
    #[error("cannot read secret {name}")]
    Read { name: String, source: Fault },
}

impl Credentials {
    /// Sends the changes.
    pub(super) async fn sync(
        &mut self,
        context: &Context,
        vmi: &Vmi,
        agent: &GuestAgent,
    ) -> CredentialsState {
        let wanted: Vec<_> =
            vmi.spec.access_credentials.iter().filter(|each| secret(each).is_some()).collect();
        if wanted.is_empty() {
            return CredentialsState::Unused;
        }
        let mut tasks = Vec::new();
        for credential in wanted {
            let name = secret(credential).unwrap_or_default();
            match read(context, &vmi.namespace, name).await {
                Ok(data) => tasks.extend(plan(credential, &data)),
                Err(failure) => return CredentialsState::failed(&failure),
            }
        }
        let mut hasher = DefaultHasher::new();
        tasks.hash(&mut hasher);
        let hash = hasher.finish();
        if self.sent == Some(hash) {
            return CredentialsState::Synchronized;
        }
        for task in &tasks {
            if let Err(failure) = send(agent, task).await {
                return CredentialsState::failed(&failure);
            }
        }
        self.sent = Some(hash);
        CredentialsState::Synchronized
    }
}

async fn read(context: &Context, namespace: &str, name: &str) -> Result<Data, SecretError> {
    let secrets = Api::<Secret>::namespaced(context.client.clone(), namespace);
    match present(secrets.get(name).await) {
        Ok(Some(secret)) => {
            let data = secret.data.unwrap_or_default();
            Ok(data.into_iter().map(|(key, value)| (key, value.0)).collect())
        }
        Ok(None) => Err(SecretError::Missing { name: name.to_owned() }),
        Err(failure) => Err(SecretError::Read { name: name.to_owned(), source: Fault(failure) }),
    }
}

async fn send(agent: &GuestAgent, task: &CredentialTask) -> Result<(), AgentError> {
    match task {
        CredentialTask::Keys { user, keys } => {
            agent.add_authorized_keys(user, keys, Replace::All).await
        }
        CredentialTask::Password { user, password } => agent.set_password(user, password).await,
    }
}

/// The secret of a credential that travels by the agent.
fn secret(credential: &AccessCredential) -> Option<&str> {
    if let Some(ssh) = &credential.ssh_public_key {
        ssh.propagation_method.qemu_guest_agent.as_ref()?;
        return ssh.source.secret.as_ref().map(|secret| secret.secret_name.as_str());
    }
    let password = credential.user_password.as_ref()?;
    password.propagation_method.qemu_guest_agent.as_ref()?;
    password.source.secret.as_ref().map(|secret| secret.secret_name.as_str())
}

/// Every value of a key secret is a key; every key of a password secret is a user.
fn plan(credential: &AccessCredential, data: &Data) -> Vec<CredentialTask> {
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).trim().to_owned();
    if let Some(ssh) = &credential.ssh_public_key {
        let keys: Vec<String> = data.values().map(text).filter(|key| !key.is_empty()).collect();
        let agent = ssh.propagation_method.qemu_guest_agent.as_ref();
        let users = agent.map(|agent| agent.users.clone()).unwrap_or_default();
        return users
            .into_iter()
            .map(|user| CredentialTask::Keys { user, keys: keys.clone() })
            .collect();
    }
    data.iter()
        .map(|(user, password)| CredentialTask::Password {
            user: user.clone(),
            password: text(password),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_go_to_every_user_and_passwords_to_their_own() {
        let ssh: AccessCredential = serde_json::from_value(json!({"sshPublicKey": {
            "source": {"secret": {"secretName": "keys"}},
            "propagationMethod": {"qemuGuestAgent": {"users": ["a", "b"]}},
        }}))
        .unwrap();
        assert_eq!(secret(&ssh), Some("keys"));
        let data = Data::from([("k".into(), b"ssh-rsa A\n".to_vec())]);
        let keys = vec!["ssh-rsa A".to_owned()];
        assert_eq!(
            plan(&ssh, &data),
            ["a", "b"].map(|user| CredentialTask::Keys { user: user.into(), keys: keys.clone() })
        );
        let password: AccessCredential = serde_json::from_value(json!({"userPassword": {
            "source": {"secret": {"secretName": "pw"}},
            "propagationMethod": {"qemuGuestAgent": {}},
        }}))
        .unwrap();
        let data = Data::from([("root".into(), b"secret".to_vec())]);
        let want = CredentialTask::Password { user: "root".into(), password: "secret".into() };
        assert_eq!(plan(&password, &data), [want]);
    }

    #[test]
    fn keys_for_cloud_init_are_not_sent_to_the_agent() {
        let ssh: AccessCredential = serde_json::from_value(json!({"sshPublicKey": {
            "source": {"secret": {"secretName": "keys"}},
            "propagationMethod": {"noCloud": {}},
        }}))
        .unwrap();
        assert_eq!(secret(&ssh), None);
    }
}
