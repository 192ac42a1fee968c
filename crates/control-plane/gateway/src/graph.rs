//! The objects that a machine or an instance depends on, as a tree: `objectgraph`. Pure but for
//! fetching the object and the pods of its namespace.
//!
//! Names only; the objects' existence is not checked, as a tool that copies or backs up a machine
//! wants to know what it would need.

use http::StatusCode;
use serde_json::{Value, json};

use crate::answer::{self, GatewayError, GatewayResult};
use crate::route::ObjectRoute;
use crate::{Gateway, GatewayRequest, instance, objects};

const DEPENDENCY: &str = "kubevirt.io/dependency-type";

/// The object at the root of the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    Machine,
    Instance,
}

pub(crate) async fn answer(
    gateway: &Gateway,
    at: &ObjectRoute,
    root: Root,
    asked: GatewayRequest,
) -> GatewayResult {
    let options = instance::options(&instance::read(asked.body).await?)?;
    let filter = GraphFilter::read(&options)?;
    let object = match root {
        Root::Machine => objects::machine(&gateway.client, at).await?,
        Root::Instance => objects::instance(&gateway.client, at).await?,
    };
    let path = format!(
        "/api/v1/namespaces/{}/pods?labelSelector=kubevirt.io%3Dvirt-launcher",
        at.namespace
    );
    let pods = objects::find(&gateway.client, &path).await?.unwrap_or_default();
    let mut tree = match root {
        Root::Machine => of_machine(&object, &pods),
        Root::Instance => of_instance(&object, &pods),
    };
    tree.children = filter.keep(tree.children);
    Ok(answer::json(StatusCode::OK, &tree.json()))
}

/// The kinds that appear in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GraphKind {
    Machine,
    Instance,
    Pod,
    ClusterInstancetype,
    Instancetype,
    ClusterPreference,
    Preference,
    Revision,
    DataVolume,
    Claim,
    ConfigMap,
    Secret,
    ServiceAccount,
    Network,
}

impl GraphKind {
    /// The group, the kind, and the purpose.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        let types = "instancetype.kubevirt.io";
        match self {
            Self::Machine => ("kubevirt.io", "VirtualMachine", "compute"),
            Self::Instance => ("kubevirt.io", "VirtualMachineInstance", "compute"),
            Self::Pod => ("", "Pod", "compute"),
            Self::ClusterInstancetype => (types, "VirtualMachineClusterInstancetype", "config"),
            Self::Instancetype => (types, "VirtualMachineInstancetype", "config"),
            Self::ClusterPreference => (types, "VirtualMachineClusterPreference", "config"),
            Self::Preference => (types, "VirtualMachinePreference", "config"),
            Self::Revision => ("apps", "ControllerRevision", "config"),
            Self::DataVolume => ("cdi.kubevirt.io", "DataVolume", "storage"),
            Self::Claim => ("", "PersistentVolumeClaim", "storage"),
            Self::ConfigMap => ("", "ConfigMap", "config"),
            Self::Secret => ("", "Secret", "config"),
            Self::ServiceAccount => ("", "ServiceAccount", "config"),
            Self::Network => ("k8s.cni.cncf.io", "NetworkAttachmentDefinition", "network"),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
struct GraphNode {
    kind: GraphKind,
    namespace: String,
    name: String,
    is_optional: bool,
    children: Vec<GraphNode>,
}

impl GraphNode {
    fn new(kind: GraphKind, namespace: &str, name: &str) -> Self {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Self { kind, namespace, name, is_optional: false, children: Vec::new() }
    }

    /// The machine also works without it.
    fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }

    fn json(&self) -> Value {
        let (group, kind, purpose) = self.kind.words();
        let mut node = json!({
            "objectReference": {"apiGroup": group, "kind": kind, "name": self.name,
                "namespace": self.namespace},
            "labels": {DEPENDENCY: purpose},
        });
        if self.is_optional {
            node["optional"] = true.into();
        }
        if !self.children.is_empty() {
            node["children"] = self.children.iter().map(Self::json).collect();
        }
        node
    }
}

fn text<'a>(object: &'a Value, path: &str) -> Option<&'a str> {
    object.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    object.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn of_machine(vm: &Value, pods: &Value) -> GraphNode {
    let namespace = text(vm, "/metadata/namespace").unwrap_or_default();
    let name = text(vm, "/metadata/name").unwrap_or_default();
    let mut root = GraphNode::new(GraphKind::Machine, namespace, name);
    if vm["status"]["created"] == true {
        let mut instance = GraphNode::new(GraphKind::Instance, namespace, name);
        instance.children.extend(launcher(pods, namespace, name));
        root.children.push(instance);
    }
    root.children.extend(matched(vm, "instancetype", namespace));
    root.children.extend(matched(vm, "preference", namespace));
    let spec = vm.pointer("/spec/template/spec").unwrap_or(&Value::Null);
    root.children.extend(of_spec(spec, namespace));
    root
}

