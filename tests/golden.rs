//! Documents whose every change is reviewed: discovery, the index of OpenAPI, tables.
//!
//! `make golden` rewrites them; the difference is reviewed like code.

use std::fmt::Write as _;

use expect_test::expect_file;
use serde_json::Value;

use crate::harness::Sheaf;

#[test]
fn discovery() {
    let sheaf = Sheaf::start();
    expect_file!["golden/discovery.txt"].assert_eq(&aggregated(&sheaf));
}

fn aggregated(sheaf: &Sheaf) -> String {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let http = sheaf.http().with("accept", accept);
    let mut text = String::new();
    for path in ["/api", "/apis"] {
        for group in http.get(path).ok()["items"].as_array().unwrap() {
            let name = group["metadata"]["name"].as_str().unwrap_or("");
            for version in group["versions"].as_array().unwrap() {
                writeln!(text, "{name}/{}", version["version"].as_str().unwrap()).unwrap();
                for resource in version["resources"].as_array().unwrap() {
                    describe(&mut text, resource);
                }
            }
        }
    }
    text
}

/// One line per resource: `  pods Pod Namespaced po (all): get list …`
fn describe(text: &mut String, resource: &Value) {
    let words = |field: &str, joint: &str| {
        let words = resource[field].as_array().cloned().unwrap_or_default();
        words.iter().map(|word| word.as_str().unwrap().to_owned()).collect::<Vec<_>>().join(joint)
    };
    let mut line = format!(
        "  {} {} {}",
        resource["resource"].as_str().unwrap(),
        resource["responseKind"]["kind"].as_str().unwrap(),
        resource["scope"].as_str().unwrap()
    );
    for (field, before, after) in [("shortNames", " ", ""), ("categories", " (", ")")] {
        let words = words(field, ",");
        if !words.is_empty() {
            write!(line, "{before}{words}{after}").unwrap();
        }
    }
    writeln!(text, "{line}: {}", words("verbs", " ")).unwrap();
    for sub in resource["subresources"].as_array().into_iter().flatten() {
        let verbs = sub["verbs"].as_array().unwrap().iter();
        let verbs: Vec<&str> = verbs.map(|verb| verb.as_str().unwrap()).collect();
        let kind = sub["responseKind"]["kind"].as_str().unwrap_or("");
        writeln!(text, "    /{} {kind}: {}", sub["subresource"].as_str().unwrap(), verbs.join(" "))
            .unwrap();
    }
}

#[test]
fn legacy_discovery_says_the_same() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let mut names = Vec::new();
    let mut collect = |path: &str| {
        for resource in http.get(path).ok()["resources"].as_array().unwrap() {
            names.push(format!("{path} {}", resource["name"].as_str().unwrap()));
        }
    };
    collect("/api/v1");
    for group in http.get("/apis").ok()["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            collect(&format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
        }
    }
    let listed = aggregated(&sheaf);
    // A resource without verbs is there for its subresources only; the old form has no such.
    let is_listed = |line: &&str| line.starts_with(' ') && !line.ends_with(": ");
    let listed = listed.lines().filter(is_listed).count();
    assert_eq!(names.len(), listed, "{names:#?}");
}

#[test]
fn openapi_index() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let index = http.get("/openapi/v3").ok();
    let mut text = String::new();
    for (path, entry) in index["paths"].as_object().unwrap() {
        let url = entry["serverRelativeURL"].as_str().unwrap();
        assert!(url.starts_with(&format!("/openapi/v3/{path}?hash=")), "{url}");
        let document = http.get(url).ok();
        let count = |pointer: &str| {
            document.pointer(pointer).and_then(Value::as_object).map_or(0, |map| map.len())
        };
        writeln!(
            text,
            "{path}: {} paths, {} schemas",
            count("/paths"),
            count("/components/schemas")
        )
        .unwrap();
    }
    expect_file!["golden/openapi.txt"].assert_eq(&text);
}

#[test]
fn tables() {
    let sheaf = Sheaf::start();
    let http = sheaf.http().with("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let mut text = String::new();
    let mut show = |path: &str| {
        for resource in sheaf.http().get(path).ok()["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            let verbs = resource["verbs"].as_array().unwrap();
            if name.contains('/') || !verbs.contains(&Value::from("list")) {
                continue;
            }
            let table = http.get(&format!("{path}/{name}?limit=1")).ok();
            let Some(columns) = table["columnDefinitions"].as_array() else {
                writeln!(text, "{name}: (no table)").unwrap();
                continue;
            };
            let columns = columns.iter().map(|column| {
                let name = column["name"].as_str().unwrap();
                if column["priority"] == 0 { name.to_owned() } else { format!("[{name}]") }
            });
            writeln!(text, "{name}: {}", columns.collect::<Vec<_>>().join(" | ")).unwrap();
        }
    };
    show("/api/v1");
    for group in sheaf.http().get("/apis").ok()["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            show(&format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
        }
    }
    expect_file!["golden/tables.txt"].assert_eq(&text);
}
