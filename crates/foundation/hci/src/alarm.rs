//! Alarms: current faults in the cluster that need an administrator, one object for each. They are
//! created and deleted by the controllers; users acknowledge and silence them. AlarmReceivers are
//! where they are sent to. Types and names only, pure.

use crd::atom::ObjectMeta;
use crd::record::record;
use jiff::Timestamp;

use crate::harvester::Condition;

pub const GROUP: &str = "sheaf.io";
pub const PLURAL: &str = "alarms";
/// Secrets with addresses of receivers are here, where only administrators write.
pub const RECEIVER_SECRETS: &str = "kube-system";
pub const RECEIVER_PLURAL: &str = "alarmreceivers";
/// The annotation that asks for a test message; every new value sends one.
pub const TEST_ANNOTATION: &str = "sheaf.io/alarm-test";
/// The condition of a receiver: whether the last message was delivered.
pub const DELIVERED: &str = "Delivered";

record! {
    /// Problem that needs an administrator.
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

    /// Service that alarms are sent to.
    AlarmReceiver {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Where alarms are sent to, and which.
        spec: AlarmReceiverSpec,
        /// Observed deliveries, written by the controller.
        status: Option<AlarmReceiverStatus>,
    }

    AlarmReceiverSpec: {"x-kubernetes-validations": [{"rule": "has(self.url) != has(self.urlSecret)", "message": "exactly one of url and urlSecret is required"}]} {
        /// Address that messages are posted to.
        url: Option<String> = {"pattern": "^https?://[^\\s]+$", "maxLength": 2000},
        /// Key of a Secret of kube-system that has the address, for addresses that contain a token.
        url_secret: Option<AlarmReceiverSecret>,
        /// Format of the messages: alertmanager is the webhook of Prometheus' Alertmanager, slack
        /// a JSON object with a text (Slack, Mattermost, Rocket.Chat), ntfy plain text.
        format: Option<String> = {"enum": ["alertmanager", "slack", "ntfy"], "default": "alertmanager"},
        /// Lowest severity that is sent.
        minimum_severity: Option<String> = {"enum": ["warning", "critical"], "default": "warning"},
        /// Whether the end of an alarm is sent as well.
        send_resolved: Option<bool> = {"default": true},
        /// Whether nothing is sent at present.
        paused: Option<bool>,
    }

    AlarmReceiverSecret {
        /// Name of the Secret, in the namespace kube-system.
        name: String = {"minLength": 1},
        /// Key in the data of the Secret.
        key: Option<String> = {"default": "url"},
    }

    AlarmReceiverStatus {
        /// Alarms that were sent and have not ended.
        announced: Vec<AnnouncedAlarm>,
        /// When a message was last delivered.
        last_delivery: Option<String> = {"format": "date-time"},
        /// The last test message that was requested.
        test: Option<AlarmReceiverTest>,
        /// Conditions of the receiver, each with its reason.
        conditions: Vec<Condition>,
    }

    AlarmReceiverTest {
        /// Value of the annotation that requested the message.
        request: String,
        /// Reason why the message was not delivered; absent if it was.
        error: Option<String>,
    }

    AnnouncedAlarm {
        /// Name of the alarm.
        name: String,
        /// UID of the alarm.
        uid: String,
        /// Name of the alarm rule.
        rule: String,
        /// Severity with which the alarm was sent.
        severity: String,
        /// Object that has the problem.
        object: AlarmObject,
        /// Description of the problem in one sentence.
        summary: String,
        /// Cause of the problem.
        reason: Option<String>,
        /// Command that fixes the problem.
        remedy: Option<String>,
        /// When the problem was detected.
        since: String,
    }
}

/// Whether operators have decided about an alarm, and until when a silence lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Open,
    Acknowledged,
    SilencedUntil(Timestamp),
}

impl Alarm {
    pub fn decision(&self, now: Timestamp) -> Decision {
        if self.spec.acknowledged == Some(true) {
            return Decision::Acknowledged;
        }
        let until = self.spec.silenced_until.as_deref().and_then(|time| time.parse().ok());
        until
            .filter(|until: &Timestamp| *until > now)
            .map_or(Decision::Open, Decision::SilencedUntil)
    }
}
