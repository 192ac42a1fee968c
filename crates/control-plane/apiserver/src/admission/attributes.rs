//! The attributes of a write that webhooks and policies see.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{AdmissionOperation, Operation};
use crate::admission::matching::WriteAttributes;
use crate::api::Api;
use crate::schemas::served::ServedKind;
use crate::verbs::call::Call;
use crate::verbs::object;

/// Group, version and kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GroupVersionKind {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
}

impl GroupVersionKind {
    fn of(served: &ServedKind) -> Self {
        let text = |text: &Arc<str>| text.to_string();
        Self {
            group: text(&served.group),
            version: text(&served.version),
            kind: text(&served.kind),
        }
    }

    fn to_value(&self) -> Value {
        json!({"group": self.group, "version": self.version, "kind": self.kind})
    }
}

/// The attributes of a write under admission.
#[derive(Debug)]
pub(super) struct Attributes<'a, 'c> {
    pub(super) call: &'a Call<'c>,
    pub(super) operation: Operation,
    pub(super) dry_run: bool,
    /// Of the object as it is sent, which below some subresources is not the resource's own.
    pub(super) kind: GroupVersionKind,
    pub(super) namespace: String,
    pub(super) name: String,
    options: Option<&'a Value>,
}

impl<'a, 'c> Attributes<'a, 'c> {
    pub(super) fn new(
        call: &'a Call<'c>,
        act: &AdmissionOperation<'a>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Self {
        let name = match call.path.name {
            "" if act.operation == Operation::Create => object.map_or("", object::name),
            name => name,
        };
        // A namespace lies in itself, as far as rules are concerned.
        let is_namespace = &*call.served.table == "namespaces";
        let namespace = if is_namespace { name } else { call.namespace() };
        let sent = object.or(old);
        let kind = match sent.filter(|_| !call.path.subresource.is_empty()) {
            Some(object) => kind_of(object).unwrap_or_else(|| GroupVersionKind::of(&call.served)),
            None => GroupVersionKind::of(&call.served),
        };
        Self {
            call,
            operation: act.operation,
            dry_run: act.dry_run,
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            options: act.options,
        }
    }

    pub(super) fn api(&self) -> &'c Api {
        self.call.api
    }

    pub(super) fn is_namespace(&self) -> bool {
        &*self.call.served.table == "namespaces"
    }

    /// For rules: the resource as it was asked for.
    pub(super) fn asked(&self) -> WriteAttributes<'_> {
        self.asked_as(&self.call.served)
    }

    /// The same in another version, or another group that shows the same objects.
    pub(super) fn asked_as<'s>(&'s self, served: &'s ServedKind) -> WriteAttributes<'s> {
        WriteAttributes {
            operation: self.operation.word(),
            group: &served.group,
            version: &served.version,
            resource: &served.plural,
            subresource: self.call.path.subresource,
            namespace: &self.namespace,
            name: &self.name,
        }
    }

    /// Other ways in which the resource is served.
    pub(super) fn equivalents(&self) -> Vec<Arc<ServedKind>> {
        let own = &self.call.served;
        let subresource = self.call.path.subresource;
        // An object that is not the resource's own has no other version.
        if self.kind != GroupVersionKind::of(own) {
            return Vec::new();
        }
        let catalog = self.call.api.catalog.load();
        let others = catalog.all().iter().filter(|served| {
            served.table == own.table
                && (&served.group, &served.version) != (&own.group, &own.version)
                && (subresource.is_empty() || served.subresource(subresource).is_some())
        });
        others.cloned().collect()
    }

    /// `AdmissionRequest` without its uid and its objects; `seen` is how a rule matched.
    pub(super) fn request(&self, seen: Option<&ServedKind>) -> Value {
        let own = &self.call.served;
        let kind = seen.map_or_else(|| self.kind.clone(), GroupVersionKind::of);
        let resource = |served: &ServedKind| {
            json!({
                "group": &*served.group, "version": &*served.version, "resource": &*served.plural,
            })
        };
        let mut request = json!({
            "kind": kind.to_value(),
            "resource": resource(seen.unwrap_or(own)),
            "requestKind": self.kind.to_value(),
            "requestResource": resource(own),
            "operation": self.operation.word(),
            "userInfo": self.call.user.to_user_info(),
            "dryRun": self.dry_run,
            "options": self.options(),
        });
        for (field, text) in [
            ("subResource", self.call.path.subresource),
            ("requestSubResource", self.call.path.subresource),
            ("name", &self.name),
            ("namespace", &self.namespace),
        ] {
            if !text.is_empty() {
                request[field] = text.into();
            }
        }
        request
    }

    /// The options of the operation, as an object.
    fn options(&self) -> Value {
        let kind = match self.operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
        };
        let mut options = match self.options {
            Some(Value::Object(given)) => given.clone(),
            _ => Map::new(),
        };
        options.insert("kind".to_owned(), kind.into());
        options.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
        if self.dry_run {
            options.insert("dryRun".to_owned(), json!(["All"]));
        }
        if self.operation != Operation::Delete {
            for field in ["fieldManager", "fieldValidation"] {
                if let Some(text) = self.call.query.get(field).filter(|text| !text.is_empty()) {
                    options.insert(field.to_owned(), text.into());
                }
            }
        }
        Value::Object(options)
    }
}

fn kind_of(object: &Value) -> Option<GroupVersionKind> {
    let (version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    Some(GroupVersionKind {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
    })
}
