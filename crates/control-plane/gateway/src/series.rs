//! Group `metrics.sheaf.io`: the recent usage of nodes and machines, for charts. The nodes keep
//! it; a request is sent to the requested node, or to the node that runs the machine.

use bytes::Bytes;
use http::{Method, StatusCode, request};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::answer::{self, GatewayError, GatewayResult};
use crate::route::Row;
use crate::{Gateway, node, objects};

pub const SERIES_GROUP: &str = "metrics.sheaf.io";
pub const SERIES_RESOURCES: &[Row] = &[
    Row { name: "nodes/series", namespaced: false, verbs: &["get"] },
    Row { name: "virtualmachineinstances/series", namespaced: true, verbs: &["get"] },
];
const ROOT: &str = "/apis/metrics.sheaf.io/v1/";
const SPANS: [&str; 2] = ["1h", "24h"];

/// The node or machine of the requested series.
#[derive(Debug, PartialEq, Eq)]
enum SeriesQuery {
    Node(String),
    Machine { namespace: String, name: String },
}

fn wanted(path: &str) -> Option<SeriesQuery> {
    let words = path.strip_prefix(ROOT)?.split('/');
    let decoded = |word| percent_decode_str(word).decode_utf8().ok().map(Into::into);
    let words: Vec<String> = words.map(decoded).collect::<Option<_>>()?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let is_name = |word: &str| !word.is_empty() && !word.contains(['/', '?', '#', ' ']);
    match words.as_slice() {
        ["nodes", name, "series"] if is_name(name) => Some(SeriesQuery::Node((*name).into())),
        ["namespaces", namespace, "virtualmachineinstances", name, "series"]
            if is_name(namespace) && is_name(name) =>
        {
            let (namespace, name) = ((*namespace).into(), (*name).into());
            Some(SeriesQuery::Machine { namespace, name })
        }
        _ => None,
    }
}

/// The span in the query: an hour by default.
fn span(query: &str) -> Result<&'static str, GatewayError> {
    let given = query.split('&').find_map(|pair| pair.strip_prefix("span="));
    let Some(given) = given else { return Ok(SPANS[0]) };
    SPANS.into_iter().find(|span| *span == given).ok_or_else(|| {
        let message = format!("span={given:?} is not valid: it must be 1h or 24h");
        GatewayError::with_message(StatusCode::BAD_REQUEST, message)
    })
}

/// Whether a path is of this group.
pub(crate) fn owns(path: &str) -> bool {
    path.starts_with(ROOT)
}

pub(crate) async fn answer(gateway: &Gateway, parts: &request::Parts) -> GatewayResult {
    let Some(wanted) = wanted(parts.uri.path()) else { return Err(GatewayError::no_such_path()) };
    let span = span(parts.uri.query().unwrap_or_default())?;
    let (node, path) = match wanted {
        SeriesQuery::Node(name) => {
            let found = objects::find(&gateway.client, &format!("/api/v1/nodes/{name}")).await?;
            found.ok_or_else(|| missing("nodes", &name))?;
            (name, format!("/v1/series?span={span}"))
        }
        SeriesQuery::Machine { namespace, name } => {
            let path = format!(
                "/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances/{name}"
            );
            let found = objects::find(&gateway.client, &path).await?;
            let missing = || missing("virtualmachineinstances", &name);
            let instance = found.ok_or_else(missing)?;
            let node = instance["status"]["nodeName"].as_str().ok_or_else(missing)?.to_owned();
            (node, format!("/v1/vmis/{namespace}/{name}/series?span={span}"))
        }
    };
    let bytes = node::ask(gateway.requester(), &node, Method::GET, &path, Bytes::new()).await?;
    let series: Value = serde_json::from_slice(&bytes).map_err(GatewayError::internal)?;
    Ok(answer::json(StatusCode::OK, &series))
}

fn missing(resource: &str, name: &str) -> GatewayError {
    GatewayError::with_message(
        StatusCode::NOT_FOUND,
        format!("{resource}.{SERIES_GROUP} {name:?} not found"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_a_node_or_a_machine() {
        let machine = |namespace: &str, name: &str| SeriesQuery::Machine {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let cases = [
            ("nodes/n1/series", Some(SeriesQuery::Node("n1".to_owned()))),
            ("namespaces/a/virtualmachineinstances/b/series", Some(machine("a", "b"))),
            ("nodes/n1", None),
            ("nodes//series", None),
            ("nodes/..%2Fx/series", None),
            ("nodes/a%3Fb/series", None),
            ("namespaces/a/virtualmachines/b/series", None),
        ];
        for (path, expected) in cases {
            assert_eq!(wanted(&format!("{ROOT}{path}")), expected, "{path}");
        }
    }

    #[test]
    fn a_span_is_an_hour_or_a_day() {
        assert_eq!(span("").ok(), Some("1h"));
        assert_eq!(span("a=b&span=24h").ok(), Some("24h"));
        assert!(span("span=2h").is_err());
    }
}
