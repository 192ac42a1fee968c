//! Definitions of a realistic size.

use anyhow::Result;
use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value, json};

use crate::client::Client;

/// Installs `count` definitions of about 40 KB of schema each, which is the average of those
/// that Harvester, KubeVirt and Longhorn bring.
pub(super) async fn install(client: &Client, count: usize) -> Result<()> {
    let mut connection = client.connect().await?;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for number in 0..count {
        let body = Bytes::from(definition(number).to_string());
        connection.expect(Method::POST, path, body).await?;
    }
    Ok(())
}

fn definition(number: usize) -> Value {
    let plural = format!("things{number}");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.bench.example.com")},
        "spec": {
            "group": "bench.example.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": format!("thing{number}"),
                      "kind": format!("Thing{number}"), "listKind": format!("Thing{number}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": fields(2), "template": fields(2), "status": fields(1)},
                }},
            }],
        },
    })
}

/// An object with eight fields, `depth` levels of them objects again.
fn fields(depth: usize) -> Value {
    let mut properties = Map::new();
    for field in 0..8 {
        let schema = match (depth, field) {
            (0, _) | (_, 0..=3) => json!({
                "type": "string",
                "description": "A field with a description of the length that such fields tend to have in practice.",
            }),
            (_, 4) => json!({"type": "array", "items": fields(depth - 1)}),
            _ => fields(depth - 1),
        };
        properties.insert(format!("field{field}"), schema);
    }
    json!({"type": "object", "description": "A group of fields.", "properties": properties})
}
