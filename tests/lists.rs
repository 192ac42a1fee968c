//! Lists: pages, versions, selectors and the forms an answer can have.

use http::Request;
use serde_json::{Value, json};

use crate::harness::{Http, Sheaf, assert_has, eventually};

const MAPS: &str = "/api/v1/namespaces/many/configmaps";

/// Ten config maps, `n0` to `n9`, in a namespace of their own.
fn ten() -> (Sheaf, Http) {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "many"}});
    http.post("/api/v1/namespaces", &namespace).ok();
    for number in 0..10 {
        let parity = if number % 2 == 0 { "even" } else { "odd" };
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("n{number}"), "labels": {"ten": "yes", "parity": parity}},
        });
        http.post(MAPS, &map).ok();
    }
    // Objects that a controller adds must not appear in the middle of a test.
    eventually("the root certificate is there", || {
        http.get(&format!("{MAPS}/kube-root-ca.crt")).status == 200
    });
    (sheaf, http)
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

fn version(list: &Value) -> u64 {
    list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[test]
fn pages_show_one_moment() {
    let (_sheaf, http) = ten();
    let first = http.get(&format!("{MAPS}?labelSelector=ten&limit=4")).ok();
    assert_eq!(names(&first), ["n0", "n1", "n2", "n3"]);
    // With a selector the server need not know how many remain; without, it says.
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    http.delete(&format!("{MAPS}/n5")).ok();
    http.merge(&format!("{MAPS}/n6"), &json!({"metadata": {"labels": {"ten": null}}})).ok();
    let second = http.get(&format!("{MAPS}?labelSelector=ten&limit=4&continue={token}")).ok();
    assert_eq!(names(&second), ["n4", "n5", "n6", "n7"], "as they were when the list began");
    assert_eq!(version(&second), version(&first));
    let token = second["metadata"]["continue"].as_str().unwrap();
    let last = http.get(&format!("{MAPS}?labelSelector=ten&continue={token}")).ok();
    assert_eq!(names(&last), ["n8", "n9"]);
    assert!(last["metadata"].get("continue").is_none_or(|token| token == ""));
}

#[test]
fn a_page_counts_what_remains() {
    let (_sheaf, http) = ten();
    let whole = names(&http.get(MAPS).ok()).len();
    let page = http.get(&format!("{MAPS}?limit=3")).ok();
    assert_eq!(page["metadata"]["remainingItemCount"], whole - 3);
}

#[test]
fn bad_tokens_and_versions_are_refused() {
    let (_sheaf, http) = ten();
    let refused = |query: &str, code| http.get(&format!("{MAPS}?{query}")).refused(code);
    assert_has(refused("continue=nonsense", 400), "continue key is not valid");
    assert_has(refused("resourceVersion=abc", 400), "resourceVersion");
    assert_has(refused("limit=abc", 400), "parsing \"abc\": invalid syntax");
    assert_has(
        refused("resourceVersion=0&resourceVersionMatch=Exact", 422),
        "resourceVersionMatch",
    );
    assert_has(refused("resourceVersionMatch=Exact", 422), "resourceVersionMatch");
    assert_has(refused("resourceVersion=1&resourceVersionMatch=Nonsense", 422), "Nonsense");
    let token = http.get(&format!("{MAPS}?limit=1")).ok()["metadata"]["continue"].clone();
    let token = token.as_str().unwrap();
    refused(&format!("continue={token}&resourceVersion=1"), 400);
}

#[test]
fn an_exact_version_is_what_was_then() {
    let (_sheaf, http) = ten();
    let before = version(&http.get(MAPS).ok());
    http.delete(&format!("{MAPS}/n0")).ok();
    let then = http.get(&format!(
        "{MAPS}?resourceVersion={before}&resourceVersionMatch=Exact&labelSelector=ten"
    ));
    assert_eq!(names(&then.ok()).len(), 10);
    assert_eq!(version(&then.json()), before);
    let now = http.get(&format!(
        "{MAPS}?resourceVersion={before}&resourceVersionMatch=NotOlderThan&labelSelector=ten"
    ));
    assert_eq!(names(&now.ok()).len(), 9);
    let any = http.get(&format!("{MAPS}?resourceVersion=0&labelSelector=ten"));
    assert_eq!(names(&any.ok()).len(), 9);
}

#[test]
fn an_empty_list_has_a_version_and_items() {
    let (_sheaf, http) = ten();
    let empty = http.get("/apis/apps/v1/namespaces/default/deployments").ok();
    assert_eq!(empty["items"], json!([]));
    assert!(version(&empty) > 0);
    assert_eq!(empty["kind"], "DeploymentList");
    assert_eq!(empty["apiVersion"], "apps/v1");
}

#[test]
fn labels_select() {
    let (_sheaf, http) = ten();
    let select = |selector: &str| {
        let selector = selector.replace(' ', "%20").replace(',', "%2C").replace('!', "%21");
        let list = http.get(&format!("{MAPS}?labelSelector={selector}")).ok();
        names(&list).into_iter().filter(|name| name.starts_with('n')).count()
    };
    for (selector, count) in [
        ("parity=even", 5),
        ("parity==odd", 5),
        ("parity!=even,ten", 5),
        ("parity in (even,odd)", 10),
        ("parity notin (even),ten", 5),
        ("ten", 10),
        ("!ten", 0),
        ("ten,parity=even", 5),
    ] {
        assert_eq!(select(selector), count, "{selector}");
    }
    let refused = http.get(&format!("{MAPS}?labelSelector=a%20in%20%28"));
    assert_has(refused.refused(400), "unable to parse requirement");
}

#[test]
fn fields_select() {
    let (_sheaf, http) = ten();
    let select = |selector: &str| {
        let list = http.get(&format!("{MAPS}?fieldSelector={selector}")).ok();
        names(&list).iter().map(|&name| name.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(select("metadata.name%3Dn3"), ["n3"]);
    assert_eq!(select("metadata.name%3Dn3%2Cmetadata.namespace%3Dother"), [""; 0]);
    assert!(select("metadata.name!%3Dn3").len() >= 9);
    let refused = http.get(&format!("{MAPS}?fieldSelector=data.x%3Dy"));
    assert_has(refused.refused(400), "\"data.x\" is not a known field selector");
}

#[test]
fn a_table_has_the_columns_of_kubectl() {
    let (_sheaf, http) = ten();
    let table = http
        .with("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
        .get(&format!("{MAPS}?limit=2&labelSelector=ten"));
    assert_eq!(table.header("content-type"), "application/json");
    let table = table.ok();
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let columns: Vec<_> = columns.map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "Data", "Age"]);
    assert_eq!(table["rows"][0]["cells"][0], "n0");
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert!(table["metadata"]["continue"].is_string());
    let bare = http.with("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let bare = bare.get(&format!("{MAPS}?includeObject=None")).ok();
    assert!(bare["rows"][0].get("object").is_none_or(Value::is_null));
}

#[test]
fn metadata_alone_can_be_listed() {
    let (_sheaf, http) = ten();
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = http.with("accept", accept).get(MAPS).ok();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["kind"], "PartialObjectMetadata");
    assert!(list["items"][0].get("data").is_none());
}

#[test]
fn answers_come_as_yaml_protobuf_and_compressed() {
    let (_sheaf, http) = ten();
    let yaml = http.with("accept", "application/yaml").get(&format!("{MAPS}/n1"));
    assert_eq!(yaml.header("content-type"), "application/yaml");
    assert_has(yaml.text(), "kind: ConfigMap");
    let protobuf = http.with("accept", "application/vnd.kubernetes.protobuf").get(MAPS);
    assert_eq!(protobuf.status, 200);
    assert_eq!(&protobuf.body[..4], b"k8s\0");
    let refused = http.with("accept", "text/html").get(MAPS);
    assert_has(refused.refused(406), "application/json");
    let long = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "long"},
        "data": {"x": "y".repeat(200_000)},
    });
    http.post(MAPS, &long).ok();
    let zipped = http.with("accept-encoding", "gzip").get(MAPS);
    assert_eq!(zipped.header("content-encoding"), "gzip");
    assert!(zipped.body.len() < 20_000);
    let etag = http.get("/openapi/v3").header("etag").to_owned();
    if !etag.is_empty() {
        let unchanged = http.with("if-none-match", &etag).get("/openapi/v3");
        assert_eq!(unchanged.status, 304);
    }
}

#[test]
fn a_head_request_and_a_trailing_slash_are_understood() {
    let (_sheaf, http) = ten();
    let head = http.send(Request::head("/readyz"), "");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(http.get(&format!("{MAPS}/")).status, 200);
    assert_eq!(http.get("/apis/apps/v1/").status, 200);
}

#[test]
fn a_collection_is_deleted_by_selector() {
    let (_sheaf, http) = ten();
    http.delete(&format!("{MAPS}?labelSelector=parity=even")).ok();
    let left = http.get(&format!("{MAPS}?labelSelector=ten")).ok();
    assert_eq!(names(&left), ["n1", "n3", "n5", "n7", "n9"]);
}
