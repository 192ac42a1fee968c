use super::super::resource::OpenApiSubresource;
use super::*;
use crate::extension::ExtensionResource;

const ALL: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const STATUS: OpenApiSubresource<'static> =
    OpenApiSubresource { name: "status", kind: None, verbs: &["get", "patch", "update"] };
const SCALE: OpenApiSubresource<'static> = OpenApiSubresource {
    name: "scale",
    kind: Some(("autoscaling", "v1", "Scale")),
    verbs: &["get", "patch", "update"],
};
const TOKEN: OpenApiSubresource<'static> = OpenApiSubresource {
    name: "token",
    kind: Some(("authentication.k8s.io", "v1", "TokenRequest")),
    verbs: &["create"],
};

fn built_in(
    group: &'static str,
    kind: &'static str,
    list_kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    subresources: Vec<OpenApiSubresource<'static>>,
) -> Described<'static> {
    let source = SchemaSource::BuiltIn(Kind::find(group, "v1", kind).unwrap());
    Described {
        group,
        version: "v1",
        kind,
        list_kind,
        plural,
        namespaced,
        verbs: ALL,
        subresources,
        source,
    }
}

fn resources() -> Vec<Described<'static>> {
    let review = built_in(
        "authorization.k8s.io",
        "SelfSubjectAccessReview",
        "",
        "selfsubjectaccessreviews",
        false,
        vec![],
    );
    vec![
        built_in("", "ConfigMap", "ConfigMapList", "configmaps", true, vec![]),
        built_in("", "Namespace", "NamespaceList", "namespaces", false, vec![STATUS]),
        built_in("", "ServiceAccount", "ServiceAccountList", "serviceaccounts", true, vec![TOKEN]),
        built_in("apps", "Deployment", "DeploymentList", "deployments", true, vec![STATUS, SCALE]),
        Described { verbs: &["create"], ..review },
        Described {
            group: "kubevirt.io",
            version: "v1",
            kind: "VirtualMachine",
            list_kind: "VirtualMachineList",
            plural: "virtualmachines",
            namespaced: true,
            verbs: ALL,
            subresources: vec![STATUS],
            source: SchemaSource::Custom(Some(json!({"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"running": {"type": "boolean"}}},
            }}))),
        },
    ]
}

fn extensions() -> Vec<DescribedGroup> {
    let start = ExtensionResource {
        name: "virtualmachines/start",
        kind: "VirtualMachine",
        namespaced: true,
        verbs: &["update"],
    };
    vec![DescribedGroup { name: "subresources.kubevirt.io", version: "v1", resources: vec![start] }]
}

fn of(group: &str) -> Value {
    let mut resources = resources();
    resources.retain(|resource| resource.group == group);
    v3(group, "v1", &resources)
}

#[test]
fn version_2_lists_groups_versions_and_old_watches() {
    let document = v2("v1.38.0", &resources(), &extensions());
    let reply = |path: &str| {
        let reference = &document["paths"][path]["get"]["responses"]["200"]["schema"]["$ref"];
        reference.as_str().unwrap_or("").replace("#/definitions/", "")
    };
    for (path, id, schema) in [
        ("/api/", "getCoreAPIVersions", "io.k8s.apimachinery.pkg.apis.meta.v1.APIVersions"),
        ("/apis/", "getAPIVersions", "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroupList"),
        ("/apis/apps/", "getAppsAPIGroup", "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroup"),
        ("/version/", "getCodeVersion", "io.k8s.apimachinery.pkg.version.Info"),
        (
            "/api/v1/watch/configmaps",
            "watchCoreV1ConfigMapListForAllNamespaces",
            "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent",
        ),
        (
            "/api/v1/watch/namespaces/{namespace}/configmaps/{name}",
            "watchCoreV1NamespacedConfigMap",
            "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent",
        ),
        (
            "/api/v1/watch/namespaces",
            "watchCoreV1NamespaceList",
            "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent",
        ),
    ] {
        assert_eq!(document["paths"][path]["get"]["operationId"], id, "{path}");
        assert_eq!(reply(path), schema, "{path}");
        assert!(document["definitions"][schema].is_object(), "{schema}");
    }
    let paths = document["paths"].as_object().unwrap();
    assert!(!paths.keys().any(|path| path.contains("/watch/") && path.contains("kubevirt")));
    assert!(of("")["paths"].as_object().unwrap().keys().all(|path| !path.contains("/watch/")));
}

