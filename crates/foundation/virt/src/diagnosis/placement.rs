//! Findings about nodes: why none takes the instance, in terms of what to change.

use super::Findings;
use super::object::Node;
use crate::api::atom::Quantity;
use crate::api::v1::{VirtualMachineInstance, VirtualMachineInstanceCondition};
use crate::reason::{INSUFFICIENT, Unfit};

/// Explains `PodScheduled=False`: the scheduler's message, node by node.
pub(super) fn examine(
    findings: &mut Findings<'_>,
    instance: &VirtualMachineInstance,
    condition: &VirtualMachineInstanceCondition,
) {
    let message = condition.message.clone().unwrap_or_default();
    if message.contains("PVC ") && message.contains("does not exist") {
        // The volume itself is reported by `storage`.
        return;
    }
    let causes = causes(&message);
    if causes.is_empty() {
        let facts = findings.facts;
        let fix = facts.kubectl("describe", "vmi", &facts.name);
        findings.error("No node takes the machine.", message, fix);
        return;
    }
    for cause in causes {
        explain(findings, instance, cause, &message);
    }
}

/// Why one or several nodes are not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    Unfit(Unfit),
    /// Too little of a resource.
    Insufficient(String),
    Unknown(String),
}

/// The causes in `0/3 nodes are available: 1 Insufficient memory, 2 node(s) were unschedulable.`
fn causes(message: &str) -> Vec<Cause> {
    if message.trim_end_matches('.') == Unfit::NoNodes.as_str() {
        return vec![Cause::Unfit(Unfit::NoNodes)];
    }
    let Some((_, list)) = message.split_once("nodes are available: ") else { return Vec::new() };
    let one = |item: &str| {
        let text = item.trim_start_matches(|c: char| c.is_ascii_digit()).trim();
        match (Unfit::parse(text), text.strip_prefix(INSUFFICIENT)) {
            (Some(unfit), _) => Cause::Unfit(unfit),
            (None, Some(resource)) => Cause::Insufficient(resource.to_owned()),
            (None, None) => Cause::Unknown(text.to_owned()),
        }
    };
    list.trim_end_matches('.').split(", ").map(one).collect()
}

fn explain(
    findings: &mut Findings<'_>,
    instance: &VirtualMachineInstance,
    cause: Cause,
    message: &str,
) {
    let facts = findings.facts;
    let edit = facts.kubectl("edit", "vm", &facts.name);
    let names = |fits: fn(&Node) -> bool| {
        let names: Vec<&str> =
            facts.nodes.iter().filter(|node| fits(node)).map(Node::name).collect();
        names.join(" ")
    };
    let unfit = match cause {
        Cause::Unfit(unfit) => unfit,
        Cause::Insufficient(resource) => {
            return insufficient(findings, instance, &resource, message);
        }
        Cause::Unknown(text) => {
            let fix = facts.kubectl("describe", "vmi", &facts.name);
            return findings.error(format!("No node takes the machine: {text}."), message, fix);
        }
    };
    match unfit {
        Unfit::Cordoned => {
            let cordoned = names(|node| node.spec.unschedulable == Some(true));
            let shown = if cordoned.is_empty() { "NODE".to_owned() } else { cordoned };
            findings.error(
                format!("The machine cannot be placed on {shown}: the node is cordoned."),
                message,
                format!("kubectl uncordon {shown}"),
            );
        }
        Unfit::Tainted => {
            let refusing = names(|node| !node.is_ready() || !node.spec.taints.is_empty());
            findings.error(
                "A node is not ready, or has a taint that the machine does not tolerate.",
                message,
                format!("kubectl describe nodes {refusing}").trim_end().to_owned(),
            );
        }
        Unfit::NotSelected => {
            let selector = &instance.spec.node_selector;
            let labels: Vec<String> =
                selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let what = match labels.is_empty() {
                true => "No node matches the node affinity or the architecture of the machine."
                    .to_owned(),
                false => format!("No node has the labels {} of nodeSelector.", labels.join(", ")),
            };
            findings.error(what, message, format!("kubectl get nodes --show-labels; {edit}"));
        }
        Unfit::Full => findings.error(
            "A node runs as many machines as it may.",
            message,
            "kubectl get vmi -A -o wide",
        ),
        Unfit::VolumeElsewhere => findings.error(
            "A volume of the machine is on another node than the one that would take it.",
            message,
            format!("kubectl get pvc,pv -o wide{}", facts.place()),
        ),
        Unfit::Spread | Unfit::Affinity | Unfit::AntiAffinity => findings.error(
            "The affinity or spread rules of the machine exclude every node.",
            message,
            edit,
        ),
        Unfit::Repelled => findings.error(
            "The anti-affinity of another machine keeps this one away from a node.",
            message,
            "kubectl get vmi -A -o wide",
        ),
        Unfit::NoNodes => no_nodes(findings),
    }
}

