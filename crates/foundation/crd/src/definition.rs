//! CustomResourceDefinitions as data: a kind is a constant [`Kind`], its definition the JSON
//! that is created in the API server.

use serde_json::{Map, Value, json};

/// One kind, as its definition describes it.
#[derive(Debug)]
pub struct KindDefinition {
    pub group: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub short: &'static [&'static str],
    pub scope: DefinitionScope,
    pub versions: &'static [DefinitionVersion],
    pub columns: &'static [Column],
    pub subresources: Subresources,
    /// A label by which programs of upstream find their own definitions.
    pub label: &'static str,
    pub schema: fn() -> Value,
}

impl KindDefinition {
    /// A namespaced kind without columns or subresources.
    pub const fn new(
        group: &'static str,
        kind: &'static str,
        plural: &'static str,
        short: &'static [&'static str],
        versions: &'static [DefinitionVersion],
        schema: fn() -> Value,
    ) -> Self {
        Self {
            group,
            kind,
            plural,
            short,
            scope: DefinitionScope::Everything,
            versions,
            columns: &[],
            subresources: Subresources::None,
            label: "",
            schema,
        }
    }
}

/// Namespaced kinds are in category `all`, but for the few that upstream left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionScope {
    Everything,
    Namespaced,
    Cluster,
}

#[derive(Clone, Copy, Debug)]
pub enum Subresources {
    None,
    Status,
    /// Status and scale, as sets of replicas have them.
    Scale,
}

#[derive(Debug)]
pub struct DefinitionVersion {
    pub name: &'static str,
    pub stored: bool,
    pub deprecated: Option<&'static str>,
}

/// A printer column: name, type, path, text.
#[derive(Debug)]
pub struct Column(
    pub &'static str,
    pub &'static str,
    pub &'static str,
    pub &'static str,
    /// Columns of a priority above 0 are shown in the wide output only.
    pub u8,
);

/// The definition of a kind, ready to be created.
pub fn definition(kind: &KindDefinition) -> Value {
    let mut schema = (kind.schema)();
    // Kubernetes describes the metadata of objects itself, and allows no other description.
    if let Some(metadata) =
        schema.pointer_mut("/properties/metadata").and_then(Value::as_object_mut)
    {
        metadata.remove("description");
    }
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
    if kind.scope == DefinitionScope::Everything {
        names["categories"] = json!(["all"]);
    }
    let mut metadata = json!({"name": format!("{}.{}", kind.plural, kind.group)});
    if !kind.label.is_empty() {
        metadata["labels"] = json!({kind.label: ""});
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": kind.group,
            "scope": if kind.scope == DefinitionScope::Cluster { "Cluster" } else { "Namespaced" },
            "names": names,
            "versions": versions,
        },
    })
}

fn singular(kind: &KindDefinition) -> String {
    if !kind.plural.contains('-') {
        return kind.kind.to_ascii_lowercase();
    }
    match kind.plural.strip_suffix("ies") {
        Some(name) => format!("{name}y"),
        None => kind.plural.strip_suffix('s').unwrap_or(kind.plural).to_owned(),
    }
}

fn describe_version(kind: &KindDefinition, version: &DefinitionVersion, schema: &Value) -> Value {
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

fn column(Column(name, kind, path, about, priority): &Column) -> Value {
    let mut column = json!({"name": name, "type": kind, "jsonPath": path});
    if !about.is_empty() {
        column["description"] = (*about).into();
    }
    if *priority > 0 {
        column["priority"] = (*priority).into();
    }
    column
}
