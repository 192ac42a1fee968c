//! Descriptions of the fields of built-in types, as `kubectl explain` shows them in our kinds.
//! The types themselves are lists of fields without texts.

/// The description of a field of a built-in type; empty if it has none.
pub(super) fn of(kind: &str, field: &str) -> &'static str {
    match kind {
        "Affinity" | "NodeAffinity" | "PodAffinity" | "PodAntiAffinity" => affinity(kind, field),
        "PreferredSchedulingTerm"
        | "WeightedPodAffinityTerm"
        | "PodAffinityTerm"
        | "NodeSelector"
        | "NodeSelectorTerm" => affinity_term(field),
        "TopologySpreadConstraint" => spread(field),
        "LabelSelector" | "LabelSelectorRequirement" | "NodeSelectorRequirement" => selector(field),
        "Toleration" => toleration(field),
        "ExecAction" | "HTTPGetAction" | "HTTPHeader" | "TCPSocketAction" => probe(kind, field),
        "PodDNSConfig" | "PodDNSConfigOption" => dns(field),
        "PersistentVolumeClaimSpec" | "PersistentVolumeClaimVolumeSource" => claim(field),
        "TypedLocalObjectReference" | "TypedObjectReference" => reference(field),
        "DownwardAPIVolumeFile" | "ObjectFieldSelector" | "ResourceFieldSelector" => {
            downward(field)
        }
        "ResourceRequirements" | "VolumeResourceRequirements" | "ResourceClaim" => resources(field),
        _ => "",
    }
}

fn affinity(kind: &str, field: &str) -> &'static str {
    match (kind, field) {
        (_, "nodeAffinity") => "Nodes that the machine has to be on, or prefers.",
        (_, "podAffinity") => "Machines and pods that the machine is to be near to.",
        (_, "podAntiAffinity") => "Machines and pods that the machine is to be apart from.",
        ("NodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution") => {
            "Nodes that the machine can be placed on. Without a match it is not placed."
        }
        ("NodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution") => {
            "Nodes that are preferred, by weight."
        }
        (_, "requiredDuringSchedulingIgnoredDuringExecution") => {
            "Rules that a node has to fulfil when the machine is placed."
        }
        (_, "preferredDuringSchedulingIgnoredDuringExecution") => {
            "Rules that a node should fulfil, by weight."
        }
        _ => "",
    }
}

fn affinity_term(field: &str) -> &'static str {
    match field {
        "weight" => "Weight of the rule, 1 to 100.",
        "preference" => "The nodes that are preferred.",
        "podAffinityTerm" => "The rule.",
        "nodeSelectorTerms" => "Alternatives, one of which a node has to match.",
        "matchExpressions" => {
            "Requirements for the labels of a node, all of which it has to match."
        }
        "matchFields" => "Requirements for the fields of a node, such as metadata.name.",
        "labelSelector" => "Labels of the machines and pods that the rule is about.",
        "matchLabelKeys" => "Keys of labels that have to have the same value as on this machine.",
        "mismatchLabelKeys" => {
            "Keys of labels that have to have another value than on this machine."
        }
        "namespaceSelector" => "Labels of the namespaces that the rule is about.",
        "namespaces" => {
            "Names of the namespaces that the rule is about. The default is that of the machine."
        }
        "topologyKey" => {
            "Label of nodes; nodes with the same value are one place, such as a host or a zone."
        }
        _ => "",
    }
}

fn spread(field: &str) -> &'static str {
    match field {
        "labelSelector" => "Labels of the machines and pods that are counted.",
        "matchLabelKeys" => "Keys of labels that have to have the same value as on this machine.",
        "maxSkew" => "Largest difference between the numbers of machines in two places.",
        "minDomains" => "Smallest number of places that have to exist.",
        "nodeAffinityPolicy" => {
            "Whether nodes that the affinity excludes are counted: Honor or Ignore."
        }
        "nodeTaintsPolicy" => {
            "Whether taints that are not tolerated exclude nodes from the count: Honor or Ignore."
        }
        "topologyKey" => {
            "Label of nodes; nodes with the same value are one place, such as a host or a zone."
        }
        "whenUnsatisfiable" => {
            "What becomes of a machine that cannot be placed so: DoNotSchedule or ScheduleAnyway."
        }
        _ => "",
    }
}

