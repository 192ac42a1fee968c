//! Parts of Harvester's support bundles that no cluster of Sheaf has, and that tools for bundles look
//! for: the logs of Rancher's Fleet, and the plans by which Rancher provisions machines. Each says in
//! its text that it stands for nothing. Pure.

use serde_json::{Value, json};

/// The secrets of the namespace in which Harvester has its machine plans.
pub(super) const MACHINE_PLANS: &str = "yamls/namespaced/fleet-local/v1/secrets.yaml";

const FLEET: [(&str, &str); 3] = [
    ("cattle-fleet-local-system", "fleet-agent"),
    ("cattle-fleet-system", "fleet-controller"),
    ("cattle-fleet-system", "gitjob"),
];

/// Paths and texts of the logs.
pub(super) fn logs() -> impl Iterator<Item = (String, String)> {
    FLEET.into_iter().map(|(namespace, program)| {
        let path = format!("logs/{namespace}/{program}-none/{program}.log");
        let text = format!(
            "Placeholder: {program} does not run here, because nothing in this cluster is deployed \
             by Rancher's Fleet.\n"
        );
        (path, text)
    })
}

/// The item of [`MACHINE_PLANS`] in a cluster that has none.
pub(super) fn machine_plan() -> Value {
    let note = "Placeholder: this is no object of the cluster. It has no machine plans, because \
                Rancher does not provision its nodes.";
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "rke.cattle.io/machine-plan",
        "metadata": {
            "namespace": "fleet-local", "name": "machine-plan-none",
            "annotations": {"field.cattle.io/description": note},
        },
        "data": {"plan": ""},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_say_what_they_are() {
        let paths: Vec<String> = logs().map(|(path, _)| path).collect();
        let expected = [
            "logs/cattle-fleet-local-system/fleet-agent-none/fleet-agent.log",
            "logs/cattle-fleet-system/fleet-controller-none/fleet-controller.log",
            "logs/cattle-fleet-system/gitjob-none/gitjob.log",
        ];
        assert_eq!(paths, expected);
        assert!(logs().all(|(_, text)| text.starts_with("Placeholder: ")));
        assert!(machine_plan().to_string().contains("Placeholder: "));
    }
}