fn of_instance(vmi: &Value, pods: &Value) -> GraphNode {
    let namespace = text(vmi, "/metadata/namespace").unwrap_or_default();
    let name = text(vmi, "/metadata/name").unwrap_or_default();
    let mut root = GraphNode::new(GraphKind::Instance, namespace, name);
    root.children.extend(launcher(pods, namespace, name));
    root.children.extend(of_spec(&vmi["spec"], namespace));
    root
}

/// The pod that represents an instance.
fn launcher(pods: &Value, namespace: &str, instance: &str) -> Option<GraphNode> {
    let owned = |pod: &&Value| {
        let owners = list(pod, "/metadata/ownerReferences");
        owners
            .iter()
            .any(|owner| owner["kind"] == "VirtualMachineInstance" && owner["name"] == instance)
            || pod["metadata"]["annotations"]["kubevirt.io/domain"] == instance
    };
    let pod = list(pods, "/items").iter().find(owned)?;
    Some(GraphNode::new(GraphKind::Pod, namespace, text(pod, "/metadata/name")?))
}

/// The instance type or preference of a machine, and the revision that keeps it as it was.
fn matched(vm: &Value, field: &str, namespace: &str) -> Vec<GraphNode> {
    let matcher = &vm["spec"][field];
    let mut nodes = Vec::new();
    if let Some(name) = text(matcher, "/name") {
        let kind = text(matcher, "/kind").unwrap_or_default().to_lowercase();
        let is_cluster = kind.is_empty() || kind.contains("cluster");
        let kind = match (field, is_cluster) {
            ("instancetype", true) => GraphKind::ClusterInstancetype,
            ("instancetype", false) => GraphKind::Instancetype,
            (_, true) => GraphKind::ClusterPreference,
            (_, false) => GraphKind::Preference,
        };
        let namespace = if is_cluster { "" } else { namespace };
        nodes.push(GraphNode::new(kind, namespace, name).optional());
    }
    let status = &vm["status"][format!("{field}Ref")];
    let revision = match status {
        Value::Null => text(matcher, "/revisionName"),
        known => text(known, "/controllerRevisionRef/name"),
    };
    nodes.extend(revision.map(|name| GraphNode::new(GraphKind::Revision, namespace, name)));
    nodes
}

/// Credentials, volumes and networks.
fn of_spec(spec: &Value, namespace: &str) -> Vec<GraphNode> {
    let mut nodes = Vec::new();
    for credential in list(spec, "/accessCredentials") {
        let secret = text(credential, "/sshPublicKey/source/secret/secretName")
            .or_else(|| text(credential, "/userPassword/source/secret/secretName"));
        nodes.extend(secret.map(|name| GraphNode::new(GraphKind::Secret, namespace, name)));
    }
    for volume in list(spec, "/volumes") {
        nodes.extend(of_volume(volume, namespace));
    }
    for network in list(spec, "/networks") {
        if let Some(name) = text(network, "/multus/networkName") {
            let (namespace, name) = name.split_once('/').unwrap_or((namespace, name));
            nodes.push(GraphNode::new(GraphKind::Network, namespace, name).optional());
        }
    }
    nodes
}

fn of_volume(volume: &Value, namespace: &str) -> Vec<GraphNode> {
    if let Some(name) = text(volume, "/dataVolume/name") {
        let mut node = GraphNode::new(GraphKind::DataVolume, namespace, name);
        node.children.push(GraphNode::new(GraphKind::Claim, namespace, name));
        return vec![node];
    }
    let sources = [
        ("/persistentVolumeClaim/claimName", GraphKind::Claim),
        ("/ephemeral/persistentVolumeClaim/claimName", GraphKind::Claim),
        ("/memoryDump/claimName", GraphKind::Claim),
        ("/configMap/name", GraphKind::ConfigMap),
        ("/secret/secretName", GraphKind::Secret),
        ("/serviceAccount/serviceAccountName", GraphKind::ServiceAccount),
        ("/cloudInitNoCloud/secretRef/name", GraphKind::Secret),
        ("/cloudInitNoCloud/networkDataSecretRef/name", GraphKind::Secret),
        ("/cloudInitConfigDrive/secretRef/name", GraphKind::Secret),
        ("/cloudInitConfigDrive/networkDataSecretRef/name", GraphKind::Secret),
        ("/sysprep/secret/name", GraphKind::Secret),
        ("/sysprep/configMap/name", GraphKind::ConfigMap),
    ];
    let found = sources.iter().filter_map(|(path, kind)| Some((text(volume, path)?, *kind)));
    found.map(|(name, kind)| GraphNode::new(kind, namespace, name)).collect()
}

/// Which nodes are wanted. A node that is not takes those below with it.
#[derive(Debug, Default, PartialEq, Eq)]
struct GraphFilter {
    without_optional: bool,
    /// Only objects that are needed for this purpose.
    purpose: Option<String>,
}

