//! Kubeconfigs for the users of logins: `generateKubeconfig` of Rancher's cluster `local`.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use client::Caller;
use http::{Method, StatusCode};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::Steve;
use crate::caller::Session;
use crate::error::SteveError;
use crate::login::{OidcProvider, TokenOrder, Users, is_principal, local_user, refused};
use crate::reply::{self, SteveReply, SteveResult};
use crate::request::RequestHead;

pub(crate) const TYPES: [&str; 2] =
    ["management.cattle.io.clusters", "management.cattle.io.cluster"];
const LIFETIME: &str =
    "/apis/harvesterhci.io/v1beta1/settings/kubeconfig-default-token-ttl-minutes";

/// Answers requests about the cluster `local`.
pub(crate) async fn answer(
    steve: &Steve,
    session: &Session<'_>,
    asked: &RequestHead,
    rest: &[String],
) -> SteveResult {
    if rest.is_empty() && asked.is_read() {
        return Ok(reply::json(StatusCode::OK, &clusters(&asked.origin())));
    }
    if !matches!(rest, [name] if name == "local") {
        return Err(SteveError::not_found("clusters.management.cattle.io: only \"local\" exists"));
    }
    match (asked.parts.method.clone(), asked.parameter("action").as_deref()) {
        (Method::POST, Some("generateKubeconfig")) => generate(steve, session, asked).await,
        (Method::POST, Some(action)) => {
            Err(SteveError::invalid("InvalidAction", format!("Invalid action: {action}")))
        }
        (Method::GET, _) => Ok(reply::json(StatusCode::OK, &cluster(&asked.origin()))),
        (method, _) => Err(SteveError::method_not_allowed(&method)),
    }
}

fn clusters(origin: &str) -> Value {
    json!({
        "type": "collection", "links": {"self": format!("{origin}/v1/{}", TYPES[0])},
        "createTypes": {}, "actions": {}, "resourceType": TYPES[1], "count": 1,
        "data": [cluster(origin)],
    })
}

fn cluster(origin: &str) -> Value {
    let own = format!("{origin}/v1/management.cattle.io.clusters/local");
    json!({
        "id": "local", "type": "management.cattle.io.cluster", "links": {"self": own},
        "actions": {"generateKubeconfig": format!("{own}?action=generateKubeconfig")},
        "apiVersion": "management.cattle.io/v3", "kind": "Cluster",
        "metadata": {
            "name": "local",
            "state": {"name": "active", "error": false, "transitioning": false, "message": ""},
        },
        "spec": {"displayName": "local", "internal": true},
    })
}

async fn generate(steve: &Steve, session: &Session<'_>, asked: &RequestHead) -> SteveResult {
    let name = &session.caller.name;
    if let Some(provider) = steve.oidc.as_deref().filter(|_| is_of_provider(session.caller)) {
        let config = text(&asked.origin(), &steve.ca_pem, name, &login_command(provider))?;
        return Ok(generated(&config));
    }
    let users = Users::new(steve.client.clone());
    let user = local_user(&users, session.caller).await?;
    let setting = steve.setting(LIFETIME).await?;
    let order = TokenOrder {
        prefix: "kubeconfig",
        description: "Kubeconfig token",
        lifetime: lifetime(&setting),
        derived: true,
        identity: None,
    };
    let issued = users.issue(&user, order, base::clock::now()).await.map_err(refused)?;
    let credentials = json!({"token": issued.bearer});
    Ok(generated(&text(&asked.origin(), &steve.ca_pem, name, &credentials)?))
}

fn generated(config: &str) -> SteveReply {
    let kind = "generateKubeConfigOutput";
    reply::json(StatusCode::OK, &json!({"baseType": kind, "type": kind, "config": config}))
}

/// Whether the caller's session began with a login at a provider. Their groups are those of that
/// login, so that no token without end is made from it.
fn is_of_provider(caller: &Caller) -> bool {
    let principals = caller.extra.get("principalid");
    principals.is_some_and(|all| all.iter().any(|own| is_principal(own)))
}

/// kubectl's usual plugin for OpenID Connect (`kubectl oidc-login`), which logs in when it has to.
fn login_command(provider: &OidcProvider) -> Value {
    let mut args = vec![
        "oidc-login".to_owned(),
        "get-token".to_owned(),
        format!("--oidc-issuer-url={}", provider.issuer),
        format!("--oidc-client-id={}", provider.client_id),
    ];
    let others = provider.scopes.iter().filter(|scope| *scope != "openid");
    args.extend(others.map(|scope| format!("--oidc-extra-scope={scope}")));
    json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "kubectl", "args": args,
        "interactiveMode": "IfAvailable", "provideClusterInfo": false,
        "installHint": "install the plugin oidc-login (kubelogin): kubectl krew install oidc-login",
    }})
}

/// Zero is without end.
fn lifetime(setting: &Value) -> SignedDuration {
    let minutes = ["value", "default"].into_iter().find_map(|field| {
        setting[field].as_str().filter(|text| !text.is_empty())?.parse::<i64>().ok()
    });
    SignedDuration::from_mins(minutes.unwrap_or(0).clamp(0, 52_560_000))
}

fn text(server: &str, ca_pem: &str, user: &str, credentials: &Value) -> Result<String, SteveError> {
    let config = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{
            "name": "local",
            "cluster": {
                "server": server, "certificate-authority-data": BASE64_STANDARD.encode(ca_pem),
            },
        }],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": user}}],
        "current-context": "local",
    });
    serde_saphyr::to_string(&config).map_err(|error| {
        let message = format!("cannot write the kubeconfig: {error}");
        SteveError::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_reads_back() {
        let written = text("https://h:6443", "CA", "jane", &json!({"token": "token-a:b"})).unwrap();
        let read: Value = serde_saphyr::from_str(&written).unwrap();
        assert_eq!(read["clusters"][0]["cluster"]["certificate-authority-data"], "Q0E=");
        assert_eq!(read["users"][0]["user"]["token"], "token-a:b");
        assert_eq!(read["current-context"], "local");
    }

    #[test]
    fn the_only_cluster_is_listed() {
        let listed = clusters("https://h");
        assert_eq!(listed["data"][0]["id"], "local");
        assert_eq!(listed["links"]["self"], "https://h/v1/management.cattle.io.clusters");
    }

    #[test]
    fn the_lifetime_is_a_setting() {
        for (setting, minutes) in [
            (json!({}), 0),
            (json!({"default": "0", "value": "60"}), 60),
            (json!({"default": "5", "value": ""}), 5),
            (json!({"default": "x"}), 0),
        ] {
            assert_eq!(lifetime(&setting), SignedDuration::from_mins(minutes), "{setting}");
        }
    }
}
