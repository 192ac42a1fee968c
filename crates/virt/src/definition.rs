//! The CustomResourceDefinitions of all kinds: names, versions, columns and subresources as
//! upstream publishes them, with the schemas of the records in [`crate::api`].

mod catalog;
mod network;
mod storage;

use std::sync::OnceLock;

use serde_json::{Map, Value, json};

/// One kind, as its definition describes it.
struct Kind {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    scope: Scope,
    versions: &'static [Version],
    columns: &'static [Column],
    subresources: Subresources,
    schema: fn() -> Value,
}

impl Kind {
    /// A namespaced kind without columns or subresources.
    const fn new(
        group: &'static str,
        kind: &'static str,
        plural: &'static str,
        short: &'static [&'static str],
        versions: &'static [Version],
        schema: fn() -> Value,
    ) -> Self {
        Self {
            group,
            kind,
            plural,
            short,
            scope: Scope::Everything,
            versions,
            columns: &[],
            subresources: Subresources::None,
            schema,
        }
    }
}

/// Namespaced kinds are in category `all`, but for the few that upstream left out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Everything,
    Namespaced,
    Cluster,
}

#[derive(Clone, Copy)]
enum Subresources {
    None,
    Status,
    /// Status and scale, as sets of replicas have them.
    Scale,
}

struct Version {
    name: &'static str,
    stored: bool,
    deprecated: Option<&'static str>,
}

/// A printer column: name, type, path, text.
struct Column(&'static str, &'static str, &'static str, &'static str);

/// The definitions, ready to be created. Built once: they are large.
pub fn definitions() -> &'static [Value] {
    static DEFINITIONS: OnceLock<Vec<Value>> = OnceLock::new();
    DEFINITIONS.get_or_init(|| {
        let kinds = [catalog::CATALOG, storage::CATALOG, network::CATALOG];
        kinds.into_iter().flatten().map(definition).collect()
    })
}

fn definition(kind: &Kind) -> Value {
    let schema = (kind.schema)();
    let versions: Vec<Value> =
        kind.versions.iter().map(|version| describe_version(kind, version, &schema)).collect();
    let mut names = json!({
        "kind": kind.kind,
        "listKind": format!("{}List", kind.kind),
        "plural": kind.plural,
        "singular": singular(kind),
    });
    if !kind.short.is_empty() {
        names["shortNames"] = kind.short.into();
    }
    if kind.scope == Scope::Everything {
        names["categories"] = json!(["all"]);
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{}.{}", kind.plural, kind.group),
            "labels": labels(kind),
        },
        "spec": {
            "group": kind.group,
            "scope": if kind.scope == Scope::Cluster { "Cluster" } else { "Namespaced" },
            "names": names,
            "versions": versions,
        },
    })
}

fn singular(kind: &Kind) -> String {
    match kind.plural.strip_suffix('s').filter(|name| name.contains('-')) {
        Some(name) => name.to_owned(),
        None => kind.kind.to_ascii_lowercase(),
    }
}

/// The label by which upstream's components find their own definitions.
fn labels(kind: &Kind) -> Value {
    match (kind.group, kind.kind) {
        (_, "KubeVirt") => json!({"operator.kubevirt.io": ""}),
        (_, "CDI") => json!({"operator.cdi.kubevirt.io": ""}),
        ("k8s.cni.cncf.io", _) => json!({}),
        ("cdi.kubevirt.io", _) => json!({"cdi.kubevirt.io": ""}),
        _ => json!({"kubevirt.io": ""}),
    }
}

fn describe_version(kind: &Kind, version: &Version, schema: &Value) -> Value {
    let mut described = Map::new();
    described.insert("name".to_owned(), version.name.into());
    described.insert("served".to_owned(), true.into());
    described.insert("storage".to_owned(), version.stored.into());
    if let Some(warning) = version.deprecated {
        described.insert("deprecated".to_owned(), true.into());
        described.insert("deprecationWarning".to_owned(), warning.into());
    }
    described.insert("schema".to_owned(), json!({"openAPIV3Schema": schema}));
    if !kind.columns.is_empty() {
        let columns: Vec<Value> = kind.columns.iter().map(column).collect();
        described.insert("additionalPrinterColumns".to_owned(), columns.into());
    }
    let subresources = match kind.subresources {
        Subresources::None => return described.into(),
        Subresources::Status => json!({"status": {}}),
        Subresources::Scale => json!({
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.labelSelector",
            },
        }),
    };
    described.insert("subresources".to_owned(), subresources);
    described.into()
}

/// Columns that only the wide output shows.
const WIDE: &[&str] = &["Live-Migratable", "Paused"];

fn column(Column(name, kind, path, about): &Column) -> Value {
    let mut column = json!({"name": name, "type": kind, "jsonPath": path});
    if !about.is_empty() {
        column["description"] = (*about).into();
    }
    if WIDE.contains(name) {
        column["priority"] = 1.into();
    }
    column
}
