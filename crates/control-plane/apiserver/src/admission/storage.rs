//! Claims get the default class; claims and volumes are kept while they are in use.

use serde_json::{Value, json};

use super::Operation;
use crate::schemas::refresh;
use crate::verbs::call::Call;
use crate::verbs::object;

const DEFAULT_CLASS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

pub(super) fn mutate(call: &Call<'_>, operation: Operation, object: &mut Value) {
    if operation != Operation::Create {
        return;
    }
    let is_claim = &*call.served.table == "persistentvolumeclaims";
    protect(
        object,
        if is_claim { "kubernetes.io/pvc-protection" } else { "kubernetes.io/pv-protection" },
    );
    let has_class = object["spec"].get("storageClassName").is_some_and(|class| !class.is_null())
        || object["metadata"]["annotations"]
            .get("volume.beta.kubernetes.io/storage-class")
            .is_some();
    if is_claim
        && !has_class
        && let Some(class) = default_class(call)
    {
        object["spec"]["storageClassName"] = class.into();
    }
}

fn protect(object: &mut Value, finalizer: &str) {
    let metadata = object::metadata_mut(object);
    let list = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(list) = list.as_array_mut()
        && !list.iter().any(|known| known == finalizer)
    {
        list.push(finalizer.into());
    }
}

/// The newest class that is marked as default; of equally old ones the first by name.
fn default_class(call: &Call<'_>) -> Option<String> {
    let mut defaults: Vec<(String, String)> = refresh::entries(call.api, "storageclasses")
        .iter()
        .map(|entry| entry.item.to_value())
        .filter(|class| {
            let annotations = &class["metadata"]["annotations"];
            DEFAULT_CLASS.iter().any(|key| annotations[*key] == "true")
        })
        .map(|class| {
            (object::meta(&class, "creationTimestamp").to_owned(), object::name(&class).to_owned())
        })
        .collect();
    defaults
        .sort_by(|(made, name), (other_made, other)| other_made.cmp(made).then(name.cmp(other)));
    defaults.into_iter().next().map(|(_, name)| name)
}