fn selector(field: &str) -> &'static str {
    match field {
        "matchLabels" => "Labels with the values that an object has to have.",
        "matchExpressions" => "Requirements for labels, all of which an object has to match.",
        "key" => "Key of the label or name of the field.",
        "operator" => "In, NotIn, Exists or DoesNotExist; for nodes also Gt and Lt.",
        "values" => "Values to compare with; empty for Exists and DoesNotExist.",
        _ => "",
    }
}

fn toleration(field: &str) -> &'static str {
    match field {
        "effect" => "Effect of the taints that are tolerated. All if empty.",
        "key" => "Key of the taints that are tolerated. All if empty.",
        "operator" => "Relation of the key to the value: Equal or Exists.",
        "tolerationSeconds" => {
            "How long a taint with the effect NoExecute is tolerated. Forever if empty."
        }
        "value" => "Value of the taints that are tolerated.",
        _ => "",
    }
}

fn probe(kind: &str, field: &str) -> &'static str {
    match (kind, field) {
        (_, "command") => "Command and arguments, run in the guest by its agent without a shell.",
        ("HTTPHeader", "name") => "Name of the header.",
        ("HTTPHeader", "value") => "Value of the header.",
        (_, "host") => "Host to connect to. The default is the address of the guest.",
        (_, "httpHeaders") => "Headers of the request.",
        (_, "path") => "Path of the request.",
        (_, "port") => "Port to connect to.",
        (_, "protocol") => "Version of HTTP.",
        (_, "scheme") => "HTTP or HTTPS.",
        _ => "",
    }
}

fn dns(field: &str) -> &'static str {
    match field {
        "nameservers" => "Addresses of DNS servers.",
        "searches" => "Domains in which short names are searched.",
        "options" => "Options of the resolver.",
        "name" => "Name of the option.",
        "value" => "Value of the option.",
        _ => "",
    }
}

fn claim(field: &str) -> &'static str {
    match field {
        "accessModes" => "ReadWriteOnce, ReadWriteOncePod, ReadOnlyMany or ReadWriteMany.",
        "dataSource" => "Snapshot or claim of the namespace that the volume is filled from.",
        "dataSourceRef" => "Object that the volume is filled from.",
        "resources" => "Size of the volume.",
        "selector" => "Labels of existing volumes that may be bound.",
        "storageClassName" => "Storage class. The default class if not set.",
        "volumeAttributesClassName" => "Class of attributes that can be changed later.",
        "volumeMode" => "Block or Filesystem.",
        "volumeName" => "The volume that is bound to the claim.",
        "claimName" => "Name of a claim in the same namespace.",
        "readOnly" => "Whether the volume is attached read-only.",
        _ => "",
    }
}

fn reference(field: &str) -> &'static str {
    match field {
        "apiGroup" => "API group of the object; empty for core kinds.",
        "kind" => "Kind of the object.",
        "name" => "Name of the object.",
        "namespace" => "Namespace of the object.",
        _ => "",
    }
}

fn downward(field: &str) -> &'static str {
    match field {
        "path" => "Path of the file, relative to the volume.",
        "mode" => "Permissions of the file.",
        "user" => "Numerical ID of the owner of the file.",
        "fieldRef" => "Field of the machine instance that the file contains.",
        "apiVersion" => "Version of the schema that the path is of.",
        "fieldPath" => "Path of the field, such as metadata.labels.",
        "resourceFieldRef" => "Resource of a container that the file contains.",
        "containerName" => "Name of the container.",
        "resource" => "Name of the resource, such as limits.cpu.",
        "divisor" => "Unit of the number.",
        _ => "",
    }
}

fn resources(field: &str) -> &'static str {
    match field {
        "limits" => "Largest amounts, by resource.",
        "requests" => "Amounts that are reserved, by resource.",
        "claims" => "Claims of devices.",
        "name" => "Name of the claim.",
        "request" => "Name of a request within the claim; all if empty.",
        _ => "",
    }
}
