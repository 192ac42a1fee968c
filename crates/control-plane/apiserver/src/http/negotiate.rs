//! Content negotiation: which representation a client wants to read.

use std::sync::Arc;

use http::header::ACCEPT;
use http::{HeaderMap, request};

use crate::http::respond;
use crate::http::verb::Verb;
use crate::schemas::served::ServedKind;
use crate::status::{ApiError, ApiResult};

/// How objects are encoded on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

/// The part of the object that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseForm {
    Object,
    /// `meta.k8s.io` Table in this version.
    Table(&'static str),
    /// `meta.k8s.io` PartialObjectMetadata(List) in this version.
    Metadata(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AcceptedForm {
    pub encoding: Encoding,
    pub form: ResponseForm,
}

impl AcceptedForm {
    pub(crate) const JSON: Self = Self { encoding: Encoding::Json, form: ResponseForm::Object };
}

/// The forms that the requested resource can be sent in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfferedForms {
    pub protobuf: bool,
    /// Whether tables and metadata-only forms make sense (not for reviews).
    pub transforms: bool,
}

/// One clause of an Accept header.
#[derive(Debug)]
pub(crate) struct AcceptClause<'a> {
    pub(crate) media: &'a str,
    params: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl AcceptClause<'_> {
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

/// The Accept clauses, best first; an absent header reads as `*/*`.
pub(crate) fn clauses(headers: &HeaderMap) -> Vec<AcceptClause<'_>> {
    let mut clauses: Vec<AcceptClause<'_>> = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(clause)
        .collect();
    if clauses.is_empty() {
        clauses.push(AcceptClause { media: "*/*", params: Vec::new(), quality: 1.0 });
    }
    // Stable: equal qualities keep the client's order.
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

fn clause(text: &str) -> Option<AcceptClause<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let media = parts.next().filter(|media| !media.is_empty())?;
    let mut clause = AcceptClause { media, params: Vec::new(), quality: 1.0 };
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        if name == "q" {
            clause.quality = value.parse().unwrap_or(1.0);
        } else {
            clause.params.push((name, value));
        }
    }
    Some(clause)
}

/// The best representation that both sides know, if any.
pub(crate) fn negotiate(headers: &HeaderMap, offer: OfferedForms) -> Option<AcceptedForm> {
    clauses(headers).iter().find_map(|clause| wanted(clause, offer))
}

fn wanted(clause: &AcceptClause<'_>, offer: OfferedForms) -> Option<AcceptedForm> {
    let encoding = match clause.media {
        "*/*" | "application/*" | "application/json" => Encoding::Json,
        "application/yaml" => Encoding::Yaml,
        "application/vnd.kubernetes.protobuf" if offer.protobuf => Encoding::Protobuf,
        _ => return None,
    };
    let form = match clause.param("as") {
        None => ResponseForm::Object,
        Some(_) if !offer.transforms => return None,
        Some(form) => {
            let version = match (clause.param("g"), clause.param("v")) {
                (Some("meta.k8s.io"), Some("v1")) => "v1",
                (Some("meta.k8s.io"), Some("v1beta1")) => "v1beta1",
                _ => return None,
            };
            match form {
                "Table" if encoding != Encoding::Protobuf => ResponseForm::Table(version),
                "PartialObjectMetadata" | "PartialObjectMetadataList" => {
                    ResponseForm::Metadata(version)
                }
                _ => return None,
            }
        }
    };
    Some(AcceptedForm { encoding, form })
}

/// How the answer to a request for this kind is wanted.
pub(crate) fn of_request(
    parts: &request::Parts,
    served: &Arc<ServedKind>,
    verb: Verb,
) -> ApiResult<AcceptedForm> {
    let stored = served.verbs.len() > 1;
    let offer = OfferedForms { protobuf: !served.is_custom(), transforms: stored };
    if verb == Verb::Watch && is_websocket(parts) {
        return Ok(AcceptedForm::JSON);
    }
    negotiate(&parts.headers, offer).ok_or_else(|| {
        // Upstream checks the type before the form, and words it otherwise.
        let accept = parts.headers.get(ACCEPT).and_then(|it| it.to_str().ok());
        if served.is_custom() || accept.is_some_and(|accept| accept.contains("as=")) {
            // Metadata and errors have a protobuf form, their objects have none.
            ApiError::not_acceptable(&["application/json", "application/yaml", respond::PROTOBUF])
        } else {
            let offered = ["application/json", "application/yaml", respond::PROTOBUF];
            ApiError::no_representation(&offered)
        }
    })
}

pub(crate) fn is_websocket(parts: &request::Parts) -> bool {
    let has = |name: http::HeaderName, word: &str| {
        parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.to_ascii_lowercase().contains(word))
    };
    has(http::header::CONNECTION, "upgrade") && has(http::header::UPGRADE, "websocket")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(accept: &str, offer: OfferedForms, expected: Option<AcceptedForm>) {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        assert_eq!(negotiate(&headers, offer), expected, "{accept}");
    }

    #[test]
    fn clients_get_what_they_ask_for_first() {
        let all = OfferedForms { protobuf: true, transforms: true };
        let json = |form| Some(AcceptedForm { encoding: Encoding::Json, form });
        check("application/json", all, json(ResponseForm::Object));
        check("*/*", all, json(ResponseForm::Object));
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            all,
            json(ResponseForm::Table("v1")),
        );
        check(
            "application/vnd.kubernetes.protobuf,application/json",
            all,
            Some(AcceptedForm { encoding: Encoding::Protobuf, form: ResponseForm::Object }),
        );
        let custom = OfferedForms { protobuf: false, transforms: true };
        check(
            "application/vnd.kubernetes.protobuf,application/json",
            custom,
            json(ResponseForm::Object),
        );
        check("application/vnd.kubernetes.protobuf", custom, None);
        check("text/html;q=0.9,application/json;q=0.5", all, json(ResponseForm::Object));
        check("application/json;as=Unknown;g=x;v=v1", all, None);
    }

    #[test]
    fn a_review_is_never_a_table() {
        let review = OfferedForms { protobuf: true, transforms: false };
        check("application/json;as=Table;v=v1;g=meta.k8s.io", review, None);
    }
}
