//! Admission of the probes of a guest.

use super::Causes;
use super::spec::CheckedSpec;
use crate::v1::Probe;

pub(super) fn check(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let probes = [
        (judged.field("readinessProbe"), &judged.spec.readiness_probe),
        (judged.field("livenessProbe"), &judged.spec.liveness_probe),
    ];
    for (field, probe) in &probes {
        if let Some(probe) = probe {
            check_kind(field, probe, causes);
        }
    }
    if judged.spec.networks.iter().any(|network| network.pod.is_some()) {
        return;
    }
    for (field, probe) in probes {
        let Some(probe) = probe else { continue };
        let reaching =
            [("httpGet", probe.http_get.is_some()), ("tcpSocket", probe.tcp_socket.is_some())];
        for (kind, _) in reaching.into_iter().filter(|(_, used)| *used) {
            let field = format!("{field}.{kind}");
            let message = format!("{field} is only allowed if the Pod Network is attached");
            causes.invalid(field, message);
        }
    }
}

fn check_kind(field: &str, probe: &Probe, causes: &mut Causes) {
    let kinds = [
        probe.http_get.is_some(),
        probe.tcp_socket.is_some(),
        probe.exec.is_some(),
        probe.guest_agent_ping.is_some(),
    ];
    match kinds.into_iter().filter(|used| *used).count() {
        0 => causes.required(
            field,
            format!(
                "either {field}.tcpSocket, {field}.exec or {field}.httpGet must be set if a {field} is specified"
            ),
        ),
        1 => {}
        _ => causes.invalid(field, format!("{field} must have exactly one probe type set")),
    }
}