#[test]
fn every_operation_has_its_own_name() {
    for document in
        [of(""), of("apps"), of("kubevirt.io"), v2("v1.38.0", &resources(), &extensions())]
    {
        let mut seen = BTreeSet::new();
        for item in document["paths"].as_object().unwrap().values() {
            for operation in item.as_object().unwrap().values().filter(|value| value.is_object()) {
                let id = operation["operationId"].as_str().unwrap().to_owned();
                assert!(seen.insert(id.clone()), "{id}");
            }
        }
        assert!(seen.len() > 5);
    }
}

#[test]
fn operations_are_named_as_upstream_names_them() {
    let id = |document: &Value, path: &str, method: &str| {
        document["paths"][path][method]["operationId"].as_str().unwrap_or("none").to_owned()
    };
    let core = of("");
    let item = "/api/v1/namespaces/{namespace}/configmaps/{name}";
    assert_eq!(id(&core, item, "get"), "readCoreV1NamespacedConfigMap");
    assert_eq!(id(&core, item, "put"), "replaceCoreV1NamespacedConfigMap");
    assert_eq!(id(&core, "/api/v1/configmaps", "get"), "listCoreV1ConfigMapForAllNamespaces");
    assert_eq!(
        id(&core, "/api/v1/namespaces/{namespace}/configmaps", "delete"),
        "deleteCoreV1CollectionNamespacedConfigMap"
    );
    assert_eq!(id(&core, "/api/v1/namespaces", "post"), "createCoreV1Namespace");
    assert_eq!(
        id(&core, "/api/v1/namespaces/{name}/status", "put"),
        "replaceCoreV1NamespaceStatus"
    );
    assert_eq!(
        id(&core, "/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", "post"),
        "createCoreV1NamespacedServiceAccountToken"
    );
    assert_eq!(id(&core, "/api/v1/", "get"), "getCoreV1APIResources");
    let apps = of("apps");
    let scale = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale";
    assert_eq!(id(&apps, scale, "patch"), "patchAppsV1NamespacedDeploymentScale");
}

/// kubectl searches for exactly this before it leaves validation to the server.
#[test]
fn patches_announce_server_side_validation_and_strategic_merges() {
    for (group, path, kind, strategic) in [
        ("apps", "/apis/apps/v1/namespaces/{namespace}/deployments/{name}", "Deployment", true),
        (
            "kubevirt.io",
            "/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{name}",
            "VirtualMachine",
            false,
        ),
    ] {
        let patch = &of(group)["paths"][path]["patch"];
        assert_eq!(
            patch["x-kubernetes-group-version-kind"],
            json!({"group": group, "version": "v1", "kind": kind})
        );
        let parameters = patch["parameters"].as_array().unwrap();
        assert!(parameters.iter().any(|p| p["name"] == "fieldValidation" && p["in"] == "query"));
        let content = patch["requestBody"]["content"].as_object().unwrap();
        assert_eq!(content.contains_key("application/strategic-merge-patch+json"), strategic);
    }
}

#[test]
fn all_references_lead_somewhere() {
    for document in [of(""), of("apps"), of("kubevirt.io"), of("authorization.k8s.io")] {
        check_references(&document, &document["components"]["schemas"]);
    }
    for group in extensions() {
        let document = v3_of_extension(&group);
        check_references(&document, &document["components"]["schemas"]);
    }
    let document = v2("v1.38.0", &resources(), &extensions());
    check_references(&document, &document["definitions"]);
}

fn check_references(value: &Value, schemas: &Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(target)) = map.get("$ref") {
                let name = target.rsplit('/').next().unwrap();
                assert!(schemas.get(name).is_some(), "nothing at {target}");
            }
            map.values().for_each(|value| check_references(value, schemas));
        }
        Value::Array(items) => items.iter().for_each(|value| check_references(value, schemas)),
        _ => {}
    }
}

#[test]
fn reviews_can_only_be_created() {
    let document = of("authorization.k8s.io");
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let item = document["paths"][path].as_object().unwrap();
    assert_eq!(item.keys().collect::<Vec<_>>(), ["parameters", "post"]);
}
