//! Kinds that are questions: access reviews, token reviews, "who am I".
//! They are answered and never stored.

use auth::{AccessTarget, Attributes, Decision, ResourceRequest, User};
use http::StatusCode;
use schema::FieldError;
use serde_json::{Value, json};

use crate::access::authorize;
use crate::access::identity;
use crate::access::rights;
use crate::http::body::{self, Accepts, RequestBody};
use crate::http::options::WriteOptions;
use crate::http::respond::HttpReply;
use crate::http::verb_result::VerbResult;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::write::intake;

pub(crate) async fn answer(call: &mut Call<'_>, body: RequestBody) -> ApiResult<HttpReply> {
    let bytes = body::read(body).await?;
    let options = WriteOptions::parse(call.query, "CreateOptions")?;
    let parsed = body::parse(call.headers, &bytes, Accepts::All)?;
    let mut review = intake::take(call, parsed, options.field_validation)?;
    review["status"] = match &*call.served.kind {
        "SelfSubjectReview" => json!({"userInfo": user_info(call.user)}),
        "TokenReview" => {
            if let (Some(oidc), Some(token)) = (&call.api.oidc, review["spec"]["token"].as_str()) {
                oidc.prepare_token(token).await;
            }
            token(call, &review)?
        }
        "SelfSubjectAccessReview" => access(call, &review, call.user)?,
        "SubjectAccessReview" => access(call, &review, &subject(call, &review)?)?,
        "LocalSubjectAccessReview" => {
            let namespace = review["spec"]["resourceAttributes"]["namespace"].as_str();
            if namespace != Some(call.path.namespace) {
                return Err(refuse(
                    call,
                    FieldError::invalid(
                        "spec.resourceAttributes.namespace",
                        namespace,
                        "must match metadata.namespace",
                    ),
                ));
            }
            access(call, &review, &subject(call, &review)?)?
        }
        "SelfSubjectRulesReview" => rules(call, &review)?,
        other => return Err(ApiError::internal(format!("{other} cannot be answered"))),
    };
    Ok(VerbResult::Made(StatusCode::CREATED, review).render(call))
}

fn refuse(call: &Call<'_>, error: FieldError) -> ApiError {
    // As upstream, which names the group and forgets the kind.
    let subject =
        crate::status::StatusSubject { group: &call.served.group, resource: "", name: "" };
    ApiError::invalid(subject, &[error])
}

fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.clone().into();
    }
    if !user.groups.is_empty() {
        info["groups"] = user.groups.clone().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}

fn token(call: &Call<'_>, review: &Value) -> ApiResult<Value> {
    let Some(token) = review["spec"]["token"].as_str().filter(|token| !token.is_empty()) else {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    };
    let audiences: Vec<String> = texts(&review["spec"]["audiences"]);
    Ok(match identity::review(call.api, token, &audiences) {
        Ok(known) => {
            let mut status = json!({
                "authenticated": true, "user": user_info(&known.user.authenticated()),
            });
            if !known.audiences.is_empty() {
                status["audiences"] = known.audiences.into();
            }
            status
        }
        Err(error) => json!({
            "authenticated": false, "user": {},
            "error": format!("invalid bearer token: {}", base::Chain(&error)),
        }),
    })
}

/// The user that a SubjectAccessReview asks about.
fn subject(call: &Call<'_>, review: &Value) -> ApiResult<User> {
    let spec = &review["spec"];
    let name = spec["user"].as_str().unwrap_or("");
    let groups = texts(&spec["groups"]);
    if name.is_empty() && groups.is_empty() {
        return Err(refuse(
            call,
            FieldError::invalid("spec.user", "", "at least one of user or group must be specified"),
        ));
    }
    let mut user = User::new(name, groups);
    spec["uid"].as_str().unwrap_or("").clone_into(&mut user.uid);
    for (key, values) in spec["extra"].as_object().into_iter().flatten() {
        user.extra.insert(key.clone(), texts(values));
    }
    Ok(user)
}

fn access(call: &Call<'_>, review: &Value, user: &User) -> ApiResult<Value> {
    let spec = &review["spec"];
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if resource.is_object() && path.is_object() {
        let shown = json!({"Path": path["path"].as_str(), "Verb": path["verb"].as_str()});
        let detail = "cannot be specified in combination with resourceAttributes";
        let error = FieldError::invalid("spec.nonResourceAttributes", shown, detail);
        return Err(refuse(call, error));
    }
    if resource.is_object() == path.is_object() {
        let error = FieldError::invalid(
            "spec.resourceAttributes",
            resource.clone(),
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        );
        return Err(refuse(call, error));
    }
    let text = |value: &'static str| resource[value].as_str().unwrap_or("");
    let attributes = if resource.is_object() {
        Attributes {
            verb: text("verb"),
            target: AccessTarget::Resource(ResourceRequest {
                group: text("group"),
                version: text("version"),
                resource: text("resource"),
                subresource: text("subresource"),
                namespace: text("namespace"),
                name: text("name"),
            }),
        }
    } else {
        Attributes {
            verb: path["verb"].as_str().unwrap_or(""),
            target: AccessTarget::Path(path["path"].as_str().unwrap_or("")),
        }
    };
    Ok(match authorize::decide(call.api, user, &attributes) {
        Decision::Allow(reason) if reason.is_empty() => json!({"allowed": true}),
        Decision::Allow(reason) => json!({"allowed": true, "reason": &*reason}),
        Decision::NoOpinion(reason) if reason.is_empty() => json!({"allowed": false}),
        Decision::NoOpinion(reason) => json!({"allowed": false, "reason": reason.to_string()}),
    })
}

fn rules(call: &Call<'_>, review: &Value) -> ApiResult<Value> {
    let namespace = review["spec"]["namespace"].as_str().unwrap_or("");
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let (resources, paths) = rights::policy(call.api).rules_for(call.user, namespace);
    let resource_rules: Vec<Value> = resources
        .iter()
        .map(|rule| {
            let mut shown = json!({
                "verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources,
            });
            if !rule.resource_names.is_empty() {
                shown["resourceNames"] = json!(rule.resource_names);
            }
            shown
        })
        .collect();
    let path_rules: Vec<Value> = paths
        .iter()
        .map(|rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}))
        .collect();
    Ok(json!({
        "resourceRules": resource_rules, "nonResourceRules": path_rules, "incomplete": false,
    }))
}

fn texts(value: &Value) -> Vec<String> {
    let list = value.as_array().into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}
