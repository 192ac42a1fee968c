//! `sheaf volume list`: a line for each volume.

use anyhow::Result;
use serde_json::Value;

use super::{LONGHORN, human, text, users};
use crate::command::link::ClusterClient;
use crate::command::table::{align, size};

pub(super) async fn run(link: &ClusterClient, everywhere: bool) -> Result<()> {
    let resource = "persistentvolumeclaims";
    let claims = if everywhere { format!("/api/v1/{resource}") } else { link.core(resource) };
    let claims = link.items(&claims).await?;
    if claims.is_empty() {
        let place =
            if everywhere { String::new() } else { format!(" in namespace {}", link.namespace) };
        eprintln!("No volumes{place}. Create one with: sheaf volume create NAME --size 10Gi");
        return Ok(());
    }
    let volumes = link.items(&format!("{LONGHORN}/volumes")).await?;
    let machines = link.items("/apis/kubevirt.io/v1/virtualmachines").await?;
    crate::command::print(&table(&claims, &volumes, &machines, everywhere))
}

fn table(claims: &[Value], volumes: &[Value], machines: &[Value], everywhere: bool) -> String {
    let head = ["NAMESPACE", "NAME", "STATUS", "SIZE", "USED", "CLASS", "STATE", "NODE", "USED BY"];
    let skip = usize::from(!everywhere);
    let mut rows = vec![head.iter().skip(skip).map(|cell| (*cell).to_owned()).collect()];
    for claim in claims {
        let volume = volumes
            .iter()
            .find(|own| text(own, "/metadata/name") == text(claim, "/spec/volumeName"))
            .unwrap_or(&Value::Null);
        let of_claim = |pointer: &str| text(claim, pointer).to_owned();
        let capacity = match text(claim, "/status/capacity/storage") {
            "" => text(claim, "/spec/resources/requests/storage"),
            capacity => capacity,
        };
        let used = volume.pointer("/status/actualSize").and_then(Value::as_i64);
        let cells = [
            of_claim("/metadata/namespace"),
            of_claim("/metadata/name"),
            of_claim("/status/phase"),
            human(capacity),
            used.map(size).unwrap_or_default(),
            of_claim("/spec/storageClassName"),
            state(volume),
            text(volume, "/status/currentNodeID").to_owned(),
            users(machines, claim).join(", "),
        ];
        rows.push(cells.into_iter().skip(skip).collect());
    }
    align(&rows)
}

/// `attached, degraded`; the health of a detached volume is unknown, unless it is lost.
pub(super) fn state(volume: &Value) -> String {
    let state = text(volume, "/status/state");
    match text(volume, "/status/robustness") {
        "" | "unknown" => state.to_owned(),
        robustness => format!("{state}, {robustness}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_has_size_health_node_and_users() {
        let claim = |name: &str, volume: &str, phase: &str| {
            json!({"metadata": {"name": name, "namespace": "default"},
                "spec": {"storageClassName": "longhorn", "volumeName": volume,
                    "resources": {"requests": {"storage": "10Gi"}}},
                "status": {"phase": phase}})
        };
        let volume = json!({"metadata": {"name": "pvc-1"}, "status": {"state": "attached",
            "robustness": "healthy", "currentNodeID": "n1", "actualSize": 3_i64 << 29}});
        let machine = json!({"metadata": {"name": "web", "namespace": "default"},
            "spec": {"template": {"spec": {"volumes": [
                {"persistentVolumeClaim": {"claimName": "data"}}]}}}});
        let claims = [claim("data", "pvc-1", "Bound"), claim("new", "", "Pending")];
        let expected = "\
NAME   STATUS    SIZE     USED      CLASS      STATE               NODE   USED BY
data   Bound     10 GiB   1.5 GiB   longhorn   attached, healthy   n1     web
new    Pending   10 GiB   -         longhorn   -                   -      -
";
        assert_eq!(table(&claims, &[volume], &[machine], false), expected);
    }
}
