//! `/v1/harvester/kubeconfig`: kubeconfigs of service accounts, for the cloud provider and the CSI
//! driver of a guest cluster.
//!
//! The account, its bindings and its token are created in the caller's name, so that no rights are
//! granted that the caller does not have.

use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::Steve;
use crate::caller::Session;
use crate::error::SteveError;
use crate::reply::{self, SteveResult};
use crate::request::{self, Body, RequestHead};

const CLOUD_PROVIDER: &str = "harvesterhci.io:cloudprovider";
const CSI_DRIVER: &str = "harvesterhci.io:csi-driver";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// The controllers fill in a token at once; this is for when they do not run.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(30);

/// The requested account.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AccountRequest {
    namespace: String,
    service_account_name: String,
    cluster_role_name: String,
    output_format: String,
}

impl AccountRequest {
    fn check(self) -> Result<Self, SteveError> {
        let refuse = |message: String| {
            let message = format!("fail to decode request: invalid request: {message}");
            Err(SteveError::invalid("InvalidBodyContent", message))
        };
        if !matches!(&*self.cluster_role_name, "" | CLOUD_PROVIDER) {
            return refuse(format!("clusterRoleName can only be {CLOUD_PROVIDER}"));
        }
        if self.namespace.is_empty() || self.service_account_name.is_empty() {
            return refuse("namespace and serviceAccountName cannot be empty".into());
        }
        Ok(self)
    }

    /// The name of the bindings.
    fn binding(&self) -> String {
        format!("{}-{}", self.namespace, self.service_account_name)
    }
}

pub(crate) async fn answer(
    steve: &Steve,
    session: &Session<'_>,
    asked: &RequestHead,
    body: Body,
) -> SteveResult {
    let account = match asked.parts.method {
        Method::POST => {
            let bytes = request::read(body).await?;
            let fields = request::parse(&asked.parts, &bytes)?;
            serde_json::from_value(Value::Object(fields)).map_err(|error| {
                let message = format!("fail to decode request: {error}");
                SteveError::invalid("InvalidBodyContent", message)
            })?
        }
        Method::GET => {
            let parameter = |name: &str| asked.parameter(name).unwrap_or_default();
            AccountRequest {
                namespace: parameter("namespace"),
                service_account_name: parameter("serviceAccountName"),
                output_format: parameter("outputFormat"),
                ..AccountRequest::default()
            }
        }
        ref other => return Err(SteveError::method_not_allowed(other)),
    };
    let account = account.check()?;
    let token = if asked.parts.method == Method::POST {
        ensure(session, &account).await?
    } else {
        let path = secret_path(&account);
        token_in(&session.get(&path).await?)
            .ok_or_else(|| SteveError::not_found(format!("secret {path} has no token yet")))?
    };
    let text = kubeconfig(&asked.origin(), &steve.ca_pem, &account.namespace, &token)?;
    if account.output_format == "yaml" {
        return Ok(reply::with_type(StatusCode::OK, "application/yaml", cloud_init(&text)?));
    }
    Ok(reply::json(StatusCode::OK, &text.into()))
}

fn secret_path(account: &AccountRequest) -> String {
    let AccountRequest { namespace, service_account_name, .. } = account;
    format!("/api/v1/namespaces/{namespace}/secrets/{service_account_name}-token")
}

/// The object, created if it is missing.
async fn ensure_object(
    session: &Session<'_>,
    collection: &str,
    object: &Value,
) -> Result<Value, SteveError> {
    match session.post(collection, object).await {
        Err(error) if error.code == "AlreadyExists" => {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            session.get(&format!("{collection}/{name}")).await
        }
        outcome => outcome,
    }
}

/// Creates what is missing, and answers with the token of the account.
async fn ensure(session: &Session<'_>, asked: &AccountRequest) -> Result<String, SteveError> {
    let AccountRequest { namespace, service_account_name: name, .. } = asked;
    let core = format!("/api/v1/namespaces/{namespace}");
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace},
    });
    let account = ensure_object(session, &format!("{core}/serviceaccounts"), &account).await?;
    let owner = json!([{
        "apiVersion": "v1", "kind": "ServiceAccount", "name": name,
        "uid": account["metadata"]["uid"],
    }]);
    let binding = binding(asked, "RoleBinding", CLOUD_PROVIDER, &owner);
    let path = format!("{RBAC}/namespaces/{namespace}/rolebindings");
    ensure_object(session, &path, &binding).await?;
    let binding = self::binding(asked, "ClusterRoleBinding", CSI_DRIVER, &Value::Null);
    ensure_object(session, &format!("{RBAC}/clusterrolebindings"), &binding).await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {
            "name": format!("{name}-token"), "namespace": namespace, "ownerReferences": owner,
            "annotations": {"kubernetes.io/service-account.name": name},
        },
    });
    let secret = ensure_object(session, &format!("{core}/secrets"), &secret).await?;
    match token_in(&secret) {
        Some(token) => Ok(token),
        None => wait_for_token(session, asked, &secret).await,
    }
}

