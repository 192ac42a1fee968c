//! Groups that an extension answers for, as `subresources.kubevirt.io`: their paths, from the rows
//! that discovery lists. Bodies and replies are not described, as the server does not read them.

use serde_json::{Map, Value, json};
use types::openapi::OpenApiVersion;

use super::operation::{self, NAMESPACE_DESCRIPTION};
use super::resource::{camel, operation_group, root, tag};
use crate::extension::ExtensionResource;

const NAMESPACE: (&str, &str) = ("namespace", NAMESPACE_DESCRIPTION);
const NAME: (&str, &str) = ("name", "name of the object");

/// A group in one of its versions.
#[derive(Debug, Clone)]
pub(super) struct DescribedGroup {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) resources: Vec<ExtensionResource>,
}

/// Adds the paths of a group.
pub(super) fn paths(group: &DescribedGroup, form: OpenApiVersion, into: &mut Map<String, Value>) {
    let base = root(group.name, group.version);
    into.insert(format!("{base}/"), operation::discovery(group.name, group.version, form));
    for row in &group.resources {
        let (resource, sub) = row.name.split_once('/').unwrap_or((row.name, ""));
        let scope = if row.namespaced { "/namespaces/{namespace}" } else { "" };
        let collection = format!("{base}{scope}/{resource}");
        for verb in row.verbs {
            let Some(method) = method(verb) else { continue };
            let has_name = !sub.is_empty() || *verb == "get";
            let path = match (has_name, sub) {
                (false, _) => collection.clone(),
                (true, "") => format!("{collection}/{{name}}"),
                (true, sub) => format!("{collection}/{{name}}/{sub}"),
            };
            let item = into.entry(path).or_insert_with(|| {
                let names: &[(&str, &str)] = match (row.namespaced, has_name) {
                    (true, true) => &[NAMESPACE, NAME],
                    (true, false) => &[NAMESPACE],
                    (false, true) => &[NAME],
                    (false, false) => &[],
                };
                json!({"parameters": operation::in_path(names, form)})
            });
            item[method] = described(group, row, verb, form);
        }
    }
}

/// The method of requests with a verb; none if the path is that of another verb.
fn method(verb: &str) -> Option<&'static str> {
    match verb {
        "get" | "list" => Some("get"),
        "create" => Some("post"),
        "update" => Some("put"),
        _ => None,
    }
}

fn described(
    group: &DescribedGroup,
    row: &ExtensionResource,
    verb: &str,
    form: OpenApiVersion,
) -> Value {
    let scope = if row.namespaced { "Namespaced" } else { "" };
    let (middle, name) = (operation_group(group.name, group.version), camel(row.name, true));
    let mut described = json!({
        "description": format!("{verb} {}", row.name),
        "operationId": format!("{verb}{middle}{scope}{name}"),
        "responses": {
            "200": {"description": "OK"},
            "401": {"description": "Unauthorized"},
            "403": {"description": "Forbidden"},
            "404": {"description": "Not Found"},
        },
        "tags": [tag(group.name, group.version)],
    });
    if form == OpenApiVersion::V2 {
        described["schemes"] = json!(["https"]);
        described["produces"] = json!(["*/*"]);
        described["consumes"] = json!(["*/*"]);
    }
    described
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn row(name: &'static str, verbs: &'static [&'static str]) -> ExtensionResource {
        ExtensionResource { name, kind: "", namespaced: true, verbs }
    }

    #[test]
    fn each_row_has_the_path_and_the_method_it_is_served_under() {
        let group = DescribedGroup {
            name: "subresources.kubevirt.io",
            version: "v1",
            resources: vec![
                row("virtualmachines/start", &["update"]),
                row("virtualmachineinstances/vnc/screenshot", &["get"]),
                row("expand-vm-spec", &["update"]),
                row("pods", &["get", "list"]),
            ],
        };
        for form in [OpenApiVersion::V2, OpenApiVersion::V3] {
            let mut found = Map::new();
            paths(&group, form, &mut found);
            let base = "/apis/subresources.kubevirt.io/v1";
            let in_namespace = format!("{base}/namespaces/{{namespace}}");
            for (path, method, id) in [
                (
                    "virtualmachines/{name}/start",
                    "put",
                    "updateSubresourcesKubevirtIoV1NamespacedVirtualmachinesStart",
                ),
                (
                    "virtualmachineinstances/{name}/vnc/screenshot",
                    "get",
                    "getSubresourcesKubevirtIoV1NamespacedVirtualmachineinstancesVncScreenshot",
                ),
                ("expand-vm-spec", "put", "updateSubresourcesKubevirtIoV1NamespacedExpandVmSpec"),
                ("pods", "get", "listSubresourcesKubevirtIoV1NamespacedPods"),
                ("pods/{name}", "get", "getSubresourcesKubevirtIoV1NamespacedPods"),
            ] {
                let item = &found[&format!("{in_namespace}/{path}")];
                assert_eq!(item[method]["operationId"], id, "{path}");
                let names = item["parameters"].as_array().unwrap().len();
                assert_eq!(names, path.matches('{').count() + 1, "{path}");
            }
            assert!(found.contains_key(&format!("{base}/")));
            assert_eq!(found.len(), 6);
        }
    }
}
