//! The readers of paths, queries and bodies that any client may send to the REST API, for fuzzers.
//! Nothing may panic.
//!
//! The tests beside this throw changed documents at it, and whole requests at the API, in every run;
//! `make fuzz TARGETS=rest` runs libFuzzer on it for long. Both begin with `fuzz/rest/`.

use client::Catalog;
use http::Request;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};

use crate::envelope::{self, EnvelopeContext, ObjectRow};
use crate::object_rights::ObjectRights;
use crate::query::ListQuery;
use crate::rights::Rights;
use crate::{request, route, type_name};

#[cfg(test)]
mod tests;

/// Takes any bytes; panics if it finds a defect.
pub type FuzzTarget = fn(&[u8]);

/// All of them, with the names of their corpora.
pub const TARGETS: &[(&str, FuzzTarget)] = &[("rest", requests_are_read_or_refused)];

/// A request: path and query on the first line, the body after it.
fn requests_are_read_or_refused(bytes: &[u8]) {
    let at = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (line, body) = bytes.split_at(at);
    let line = String::from_utf8_lossy(line).into_owned();
    let (path, query) = line.split_once('?').unwrap_or((&line, ""));
    if let Some(route) = route::parse(path) {
        let _ = (route.target(true), route.target(false));
    }
    for kind in ["application/json", "application/yaml"] {
        let parts = Request::builder().header(CONTENT_TYPE, kind).body(()).map(Request::into_parts);
        let Ok((parts, ())) = parts else { continue };
        if let Ok(object) = request::parse(&parts, body) {
            wrapped_and_unwrapped(&Value::Object(object), query);
        }
    }
}

fn wrapped_and_unwrapped(object: &Value, query: &str) {
    let catalog = catalog();
    let rights = Rights::read(&json!({"status": {"resourceRules": [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}}));
    for kind in ["kubevirt.io.virtualmachines", "nodes", "persistentvolumeclaims"] {
        let kind = type_name::find(&catalog, kind).expect("it is in the catalog");
        let context = EnvelopeContext {
            kind,
            catalog: &catalog,
            origin: "https://h",
            prefix: "/v1",
            pods: std::slice::from_ref(object),
        };
        let rights = ObjectRights::of(kind, &rights);
        let items = object["items"].as_array().into_iter().flatten().chain([object]);
        let rows = items.map(|own| ObjectRow { object: own.clone(), cells: None });
        let resources = rows.map(|row| envelope::wrap(&context, row, &rights)).collect();
        let Ok(query) = ListQuery::parse(query) else { continue };
        let _ = query.upstream();
        let count = query.arrange(resources, |own| own).items.into_iter().map(|mut own| {
            query.prune(&mut own);
            if let Value::Object(fields) = own {
                let _ = envelope::unwrap(kind, fields);
            }
        });
        count.for_each(drop);
    }
}

/// The catalog of a server with three kinds.
fn catalog() -> Catalog {
    let resource = |group: &str, plural: &str, kind: &str, scope: &str| {
        json!({"resource": plural, "scope": scope, "singularResource": kind.to_lowercase(),
            "responseKind": {"group": group, "version": "v1", "kind": kind},
            "verbs": ["get", "list", "create", "update", "delete"]})
    };
    let group = |name: &str, resources: Vec<Value>| {
        json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {}, "items": [{"metadata": {"name": name},
                "versions": [{"version": "v1", "resources": resources, "freshness": "Current"}]}]})
    };
    let claims = resource("", "persistentvolumeclaims", "PersistentVolumeClaim", "Namespaced");
    let lists = [
        group("", vec![resource("", "nodes", "Node", "Cluster"), claims]),
        group(
            "kubevirt.io",
            vec![resource("kubevirt.io", "virtualmachines", "VirtualMachine", "Namespaced")],
        ),
    ];
    Catalog::read(&lists.map(|list| serde_json::from_value(list).expect("it is a discovery")))
}
