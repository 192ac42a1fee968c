//! Rules of Harvester's and Longhorn's objects, with upstream's codes and texts, and the defaults
//! of their webhooks. Rules that a schema can express are in the schema.

mod alarm;
mod backup;
mod claim;
mod cluster_network_policy;
mod cluster_setting;
mod dhcp;
mod image;
mod internal;
mod key_pair;
mod load_balancer;
mod longhorn;
mod machine;
mod machine_defaults;
mod machine_devices;
mod machine_migration;
mod machine_quota;
mod multi_network_policy;
mod namespace;
mod network;
mod node;
mod operation;
mod project;
mod recurring_job;
mod reference;
mod service;
mod snapshot_quota;
mod status;
mod storage_class;
mod template;
mod volume_backup;

use crd::lookup::Objects;
use serde_json::Value;

use crate::{
    address_pool, cluster_network_policy as policy, multi_network_policy as multi, removed_claims,
};

pub use storage_class::DRIVER;

/// A write that is to be judged.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    pub group: &'a str,
    pub resource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    /// The object as it would be; nothing if it is deleted.
    pub object: Option<&'a Value>,
    /// The object as it was.
    pub old: Option<&'a Value>,
    /// The writer is one of the cluster's own controllers.
    pub trusted: bool,
    pub objects: &'a dyn Objects,
    pub writer: &'a dyn RequestUser,
    /// Makes random UUIDs.
    pub uuid: &'a dyn Fn() -> String,
}

/// The author of a write.
pub trait RequestUser {
    fn name(&self) -> &str;
    /// Whether they may get an object.
    fn may_get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> bool;
    /// Whether they may create one; `resource` may be `RESOURCE/SUBRESOURCE`.
    fn may_create(&self, group: &str, resource: &str, namespace: &str, name: &str) -> bool;
}

impl std::fmt::Debug for Write<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { group, resource, namespace, name, .. } = self;
        write!(out, "{group}/{resource} {namespace}/{name}")
    }
}

/// Why a write is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: u16,
    pub reason: &'static str,
    /// The field that is to blame, if one is.
    pub field: &'static str,
    pub message: String,
}

impl Refusal {
    fn new(code: u16, field: &'static str, message: impl Into<String>) -> Self {
        Self::by(WEBHOOK, code, field, message)
    }

    /// With Longhorn's webhook, which answers 422 to everything.
    fn longhorn(field: &'static str, message: impl Into<String>) -> Self {
        Self::by(LONGHORN_WEBHOOK, 422, field, message)
    }

    fn by(webhook: &str, code: u16, field: &'static str, message: impl Into<String>) -> Self {
        let reason = match code {
            400 => "BadRequest",
            403 => "Forbidden",
            405 => "MethodNotAllowed",
            409 => "Conflict",
            422 => "Invalid",
            _ => "InternalError",
        };
        let message =
            format!("admission webhook \"{webhook}\" denied the request: {}", message.into());
        Self { code, reason, field, message }
    }

    fn invalid(field: &'static str, message: impl Into<String>) -> Self {
        Self::new(422, field, message)
    }

    /// The same with the code of a webhook that fails.
    fn internal(self) -> Self {
        Self { code: 500, reason: "InternalError", ..self }
    }
}

const WEBHOOK: &str = "validator.harvesterhci.io";
const LONGHORN_WEBHOOK: &str = "validator.longhorn.io";
pub(crate) const HARVESTER: &str = "harvesterhci.io";
pub(crate) const LONGHORN: &str = "longhorn.io";
const STORAGE: &str = "storage.k8s.io";
const SNAPSHOTS: &str = "snapshot.storage.k8s.io";
const NETWORK: &str = crate::network::GROUP;
const CNI: &str = multi::GROUP;
const DEFINITIONS: &str = "network-attachment-definitions";

type AdmissionResult = Result<(), Refusal>;

