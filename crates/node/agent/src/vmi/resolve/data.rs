//! The content of seed disks: secrets, config maps, tokens and the object itself.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::Fault;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use virt::node_access::TOKEN_SECONDS;
use virt::v1::{
    AccessCredential, CloudInitConfigDriveSource, CloudInitNoCloudSource, DownwardAPIVolumeSource,
    SysprepSource, Volume,
};

use super::{ResolveError, Resolver};
use crate::api::present;
use crate::machine::Vmi;
use crate::vmi::seed::{CloudInit, Tagged};

type Data = BTreeMap<String, Vec<u8>>;

/// How keys from access credentials reach the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyDelivery {
    NoCloud,
    ConfigDrive,
}

/// The two kinds of cloud-init volumes have the same fields.
pub(super) struct CloudInitSource<'a> {
    secret: Option<&'a str>,
    user_data: (Option<&'a str>, Option<&'a str>),
    network_secret: Option<&'a str>,
    network_data: (Option<&'a str>, Option<&'a str>),
}

macro_rules! source {
    ($type:ty) => {
        impl<'a> From<&'a $type> for CloudInitSource<'a> {
            fn from(source: &'a $type) -> Self {
                let name = |reference: &'a Option<virt::api::atom::LocalObjectReference>| {
                    reference.as_ref().and_then(|reference| reference.name.as_deref())
                };
                Self {
                    secret: name(&source.secret_ref),
                    user_data: (source.user_data.as_deref(), source.user_data_base64.as_deref()),
                    network_secret: name(&source.network_data_secret_ref),
                    network_data: (
                        source.network_data.as_deref(),
                        source.network_data_base64.as_deref(),
                    ),
                }
            }
        }
    };
}

source!(CloudInitNoCloudSource);
source!(CloudInitConfigDriveSource);

