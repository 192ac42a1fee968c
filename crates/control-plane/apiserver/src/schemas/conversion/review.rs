//! `ConversionReview`: the question, and whether an answer is one. Pure.

use serde_json::{Value, json};

/// A version of the review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConversionReviewVersion {
    V1,
    V1Beta1,
}

impl ConversionReviewVersion {
    /// The first that we speak.
    pub(super) fn of(versions: &Value) -> Option<Self> {
        let versions = versions.as_array().into_iter().flatten().filter_map(Value::as_str);
        versions.into_iter().find_map(|version| match version {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::V1 => "apiextensions.k8s.io/v1",
            Self::V1Beta1 => "apiextensions.k8s.io/v1beta1",
        }
    }
}

/// `group/version, Kind=Kind` of what is converted.
pub(super) fn kind_of(objects: &[Value]) -> String {
    let first = objects.first().unwrap_or(&Value::Null);
    let text = |field: &str| first[field].as_str().unwrap_or("");
    format!("{}, Kind={}", text("apiVersion"), text("kind"))
}

pub(super) fn question(
    version: ConversionReviewVersion,
    uid: &str,
    desired: &str,
    objects: &[Value],
) -> Value {
    json!({
        "kind": "ConversionReview", "apiVersion": version.name(),
        "request": {"uid": uid, "desiredAPIVersion": desired, "objects": objects},
    })
}

/// Why an answer holds no converted objects; continues "conversion webhook for … " in the words of
/// upstream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ConversionAnswerError {
    #[error(
        "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got {group}, Kind={kind}"
    )]
    WrongKind { group: String, kind: String },
    #[error("failed: no response provided")]
    NoResponse,
    #[error("failed: expected response.uid={expected:?}, got {given:?}")]
    OtherUid { expected: String, given: String },
    /// The webhook failed and does not say why.
    #[error("failed: response.result.status was '{0}', not 'Success'")]
    Status(String),
    /// The webhook failed with this message.
    #[error("failed: {0}")]
    Message(String),
    #[error("returned {given} objects, expected {expected}")]
    Count { given: usize, expected: usize },
    #[error("returned invalid converted object at index {index}: {fault}")]
    Object { index: usize, fault: ObjectFault },
    #[error("returned invalid metadata in object at index {index}: {fault}")]
    Metadata { index: usize, fault: MetadataFault },
}

/// A difference between an object and its conversion that no conversion makes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ObjectFault {
    #[error("invalid groupVersion (expected {expected}, received {received})")]
    Version { expected: String, received: String },
    #[error("invalid kind (expected {expected}, received {received})")]
    Kind { expected: String, received: String },
    #[error("must have the same {name}: {before} != {after}")]
    Identity { name: &'static str, before: String, after: String },
}

