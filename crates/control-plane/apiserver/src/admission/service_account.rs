//! The admission plugin ServiceAccount: a new pod gets the account that it names, or the default
//! account of its namespace, with a projected token and the account's pull secrets. A pod whose
//! account does not exist is refused.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Operation;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::object;

const DEFAULT: &str = "default";
const MIRROR: &str = "kubernetes.io/config.mirror";
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Validity of the projected token: a little longer than an hour, as upstream.
const LIFETIME_SECONDS: u64 = 3607;
/// A controller creates the default account shortly after its namespace.
const MAX_ATTEMPTS: usize = 100;
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(super) async fn mutate(
    call: &Call<'_>,
    operation: Operation,
    pod: &mut Value,
) -> ApiResult<()> {
    if operation != Operation::Create || !call.path.subresource.is_empty() {
        return Ok(());
    }
    // A mirror pod, which a node runs by itself, has no account.
    if pod["metadata"]["annotations"].get(MIRROR).is_some() {
        return Ok(());
    }
    if pod["spec"]["serviceAccountName"].as_str().is_none_or(str::is_empty) {
        pod["spec"]["serviceAccountName"] = DEFAULT.into();
        pod["spec"]["serviceAccount"] = DEFAULT.into();
    }
    let name = pod["spec"]["serviceAccountName"].as_str().unwrap_or("").to_owned();
    let Some(account) = find(call, &name).await else {
        let subject = call.served.subject(object::name(pod));
        let namespace = call.namespace();
        return Err(ApiError::forbidden_because(
            subject,
            format!(
                "error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"
            ),
        ));
    };
    complete(pod, &account);
    Ok(())
}

async fn find(call: &Call<'_>, name: &str) -> Option<Value> {
    let key = object::key(call.namespace(), name);
    for _ in 0..MAX_ATTEMPTS {
        if let Some(entry) = call.api.store.get("serviceaccounts", &key) {
            return Some(entry.item.to_value());
        }
        if name != DEFAULT {
            return None;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    None
}

/// Gives a pod its token and the secrets to pull images with.
fn complete(pod: &mut Value, account: &Value) {
    let wanted = pod["spec"]["automountServiceAccountToken"]
        .as_bool()
        .or_else(|| account["automountServiceAccountToken"].as_bool())
        .unwrap_or(true);
    if wanted {
        mount(pod);
    }
    let own = pod["spec"]["imagePullSecrets"].as_array().is_some_and(|list| !list.is_empty());
    if let Some(secrets) = account["imagePullSecrets"].as_array().filter(|list| !list.is_empty())
        && !own
    {
        pod["spec"]["imagePullSecrets"] = secrets.clone().into();
    }
}

fn mount(pod: &mut Value) {
    let has_mount = |container: &Value| {
        let mounts = container["volumeMounts"].as_array();
        mounts.into_iter().flatten().any(|mount| mount["mountPath"] == MOUNT)
    };
    let random = uuid::Uuid::new_v4().simple().to_string();
    let name = format!("kube-api-access-{}", &random[..5]);
    let mut used = false;
    for list in ["initContainers", "containers"] {
        for container in object::list_mut(pod, &format!("/spec/{list}")) {
            if has_mount(container) {
                continue;
            }
            used = true;
            let mount = json!({"name": name, "readOnly": true, "mountPath": MOUNT});
            push(container, "volumeMounts", mount);
        }
    }
    if used {
        push(&mut pod["spec"], "volumes", volume(&name));
    }
}

fn push(holder: &mut Value, field: &str, item: Value) {
    if !holder.is_object() {
        *holder = Value::Object(Map::new());
    }
    match holder[field].as_array_mut() {
        Some(list) => list.push(item),
        None => holder[field] = json!([item]),
    }
}

fn volume(name: &str) -> Value {
    let field = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
    json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": LIFETIME_SECONDS}},
        {"configMap": {
            "name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}],
        }},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
    ]}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_mounted_where_none_is_unless_it_is_disabled() {
        let pod = json!({"spec": {"containers": [
            {"name": "a"}, {"name": "b", "volumeMounts": [{"name": "own", "mountPath": MOUNT}]},
        ]}});
        let mut mounted = pod.clone();
        complete(&mut mounted, &json!({"imagePullSecrets": [{"name": "pull"}]}));
        let name = &mounted["spec"]["volumes"][0]["name"];
        assert_eq!(mounted["spec"]["containers"][0]["volumeMounts"][0]["name"], *name);
        assert_eq!(mounted["spec"]["containers"][1], pod["spec"]["containers"][1]);
        assert_eq!(mounted["spec"]["imagePullSecrets"], json!([{"name": "pull"}]));
        for (pod_says, account_says) in [(json!(false), json!(true)), (Value::Null, json!(false))] {
            let mut plain = pod.clone();
            plain["spec"]["automountServiceAccountToken"] = pod_says;
            complete(&mut plain, &json!({"automountServiceAccountToken": account_says}));
            assert_eq!(plain["spec"].get("volumes"), None);
        }
    }
}