impl Resolver<'_> {
    pub(super) async fn cloud_init(
        &self,
        source: CloudInitSource<'_>,
        carrier: KeyDelivery,
    ) -> Result<CloudInit, ResolveError> {
        let user_data = match source.secret {
            Some(name) => self.secret_key(name, ["userdata", "userData"]).await,
            None => inline(source.user_data),
        };
        let network_data = match source.network_secret {
            Some(name) => self.secret_key(name, ["networkdata", "networkData"]).await,
            None => inline(source.network_data),
        };
        let (user_data, network_data) = either(user_data, network_data)?;
        let ssh_keys = self.ssh_keys(carrier).await?;
        Ok(CloudInit { user_data, network_data, ssh_keys })
    }

    /// Keys of all credentials that travel by cloud-init.
    async fn ssh_keys(&self, carrier: KeyDelivery) -> Result<Vec<String>, ResolveError> {
        let mut keys = Vec::new();
        let credentials = self.vmi.spec.access_credentials.iter();
        let secrets: Vec<&str> = credentials.filter_map(|each| ssh_secret(each, carrier)).collect();
        for name in secrets {
            let data = self.secret(name, false).await?;
            keys.extend(
                data.into_values()
                    .map(|key| String::from_utf8_lossy(&key).into_owned())
                    .filter(|key| !key.is_empty()),
            );
        }
        Ok(keys)
    }

    async fn secret_key(
        &self,
        name: &str,
        keys: [&'static str; 2],
    ) -> Result<Vec<u8>, ResolveError> {
        let mut data = self.secret(name, false).await?;
        let found = keys.iter().find_map(|key| data.remove(*key));
        found.ok_or(ResolveError::Key { kind: "secret", name: name.into(), key: keys[0] })
    }

    pub(crate) async fn secret(&self, name: &str, optional: bool) -> Result<Data, ResolveError> {
        let client = self.context.client.clone();
        let secrets = Api::<Secret>::namespaced(client, &self.vmi.namespace);
        let found = present(secrets.get(name).await).map_err(unread("secret", name))?;
        match found {
            Some(secret) => {
                let data = secret.data.unwrap_or_default();
                Ok(data.into_iter().map(|(key, value)| (key, value.0)).collect())
            }
            None if optional => Ok(Data::new()),
            None => Err(ResolveError::Missing { kind: "secret", name: name.into() }),
        }
    }

    pub(super) async fn config_map(
        &self,
        name: &str,
        optional: bool,
    ) -> Result<Data, ResolveError> {
        let client = self.context.client.clone();
        let maps = Api::<ConfigMap>::namespaced(client, &self.vmi.namespace);
        let found = present(maps.get(name).await).map_err(unread("config map", name))?;
        match found {
            Some(map) => {
                let text = map.data.unwrap_or_default().into_iter();
                let mut data: Data = text.map(|(key, text)| (key, text.into_bytes())).collect();
                let binary = map.binary_data.unwrap_or_default().into_iter();
                data.extend(binary.map(|(key, bytes)| (key, bytes.0)));
                Ok(data)
            }
            None if optional => Ok(Data::new()),
            None => Err(ResolveError::Missing { kind: "config map", name: name.into() }),
        }
    }

    pub(super) async fn sysprep(
        &self,
        volume: &Volume,
        source: &SysprepSource,
    ) -> Result<Data, ResolveError> {
        let secret = source.secret.as_ref().and_then(|secret| secret.name.as_deref());
        let map = source.config_map.as_ref().and_then(|map| map.name.as_deref());
        match (secret, map) {
            (Some(name), _) => self.secret(name, false).await,
            (None, Some(name)) => self.config_map(name, false).await,
            (None, None) => Err(ResolveError::Volume {
                volume: volume.name.clone(),
                problem: "sysprep needs a secret or a config map".into(),
            }),
        }
    }

    /// The same files as a pod has below `/var/run/secrets`. The token ends with the machine.
    pub(super) async fn service_account(&self, name: &str) -> Result<Data, ResolveError> {
        let client = self.context.client.clone();
        let accounts = Api::<ServiceAccount>::namespaced(client, &self.vmi.namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("kubevirt.io/v1".to_owned()),
                    kind: Some("VirtualMachineInstance".to_owned()),
                    name: Some(self.vmi.name.clone()),
                    uid: Some(self.vmi.uid.clone()),
                }),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let token = present(answer).map_err(unread("service account", name))?;
        let Some(token) = token else {
            return Err(ResolveError::Missing { kind: "service account", name: name.into() });
        };
        let token = token.status.and_then(|status| status.token).unwrap_or_default();
        let mut data = self.config_map("kube-root-ca.crt", true).await?;
        data.retain(|key, _| key == "ca.crt");
        data.insert("token".into(), token.into_bytes());
        data.insert("namespace".into(), self.vmi.namespace.clone().into_bytes());
        Ok(data)
    }
}

/// User data and network data. A secret without the one is good enough where there is the other,
/// as in KubeVirt: Harvester's Terraform provider names one secret for both and leaves out what is
/// empty.
fn either(
    user: Result<Vec<u8>, ResolveError>,
    network: Result<Vec<u8>, ResolveError>,
) -> Result<(Vec<u8>, Vec<u8>), ResolveError> {
    match (user, network) {
        (Ok(user), Err(ResolveError::Key { .. })) if !user.is_empty() => Ok((user, Vec::new())),
        (Err(ResolveError::Key { .. }), Ok(network)) if !network.is_empty() => {
            Ok((Vec::new(), network))
        }
        (user, network) => Ok((user?, network?)),
    }
}

fn unread(kind: &'static str, name: &str) -> impl FnOnce(kube::Error) -> ResolveError {
    let name = name.to_owned();
    move |source| ResolveError::Request { kind, name, source: Fault(source) }
}

fn ssh_secret(credential: &AccessCredential, carrier: KeyDelivery) -> Option<&str> {
    let ssh = credential.ssh_public_key.as_ref()?;
    let method = &ssh.propagation_method;
    let carried = match carrier {
        KeyDelivery::NoCloud => method.no_cloud.is_some(),
        KeyDelivery::ConfigDrive => method.config_drive.is_some(),
    };
    ssh.source.secret.as_ref().filter(|_| carried).map(|secret| secret.secret_name.as_str())
}