fn insufficient(
    findings: &mut Findings<'_>,
    instance: &VirtualMachineInstance,
    resource: &str,
    message: &str,
) {
    let facts = findings.facts;
    let totals: Vec<(&str, &Quantity)> = facts
        .nodes
        .iter()
        .filter_map(|node| Some((node.name(), node.status.allocatable.get(resource)?)))
        .collect();
    let asked = asked(instance, resource);
    let amount = asked.and_then(Quantity::amount);
    let is_too_small = |(_, total): &(&str, &Quantity)| total.amount() < amount;
    let what = if totals.is_empty() && !facts.nodes.is_empty() {
        format!("No node offers {resource}.")
    } else if let Some(asked) =
        asked.filter(|_| !totals.is_empty() && totals.iter().all(is_too_small))
    {
        format!("No node is large enough: the machine requests {asked} of {resource}.")
    } else {
        format!("No node has enough free {resource}: stop another machine, or request less.")
    };
    let totals: Vec<String> =
        totals.iter().map(|(name, total)| format!("{name} has {total} in total")).collect();
    let why = match totals.is_empty() {
        true => message.to_owned(),
        false => format!("{message} {}.", totals.join(", ")),
    };
    findings.error(what, why, facts.kubectl("edit", "vm", &facts.name));
}

/// The request of the instance for a resource, without the overhead of QEMU.
fn asked<'a>(instance: &'a VirtualMachineInstance, resource: &str) -> Option<&'a Quantity> {
    let domain = &instance.spec.domain;
    let requests = domain.resources.as_ref().and_then(|own| own.requests.get(resource));
    let guest = || domain.memory.as_ref().and_then(|own| own.guest.as_ref());
    requests.or_else(|| if resource == "memory" { guest() } else { None })
}

fn no_nodes(findings: &mut Findings<'_>) {
    findings.error(
        "The cluster has no node.",
        "No agent has registered one; a server that was started with --no-agent has none.",
        "kubectl get nodes",
    );
}

/// Explains that no node of the cluster is ready.
pub(super) fn examine_nodes(findings: &mut Findings<'_>) {
    let nodes = &findings.facts.nodes;
    if nodes.is_empty() {
        return no_nodes(findings);
    }
    if nodes.iter().any(Node::is_ready) {
        return;
    }
    let why = nodes.iter().filter_map(|node| {
        let message = node.ready()?.message.as_deref()?;
        Some(format!("{}: {message}", node.name()))
    });
    let why: Vec<String> = why.collect();
    findings.error("No node is ready.", why.join("; "), "kubectl describe nodes");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_the_scheduler_is_taken_apart() {
        for (message, expected) in [
            ("no nodes available to schedule pods", vec![Cause::Unfit(Unfit::NoNodes)]),
            (
                "0/3 nodes are available: 1 Insufficient memory, 2 node(s) were unschedulable.",
                vec![Cause::Insufficient("memory".into()), Cause::Unfit(Unfit::Cordoned)],
            ),
            (
                "0/1 nodes are available: 1 something new.",
                vec![Cause::Unknown("something new".into())],
            ),
            ("anything else", vec![]),
        ] {
            assert_eq!(causes(message), expected, "{message}");
        }
        for unfit in Unfit::ALL.iter().filter(|unfit| **unfit != Unfit::NoNodes) {
            let message = format!("0/1 nodes are available: 1 {}.", unfit.as_str());
            assert_eq!(causes(&message), [Cause::Unfit(*unfit)]);
        }
    }
}
