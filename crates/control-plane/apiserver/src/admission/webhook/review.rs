//! `AdmissionReview`: the question, and whether an answer is one. Pure.

use base64::Engine as _;
use serde_json::{Value, json};

/// A version of the review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdmissionReviewVersion {
    V1,
    V1Beta1,
}

impl AdmissionReviewVersion {
    /// The first of a webhook's versions that we speak.
    pub(super) fn of(hook: &Value) -> Option<Self> {
        let versions = hook["admissionReviewVersions"].as_array().into_iter().flatten();
        versions.filter_map(Value::as_str).find_map(|version| match version {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// The type of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WebhookType {
    Mutate,
    Validate,
}

/// A well-formed answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct WebhookVerdict {
    pub(super) allowed: bool,
    /// `Status`, if it was refused with an explanation.
    pub(super) status: Option<Value>,
    /// A JSON patch, not decoded yet.
    pub(super) patch: Option<Vec<u8>>,
    pub(super) patch_type: String,
    pub(super) warnings: Vec<String>,
    pub(super) annotations: Vec<(String, String)>,
}

/// The question, as a document.
pub(super) fn question(
    version: AdmissionReviewVersion,
    uid: &str,
    mut request: Value,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Value {
    request["uid"] = uid.into();
    request["object"] = object.cloned().unwrap_or(Value::Null);
    request["oldObject"] = old.cloned().unwrap_or(Value::Null);
    json!({"kind": "AdmissionReview", "apiVersion": version.name(), "request": request})
}

/// Why an answer is none, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AdmissionAnswerError {
    #[error("webhook response was absent")]
    NoResponse,
    #[error("expected response.uid={expected:?}, got {given:?}")]
    OtherUid { expected: String, given: String },
    #[error(
        "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {group}, Kind={kind}"
    )]
    WrongKind { group: String, kind: String },
    #[error("validating webhook may not return response.patch")]
    PatchOfValidating,
    #[error("validating webhook may not return response.patchType")]
    PatchTypeOfValidating,
    #[error("webhook returned response.patch but not response.patchType")]
    NoPatchType,
    #[error("webhook returned response.patchType but not response.patch")]
    NoPatch,
    #[error("webhook returned invalid response.patchType of \"\"")]
    EmptyPatchType,
    #[error("response.patch is no base64: {0}")]
    NoBase64(base64::DecodeError),
}

/// Reads an answer.
pub(super) fn answer(
    version: AdmissionReviewVersion,
    uid: &str,
    task: WebhookType,
    review: &Value,
) -> Result<WebhookVerdict, AdmissionAnswerError> {
    let response = &review["response"];
    if !response.is_object() {
        return Err(AdmissionAnswerError::NoResponse);
    }
    let text = |field: &str| response[field].as_str().unwrap_or("");
    if version == AdmissionReviewVersion::V1 {
        if text("uid") != uid {
            let (expected, given) = (uid.to_owned(), text("uid").to_owned());
            return Err(AdmissionAnswerError::OtherUid { expected, given });
        }
        let (group, kind) =
            (review["apiVersion"].as_str().unwrap_or(""), review["kind"].as_str().unwrap_or(""));
        if (group, kind) != (version.name(), "AdmissionReview") {
            let group = if group.is_empty() { "/" } else { group };
            let (group, kind) = (group.to_owned(), kind.to_owned());
            return Err(AdmissionAnswerError::WrongKind { group, kind });
        }
    }
    let patch = patch(response)?;
    let patch_type = response.get("patchType").filter(|value| !value.is_null());
    let patch_type = patch_type.map(|value| value.as_str().unwrap_or("").to_owned());
    check_patch(task, version, patch.is_some(), patch_type.as_deref())?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let warnings = list(&response["warnings"]);
    let annotations = response["auditAnnotations"].as_object().into_iter().flatten();
    Ok(WebhookVerdict {
        allowed: response["allowed"].as_bool().unwrap_or(false),
        status: response.get("status").filter(|status| status.is_object()).cloned(),
        patch: patch.filter(|_| task == WebhookType::Mutate),
        // The type was not checked in the earlier version.
        patch_type: match version {
            AdmissionReviewVersion::V1 => patch_type.unwrap_or_default(),
            AdmissionReviewVersion::V1Beta1 => "JSONPatch".to_owned(),
        },
        warnings: warnings.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        annotations: annotations
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect(),
    })
}

