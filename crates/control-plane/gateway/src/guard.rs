//! Whether an instance is in a state in which a request makes sense. Pure; codes and texts
//! are those that virtctl and its users know.

use serde_json::Value;

use virt::{condition, lifecycle};

use crate::answer::GatewayError;
use crate::route::InstanceAct;

const INSTANCE: &str = "virtualmachineinstance";
const NOT_RUNNING: &str = "VMI is not running";
const NO_AGENT: &str = "VMI does not have guest agent connected";

/// Checks that a running instance can do an action or answer a query. `machine` is the one that
/// owns it, if any.
pub(crate) fn act(
    vmi: &Value,
    machine: Option<&Value>,
    act: InstanceAct,
) -> Result<(), GatewayError> {
    match act {
        InstanceAct::Pause => lifecycle::check_pause(vmi)?,
        InstanceAct::Unpause => lifecycle::check_unpause(machine, vmi)?,
        InstanceAct::Freeze => lifecycle::check_freeze(vmi)?,
        InstanceAct::Unfreeze => lifecycle::check_unfreeze(vmi)?,
        InstanceAct::Reset => lifecycle::check_reset(vmi)?,
        InstanceAct::SoftReboot => lifecycle::check_soft_reboot(vmi)?,
        InstanceAct::Screenshot => display(vmi)?,
        InstanceAct::GuestOsInfo | InstanceAct::UserList | InstanceAct::FilesystemList => {
            reported_by_agent(vmi)?;
        }
        // Volumes are judged with the patch that adds or removes them; a log is there anyway.
        InstanceAct::AddVolume | InstanceAct::RemoveVolume | InstanceAct::Log => {}
    }
    Ok(())
}

pub(crate) fn console(vmi: &Value) -> Result<(), GatewayError> {
    if devices(vmi)["autoattachSerialConsole"] == false {
        return Err(GatewayError::bad_request("No serial consoles are present."));
    }
    if phase(vmi) == "Failed" {
        return Err(GatewayError::conflict(INSTANCE, name(vmi), "VMI is in failed status"));
    }
    // virtctl tries again after this code, and only after this.
    if is_running(vmi) { Ok(()) } else { Err(GatewayError::bad_request(NOT_RUNNING)) }
}

pub(crate) fn display(vmi: &Value) -> Result<(), GatewayError> {
    if devices(vmi)["autoattachGraphicsDevice"] == false {
        return Err(GatewayError::bad_request("No graphics devices are present."));
    }
    if is_running(vmi) { Ok(()) } else { Err(GatewayError::bad_request(NOT_RUNNING)) }
}

pub(crate) fn usb_redirection(vmi: &Value) -> Result<(), GatewayError> {
    if devices(vmi)["clientPassthrough"].is_null() {
        let why = "Not configured with USB Redirection";
        return Err(GatewayError::conflict(INSTANCE, name(vmi), why));
    }
    if is_running(vmi) { Ok(()) } else { Err(GatewayError::bad_request(NOT_RUNNING)) }
}

pub(crate) fn port_forward(vmi: &Value) -> Result<(), GatewayError> {
    running_or(vmi, NOT_RUNNING)?;
    if condition::is_true(vmi, "Paused") {
        return Err(GatewayError::conflict(INSTANCE, name(vmi), "VMI is paused"));
    }
    if vmi["status"]["interfaces"].as_array().is_none_or(Vec::is_empty) {
        return Err(GatewayError::bad_request("no network interfaces are present"));
    }
    Ok(())
}

fn reported_by_agent(vmi: &Value) -> Result<(), GatewayError> {
    // Upstream answers these two with 500, and scripts read the text.
    if !is_running(vmi) {
        return Err(GatewayError::internal(NOT_RUNNING));
    }
    if condition::is_true(vmi, "AgentConnected") {
        Ok(())
    } else {
        Err(GatewayError::internal(NO_AGENT))
    }
}

fn running_or(vmi: &Value, why: &str) -> Result<(), GatewayError> {
    if is_running(vmi) { Ok(()) } else { Err(GatewayError::conflict(INSTANCE, name(vmi), why)) }
}

fn is_running(vmi: &Value) -> bool {
    phase(vmi) == "Running"
}

fn phase(vmi: &Value) -> &str {
    vmi["status"]["phase"].as_str().unwrap_or("")
}

fn name(vmi: &Value) -> &str {
    vmi["metadata"]["name"].as_str().unwrap_or("")
}

fn devices(vmi: &Value) -> &Value {
    &vmi["spec"]["domain"]["devices"]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi(phase: &str, conditions: &[&str], spec: Value) -> Value {
        let conditions: Vec<Value> =
            conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        json!({
            "metadata": {"name": "vm"}, "spec": spec,
            "status": {"phase": phase, "conditions": conditions, "interfaces": [{}]},
        })
    }

    #[test]
    fn requests_fit_the_state_of_the_instance() {
        use InstanceAct::{FilesystemList, Pause, Reset, SoftReboot, Unpause};
        let http = json!({"livenessProbe": {"httpGet": {}}});
        let no_acpi = json!({"domain": {"features": {"acpi": {"enabled": false}}}});
        let plain = || json!({});
        for (instance, asked, expected) in [
            (vmi("Running", &[], plain()), Pause, 0),
            (vmi("Scheduled", &[], plain()), Pause, 409),
            (vmi("Running", &["Paused"], plain()), Pause, 409),
            (vmi("Running", &[], http), Pause, 403),
            (vmi("Running", &[], plain()), Unpause, 409),
            (vmi("Running", &["Paused"], plain()), Unpause, 0),
            (vmi("Succeeded", &[], plain()), Reset, 409),
            (vmi("Running", &[], no_acpi.clone()), SoftReboot, 409),
            (vmi("Running", &["AgentConnected"], no_acpi), SoftReboot, 0),
            (vmi("Running", &[], plain()), FilesystemList, 500),
            (vmi("Running", &["AgentConnected"], plain()), FilesystemList, 0),
        ] {
            let code = act(&instance, None, asked).map_or_else(|f| f.code.as_u16(), |()| 0);
            assert_eq!(code, expected, "{asked:?} on {instance}");
        }
    }

    #[test]
    fn a_console_that_may_come_is_a_bad_request_and_one_that_cannot_a_conflict() {
        let code = |vmi: &Value| console(vmi).map_or_else(|f| f.code.as_u16(), |()| 0);
        assert_eq!(code(&vmi("Scheduling", &[], json!({}))), 400);
        assert_eq!(code(&vmi("Failed", &[], json!({}))), 409);
        assert_eq!(code(&vmi("Running", &[], json!({}))), 0);
        let none = json!({"domain": {"devices": {"autoattachSerialConsole": false}}});
        assert_eq!(
            console(&vmi("Running", &[], none)).unwrap_err().message,
            "No serial consoles are present."
        );
    }

    #[test]
    fn a_snapshot_keeps_its_machine_paused() {
        let machine = json!({"status": {"snapshotInProgress": "snap"}});
        let paused = vmi("Running", &["Paused"], json!({}));
        let failure = act(&paused, Some(&machine), InstanceAct::Unpause).unwrap_err();
        assert!(failure.message.contains("VM snapshot is in progress"));
    }
}
