//! Nodes: the hosts of the cluster.

use std::collections::BTreeSet;

use jiff::Timestamp;
use schema::{FieldError, Path};
use serde_json::Value;

use crate::check::{self, METADATA, SPEC, STATUS};
use crate::resource::{Column, Printer, Resource, Strategy, Subresource};
use crate::{json, print, quantity, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["no"],
    table: "minions",
    subresources: &[Subresource::proxy("NodeProxyOptions"), Subresource::STATUS],
    strategy: Strategy {
        default,
        // Unlike other kinds, a node may be born with a status: its kubelet registers it so.
        prepare_create: |_| {},
        validate,
        validate_update,
        validate_status: validate_update,
        ..Strategy::WITH_STATUS
    },
    printer: Printer { columns: COLUMNS, cells },
    fields: &[("spec.unschedulable", |object| {
        json::flag(object, "/spec/unschedulable").to_string()
    })],
    ..Resource::cluster("", "v1", "nodes", "node", "Node")
};

/// The effects of a taint on pods that do not tolerate it.
pub(crate) const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

fn default(object: &mut Value) {
    let Some(capacity) = json::at(object, "/status/capacity").cloned() else { return };
    if let Some(status) = json::object(object, "status") {
        json::fill(status, "allocatable", capacity);
    }
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    // Upstream puts taints below metadata, and clients see that path.
    taints(object, &METADATA.field("taints"), errors);
    resources(object, errors);
    let path = SPEC.field("podCIDRs");
    let networks = json::texts(object, "/spec/podCIDRs");
    for (index, network) in networks.iter().enumerate() {
        check::each(syntax::cidr(network), network, &path.index(index), errors);
    }
    let v6 = networks.iter().filter(|network| network.contains(':')).count();
    if networks.len() > 2 || networks.len() == 2 && v6 != 1 {
        let detail = "may specify no more than one CIDR for each IP family";
        errors.push(FieldError::invalid(path, networks, detail));
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    resources(new, errors);
    let addresses = json::list(new, "/status/addresses");
    let path = STATUS.field("addresses");
    for (index, address) in addresses.iter().enumerate() {
        if addresses[..index].contains(address) {
            errors.push(FieldError::duplicate(path.index(index), address.clone()));
        }
    }
    let before = json::list(old, "/spec/podCIDRs");
    if !before.is_empty() && before != json::list(new, "/spec/podCIDRs") {
        errors.push(FieldError::forbidden(
            SPEC.field("podCIDRs"),
            "node updates may not change podCIDR except from \"\" to valid",
        ));
    }
    let (id, old_id) = (json::text(new, "/spec/providerID"), json::text(old, "/spec/providerID"));
    if !old_id.is_empty() && id != old_id {
        let detail = match id {
            "" => "field cannot be cleared once set",
            _ => "field cannot be modified once set",
        };
        errors.push(FieldError::invalid(SPEC.field("providerID"), Value::Null, detail));
    }
    taints(new, &METADATA.field("taints"), errors);
}

fn taints(object: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (index, taint) in json::list(object, "/spec/taints").iter().enumerate() {
        let path = path.index(index);
        let (key, effect) = (json::text(taint, "/key"), json::text(taint, "/effect"));
        check::each(syntax::qualified_name(key), key, &path.field("key"), errors);
        let value = json::text(taint, "/value");
        let problems = syntax::label_value(value);
        if !problems.is_empty() {
            errors.push(FieldError::invalid(path.field("value"), value, problems.join(";")));
        }
        check::required_one_of(taint, "effect", EFFECTS, &path, errors);
        if !seen.insert((effect, key)) {
            errors.push(FieldError {
                detail: "taints must be unique by key and effect pair".to_owned(),
                ..FieldError::duplicate(path, taint.clone())
            });
        }
    }
}

fn resources(object: &Value, errors: &mut Vec<FieldError>) {
    for list in ["capacity", "allocatable"] {
        let path = STATUS.field(list);
        for (name, amount) in json::entries(object, &format!("/status/{list}")) {
            quantity::for_resource(name, amount, &path.field(name), errors);
        }
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Status", "Whether the node is ready, and whether it takes work"),
    Column::text("Roles", "What the node is for"),
    Column::AGE,
    Column::text("Version", "Version of its node agent"),
    Column::text("Internal-IP", "Address inside the cluster").wide(),
    Column::text("External-IP", "Address outside the cluster").wide(),
    Column::text("OS-Image", "Operating system").wide(),
    Column::text("Kernel-Version", "Kernel").wide(),
    Column::text("Container-Runtime", "What runs containers").wide(),
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let info =
        |key: &str| print::or(json::text(object, &format!("/status/nodeInfo/{key}")), "<unknown>");
    let mut kernel = info("kernelVersion");
    let architecture = json::text(object, "/status/nodeInfo/architecture");
    if !architecture.is_empty() {
        kernel = format!("{kernel} ({architecture})");
    }
    vec![
        print::name(object),
        readiness(object).into(),
        roles(object).into(),
        print::age(object, now),
        json::text(object, "/status/nodeInfo/kubeletVersion").into(),
        address(object, "InternalIP").into(),
        address(object, "ExternalIP").into(),
        info("osImage").into(),
        kernel.into(),
        info("containerRuntimeVersion").into(),
    ]
}

fn readiness(object: &Value) -> String {
    let ready = match print::condition(object, "Ready") {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    match json::flag(object, "/spec/unschedulable") {
        true => format!("{ready},SchedulingDisabled"),
        false => ready.to_owned(),
    }
}

fn roles(object: &Value) -> String {
    let mut roles = BTreeSet::new();
    for (key, value) in json::entries(object, "/metadata/labels") {
        match key.strip_prefix("node-role.kubernetes.io/") {
            Some("") => {}
            Some(role) => {
                roles.insert(role);
            }
            None if key == "kubernetes.io/role" => {
                roles.extend(value.as_str().filter(|role| !role.is_empty()));
            }
            None => {}
        }
    }
    print::join_or(roles, ",", "<none>")
}

fn address(object: &Value, kind: &str) -> String {
    json::list(object, "/status/addresses")
        .iter()
        .find(|address| json::text(address, "/type") == kind)
        .map_or("<none>", |address| json::text(address, "/address"))
        .to_owned()
}
