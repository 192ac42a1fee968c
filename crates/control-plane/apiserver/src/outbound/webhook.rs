//! Calling a webhook: one JSON document is sent and one received. The caller defines their
//! content.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{Request, Response, StatusCode};
use serde_json::Value;

use crate::api::Api;
use crate::outbound::{self, ResolveError, Route, SendError, Trust};

/// More than any honest answer: a patch of the largest object, in base64.
const ANSWER_LIMIT: usize = 8 * 1024 * 1024;
/// A batch of large objects.
const CONVERSION_LIMIT: usize = 64 * 1024 * 1024;
/// How much of an answer that is no JSON an error shows.
const SHOWN: usize = 512;

/// Where a webhook is: `clientConfig` of its configuration.
#[derive(Debug, Clone)]
pub(crate) struct Hook {
    place: WebhookTarget,
    trust: Trust,
}

#[derive(Debug, Clone)]
enum WebhookTarget {
    /// Host with port, and path.
    Url {
        host: String,
        port: u16,
        authority: String,
        path: String,
    },
    Service {
        namespace: String,
        name: String,
        port: i64,
        path: String,
    },
    Nowhere,
}

/// Why a webhook gave no answer, in Go's words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("Post {url:?}: {reason}")]
    Unreached { url: String, reason: String },
    #[error("{0}")]
    Refused(String),
    #[error("couldn't get version/kind; json parse error: {0}")]
    NoJson(String),
    #[error("webhook configuration must have either service or URL")]
    Nowhere,
}

