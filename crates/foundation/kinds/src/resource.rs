//! The definition of a kind for the API server: a row of data.
//!
//! A built-in kind is one [`Resource`]; a CustomResourceDefinition becomes the same
//! thing at run time inside `apiserver`. Nothing here does I/O or reads a clock.

use jiff::Timestamp;
use schema::FieldError;
use serde_json::Value;

/// Whether objects of a kind live in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    Namespaced,
}

/// A subresource of a built-in kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subresource {
    /// `status`, `scale`, `token`, `finalize`, `approval`, `eviction`, …
    pub name: &'static str,
    /// Kind of its bodies where it is not the parent's: `(group, version, kind)`.
    pub kind: Option<(&'static str, &'static str, &'static str)>,
    pub verbs: &'static [&'static str],
}

impl Subresource {
    pub const STATUS: Self =
        Self { name: "status", kind: None, verbs: &["get", "patch", "update"] };
    pub const SCALE: Self = Self {
        name: "scale",
        kind: Some(("autoscaling", "v1", "Scale")),
        verbs: &["get", "patch", "update"],
    };

    /// Requests of every method that are passed on.
    pub const fn proxy(options: &'static str) -> Self {
        let verbs = &["create", "delete", "get", "patch", "update"];
        Self { name: "proxy", kind: Some(("", "v1", options)), verbs }
    }
}

/// Which strings may name an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// DNS-1123 subdomain, at most 253 characters: most kinds.
    Subdomain,
    /// DNS-1123 label, at most 63 characters: namespaces and services.
    Label,
    /// DNS-1035 label (must begin with a letter).
    Label1035,
    /// Anything that can be one segment of a path: RBAC kinds.
    PathSegment,
}

/// The treatment of owned objects by a deletion without a propagation policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultPropagation {
    Background,
    /// Kinds from before there was garbage collection keep their dependents; DELETE warns of it with this
    /// text, where there is one.
    Orphan(Option<&'static str>),
}

/// How objects of one kind are filled in and judged on their way to the store.
///
/// Every function is pure. `validate_update` runs in place of `validate` on an update,
/// and is expected to call it where the same rules hold.
#[derive(Debug, Clone, Copy)]
pub struct Strategy {
    pub name: NameRule,
    /// Fills defaults; runs on every decoded body of this kind.
    pub default: fn(&mut Value),
    /// Drops what a client may not set at creation (status, mostly) and sets what the server owns.
    pub prepare_create: fn(&mut Value),
    /// The same for an update; `old` is what the store holds.
    pub prepare_update: fn(new: &mut Value, old: &Value),
    pub validate: fn(&Value, &mut Vec<FieldError>),
    pub validate_update: fn(new: &Value, old: &Value, &mut Vec<FieldError>),
    /// For `/status`: keeps everything but the status from `old`.
    pub prepare_status: fn(new: &mut Value, old: &Value),
    pub validate_status: fn(new: &Value, old: &Value, &mut Vec<FieldError>),
    pub warnings: fn(&Value) -> Vec<String>,
    /// Whether `metadata.generation` counts changes outside metadata and status.
    pub generation: bool,
    /// Whether a PUT without a resourceVersion overwrites.
    pub unconditional_update: bool,
    /// Whether a PUT of an absent object creates it.
    pub create_on_update: bool,
    /// Whether DELETE answers with the object instead of a `Status`.
    pub returns_deleted: bool,
    pub default_propagation: DefaultPropagation,
}

impl Strategy {
    /// A kind without status or defaults, whose objects are judged by their metadata alone.
    pub const GENERIC: Self = Self {
        name: NameRule::Subdomain,
        default: |_| {},
        prepare_create: |_| {},
        prepare_update: |_, _| {},
        validate: |_, _| {},
        validate_update: |_, _, _| {},
        prepare_status: |_, _| {},
        validate_status: |_, _, _| {},
        warnings: |_| Vec::new(),
        generation: false,
        unconditional_update: true,
        create_on_update: false,
        returns_deleted: false,
        default_propagation: DefaultPropagation::Background,
    };

    /// A kind with a `status` subresource: each endpoint keeps its hands off the other's part.
    pub const WITH_STATUS: Self = Self {
        prepare_create: crate::status::drop,
        prepare_update: crate::status::keep,
        prepare_status: crate::status::only,
        ..Self::GENERIC
    };
}

/// One column of `kubectl get`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    /// `string`, `integer`, `number`, `boolean`, `date`.
    pub ty: &'static str,
    pub format: &'static str,
    /// Above 0: only with `-o wide`.
    pub priority: u8,
    pub description: &'static str,
}

