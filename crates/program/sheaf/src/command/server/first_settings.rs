//! Settings of Harvester that the command line or the configuration file gives a new cluster.

use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::json;
use tracing::{info, warn};

const MANAGER: &str = "sheaf-server";

/// Gives each setting its value unless it has one: a later choice of an administrator stays.
/// A value that is refused is logged and keeps nothing else from starting.
pub(super) async fn apply(client: Client, settings: &[(String, String)]) {
    let kind = GroupVersionKind::gvk("harvesterhci.io", "v1beta1", "Setting");
    let resource = ApiResource::from_gvk_with_plural(&kind, "settings");
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    for (name, value) in settings {
        match give(&api, name, value).await {
            Ok(true) => info!(setting = name, "setting applied"),
            Ok(false) => {}
            Err(error) => warn!(setting = name, %error, "cannot apply setting"),
        }
    }
}

/// Whether the value was written.
async fn give(api: &Api<DynamicObject>, name: &str, value: &str) -> kube::Result<bool> {
    let found = api.get(name).await?;
    if found.data["value"].as_str().is_some_and(|value| !value.is_empty()) {
        return Ok(false);
    }
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    api.patch(name, &params, &Patch::Merge(json!({"value": value}))).await?;
    Ok(true)
}
