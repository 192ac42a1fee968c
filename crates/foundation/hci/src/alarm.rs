//! Alarms: current faults in the cluster that need an administrator, one object for each. They are
//! created and deleted by the controllers; users acknowledge and silence them. Types and names
//! only, pure.

use crd::atom::ObjectMeta;
use crd::record::record;

pub const GROUP: &str = "sheaf.io";
pub const PLURAL: &str = "alarms";

record! {
    Alarm {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Decisions of operators about the alarm: acknowledgement, comment and silence.
        spec: AlarmSpec,
        /// Observed problem, written by the controller.
        status: Option<AlarmStatus>,
    }

    AlarmSpec {
        /// Whether an operator has taken charge of the problem.
        acknowledged: Option<bool>,
        /// Name of the user who acknowledged the alarm, written by the API server.
        acknowledged_by: Option<String>,
        /// Comment for other operators.
        comment: Option<String> = {"maxLength": 1000},
        /// Time until which the alarm is hidden from the list of alarms that need attention.
        silenced_until: Option<String> = {"format": "date-time"},
    }

    AlarmStatus {
        /// Name of the alarm rule that detected the problem.
        rule: String,
        /// Severity of the problem: critical or warning.
        severity: String = {"enum": ["critical", "warning"]},
        /// Object that has the problem.
        object: AlarmObject,
        /// Description of the problem in one sentence.
        summary: String,
        /// Cause of the problem, as reported by the component that detected it.
        reason: Option<String>,
        /// Command that fixes the problem, or that shows what is needed to fix it.
        remedy: Option<String>,
        /// When the problem was detected.
        since: String = {"format": "date-time"},
    }

    AlarmObject {
        /// Group and version of the object.
        api_version: String,
        /// Kind of the object.
        kind: String,
        /// Namespace of the object.
        namespace: Option<String>,
        /// Name of the object.
        name: String,
    }
}
