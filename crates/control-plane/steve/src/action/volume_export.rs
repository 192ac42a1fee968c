//! Whether a volume can become an image in another class, with Harvester's texts. Pure.

use serde_json::Value;

/// The objects that decide.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExportInput<'a> {
    pub(super) claim: &'a Value,
    /// The classes of the claim and of the image.
    pub(super) source: &'a Value,
    pub(super) target: &'a Value,
    /// The pods of the claim's namespace.
    pub(super) pods: &'a [Value],
}

/// Why a volume is not exported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExportError {
    #[error("PVC {claim} is used by Pods [{pods}], cannot export volume when it's running")]
    InUse { claim: String, pods: String },
    #[error("CDI volume cannot be exported to a Longhorn v1 StorageClass")]
    ToLonghorn,
}

impl ExportInput<'_> {
    /// Snapshots of Longhorn's first engine are exported under a guest; other volumes are read.
    pub(super) fn check(&self) -> Result<(), ExportError> {
        if is_first_engine(self.source) && is_first_engine(self.target) {
            return Ok(());
        }
        let name = self.claim["metadata"]["name"].as_str().unwrap_or_default();
        let users: Vec<String> =
            self.pods.iter().filter(|pod| uses(pod, name)).map(id_of).collect();
        if !users.is_empty() {
            let pods = users.join(" ");
            return Err(ExportError::InUse { claim: name.to_owned(), pods });
        }
        let is_same = self.source["metadata"]["name"] == self.target["metadata"]["name"];
        if !is_same && !is_first_engine(self.source) && is_first_engine(self.target) {
            return Err(ExportError::ToLonghorn);
        }
        Ok(())
    }
}

fn is_first_engine(class: &Value) -> bool {
    class["provisioner"] == hci::DRIVER && class["parameters"]["dataEngine"] != "v2"
}

fn id_of(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

fn uses(pod: &Value, claim: &str) -> bool {
    let mut volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    pod["status"]["phase"] == "Running"
        && volumes.any(|own| own["persistentVolumeClaim"]["claimName"] == claim)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volumes_of_other_drivers_are_exported_while_no_guest_uses_them() {
        let class = |name: &str, driver: &str, engine: &str| {
            json!({"metadata": {"name": name}, "provisioner": driver,
                "parameters": {"dataEngine": engine}})
        };
        let longhorn = class("longhorn", hci::DRIVER, "v1");
        let second = class("second", hci::DRIVER, "v2");
        let (local, other) = (class("local", "l", ""), class("other", "l", ""));
        let claim = json!({"metadata": {"namespace": "n", "name": "data"}});
        let volume = json!([{"persistentVolumeClaim": {"claimName": "data"}}]);
        let pod = json!({"metadata": {"namespace": "n", "name": "virt-launcher-a"},
            "spec": {"volumes": volume}, "status": {"phase": "Running"}});
        let busy =
            "PVC data is used by Pods [n/virt-launcher-a], cannot export volume when it's running";
        let foreign = "CDI volume cannot be exported to a Longhorn v1 StorageClass";
        for (source, target, is_used, text) in [
            (&longhorn, &longhorn, true, ""),
            (&longhorn, &local, false, ""),
            (&longhorn, &local, true, busy),
            (&local, &local, false, ""),
            (&local, &local, true, busy),
            (&local, &other, false, ""),
            (&local, &longhorn, false, foreign),
            (&second, &longhorn, false, foreign),
            (&local, &second, false, ""),
        ] {
            let pods = if is_used { std::slice::from_ref(&pod) } else { &[] };
            let input = ExportInput { claim: &claim, source, target, pods };
            let found = input.check().err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(found, text, "{source} {target}");
        }
    }
}
