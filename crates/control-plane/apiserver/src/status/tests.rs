use super::*;

const POD: StatusSubject<'static> = StatusSubject { group: "", resource: "pods", name: "web" };

#[test]
fn texts_are_those_of_upstream() {
    assert_eq!(ApiError::not_found(POD).message(), r#"pods "web" not found"#);
    let deployment = StatusSubject { group: "apps", resource: "deployments", name: "web" };
    assert_eq!(
        ApiError::already_exists(deployment).message(),
        r#"deployments.apps "web" already exists"#
    );
    let errors = [FieldError::required("spec.a", ""), FieldError::required("spec.b", "x")];
    let subject = StatusSubject { group: "example.com", resource: "Widget", name: "w" };
    assert_eq!(
        ApiError::invalid(subject, &errors).message(),
        r#"Widget.example.com "w" is invalid: [spec.a: Required value, spec.b: Required value: x]"#
    );
}

#[test]
fn an_unclassified_failure_has_no_reason() {
    let status = ApiError::unclassified("no such luck").to_value();
    assert_eq!(status["message"], "no such luck");
    assert_eq!(status["code"], 500);
    assert_eq!(status.get("reason"), None);
}

#[test]
fn unsupported_requests_are_not_retried() {
    assert_eq!(ApiError::unavailable("not now").retry_after_seconds(), Some(1));
    let never = ApiError::unsupported("never");
    assert_eq!((never.to_value()["code"].as_u64(), never.retry_after_seconds()), (Some(503), None));
}

#[test]
fn a_status_names_its_subject() {
    let status = ApiError::not_found(POD).to_value();
    assert_eq!(status["details"], json!({"name": "web", "kind": "pods"}));
    assert_eq!(status["code"], 404);
}
