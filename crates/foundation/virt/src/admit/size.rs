//! Admission of instance types and preferences.

use super::{Causes, Denial, Write};
use crate::instancetype::{CpuSpread, TOPOLOGIES, spread};
use crate::state::text;

pub(super) fn validate_instancetype(write: &Write<'_>) -> Result<Vec<String>, Denial> {
    let spec = &write.object["spec"];
    let mut causes = Causes::default();
    let field = "spec.memory.overcommitPercent";
    let percent = spec["memory"]["overcommitPercent"].as_i64().unwrap_or_default();
    if !(0..=100).contains(&percent) {
        let message = format!("{field} '{percent}': must be in range between 0 and 100.");
        causes.invalid(field, message);
    }
    if percent != 0 && spec["memory"]["hugepages"].is_object() {
        let message =
            format!("{field} and spec.memory.hugepages should not be requested together.");
        causes.invalid(field, message);
    }
    causes.finish()?;
    let secured = spec["launchSecurity"].is_object();
    let warning = "launchSecurity is deprecated and will be removed in a future release. Use preference instead.";
    Ok(if secured { vec![warning.to_owned()] } else { Vec::new() })
}

pub(super) fn validate_preference(write: &Write<'_>) -> Result<Vec<String>, Denial> {
    let spec = &write.object["spec"];
    let mut causes = Causes::default();
    let topology = text(spec, "/cpu/preferredCPUTopology");
    let known = TOPOLOGIES.iter().find(|(name, old)| *name == topology || *old == topology);
    if !topology.is_empty() && known.is_none() {
        causes.invalid(
            "spec.cpu.preferredCPUTopology",
            format!("unknown preferredCPUTopology {topology}"),
        );
    }
    if matches!(topology, "spread" | "preferSpread") {
        match spread(spec) {
            (_, Err(across)) => causes.invalid(
                "spec.cpu.spreadOptions.across",
                format!("across {across} is not supported"),
            ),
            (ratio, Ok(CpuSpread::CoresThreads)) if ratio != 2 => causes.invalid(
                "spec.cpu.spreadOptions.ratio",
                "only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores and threads",
            ),
            _ => {}
        }
    }
    causes.finish()?;
    let outdated = known.filter(|(_, old)| *old == topology);
    Ok(outdated
        .map(|(name, old)| {
            format!("PreferredCPUTopology {old} is deprecated for removal in a future release, please use {name} instead")
        })
        .into_iter()
        .collect())
}
