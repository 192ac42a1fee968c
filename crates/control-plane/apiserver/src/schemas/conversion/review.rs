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

/// The converted objects; an error continues "conversion webhook for … ".
pub(super) fn answer(
    version: ConversionReviewVersion,
    uid: &str,
    desired: &str,
    objects: &[Value],
    mut review: Value,
) -> Result<Vec<Value>, String> {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let (group, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
    if version == ConversionReviewVersion::V1
        && (group.as_str(), kind.as_str()) != (version.name(), "ConversionReview")
    {
        let group = if group.is_empty() { "/".to_owned() } else { group };
        return Err(format!(
            "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got {group}, Kind={kind}"
        ));
    }
    let response = &mut review["response"];
    if !response.is_object() {
        return Err("failed: no response provided".to_owned());
    }
    let given = text(&response["uid"]);
    if version == ConversionReviewVersion::V1 && given != uid {
        return Err(format!("failed: expected response.uid={uid:?}, got {given:?}"));
    }
    let status = text(&response["result"]["status"]);
    if status != "Success" {
        let message = text(&response["result"]["message"]);
        return Err(match message.as_str() {
            "" => format!("failed: response.result.status was '{status}', not 'Success'"),
            message => format!("failed: {message}"),
        });
    }
    let Value::Array(mut converted) = response["convertedObjects"].take() else {
        return Err(format!("returned 0 objects, expected {}", objects.len()));
    };
    if converted.len() != objects.len() {
        return Err(format!("returned {} objects, expected {}", converted.len(), objects.len()));
    }
    for (index, (object, original)) in converted.iter_mut().zip(objects).enumerate() {
        check(object, original, desired, index)?;
    }
    Ok(converted)
}

/// A conversion may change labels and annotations, and nothing else of the metadata.
fn check(object: &mut Value, original: &Value, desired: &str, index: usize) -> Result<(), String> {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let invalid =
        |why: String| format!("returned invalid converted object at index {index}: {why}");
    let version = text(&object["apiVersion"]);
    if version != desired {
        return Err(invalid(format!(
            "invalid groupVersion (expected {desired}, received {version})"
        )));
    }
    let (expected, kind) = (text(&original["kind"]), text(&object["kind"]));
    if kind != expected {
        return Err(invalid(format!("invalid kind (expected {expected}, received {kind})")));
    }
    for (field, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (was, is) = (text(&original["metadata"][field]), text(&object["metadata"][field]));
        if was != is {
            return Err(invalid(format!("must have the same {name}: {was} != {is}")));
        }
    }
    let broken =
        |why: String| format!("returned invalid metadata in object at index {index}: {why}");
    let Value::Object(given) = object["metadata"].take() else {
        return Err(broken("missing metadata in converted object".to_owned()));
    };
    let mut metadata = original["metadata"].as_object().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match given.get(field) {
            None | Some(Value::Null) => {
                metadata.remove(field);
            }
            Some(Value::Object(map)) => {
                if let Some((key, _)) = map.iter().find(|(_, value)| !value.is_string()) {
                    let why = format!("metadata.{field}[{key}] must be a string");
                    return Err(broken(why));
                }
                metadata.insert(field.to_owned(), map.clone().into());
            }
            Some(_) => return Err(broken(format!("invalid metadata.{field} in converted object"))),
        }
    }
    object["metadata"] = metadata.into();
    Ok(())
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