/// Metadata that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum MetadataFault {
    #[error("missing metadata in converted object")]
    Missing,
    #[error("invalid metadata.{0} in converted object")]
    NoMap(&'static str),
    #[error("metadata.{field}[{key}] must be a string")]
    NoText { field: &'static str, key: String },
}

/// The converted objects.
pub(super) fn answer(
    version: ConversionReviewVersion,
    uid: &str,
    desired: &str,
    objects: &[Value],
    mut review: Value,
) -> Result<Vec<Value>, ConversionAnswerError> {
    check_review(version, uid, &review)?;
    let Value::Array(mut converted) = review["response"]["convertedObjects"].take() else {
        return Err(ConversionAnswerError::Count { given: 0, expected: objects.len() });
    };
    if converted.len() != objects.len() {
        let (given, expected) = (converted.len(), objects.len());
        return Err(ConversionAnswerError::Count { given, expected });
    }
    for (index, (object, original)) in converted.iter_mut().zip(objects).enumerate() {
        check_object(object, original, desired)
            .map_err(|fault| ConversionAnswerError::Object { index, fault })?;
        restore_metadata(object, original)
            .map_err(|fault| ConversionAnswerError::Metadata { index, fault })?;
    }
    Ok(converted)
}

/// Whether a review answers this question, with success.
fn check_review(
    version: ConversionReviewVersion,
    uid: &str,
    review: &Value,
) -> Result<(), ConversionAnswerError> {
    let (group, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
    if version == ConversionReviewVersion::V1
        && (group.as_str(), kind.as_str()) != (version.name(), "ConversionReview")
    {
        let group = if group.is_empty() { "/".to_owned() } else { group };
        return Err(ConversionAnswerError::WrongKind { group, kind });
    }
    let response = &review["response"];
    if !response.is_object() {
        return Err(ConversionAnswerError::NoResponse);
    }
    let given = text(&response["uid"]);
    if version == ConversionReviewVersion::V1 && given != uid {
        return Err(ConversionAnswerError::OtherUid { expected: uid.to_owned(), given });
    }
    let status = text(&response["result"]["status"]);
    if status != "Success" {
        let message = text(&response["result"]["message"]);
        return Err(match message.as_str() {
            "" => ConversionAnswerError::Status(status),
            _ => ConversionAnswerError::Message(message),
        });
    }
    Ok(())
}

/// A conversion keeps the kind and the identity of an object.
fn check_object(object: &Value, original: &Value, desired: &str) -> Result<(), ObjectFault> {
    let received = text(&object["apiVersion"]);
    if received != desired {
        return Err(ObjectFault::Version { expected: desired.to_owned(), received });
    }
    let (expected, received) = (text(&original["kind"]), text(&object["kind"]));
    if received != expected {
        return Err(ObjectFault::Kind { expected, received });
    }
    for (field, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let before = text(&original["metadata"][field]);
        let after = text(&object["metadata"][field]);
        if before != after {
            return Err(ObjectFault::Identity { name, before, after });
        }
    }
    Ok(())
}

/// A conversion may change labels and annotations, and nothing else of the metadata.
fn restore_metadata(object: &mut Value, original: &Value) -> Result<(), MetadataFault> {
    let Value::Object(given) = object["metadata"].take() else {
        return Err(MetadataFault::Missing);
    };
    let mut metadata = original["metadata"].as_object().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match given.get(field) {
            None | Some(Value::Null) => {
                metadata.remove(field);
            }
            Some(Value::Object(map)) => {
                if let Some((key, _)) = map.iter().find(|(_, value)| !value.is_string()) {
                    return Err(MetadataFault::NoText { field, key: key.clone() });
                }
                metadata.insert(field.to_owned(), map.clone().into());
            }
            Some(_) => return Err(MetadataFault::NoMap(field)),
        }
    }
    object["metadata"] = metadata.into();
    Ok(())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(version: &str) -> Value {
        json!({
            "apiVersion": format!("g/{version}"), "kind": "Thing",
            "metadata": {"name": "a", "uid": "1", "labels": {"x": "y"}},
        })
    }

    fn review(converted: &Value) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "response": {
                "uid": "u", "result": {"status": "Success"}, "convertedObjects": [converted],
            },
        })
    }

    fn judged(review: Value) -> Result<Vec<Value>, String> {
        answer(ConversionReviewVersion::V1, "u", "g/v2", &[object("v1")], review)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn metadata_survives_whatever_the_webhook_does_to_it() {
        let mut converted = object("v2");
        converted["metadata"] =
            json!({"name": "a", "uid": "1", "labels": {"z": "1"}, "generation": 9});
        let found = judged(review(&converted)).unwrap();
        assert_eq!(found[0]["metadata"], json!({"name": "a", "uid": "1", "labels": {"z": "1"}}));
    }

    #[test]
    fn lies_are_noticed() {
        let mut renamed = object("v2");
        renamed["metadata"]["name"] = "b".into();
        let mut failed = review(&object("v2"));
        failed["response"]["result"] = json!({"status": "Failure", "message": "no way"});
        let mut mute = review(&object("v2"));
        mute["response"]["result"] = json!({"status": "Failure"});
        let mut other = review(&object("v2"));
        other["response"]["uid"] = "x".into();
        let mut fewer = review(&object("v2"));
        fewer["response"]["convertedObjects"] = json!([]);
        for (review, complaint) in [
            (
                json!({}),
                "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=",
            ),
            (other, "failed: expected response.uid=\"u\", got \"x\""),
            (failed, "failed: no way"),
            (mute, "failed: response.result.status was 'Failure', not 'Success'"),
            (fewer, "returned 0 objects, expected 1"),
            (
                review(&object("v3")),
                "returned invalid converted object at index 0: invalid groupVersion (expected g/v2, received g/v3)",
            ),
            (
                review(&renamed),
                "returned invalid converted object at index 0: must have the same name: a != b",
            ),
        ] {
            assert_eq!(judged(review), Err(complaint.to_owned()));
        }
    }
}
