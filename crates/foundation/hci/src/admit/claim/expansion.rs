//! Claims that grow while a guest uses them. The feature gate `ExpandDisks`, which upstream asks
//! for, cannot be switched off here.

use serde_json::Value;

use crate::admit::{AdmissionResult, DRIVER, HARVESTER, Refusal, Write, backup, text};
use crate::cluster_setting::effective;

const SETTING: &str = "csi-online-expand-validation";
/// The drivers of this program, whose volumes grow at any time.
const OWN_DRIVERS: &str = "sheaf.io/";

/// Whether the claim can have another size now.
pub(in crate::admit) fn validate(write: &Write<'_>, claim: &Value) -> AdmissionResult {
    let name = text(claim, "/metadata/name");
    let id = format!("{}/{name}", write.namespace);
    let refuse = |message: String| Err(Refusal::invalid("", format!("PVC_EXPAND: {message}")));
    let machines = write.objects.list("kubevirt.io", "virtualmachines", write.namespace);
    let users: Vec<&Value> = machines.iter().filter(|own| super::uses(own, name)).collect();
    if users.iter().all(|own| text(own, "/status/printableStatus") == "Stopped") {
        return Ok(());
    }
    let provisioner = backup::provisioner(write, claim);
    let has_files = text(claim, "/spec/volumeMode") == "Filesystem";
    // Disks in files of our drivers grow under a guest as others do.
    let is_foreign = !provisioner.starts_with(OWN_DRIVERS) && provisioner != DRIVER;
    if is_foreign && has_files && users.iter().any(|own| is_hotplugged(own, name)) {
        return refuse(format!(
            "Expansion of hotplugged PVC '{id}' in filesystem mode is not supported"
        ));
    }
    if provisioner.starts_with(OWN_DRIVERS) || grows_online(write, &provisioner) {
        return Ok(());
    }
    refuse(format!("pvc {id} is not online expandable with its provider"))
}

fn is_hotplugged(machine: &Value, claim: &str) -> bool {
    let volumes = machine.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
    volumes.into_iter().flatten().any(|volume| {
        let own = &volume["persistentVolumeClaim"];
        own["claimName"] == claim && own["hotpluggable"] == true
    })
}

/// Whether the setting says so of the driver, by its value or else by its default.
fn grows_online(write: &Write<'_>, provisioner: &str) -> bool {
    let setting = write.objects.get(HARVESTER, "settings", "", SETTING).unwrap_or_default();
    let default = effective(SETTING, None);
    let values = [text(&setting, "/value"), text(&setting, "/default"), &default];
    let mut known = values.into_iter().filter_map(|value| {
        let drivers: Value = serde_json::from_str(value).unwrap_or_default();
        drivers[provisioner].as_bool()
    });
    known.next() == Some(true)
}
