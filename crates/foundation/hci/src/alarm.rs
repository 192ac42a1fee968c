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
        /// What was decided about it.
        spec: AlarmSpec,
        /// What is wrong.
        status: Option<AlarmStatus>,
    }

    AlarmSpec {
        /// Somebody takes care of it.
        acknowledged: Option<bool>,
        /// Who acknowledged it. The server writes it.
        acknowledged_by: Option<String>,
        /// A note for others.
        comment: Option<String> = {"maxLength": 1000},
        /// Until then it is not shown among the alarms that need somebody.
        silenced_until: Option<String> = {"format": "date-time"},
    }

    AlarmStatus {
        /// The rule that found it.
        rule: String,
        /// How much it matters.
        severity: String = {"enum": ["critical", "warning"]},
        /// The object that it concerns.
        object: AlarmObject,
        /// What is wrong, as one sentence.
        summary: String,
        /// The cause, as the component that noticed it reported it.
        reason: Option<String>,
        /// A command that mends it, or that shows what is needed for that.
        remedy: Option<String>,
        /// When it was noticed.
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
