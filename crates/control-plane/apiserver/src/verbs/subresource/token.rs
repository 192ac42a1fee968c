//! `/serviceaccounts/N/token`: tokens that say who they are for, and for how long.

use auth::token::{BoundObject, ObjectRef, TokenGrant, TokenRequestSpec};
use base::clock;
use http::StatusCode;
use serde_json::{Value, json};

use crate::access::authorize::node;
use crate::admission::{self, AdmissionOperation, Operation};
use crate::extension::{Lookup as _, NodeTokenRequest};
use crate::http::body::{self, Accepts, RequestBody};
use crate::http::respond::HttpReply;
use crate::http::verb_result::VerbResult;
use crate::status::{ApiError, ApiResult, StatusSubject};
use crate::verbs::call::Call;
use crate::verbs::object;

pub(super) async fn answer(call: &mut Call<'_>, body: RequestBody) -> ApiResult<HttpReply> {
    let bytes = body::read(body).await?;
    let mut request = body::parse(call.headers, &bytes, Accepts::All)?.value;
    if !matches!(request["kind"].as_str(), None | Some("" | "TokenRequest")) {
        return Err(ApiError::bad_request("the body must be a TokenRequest"));
    }
    let (namespace, name) = (call.path.namespace, call.path.name);
    let key = object::key(namespace, name);
    let Some(account) = call.api.store.get("serviceaccounts", &key) else {
        return Err(ApiError::not_found(call.served.subject(name)));
    };
    let account = account.item.to_value();
    auth::token::default_token_request(&mut request);
    let errors = auth::token::validate_token_request(&request);
    let subject =
        StatusSubject { group: "authentication.k8s.io", resource: "TokenRequest", name: "" };
    if !errors.is_empty() {
        return Err(ApiError::invalid(subject, &errors));
    }
    let mut sent = Some(request);
    let act = AdmissionOperation::new(Operation::Create, false);
    admission::outside(call, &act, &mut sent, None).await?;
    let mut request = sent.unwrap_or_default();
    shorten(call, &mut request);
    let spec = TokenRequestSpec::of(&request);
    let mut grant = TokenGrant {
        namespace: namespace.to_owned(),
        service_account: ObjectRef::new(name, object::uid(&account)),
        audiences: spec.audiences.clone(),
        expiration_seconds: spec.expiration_seconds,
        ..TokenGrant::default()
    };
    bind(call, &spec, &mut grant)?;
    restrict_node(call, &grant)?;
    let tokens = call.api.authenticator.tokens.load();
    let issued = tokens.issue(&grant, clock::now());
    request["apiVersion"] = "authentication.k8s.io/v1".into();
    request["kind"] = "TokenRequest".into();
    request["metadata"] = json!({
        "name": name, "namespace": namespace, "creationTimestamp": clock::now_rfc3339(),
    });
    request["spec"]["audiences"] = issued.audiences.clone().into();
    request["status"] = json!({
        "token": issued.token, "expirationTimestamp": clock::rfc3339(issued.expires),
    });
    Ok(VerbResult::Made(StatusCode::CREATED, request).render(call))
}

/// As upstream with `--service-account-max-token-expiration`.
fn shorten(call: &mut Call<'_>, request: &mut Value) {
    let Some(longest) = call.api.settings.longest_token else { return };
    let longest = i64::try_from(longest.as_secs()).unwrap_or(i64::MAX);
    let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or_default();
    if seconds > longest {
        request["spec"]["expirationSeconds"] = longest.into();
        call.warnings.push(format!(
            "requested expiration of {seconds} seconds shortened to {longest} seconds"
        ));
    }
}

/// Ties the token to an object, so that it dies with it.
fn bind(call: &Call<'_>, spec: &TokenRequestSpec, grant: &mut TokenGrant) -> ApiResult<()> {
    let Some(bound) = &spec.bound_object else { return Ok(()) };
    let (table, resource, namespaced) = match bound.kind.as_str() {
        "Pod" => ("pods", "pods", true),
        "Secret" => ("secrets", "secrets", true),
        "Node" => ("minions", "nodes", false),
        _ if is_guest(call, bound) => return bind_guest(call, bound, grant),
        other => {
            let version = &bound.api_version;
            let group_version =
                if version.contains('/') { version.clone() } else { format!("/{version}") };
            return Err(ApiError::bad_request(format!(
                "cannot bind token to object of type {group_version}, Kind={other}"
            )));
        }
    };
    let namespace = if namespaced { call.path.namespace } else { "" };
    let found = call.api.store.get(table, &object::key(namespace, &bound.name));
    let Some(found) = found else {
        return Err(ApiError::not_found(StatusSubject { group: "", resource, name: &bound.name }));
    };
    let found: Value = found.item.to_value();
    check_uid(bound, &found, StatusSubject { group: "", resource, name: &bound.name })?;
    let reference = Some(ObjectRef::new(&*bound.name, object::uid(&found)));
    match bound.kind.as_str() {
        "Pod" => grant.pod = reference,
        "Secret" => grant.secret = reference,
        _ => grant.node = reference,
    }
    Ok(())
}

fn check_uid(bound: &BoundObject, found: &Value, subject: StatusSubject<'_>) -> ApiResult<()> {
    if bound.uid.is_empty() || bound.uid == object::uid(found) {
        return Ok(());
    }
    Err(ApiError::conflict(
        subject,
        format!(
            "the UID in the bound object reference ({}) does not match the UID in record. The object might have been deleted and then recreated",
            bound.uid
        ),
    ))
}

/// Whether the object is of the kind that nodes run instead of pods.
fn is_guest(call: &Call<'_>, bound: &BoundObject) -> bool {
    let guests = call.api.extensions.nodes.as_ref().map(|nodes| nodes.guests());
    guests.is_some_and(|guests| {
        let group = bound.api_version.split_once('/').map_or("", |(group, _)| group);
        bound.kind == guests.kind && group == guests.group
    })
}

fn bind_guest(call: &Call<'_>, bound: &BoundObject, grant: &mut TokenGrant) -> ApiResult<()> {
    let Some(nodes) = &call.api.extensions.nodes else { return Ok(()) };
    let guests = nodes.guests();
    let subject = StatusSubject { group: guests.group, resource: guests.plural, name: &bound.name };
    let found = call.api.get(guests.group, guests.plural, call.path.namespace, &bound.name);
    let found = found.ok_or_else(|| ApiError::not_found(subject))?;
    check_uid(bound, &found, subject)?;
    grant.machine = Some(ObjectRef::new(&*bound.name, object::uid(&found)));
    Ok(())
}

/// A node gets tokens only for what runs on it.
fn restrict_node(call: &Call<'_>, grant: &TokenGrant) -> ApiResult<()> {
    let (Some(access), Some(node)) = (&call.api.extensions.nodes, node::name(call.user)) else {
        return Ok(());
    };
    let guests = access.guests();
    let (namespace, account) = (&*grant.namespace, &*grant.service_account.name);
    let guest = grant
        .machine
        .as_ref()
        .and_then(|own| call.api.get(guests.group, guests.plural, namespace, &own.name));
    let seconds = grant.expiration_seconds;
    let request = NodeTokenRequest { node, account, seconds, guest: guest.as_ref() };
    access.review_token(&request).map_err(|why| {
        let subject = StatusSubject { group: "", resource: "serviceaccounts", name: account };
        ApiError::forbidden_because(subject, why)
    })
}
