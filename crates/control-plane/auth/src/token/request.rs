//! The spec of a TokenRequest: defaults and validation.

use schema::FieldError;
use serde_json::{Value, json};

const DEFAULT_SECONDS: i64 = 3600;
const LEAST_SECONDS: i64 = 600;
const MOST_SECONDS: i64 = 1 << 32;

/// A TokenRequest's spec, after defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRequestSpec {
    pub audiences: Vec<String>,
    pub expiration_seconds: i64,
    pub bound_object: Option<BoundObject>,
}

/// The object whose end is the token's end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BoundObject {
    pub kind: String,
    pub api_version: String,
    pub name: String,
    /// Empty when any uid will do.
    pub uid: String,
}

impl TokenRequestSpec {
    /// Reads a defaulted and valid TokenRequest; missing fields are empty.
    pub fn of(request: &Value) -> Self {
        let spec = &request["spec"];
        let bound = spec.get("boundObjectRef").filter(|bound| !bound.is_null());
        Self {
            audiences: texts(&spec["audiences"]),
            expiration_seconds: spec["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS),
            bound_object: bound.map(|bound| {
                let text = |field: &str| bound[field].as_str().unwrap_or_default().to_owned();
                BoundObject {
                    kind: text("kind"),
                    api_version: text("apiVersion"),
                    name: text("name"),
                    uid: text("uid"),
                }
            }),
        }
    }
}

fn texts(value: &Value) -> Vec<String> {
    let values = value.as_array().map(Vec::as_slice).unwrap_or_default();
    values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Fills in what the sender left out.
pub fn default_token_request(request: &mut Value) {
    let Some(object) = request.as_object_mut() else { return };
    let spec = object.entry("spec").or_insert_with(|| json!({}));
    let Some(spec) = spec.as_object_mut() else { return };
    let seconds = spec.entry("expirationSeconds").or_insert(Value::Null);
    if seconds.is_null() {
        *seconds = DEFAULT_SECONDS.into();
    }
}

/// The errors of a defaulted TokenRequest.
pub fn validate_token_request(request: &Value) -> Vec<FieldError> {
    let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
    let detail = match seconds {
        ..LEAST_SECONDS => "may not specify a duration less than 10 minutes",
        LEAST_SECONDS..=MOST_SECONDS => return Vec::new(),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    vec![FieldError::invalid("spec.expirationSeconds", seconds, detail)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_the_default() {
        for mut request in
            [json!({}), json!({"spec": {}}), json!({"spec": {"expirationSeconds": null}})]
        {
            default_token_request(&mut request);
            assert_eq!(request, json!({"spec": {"expirationSeconds": 3600}}));
        }
        let mut request = json!({"spec": {"expirationSeconds": 700}});
        default_token_request(&mut request);
        assert_eq!(TokenRequestSpec::of(&request).expiration_seconds, 700);
    }

    #[test]
    fn a_life_is_ten_minutes_to_a_century() {
        let check = |seconds: i64| {
            let request = json!({"spec": {"expirationSeconds": seconds}});
            validate_token_request(&request).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(check(600).is_empty());
        assert!(check(1 << 32).is_empty());
        assert_eq!(
            check(599),
            [
                "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes"
            ]
        );
        assert_eq!(
            check((1 << 32) + 1),
            [
                "spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds"
            ]
        );
    }

    #[test]
    fn the_spec_is_read_whole() {
        let spec = TokenRequestSpec::of(&json!({"spec": {
            "audiences": ["a", "b"],
            "expirationSeconds": 900,
            "boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "s", "uid": "u"},
        }}));
        let bound = BoundObject {
            kind: "Secret".into(),
            api_version: "v1".into(),
            name: "s".into(),
            uid: "u".into(),
        };
        assert_eq!(spec.audiences, ["a", "b"]);
        assert_eq!(spec.bound_object, Some(bound));
    }
}
