//! Waiting for volumes, with progress messages.

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;
use tokio::time::Instant;

use super::{LONGHORN, text};
use crate::command::link::ClusterClient;

const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// After this long, the user is shown what the command waits for.
pub(super) const NOTICE_DELAY: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(300);

/// Reads an object until `done` has an answer; it is given nothing for an object that is gone.
pub(super) async fn until<T>(
    link: &ClusterClient,
    path: &str,
    what: &str,
    mut done: impl FnMut(Option<&Value>) -> Result<Option<T>>,
) -> Result<T> {
    let began = Instant::now();
    let mut is_notified = !std::io::stderr().is_terminal();
    loop {
        let found = link.find(path).await?;
        if let Some(answer) = done(found.as_ref())? {
            return Ok(answer);
        }
        if began.elapsed() > TIMEOUT {
            bail!(
                "timed out after {} s waiting for {what}; it continues in the cluster",
                TIMEOUT.as_secs()
            );
        }
        if !is_notified && began.elapsed() > NOTICE_DELAY {
            is_notified = true;
            eprintln!("waiting for {what} ...");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Whether the replicas of a volume have disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplicaPlacement {
    Scheduled,
    /// No disk fits, for the reason of the controller.
    Refused {
        why: String,
    },
}

/// Nothing while the placement of the replicas is not decided.
pub(super) fn placement(volume: Option<&Value>) -> Option<ReplicaPlacement> {
    let conditions = volume?.pointer("/status/conditions")?.as_array()?;
    let scheduled = conditions.iter().find(|own| text(own, "/type") == "Scheduled")?;
    match text(scheduled, "/status") {
        "True" => Some(ReplicaPlacement::Scheduled),
        "False" => Some(ReplicaPlacement::Refused { why: text(scheduled, "/message").to_owned() }),
        _ => None,
    }
}

/// Whether any disk has data of the volume.
pub(super) async fn has_replica(link: &ClusterClient, volume: &str) -> Result<bool> {
    let replicas = link.items(&format!("{LONGHORN}/replicas")).await?;
    Ok(replicas.iter().any(|own| text(own, "/spec/volumeName") == volume))
}

/// Why a claim has no volume, or one whose data fits on no disk.
pub(in crate::command) async fn obstacle(
    link: &ClusterClient,
    claim: &Value,
) -> Result<Option<String>> {
    let bound = text(claim, "/spec/volumeName");
    if bound.is_empty() {
        return complaint(link, claim).await;
    }
    // A user who may not read Longhorn's objects is not shown where the data goes.
    let volume = link.find(&format!("{LONGHORN}/volumes/{bound}")).await.ok().flatten();
    match placement(volume.as_ref()) {
        Some(ReplicaPlacement::Refused { why })
            if !has_replica(link, bound).await.unwrap_or(true) =>
        {
            Ok(Some(why))
        }
        _ => Ok(None),
    }
}

/// Why a claim gets no volume, according to its events.
pub(super) async fn complaint(link: &ClusterClient, claim: &Value) -> Result<Option<String>> {
    let events = link.items(&link.core("events")).await?;
    let about = |event: &&Value| {
        text(event, "/involvedObject/uid") == text(claim, "/metadata/uid")
            && text(event, "/reason") == "ProvisioningFailed"
    };
    Ok(events.iter().rfind(about).map(|event| text(event, "/message").to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_volume_is_placed_when_its_replicas_have_disks() {
        let volume = |status: &str| {
            json!({"status": {"conditions": [
                {"type": "Scheduled", "status": status, "message": "no disk has 900 TiB"}]}})
        };
        assert_eq!(placement(Some(&volume("True"))), Some(ReplicaPlacement::Scheduled));
        let refused = Some(ReplicaPlacement::Refused { why: "no disk has 900 TiB".to_owned() });
        assert_eq!(placement(Some(&volume("False"))), refused);
        assert_eq!(placement(Some(&volume("Unknown"))), None);
        assert_eq!(placement(Some(&json!({}))), None);
        assert_eq!(placement(None), None);
    }
}