/// Whether objects of a kind have rules here.
pub fn concerns(group: &str, resource: &str) -> bool {
    let has_rules = matches!(
        (group, resource),
        (
            HARVESTER,
            "addons"
                | "keypairs"
                | "resourcequotas"
                | "schedulevmbackups"
                | "settings"
                | "supportbundles"
                | "upgradelogs"
                | "upgrades"
                | "versions"
                | "virtualmachinebackups"
                | "virtualmachineimages"
                | "virtualmachinerestores"
                | "virtualmachinetemplates"
                | "virtualmachinetemplateversions"
                | "volumeremotebackups"
                | "volumeremoterestores"
        ) | (LONGHORN, "settings" | "volumes" | "nodes" | "recurringjobs")
            | (STORAGE, "storageclasses")
            | (crate::alarm::GROUP, crate::alarm::PLURAL)
            | (policy::GROUP, policy::PLURAL)
            | (crate::project::GROUP, "projects")
            | ("", "namespaces" | "nodes" | "persistentvolumeclaims" | "secrets" | "services")
            | ("apps", "deployments")
            | (SNAPSHOTS, "volumesnapshots")
            | ("kubevirt.io", "virtualmachines")
            | ("cdi.kubevirt.io", "datavolumes" | "dataimportcrons")
            | (
                "snapshot.kubevirt.io",
                "virtualmachinesnapshots" | "virtualmachinesnapshotcontents"
            )
            | ("pool.kubevirt.io", "virtualmachinepools")
            | ("instancetype.kubevirt.io", "virtualmachinepreferences")
            | (
                NETWORK,
                "clusternetworks"
                    | "vlanconfigs"
                    | "linkmonitors"
                    | "hostnetworkconfigs"
                    | "ippools"
                    | "virtualmachinenetworkconfigs"
            )
            | (CNI, DEFINITIONS | multi::PLURAL)
            | (address_pool::GROUP, "loadbalancers" | "ippools")
    );
    has_rules || internal::concerns(group, resource)
}

/// Whether writes to the subresources of a kind are judged as those to the object: built-in kinds take
/// changes of annotations and labels there, too.
pub fn judges_subresources(group: &str, resource: &str) -> bool {
    matches!((group, resource), ("", "namespaces" | "persistentvolumeclaims"))
}