fn binding(asked: &AccountRequest, kind: &str, role: &str, owner: &Value) -> Value {
    let mut binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": {"name": asked.binding()},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role,
        },
        "subjects": [{
            "kind": "ServiceAccount", "name": asked.service_account_name,
            "namespace": asked.namespace,
        }],
    });
    if kind == "RoleBinding" {
        binding["metadata"]["namespace"] = asked.namespace.clone().into();
        // An object of the cluster cannot be owned by one of a namespace.
        binding["metadata"]["ownerReferences"] = owner.clone();
    }
    binding
}

fn token_in(secret: &Value) -> Option<String> {
    let token = BASE64_STANDARD.decode(secret["data"]["token"].as_str()?).ok()?;
    String::from_utf8(token).ok().filter(|token| !token.is_empty())
}

async fn wait_for_token(
    session: &Session<'_>,
    asked: &AccountRequest,
    secret: &Value,
) -> Result<String, SteveError> {
    let revision = secret["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let path = format!(
        "/api/v1/namespaces/{}/secrets?watch=true&resourceVersion={revision}&fieldSelector=metadata.name%3D{}-token",
        asked.namespace, asked.service_account_name
    );
    let mut lines = session.watch_plain(&path).await?;
    let found = async {
        while let Some(line) = lines.next().await {
            let event: Value = serde_json::from_slice(&line).unwrap_or_default();
            if let Some(token) = token_in(&event["object"]) {
                return Some(token);
            }
        }
        None
    };
    let found = tokio::time::timeout(TOKEN_TIMEOUT, found).await.ok().flatten();
    found.ok_or_else(|| {
        let message = "fail to create serviceAccount: timeout while waiting for secret";
        SteveError::invalid("InvalidBodyContent", message)
    })
}

fn kubeconfig(server: &str, ca: &str, namespace: &str, token: &str) -> Result<String, SteveError> {
    let config = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{
            "name": "default",
            "cluster": {"server": server, "certificate-authority-data": BASE64_STANDARD.encode(ca)},
        }],
        "users": [{"name": "default", "user": {"token": token}}],
        "contexts": [{
            "name": "default",
            "context": {"cluster": "default", "user": "default", "namespace": namespace},
        }],
        "current-context": "default",
    });
    to_yaml(&config)
}

/// User data that writes the kubeconfig where the cloud provider reads it.
fn cloud_init(kubeconfig: &str) -> Result<String, SteveError> {
    let file = json!({
        "encoding": "b64", "content": BASE64_STANDARD.encode(kubeconfig),
        "owner": "root:root", "path": "/etc/kubernetes/cloud-config", "permissions": "0644",
    });
    to_yaml(&json!({"write_files": [file]}))
}

fn to_yaml(value: &Value) -> Result<String, SteveError> {
    serde_saphyr::to_string(value).map_err(|error| {
        let message = format!("cannot write YAML: {error}");
        SteveError::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_name_an_account_and_no_other_role() {
        let parse = |value: Value| serde_json::from_value::<AccountRequest>(value).unwrap().check();
        let good = parse(json!({"namespace": "n", "serviceAccountName": "a"})).unwrap();
        assert_eq!(good.binding(), "n-a");
        for (wrong, part) in [
            (json!({"namespace": "n"}), "cannot be empty"),
            (
                json!({"namespace": "n", "serviceAccountName": "a", "clusterRoleName": "cluster-admin"}),
                "clusterRoleName can only be harvesterhci.io:cloudprovider",
            ),
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(error.status == 422 && error.message.contains(part), "{error}");
        }
    }

    #[test]
    fn bindings_of_the_cluster_have_no_owner_in_a_namespace() {
        let asked = AccountRequest {
            namespace: "n".into(),
            service_account_name: "a".into(),
            ..AccountRequest::default()
        };
        let owner = json!([{"name": "a"}]);
        let own = binding(&asked, "RoleBinding", CLOUD_PROVIDER, &owner);
        assert_eq!(own["metadata"]["ownerReferences"], owner);
        let cluster = binding(&asked, "ClusterRoleBinding", CSI_DRIVER, &owner);
        assert_eq!(cluster["metadata"], json!({"name": "n-a"}));
    }

    #[test]
    fn a_token_is_read_from_its_secret() {
        assert_eq!(token_in(&json!({"data": {"token": "YWJj"}})).as_deref(), Some("abc"));
        assert_eq!(token_in(&json!({"data": {}})), None);
        let yaml = cloud_init("text").unwrap();
        let read: Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(read["write_files"][0]["content"], "dGV4dA==");
    }
}