fn inline((plain, encoded): (Option<&str>, Option<&str>)) -> Result<Vec<u8>, ResolveError> {
    if let Some(plain) = plain.filter(|plain| !plain.is_empty()) {
        return Ok(plain.as_bytes().to_vec());
    }
    STANDARD.decode(encoded.unwrap_or_default().trim()).map_err(|failure| ResolveError::Image {
        volume: "cloud-init".into(),
        source: Box::new(failure),
    })
}

/// Fields of the object, as a pod would see them.
pub(super) fn downward(vmi: &Vmi, source: &DownwardAPIVolumeSource) -> Data {
    let map = |map: &BTreeMap<String, String>| {
        let lines = map.iter().map(|(key, value)| format!("{key}={value:?}"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let mut data = Data::new();
    for file in &source.fields {
        let (Some(path), Some(field)) =
            (file.0["path"].as_str(), file.0["fieldRef"]["fieldPath"].as_str())
        else {
            continue;
        };
        let single = |prefix: &str, map: &BTreeMap<String, String>| {
            let key = field.strip_prefix(prefix)?.strip_prefix("['")?.strip_suffix("']")?;
            Some(map.get(key).cloned().unwrap_or_default())
        };
        let value = match field {
            "metadata.name" => Some(vmi.name.clone()),
            "metadata.namespace" => Some(vmi.namespace.clone()),
            "metadata.uid" => Some(vmi.uid.clone()),
            "metadata.labels" => Some(map(&vmi.labels)),
            "metadata.annotations" => Some(map(&vmi.annotations)),
            _ => single("metadata.labels", &vmi.labels)
                .or_else(|| single("metadata.annotations", &vmi.annotations)),
        };
        data.insert(path.to_owned(), value.unwrap_or_default().into_bytes());
    }
    data
}

/// Devices with a tag, for the config drive. Where they sit on the bus is QEMU's choice, so
/// they are identified by address and serial number.
pub(super) fn tagged(vmi: &Vmi) -> Vec<Tagged> {
    let devices = &vmi.spec.domain.devices;
    let nics = devices.interfaces.iter().filter_map(|interface| {
        let tag = interface.tag.clone().filter(|tag| !tag.is_empty())?;
        Some(Tagged {
            kind: "nic",
            bus: "pci",
            address: String::new(),
            mac: crate::machine::mac(vmi, interface),
            serial: String::new(),
            tags: vec![tag],
        })
    });
    let disks = devices.disks.iter().filter_map(|disk| {
        let tag = disk.tag.clone().filter(|tag| !tag.is_empty())?;
        Some(Tagged {
            kind: "disk",
            bus: "pci",
            address: String::new(),
            mac: String::new(),
            serial: disk.serial.clone().unwrap_or_default(),
            tags: vec![tag],
        })
    });
    nics.chain(disks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_user_data_and_network_data_is_enough() {
        let data = |text: &str| Ok::<_, ResolveError>(text.as_bytes().to_vec());
        let no_key =
            || Err(ResolveError::Key { kind: "secret", name: "ci".into(), key: "networkdata" });
        let missing = || Err(ResolveError::Missing { kind: "secret", name: "ci".into() });
        let shown = |user, network| {
            let shown = either(user, network).map_err(|error| error.to_string());
            shown.map(|(user, network)| {
                let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
                (text(user), text(network))
            })
        };
        let both = |user: &str, network: &str| Ok((user.to_owned(), network.to_owned()));
        let refused = Err("secret ci has no key networkdata".to_owned());
        for (user, network, expected) in [
            (data("u"), data("n"), both("u", "n")),
            (data("u"), no_key(), both("u", "")),
            (no_key(), data("n"), both("", "n")),
            (no_key(), no_key(), refused.clone()),
            (data(""), no_key(), refused),
            (
                data("u"),
                missing(),
                Err("secret ci does not exist, waiting for it to appear".to_owned()),
            ),
        ] {
            assert_eq!(shown(user, network), expected);
        }
    }
}