/// Fills in what the writer left out.
pub fn complete(write: &Write<'_>, object: &mut Value) -> Result<(), Refusal> {
    status::keep(write, object);
    match (write.group, write.resource) {
        (HARVESTER, "virtualmachinebackups") => backup::complete(write, object),
        (HARVESTER, "virtualmachineimages") => image::complete(write, object),
        (HARVESTER, "virtualmachinetemplateversions") => {
            template::complete(object);
            Ok(())
        }
        ("kubevirt.io", "virtualmachines") => {
            if let Some(finalizers) = removed_claims::held(object) {
                object["metadata"]["finalizers"] = finalizers.into();
            }
            machine_defaults::complete(write, object)
        }
        (crate::alarm::GROUP, crate::alarm::PLURAL) => {
            alarm::complete(write, object);
            Ok(())
        }
        ("", "persistentvolumeclaims") => {
            claim::complete(write, object);
            Ok(())
        }
        (LONGHORN, "volumes") => {
            longhorn::complete_volume(write, object);
            Ok(())
        }
        (LONGHORN, "recurringjobs") => {
            recurring_job::complete(write.name, object);
            Ok(())
        }
        (STORAGE, "storageclasses") => {
            storage_class::complete(write, object);
            Ok(())
        }
        (NETWORK, "vlanconfigs") => {
            network::complete_config(write, object);
            Ok(())
        }
        (NETWORK, "ippools") => dhcp::complete_pool(write, object),
        (CNI, DEFINITIONS) => {
            network::complete_definition(write, object);
            Ok(())
        }
        (address_pool::GROUP, "loadbalancers") => {
            load_balancer::complete(write, object);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether the write may be done.
pub fn validate(write: &Write<'_>) -> AdmissionResult {
    internal::validate(write)?;
    match (write.group, write.resource) {
        (HARVESTER, _) => validate_harvester(write),
        (crate::alarm::GROUP, crate::alarm::PLURAL) => alarm::validate(write),
        (policy::GROUP, policy::PLURAL) => cluster_network_policy::validate(write),
        (LONGHORN, "settings") => longhorn::validate_setting(write),
        (LONGHORN, "volumes") => longhorn::validate_volume(write),
        (LONGHORN, "nodes") => longhorn::validate_node(write),
        (LONGHORN, "recurringjobs") => recurring_job::validate(write),
        (STORAGE, "storageclasses") => storage_class::validate(write),
        (NETWORK, "clusternetworks") => network::validate_cluster_network(write),
        (NETWORK, "vlanconfigs") => network::validate_config(write),
        (NETWORK, "hostnetworkconfigs") => network::validate_host_config(write),
        (NETWORK, "linkmonitors") => network::validate_link_monitor(write),
        (NETWORK, "ippools") => dhcp::validate_pool(write),
        (NETWORK, "virtualmachinenetworkconfigs") => dhcp::validate_config(write),
        (CNI, DEFINITIONS) => network::validate_definition(write),
        (CNI, multi::PLURAL) => multi_network_policy::validate(write),
        (address_pool::GROUP, "loadbalancers") => load_balancer::validate(write),
        (address_pool::GROUP, "ippools") => load_balancer::validate_pool(write),
        (crate::project::GROUP, "projects") => project::validate_project(write),
        ("apps", "deployments") => operation::validate_deployment(write),
        ("", "namespaces") => namespace::validate(write),
        ("", "nodes") => node::validate(write),
        ("", "persistentvolumeclaims") => claim::validate(write),
        ("", "secrets") => operation::validate_secret(write),
        ("", "services") => service::validate(write),
        (SNAPSHOTS, "volumesnapshots") => operation::validate_snapshot(write),
        ("cdi.kubevirt.io", "datavolumes") if write.object.is_none() => {
            operation::validate_data_volume(write)
        }
        ("snapshot.kubevirt.io", "virtualmachinesnapshots") => {
            snapshot_quota::validate_machine_snapshot(write)
        }
        ("kubevirt.io", "virtualmachines") => machine::validate(write),
        (
            "cdi.kubevirt.io"
            | "instancetype.kubevirt.io"
            | "pool.kubevirt.io"
            | "snapshot.kubevirt.io",
            "datavolumes"
            | "dataimportcrons"
            | "virtualmachinepools"
            | "virtualmachinepreferences"
            | "virtualmachinesnapshotcontents",
        ) => reference::validate(write),
        _ => Ok(()),
    }
}

/// Kinds of Harvester's own group.
fn validate_harvester(write: &Write<'_>) -> AdmissionResult {
    match write.resource {
        "addons" => operation::validate_addon(write),
        "keypairs" => key_pair::validate(write),
        "resourcequotas" => operation::validate_quota(write),
        "schedulevmbackups" => backup::validate_schedule(write),
        "settings" => cluster_setting::validate(write),
        "supportbundles" => operation::validate_support_bundle(write),
        "upgradelogs" => operation::validate_upgrade_log(write),
        "upgrades" => operation::validate_upgrade(write),
        "versions" => operation::validate_version(write),
        "virtualmachinebackups" => backup::validate(write),
        "virtualmachineimages" => image::validate(write),
        "virtualmachinerestores" => backup::validate_restore(write),
        "virtualmachinetemplates" => template::validate(write),
        "virtualmachinetemplateversions" => template::validate_version(write),
        "volumeremotebackups" => volume_backup::validate(write),
        "volumeremoterestores" => volume_backup::validate_restore(write),
        _ => Ok(()),
    }
}

/// A text of an object, empty if it is missing.
fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// `NAMESPACE/NAME` in two.
fn split_id(id: &str) -> Option<(&str, &str)> {
    id.split_once('/').filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty())
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