/// Whether a webhook may say what it says about a patch; the earlier version did not check.
fn check_patch(
    task: WebhookType,
    version: AdmissionReviewVersion,
    has_patch: bool,
    patch_type: Option<&str>,
) -> Result<(), AdmissionAnswerError> {
    if version == AdmissionReviewVersion::V1Beta1 {
        return Ok(());
    }
    match (task, has_patch, patch_type) {
        (WebhookType::Validate, true, _) => Err(AdmissionAnswerError::PatchOfValidating),
        (WebhookType::Validate, false, Some(_)) => Err(AdmissionAnswerError::PatchTypeOfValidating),
        (WebhookType::Mutate, true, None) => Err(AdmissionAnswerError::NoPatchType),
        (WebhookType::Mutate, false, Some(_)) => Err(AdmissionAnswerError::NoPatch),
        (WebhookType::Mutate, true, Some("")) => Err(AdmissionAnswerError::EmptyPatchType),
        _ => Ok(()),
    }
}

fn patch(response: &Value) -> Result<Option<Vec<u8>>, AdmissionAnswerError> {
    let Some(text) = response["patch"].as_str().filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let decoded = base64::engine::general_purpose::STANDARD.decode(text);
    decoded.map(Some).map_err(AdmissionAnswerError::NoBase64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(change: &Value) -> Value {
        let mut review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": "u", "allowed": true},
        });
        for (field, value) in change.as_object().unwrap() {
            review["response"][field] = value.clone();
        }
        review
    }

    #[test]
    fn lies_are_noticed() {
        let patch = json!({"patch": "W10="});
        let both = json!({"patch": "W10=", "patchType": "JSONPatch"});
        for (task, change, complaint) in [
            (
                WebhookType::Validate,
                json!({"uid": "other"}),
                "expected response.uid=\"u\", got \"other\"",
            ),
            (
                WebhookType::Validate,
                patch.clone(),
                "validating webhook may not return response.patch",
            ),
            (
                WebhookType::Validate,
                json!({"patchType": "JSONPatch"}),
                "validating webhook may not return response.patchType",
            ),
            (
                WebhookType::Mutate,
                patch,
                "webhook returned response.patch but not response.patchType",
            ),
            (
                WebhookType::Mutate,
                json!({"patchType": "JSONPatch"}),
                "webhook returned response.patchType but not response.patch",
            ),
            (
                WebhookType::Mutate,
                json!({"patch": "W10=", "patchType": ""}),
                "webhook returned invalid response.patchType of \"\"",
            ),
        ] {
            let found = answer(AdmissionReviewVersion::V1, "u", task, &review(&change));
            assert_eq!(found.unwrap_err().to_string(), complaint, "{change}");
        }
        let verdict =
            answer(AdmissionReviewVersion::V1, "u", WebhookType::Mutate, &review(&both)).unwrap();
        assert_eq!(verdict.patch.as_deref(), Some(&b"[]"[..]));
    }

    #[test]
    fn an_invalid_review_is_refused() {
        let nothing =
            answer(AdmissionReviewVersion::V1, "u", WebhookType::Validate, &json!({"a": 1}));
        assert_eq!(nothing.unwrap_err().to_string(), "webhook response was absent");
        let mut nameless = review(&json!({}));
        nameless.as_object_mut().unwrap().remove("apiVersion");
        nameless.as_object_mut().unwrap().remove("kind");
        let complaint =
            answer(AdmissionReviewVersion::V1, "u", WebhookType::Validate, &nameless).unwrap_err();
        assert_eq!(
            complaint.to_string(),
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="
        );
        // The earlier version did not check either.
        assert!(
            answer(AdmissionReviewVersion::V1Beta1, "x", WebhookType::Validate, &nameless)
                .unwrap()
                .allowed
        );
    }
}
