//! The parts of a definition that serving its kinds needs, without its schemas.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::verbs::item::Item;

/// A CustomResourceDefinition as the catalog reads it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Document {
    pub(crate) metadata: Metadata,
    pub(crate) spec: Spec,
    #[serde(default)]
    pub(crate) status: CrdStatus,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    #[serde(default)]
    pub(crate) deletion_timestamp: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Spec {
    pub(crate) group: String,
    pub(crate) scope: String,
    pub(crate) versions: Vec<CrdVersion>,
    #[serde(default)]
    pub(crate) conversion: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CrdNames {
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CrdVersion {
    pub(crate) name: String,
    pub(crate) served: bool,
    pub(crate) storage: bool,
    pub(crate) deprecated: bool,
    pub(crate) deprecation_warning: Option<String>,
    pub(crate) subresources: Subresources,
    pub(crate) additional_printer_columns: Vec<Value>,
    pub(crate) selectable_fields: Vec<SelectableField>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Subresources {
    pub(crate) status: Option<Value>,
    pub(crate) scale: Option<Scale>,
}

/// Where the numbers of `/scale` live in an object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Scale {
    pub(crate) spec_replicas_path: String,
    pub(crate) status_replicas_path: String,
    pub(crate) label_selector_path: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SelectableField {
    pub(crate) json_path: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CrdStatus {
    pub(crate) accepted_names: CrdNames,
    pub(crate) conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) ty: String,
    pub(crate) status: String,
}

impl Document {
    pub(crate) fn read(item: &Item) -> Option<Self> {
        serde_json::from_slice(item.bytes()).ok()
    }

    pub(crate) fn is(&self, condition: &str) -> bool {
        self.status.conditions.iter().any(|known| known.ty == condition && known.status == "True")
    }

    pub(crate) fn storage_version(&self) -> &str {
        let storage = self.spec.versions.iter().find(|version| version.storage);
        storage.map_or("", |version| &version.name)
    }

    /// The raw schema of one version, parsed from the definition's own bytes.
    pub(crate) fn schema(item: &Item, version: &str) -> Option<Value> {
        #[derive(Deserialize)]
        struct Outer<'a> {
            #[serde(borrow)]
            spec: DocumentInner<'a>,
        }
        #[derive(Deserialize)]
        struct DocumentInner<'a> {
            #[serde(borrow)]
            versions: Vec<OneVersion<'a>>,
        }
        #[derive(Deserialize)]
        struct OneVersion<'a> {
            name: String,
            #[serde(borrow, default)]
            schema: Option<SchemaField<'a>>,
        }
        #[derive(Deserialize)]
        struct SchemaField<'a> {
            #[serde(borrow, rename = "openAPIV3Schema", default)]
            schema: Option<&'a RawValue>,
        }
        let outer: Outer<'_> = serde_json::from_slice(item.bytes()).ok()?;
        let found = outer.spec.versions.into_iter().find(|known| known.name == version)?;
        serde_json::from_str(found.schema?.schema?.get()).ok()
    }
}
