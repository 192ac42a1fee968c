//! Descriptions of backed-up machines on the target: the node that owns the target writes and
//! removes those of this cluster, and hands over those that it finds there.
//!
//! Contents come from Secrets that the controllers write, and go into Secrets that they read.

use std::collections::BTreeSet;

use ::backup::StoreError;
use base::{Chain, clock};
use bytes::Bytes;
use client::Fault;
use hci::longhorn::NAMESPACE;
use hci::vm_backup_metadata::{
    CONTENT, FOLDER, FOUND_PREFIX, MAX_SIZE, METADATA_READY, REMOVED, SECRET_TYPE, backup_of, file,
    secret_name,
};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{
    ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tracing::{debug, info, warn};

use super::BackupContext;
use super::object::{DescriptionStep, MachineBackup, TargetObject};
use super::target::OpenTargetError;
use crate::api::{MANAGER, present};
use crate::volume::hex;

/// Why a description was not written or removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DescriptionError {
    #[error(transparent)]
    Open(#[from] OpenTargetError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("secret {NAMESPACE}/{name} with the description of the backup does not exist")]
    NoSecret { name: String },
    #[error("cannot {doing}")]
    Request { doing: &'static str, source: Fault },
}

fn failed(doing: &'static str) -> impl Fn(kube::Error) -> DescriptionError {
    move |source| DescriptionError::Request { doing, source: Fault(source) }
}

fn resource() -> ApiResource {
    let gvk = GroupVersionKind::gvk("harvesterhci.io", "v1beta1", "VirtualMachineBackup");
    ApiResource::from_gvk_with_plural(&gvk, "virtualmachinebackups")
}

/// Backups of machines in all namespaces.
pub(super) fn machine_backups(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource())
}

/// Writes or removes the file of a backup, and reports that.
pub(super) async fn carry_out(
    context: &BackupContext,
    target: &TargetObject,
    own: &MachineBackup,
) -> Result<(), DescriptionError> {
    let store = context.open(target).await?;
    let path = file(&own.namespace, &own.name);
    match own.step {
        DescriptionStep::Write => {
            let content = content(context, &secret_name(&own.uid)).await?;
            store.put_file(&path, content).await?;
        }
        DescriptionStep::Remove => store.remove_file(&path).await?,
    }
    info!(namespace = own.namespace, backup = own.name, step = ?own.step, "description on the backup target");
    report(context, own).await
}

async fn content(context: &BackupContext, name: &str) -> Result<Bytes, DescriptionError> {
    let secrets = Api::<Secret>::namespaced(context.client.clone(), NAMESPACE);
    let found = present(secrets.get(name).await).map_err(failed("read a description"))?;
    let content = found.and_then(|own| own.data).and_then(|mut data| data.remove(CONTENT));
    match content {
        Some(content) => Ok(Bytes::from(content.0)),
        None => Err(DescriptionError::NoSecret { name: name.to_owned() }),
    }
}

async fn report(context: &BackupContext, own: &MachineBackup) -> Result<(), DescriptionError> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), &own.namespace, &resource());
    let doing = "report on the description of a backup";
    let Some(found) = present(api.get(&own.name).await).map_err(failed(doing))? else {
        return Ok(());
    };
    let conditions = conditions(&found.data, own.step, &clock::now_rfc3339());
    let patch = Patch::Merge(json!({
        "metadata": {"uid": own.uid, "resourceVersion": found.resource_version()},
        "status": {"conditions": conditions},
    }));
    let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    match present(api.patch(&own.name, &params, &patch).await) {
        // Another writer was faster; the change leads here again.
        Err(kube::Error::Api(refused)) if refused.code == 409 => Ok(()),
        written => written.map(drop).map_err(failed(doing)),
    }
}

/// The conditions of a backup after a step.
fn conditions(backup: &Value, step: DescriptionStep, now: &str) -> Vec<Value> {
    let before = backup["status"]["conditions"].as_array().into_iter().flatten();
    let mut all: Vec<Value> = before.filter(|own| own["type"] != METADATA_READY).cloned().collect();
    let (status, reason) = match step {
        DescriptionStep::Write => ("True", ""),
        DescriptionStep::Remove => ("False", REMOVED),
    };
    all.push(json!({"type": METADATA_READY, "status": status, "reason": reason,
        "lastUpdateTime": now, "lastTransitionTime": now}));
    all
}

/// Hands over descriptions of backups that this cluster does not have.
pub(super) async fn hand_over(
    context: &BackupContext,
    target: &TargetObject,
) -> Result<(), DescriptionError> {
    let store = context.open(target).await?;
    let files = store.files(FOLDER).await?;
    if files.is_empty() {
        return Ok(());
    }
    let known = machine_backups(&context.client).list(&ListParams::default()).await;
    let known: BTreeSet<(String, String)> = known
        .map_err(failed("list backups of machines"))?
        .iter()
        .map(|own| (own.namespace().unwrap_or_default(), own.name_any()))
        .collect();
    for path in &files {
        let Some((namespace, name)) = backup_of(path) else {
            debug!(path, "a file of the backup target is no description of a backup");
            continue;
        };
        if known.contains(&(namespace.to_owned(), name.to_owned())) {
            continue;
        }
        let found = store.file(&file(namespace, name)).await?;
        let Some(content) = found.filter(|own| own.len() <= MAX_SIZE) else {
            warn!(path, "a description of a backup on the target is too long or gone");
            continue;
        };
        if let Err(failure) = create(context, path, &content).await {
            warn!(path, error = %Chain(&failure), "cannot hand over the description of a backup");
        }
    }
    Ok(())
}

/// The Secret is named by what it holds, so that a file is handed over once.
async fn create(
    context: &BackupContext,
    path: &str,
    content: &Bytes,
) -> Result<(), DescriptionError> {
    let mut sum = Sha256::new();
    sum.update(path.as_bytes());
    sum.update([0]);
    sum.update(content);
    let name = format!("{FOUND_PREFIX}{}", &hex(&sum.finalize())[..32]);
    let secret = Secret {
        metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() },
        type_: Some(SECRET_TYPE.to_owned()),
        data: Some([(CONTENT.to_owned(), ByteString(content.to_vec()))].into()),
        ..Secret::default()
    };
    let secrets = Api::<Secret>::namespaced(context.client.clone(), NAMESPACE);
    match secrets.create(&PostParams::default(), &secret).await {
        Err(kube::Error::Api(refused)) if refused.code == 409 => Ok(()),
        made => made.map(drop).map_err(failed("create a secret with the description")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_changes_its_condition_and_no_other() {
        let backup = json!({"status": {"conditions": [{"type": "Ready", "status": "True"},
            {"type": METADATA_READY, "status": "False"}]}});
        let stored = conditions(&backup, DescriptionStep::Write, "now");
        assert_eq!((&stored[0]["type"], &stored[0]["status"]), (&json!("Ready"), &json!("True")));
        assert_eq!((stored.len(), &stored[1]["status"]), (2, &json!("True")));
        let removed = conditions(&backup, DescriptionStep::Remove, "now");
        assert_eq!(removed[1]["reason"], REMOVED);
    }
}
