//! Expressions over named values.

use serde_json::{Value, json};

use crate::cel::{
    AccessQuery, Authorize, AuthorizerTarget, AuthorizerVerdict, Declarations, EvalContext,
    EvalError, ExpectedType, Expression, ResourceTarget,
};

fn names() -> Declarations<'static> {
    Declarations::default().dynamic("object").dynamic("params").authorizer().constructors()
}

/// Allows what is asked about `pods`, and the service account `ns/sa` everything.
struct Pods;

impl Authorize for Pods {
    fn decide(&self, question: &AccessQuery) -> AuthorizerVerdict {
        let pods =
            matches!(&question.target, AuthorizerTarget::Resource(at) if at.resource == "pods");
        let account = question.service_account.as_ref().is_some_and(|(_, name)| name == "sa");
        AuthorizerVerdict { allowed: pods || account, reason: question.verb.clone(), error: None }
    }
}

fn request() -> AuthorizerTarget {
    AuthorizerTarget::Resource(ResourceTarget {
        resource: "pods".to_owned(),
        ..ResourceTarget::default()
    })
}

fn evaluate(source: &str) -> Result<Value, String> {
    let object = json!({"spec": {"replicas": 5, "names": ["a", "b"]}, "metadata": {"name": "x"}});
    let mut names = names();
    let double = names.variable("double", "object.spec.replicas * 2").unwrap();
    let more = names.variable("more", "variables.double + 1").unwrap();
    let expression = Expression::compile(source, &names, ExpectedType::Anything)
        .map_err(|error| error.to_string())?;
    let scene = EvalContext::default()
        .with("object", Some(&object))
        .with("params", None)
        .with_authorizer(&Pods, request())
        .with_variable("double", &double)
        .with_variable("more", &more);
    let mut budget = 10_000_000;
    let found = scene.evaluate(&expression, &mut budget).map_err(|error| error.to_string())?;
    Ok(match (found.as_bool(), found.as_text()) {
        (Some(value), _) => value.into(),
        (_, Some(text)) => text.into(),
        _ if found.is_null() => Value::Null,
        _ => found.type_name().into(),
    })
}

#[test]
fn expressions_see_names_variables_and_rights() {
    for (source, expected) in [
        ("object.spec.replicas == 5 && params == null", json!(true)),
        ("variables.more == 11 && variables.double == 10", json!(true)),
        ("object.spec.names.map(variables, variables + 'x')[0]", json!("ax")),
        ("has(object.spec.absent)", json!(false)),
        (
            "authorizer.group('').resource('pods').namespace('n').check('get').allowed()",
            json!(true),
        ),
        ("authorizer.group('').resource('nodes').check('get').allowed()", json!(false)),
        ("authorizer.requestResource.check('custom').reason()", json!("custom")),
        ("authorizer.serviceAccount('ns', 'sa').path('/x').check('get').allowed()", json!(true)),
        ("authorizer.path('/x').check('get').errored()", json!(false)),
    ] {
        assert_eq!(evaluate(source), Ok(expected), "{source}");
    }
}

#[test]
fn undeclared_names_are_refused() {
    for (source, part) in [
        ("self.x", "undeclared reference to 'self' (in container '')"),
        ("oldSelf", "undeclared reference to 'oldSelf' (in container '')"),
        ("variables.other", "undefined field 'other'"),
        ("authorizer.resource('x')", "found no matching overload for 'resource'"),
        ("Thing{a: 1}", "undeclared reference to 'Thing' (in container '')"),
        ("JSONPatch{opp: 'x'}", "undefined field 'opp'"),
    ] {
        let error = evaluate(source).unwrap_err();
        assert!(error.contains(part), "{source}: {error}");
    }
}

#[test]
fn a_result_of_the_wrong_type_is_refused() {
    for (source, wanted, text) in [
        ("1 + 1", ExpectedType::Bool, "must evaluate to bool but got int"),
        ("true", ExpectedType::Text, "must evaluate to string but got bool"),
        ("1", ExpectedType::TextOrNull, "must evaluate to one of [string null_type] but got int"),
        (
            "Object.spec{}",
            ExpectedType::Configuration,
            "must evaluate to Object but got Object.spec",
        ),
        ("[1]", ExpectedType::JsonPatch, "must evaluate to list(JSONPatch) but got list(int)"),
    ] {
        let error = Expression::compile(source, &names(), wanted).unwrap_err();
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn changes_are_constructed() {
    let object = json!({"metadata": {"name": "x"}, "count": 2});
    let found = |source: &str, wanted| {
        let expression = Expression::compile(source, &names(), wanted).unwrap();
        let scene = EvalContext::default().with("object", Some(&object));
        let found = scene.evaluate(&expression, &mut 1_000_000);
        match wanted {
            ExpectedType::Configuration => found.unwrap().to_configuration(),
            _ => found.unwrap().to_json_patch(),
        }
        .map_err(|error| error.to_string())
    };
    assert_eq!(
        found(
            "Object{spec: Object.spec{replicas: object.count, list: [Object.spec.list{a: 'x'}]}}",
            ExpectedType::Configuration
        ),
        Ok(json!({"spec": {"replicas": 2, "list": [{"a": "x"}]}}))
    );
    let error =
        found("Object{spec: Object.status{a: 1}}", ExpectedType::Configuration).unwrap_err();
    assert!(error.contains("unexpected type name \"Object.status\""), "{error}");
    assert_eq!(
        found(
            "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), \
             value: {'k': object.metadata.name}}]",
            ExpectedType::JsonPatch
        ),
        Ok(json!([{"op": "add", "path": "/metadata/labels/a~1b", "value": {"k": "x"}}]))
    );
}

#[test]
fn costs_are_bounded() {
    let expression = Expression::compile(
        "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, a + b > 0))",
        &names(),
        ExpectedType::Bool,
    )
    .unwrap();
    let (mut small, mut large) = (50, 1_000_000);
    let scene = EvalContext::default();
    let outcome = scene.evaluate(&expression, &mut small).map(|found| found.as_bool());
    assert_eq!(outcome, Err(EvalError::OutOfBudget));
    assert_eq!(small, 0);
    assert_eq!(scene.evaluate(&expression, &mut large).unwrap().as_bool(), Some(true));
    assert!(large < 1_000_000);
}
