//! Quotas for snapshots: of a namespace, and of one machine in it.

use http::StatusCode;
use serde_json::{Value, json};

use super::{ActionTarget, Input, done, invalid};
use crate::error::SteveError;
use crate::objects::ResourceCall;
use crate::reply::SteveResult;

const NAME: &str = "default-resource-quota";

/// The scope of a quota.
#[derive(Debug, Clone, Copy)]
pub(super) enum QuotaScope<'a> {
    Namespace,
    Machine(&'a str),
}

pub(super) async fn run(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
    action: &str,
    input: &Input,
) -> SteveResult {
    let is_machine = call.kind.is("kubevirt.io", "virtualmachines");
    let (namespace, scope) = match is_machine {
        true => (target.namespace, QuotaScope::Machine(target.name)),
        false => (target.name, QuotaScope::Namespace),
    };
    call.session.get(target.path).await?;
    let bytes = match action {
        "deleteResourceQuota" => Value::Null,
        _ => parse_size(input.text("totalSnapshotSizeQuota"))?.into(),
    };
    let path = format!("/apis/harvesterhci.io/v1beta1/namespaces/{namespace}/resourcequotas");
    let limit = snapshot_limit(scope, &bytes);
    let patch = json!({"spec": {"snapshotLimit": limit}});
    match call.session.merge(&format!("{path}/{NAME}"), &patch).await {
        Err(error) if error.status == StatusCode::NOT_FOUND => {
            if !bytes.is_null() {
                let object = json!({
                    "apiVersion": "harvesterhci.io/v1beta1", "kind": "ResourceQuota",
                    "metadata": {"name": NAME, "namespace": namespace},
                    "spec": patch["spec"],
                });
                call.session.post(&path, &object).await?;
            }
        }
        outcome => drop(outcome?),
    }
    Ok(done())
}

fn snapshot_limit(scope: QuotaScope<'_>, bytes: &Value) -> Value {
    match scope {
        QuotaScope::Namespace => json!({"namespaceTotalSnapshotSizeQuota": bytes}),
        QuotaScope::Machine(name) => json!({"vmTotalSnapshotSizeQuota": {name: bytes}}),
    }
}

/// A size as Kubernetes writes it, in bytes.
fn parse_size(text: &str) -> Result<i64, SteveError> {
    let wrong = || {
        invalid(&format!(
            "Parameter `totalSnapshotSizeQuota` is {text:?}: it must be a size such as 10Gi"
        ))
    };
    let suffixes = [
        ("Ki", 1_i64 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("Pi", 1 << 50),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
        ("", 1),
    ];
    let found = suffixes.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit)));
    let (digits, unit) = found.ok_or_else(wrong)?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let count: i64 = digits.parse().ok().filter(|_| plain).ok_or_else(wrong)?;
    count.checked_mul(*unit).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes() {
        for (text, bytes) in [
            ("10Gi", Some(10_i64 << 30)),
            ("512Mi", Some(512 << 20)),
            ("5G", Some(5_000_000_000)),
            ("1024", Some(1024)),
            ("", None),
            ("-1Gi", None),
            ("1.5Gi", None),
            ("99999999999Pi", None),
            ("Gi", None),
        ] {
            assert_eq!(parse_size(text).ok(), bytes, "{text}");
        }
    }

    #[test]
    fn a_limit_is_for_a_namespace_or_a_machine() {
        let bytes = json!(7);
        assert_eq!(
            snapshot_limit(QuotaScope::Namespace, &bytes),
            json!({"namespaceTotalSnapshotSizeQuota": 7})
        );
        assert_eq!(
            snapshot_limit(QuotaScope::Machine("web"), &Value::Null),
            json!({"vmTotalSnapshotSizeQuota": {"web": null}})
        );
    }
}