impl Hook {
    pub(crate) fn of(config: &Value) -> Self {
        let place = match (config["url"].as_str(), config["service"].as_object()) {
            (Some(url), _) => place_of_url(url),
            (None, Some(service)) => {
                let text = |field: &str| {
                    service.get(field).and_then(Value::as_str).unwrap_or("").to_owned()
                };
                let port = service.get("port").and_then(Value::as_i64).unwrap_or(443);
                WebhookTarget::Service {
                    namespace: text("namespace"),
                    name: text("name"),
                    port,
                    path: text("path"),
                }
            }
            (None, None) => WebhookTarget::Nowhere,
        };
        let bundle = config["caBundle"].as_str().filter(|text| !text.is_empty());
        let bundle = bundle
            .and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok())
            .map(Arc::from);
        Self { place, trust: bundle.map_or(Trust::System, Trust::Bundle) }
    }

    /// Sends a review of admission and gives back the answer, if it comes in time.
    pub(crate) async fn call(
        &self,
        api: &Api,
        document: &Value,
        time: Duration,
    ) -> Result<Value, CallError> {
        self.exchange(api, document, time, ANSWER_LIMIT).await
    }

    /// Sends objects to be converted; there may be many.
    pub(crate) async fn convert(
        &self,
        api: &Api,
        document: &Value,
        time: Duration,
    ) -> Result<Value, CallError> {
        self.exchange(api, document, time, CONVERSION_LIMIT).await
    }

    async fn exchange(
        &self,
        api: &Api,
        document: &Value,
        time: Duration,
        limit: usize,
    ) -> Result<Value, CallError> {
        let query = format!("?timeout={}s", time.as_secs() + u64::from(time.subsec_nanos() > 0));
        let (url, route) = self.route(api, &query)?;
        let unreached = |reason: String| CallError::Unreached { url: url.clone(), reason };
        let request = Request::post(&url)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, */*")
            .header(USER_AGENT, "kube-apiserver-admission")
            .body(outbound::whole(document.to_string()))
            .map_err(|error| unreached(error.to_string()))?;
        let sent = api.outbound.exchange(&route, request, time, limit).await;
        let answer = sent.map_err(|error: SendError| unreached(error.to_string()))?;
        read(&answer)
    }

    fn route(&self, api: &Api, query: &str) -> Result<(String, Route), CallError> {
        let (url, dial, server_name) = match &self.place {
            WebhookTarget::Url { host, port, authority, path } => {
                let url = format!("https://{authority}{}{query}", slash(path));
                (url, format!("{host}:{port}"), host.clone())
            }
            WebhookTarget::Service { namespace, name, port, path } => {
                let host = format!("{name}.{namespace}.svc");
                let url = format!("https://{host}:{port}{}{query}", slash(path));
                let dial = outbound::resolve(api, namespace, name, *port).map_err(
                    |error: ResolveError| CallError::Unreached {
                        url: url.clone(),
                        reason: error.to_string(),
                    },
                )?;
                (url, dial, host)
            }
            WebhookTarget::Nowhere => return Err(CallError::Nowhere),
        };
        Ok((url, Route { dial, server_name, trust: self.trust.clone(), identity: None }))
    }
}

/// A path with exactly one slash at its beginning.
fn slash(path: &str) -> String {
    format!("/{}", path.trim_start_matches('/'))
}

fn place_of_url(url: &str) -> WebhookTarget {
    let Ok(uri) = url.parse::<http::Uri>() else { return WebhookTarget::Nowhere };
    let (Some(authority), Some(host)) = (uri.authority(), uri.host()) else {
        return WebhookTarget::Nowhere;
    };
    WebhookTarget::Url {
        host: host.to_owned(),
        port: uri.port_u16().unwrap_or(443),
        authority: authority.to_string(),
        path: uri.path().to_owned(),
    }
}

fn read(answer: &Response<Bytes>) -> Result<Value, CallError> {
    let parsed = serde_json::from_slice::<Value>(answer.body());
    if answer.status().is_success() {
        return parsed.map_err(|error| CallError::NoJson(error.to_string()));
    }
    // A server that speaks our language explains itself.
    let status = parsed.ok().filter(|value| value["kind"] == "Status");
    if let Some(message) = status.as_ref().and_then(|status| status["message"].as_str()) {
        return Err(CallError::Refused(message.to_owned()));
    }
    let text: String = String::from_utf8_lossy(answer.body()).chars().take(SHOWN).collect();
    let text = text.trim();
    Err(CallError::Refused(match answer.status() {
        StatusCode::BAD_REQUEST => "the server rejected our request for an unknown reason".to_owned(),
        StatusCode::UNAUTHORIZED => {
            "the server has asked for the client to provide credentials".to_owned()
        }
        StatusCode::FORBIDDEN => "unknown".to_owned(),
        StatusCode::NOT_FOUND => "the server could not find the requested resource".to_owned(),
        StatusCode::METHOD_NOT_ALLOWED => {
            "the server does not allow this method on the requested resource".to_owned()
        }
        StatusCode::TOO_MANY_REQUESTS => {
            "the server has received too many requests and has asked us to try again later".to_owned()
        }
        StatusCode::INTERNAL_SERVER_ERROR => {
            format!("an error on the server ({text:?}) has prevented the request from succeeding")
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            "the server is currently unable to handle the request".to_owned()
        }
        StatusCode::GATEWAY_TIMEOUT => {
            "the server was unable to return a response in the time allotted, but may still be processing the request".to_owned()
        }
        code if code.is_server_error() => {
            format!("an error on the server ({text:?}) has prevented the request from succeeding")
        }
        code => format!(
            "the server responded with the status code {} but did not return more information",
            code.as_u16()
        ),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refusals_are_reported_as_by_client_go() {
        let answer = |code: u16, body: &str| {
            let mut answer = Response::new(Bytes::from(body.to_owned()));
            *answer.status_mut() = StatusCode::from_u16(code).unwrap();
            read(&answer).map_err(|error| error.to_string())
        };
        assert_eq!(answer(200, "{\"a\":1}"), Ok(json!({"a": 1})));
        assert!(answer(200, "<html>").unwrap_err().starts_with("couldn't get version/kind; json"));
        assert_eq!(
            answer(500, "boom\n").unwrap_err(),
            "an error on the server (\"boom\") has prevented the request from succeeding"
        );
        assert_eq!(
            answer(404, "nope").unwrap_err(),
            "the server could not find the requested resource"
        );
        let status = json!({"kind": "Status", "message": "in its own words"}).to_string();
        assert_eq!(answer(409, &status).unwrap_err(), "in its own words");
    }

    #[test]
    fn urls_have_a_port_and_a_path() {
        for (url, expected) in [
            ("https://a.example/x", ("a.example", 443, "/x")),
            ("https://127.0.0.1:8443", ("127.0.0.1", 8443, "/")),
        ] {
            let WebhookTarget::Url { host, port, path, .. } = place_of_url(url) else {
                panic!("{url} is a place");
            };
            assert_eq!((host.as_str(), port, path.as_str()), expected);
        }
    }
}