impl GraphFilter {
    fn read(options: &Value) -> Result<Self, GatewayError> {
        let without_optional = options["includeOptionalNodes"] == false;
        let mut filter = Self { without_optional, purpose: None };
        let Some(labels) = options.pointer("/labelSelector/matchLabels").and_then(Value::as_object)
        else {
            return match list(options, "/labelSelector/matchExpressions") {
                [] => Ok(filter),
                _ => Err(unknown_selector()),
            };
        };
        let mut labels = labels.iter();
        match (labels.next(), labels.next()) {
            (None, _) => {}
            (Some((label, Value::String(purpose))), None) if label == DEPENDENCY => {
                filter.purpose = Some(purpose.clone());
            }
            _ => return Err(unknown_selector()),
        }
        Ok(filter)
    }

    fn keep(&self, nodes: Vec<GraphNode>) -> Vec<GraphNode> {
        let wanted = |node: &GraphNode| {
            let purpose = node.kind.words().2;
            let fits = self.purpose.as_ref().is_none_or(|wanted| wanted == purpose);
            fits && !(self.without_optional && node.is_optional)
        };
        let nodes = nodes.into_iter().filter(wanted);
        nodes.map(|node| GraphNode { children: self.keep(node.children), ..node }).collect()
    }
}

fn unknown_selector() -> GatewayError {
    GatewayError::bad_request(format!(
        "labelSelector: only matchLabels with {DEPENDENCY} is supported, whose value is storage, \
         network, compute or config"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Value {
        json!({
            "metadata": {"namespace": "ns", "name": "vm"},
            "spec": {
                "instancetype": {"name": "u1.small"},
                "preference": {"name": "mine", "kind": "VirtualMachinePreference",
                    "revisionName": "mine-1"},
                "template": {"spec": {
                    "accessCredentials": [{"sshPublicKey": {"source": {"secret": {"secretName": "key"}}}}],
                    "volumes": [
                        {"name": "a", "dataVolume": {"name": "root"}},
                        {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
                        {"name": "c", "cloudInitNoCloud": {"secretRef": {"name": "user"}}},
                        {"name": "d", "containerDisk": {"image": "x"}},
                    ],
                    "networks": [{"name": "n", "pod": {}},
                        {"name": "m", "multus": {"networkName": "other/lan"}}],
                }},
            },
            "status": {"created": true,
                "instancetypeRef": {"controllerRevisionRef": {"name": "vm-u1.small-1"}}},
        })
    }

    fn pods() -> Value {
        let pod = |name: &str, owner: &str| {
            json!({"metadata": {"name": name, "ownerReferences":
                [{"kind": "VirtualMachineInstance", "name": owner}]}})
        };
        json!({"items": [pod("virt-launcher-other-1", "other"), pod("virt-launcher-vm-1", "vm")]})
    }

    fn lines(nodes: &[GraphNode], depth: usize) -> String {
        let line = |node: &GraphNode| {
            let mark = if node.is_optional { "?" } else { "" };
            let pad = " ".repeat(depth);
            let place = format!("{}/{}", node.namespace, node.name);
            format!(
                "{pad}{} {place}{mark}\n{}",
                node.kind.words().1,
                lines(&node.children, depth + 1)
            )
        };
        nodes.iter().map(line).collect()
    }

    #[test]
    fn a_machine_depends_on_what_its_spec_names() {
        let tree = of_machine(&machine(), &pods());
        let expected = "\
VirtualMachineInstance ns/vm
 Pod ns/virt-launcher-vm-1
VirtualMachineClusterInstancetype /u1.small?
ControllerRevision ns/vm-u1.small-1
VirtualMachinePreference ns/mine?
ControllerRevision ns/mine-1
Secret ns/key
DataVolume ns/root
 PersistentVolumeClaim ns/root
PersistentVolumeClaim ns/data
Secret ns/user
NetworkAttachmentDefinition other/lan?
";
        assert_eq!(lines(&tree.children, 0), expected);
        let node = json!({
            "objectReference": {"apiGroup": "k8s.cni.cncf.io", "namespace": "other", "name": "lan",
                "kind": "NetworkAttachmentDefinition"},
            "labels": {"kubevirt.io/dependency-type": "network"}, "optional": true,
        });
        assert_eq!(tree.json()["children"][9], node);
    }

    #[test]
    fn nodes_are_left_out_that_are_not_asked_for() {
        let keep = |options: Value| {
            let kept = GraphFilter::read(&options)
                .map(|filter| lines(&filter.keep(of_machine(&machine(), &pods()).children), 0));
            kept.unwrap_or_else(|failure| failure.message)
        };
        let storage = json!({"labelSelector": {"matchLabels": {DEPENDENCY: "storage"}}});
        let expected =
            "DataVolume ns/root\n PersistentVolumeClaim ns/root\nPersistentVolumeClaim ns/data\n";
        assert_eq!(keep(storage), expected);
        assert!(!keep(json!({"includeOptionalNodes": false})).contains('?'));
        assert!(keep(json!({"labelSelector": {}})).contains('?'));
        let odd = json!({"labelSelector": {"matchLabels": {"a": "b"}}});
        assert!(keep(odd).starts_with("labelSelector: only matchLabels"));
    }
}