impl Column {
    /// A column of text that is always shown.
    pub const fn text(name: &'static str, description: &'static str) -> Self {
        Self { name, ty: "string", format: "", priority: 0, description }
    }

    /// A column of numbers that is always shown.
    pub const fn integer(name: &'static str, description: &'static str) -> Self {
        Self { ty: "integer", ..Self::text(name, description) }
    }

    /// A column of `true` and `false` that is always shown.
    pub const fn boolean(name: &'static str, description: &'static str) -> Self {
        Self { ty: "boolean", ..Self::text(name, description) }
    }

    /// The same column, shown only with `-o wide`.
    pub const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    /// The name every object has.
    pub const NAME: Self = Self { format: "name", ..Self::text("Name", "Name of the object") };
    /// How long ago the object was made.
    pub const AGE: Self = Self::text("Age", "Time since the object was created");
}

/// How objects of a kind are shown as rows of a table.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    pub columns: &'static [Column],
    /// One cell per column; `now` is for ages.
    pub cells: fn(&Value, now: Timestamp) -> Vec<Value>,
}

impl Printer {
    /// Name and age, which every object has.
    pub const GENERIC: Self = Self {
        columns: &[Column::NAME, Column::AGE],
        cells: |object, now| vec![crate::print::name(object), crate::print::age(object, now)],
    };

    /// Name and creation time: the columns that upstream shows of kinds without a printer.
    pub const CREATED: Self = Self {
        columns: &[
            Column::NAME,
            Column { ty: "date", ..Column::text("Created At", "When the object was created") },
        ],
        cells: |object, _| {
            let created = crate::json::text(object, "/metadata/creationTimestamp");
            vec![crate::print::name(object), created.into()]
        },
    };
}

/// A field that selectors may name, and how to read its value.
pub type SelectableField = (&'static str, fn(&Value) -> String);

/// How a version of a kind that is not its stored one is read and written.
///
/// Every other function of the row sees objects of the row's own version: conversion is
/// the last thing before the store and the first after it.
///
/// Both directions must be lossless together: fields that one version cannot express are kept
/// where the other finds them again (annotations, mostly).
#[derive(Debug, Clone, Copy)]
pub struct Conversion {
    /// `(group, version, kind)` of what the store holds.
    pub stored: (&'static str, &'static str, &'static str),
    /// Rewrites an object of this version into the stored one, `apiVersion` included.
    pub to_storage: fn(&mut Value),
    /// Rewrites a stored object into this version, `apiVersion` included.
    pub from_storage: fn(&mut Value),
}

/// One built-in kind at one version.
#[derive(Debug, Clone, Copy)]
pub struct Resource {
    /// Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub kind: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub scope: Scope,
    pub verbs: &'static [&'static str],
    /// Where its objects are stored: a path below the root, as upstream names it in etcd.
    pub table: &'static str,
    pub subresources: &'static [Subresource],
    pub strategy: Strategy,
    pub printer: Printer,
    /// Selectable fields beside metadata.name and metadata.namespace:
    /// the label and how to read its value.
    pub fields: &'static [SelectableField],
    /// Set where the store holds another version of the same objects.
    pub conversion: Option<Conversion>,
}

impl Resource {
    /// The warning for every request to a deprecated kind.
    pub fn deprecation(&self) -> Option<String> {
        let notice = match (self.group, self.kind) {
            ("", "ComponentStatus") => "v1 ComponentStatus is deprecated in v1.19+",
            ("", "Endpoints") => {
                "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
            }
            _ => return None,
        };
        Some(notice.to_owned())
    }

    /// A stored kind without anything special; `table` is its plural.
    pub const fn cluster(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        singular: &'static str,
        kind: &'static str,
    ) -> Self {
        Self {
            group,
            version,
            plural,
            singular,
            kind,
            short_names: &[],
            categories: &[],
            scope: Scope::Cluster,
            verbs: ALL_VERBS,
            table: plural,
            subresources: &[],
            strategy: Strategy::GENERIC,
            printer: Printer::GENERIC,
            fields: &[],
            conversion: None,
        }
    }

    /// The same for a kind whose objects live in namespaces.
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        singular: &'static str,
        kind: &'static str,
    ) -> Self {
        Self { scope: Scope::Namespaced, ..Self::cluster(group, version, plural, singular, kind) }
    }

    /// Whether its objects are kept: a review is answered and forgotten.
    pub fn is_stored(&self) -> bool {
        !self.table.is_empty()
    }

    /// The subresource of that name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }
}

/// The verbs of an ordinary stored kind.
pub const ALL_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The verbs of a kind that is a question, answered and not stored.
pub const CREATE_ONLY: &[&str] = &["create"];
