//! Add-ons: those of a fresh cluster, and what switching one on means here. Pure.
//!
//! Upstream an add-on is a Helm chart. Here a feature is part of the program or it does not exist, and
//! an add-on reports which of both holds.

use serde_json::{Value, json};

/// An add-on that every cluster has.
#[derive(Clone, Copy, Debug)]
pub struct DefaultAddon {
    pub namespace: &'static str,
    pub name: &'static str,
    pub chart: &'static str,
    pub values: &'static str,
    pub experimental: bool,
    pub support: AddonSupport,
}

/// Whether the feature of an add-on exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddonSupport {
    /// Part of the program; the text says what serves instead of the chart.
    BuiltIn(&'static str),
    /// The text says what is missing.
    Unavailable(&'static str),
}

use AddonSupport::{BuiltIn, Unavailable};

const MONITORING_VALUES: &str = "\
prometheus:
  prometheusSpec:
    evaluationInterval: 1m
    externalUrl: \"\"
    resources:
      limits: {cpu: 1000m, memory: 2500Mi}
      requests: {cpu: 850m, memory: 1750Mi}
    retention: 5d
    retentionSize: 50GiB
    scrapeInterval: 1m
grafana:
  resources:
    limits: {cpu: 200m, memory: 500Mi}
    requests: {cpu: 100m, memory: 200Mi}
prometheus-node-exporter:
  resources:
    limits: {cpu: 200m, memory: 180Mi}
    requests: {cpu: 100m, memory: 30Mi}
alertmanager:
  enabled: true
  alertmanagerSpec:
    retention: 120h
    externalUrl: \"\"
    resources:
      limits: {cpu: 1000m, memory: 600Mi}
      requests: {cpu: 100m, memory: 100Mi}
";

const fn row(
    namespace: &'static str,
    name: &'static str,
    chart: &'static str,
    support: AddonSupport,
) -> DefaultAddon {
    DefaultAddon { namespace, name, chart, values: "", experimental: false, support }
}

/// The add-ons of a fresh cluster.
pub const DEFAULT_ADDONS: &[DefaultAddon] = &[
    row(
        "cattle-logging-system",
        "rancher-logging",
        "rancher-logging",
        Unavailable("logs are not shipped to other systems; read them from the service's log"),
    ),
    DefaultAddon {
        values: MONITORING_VALUES,
        ..row(
            "cattle-monitoring-system",
            "rancher-monitoring",
            "rancher-monitoring",
            BuiltIn(
                "metrics are served at /metrics and as metrics.k8s.io; dashboards and alerts are not included",
            ),
        )
    },
    DefaultAddon {
        experimental: true,
        ..row(
            "harvester-system",
            "harvester-seeder",
            "harvester-seeder",
            Unavailable("nodes are not provisioned or powered through a BMC"),
        )
    },
    row(
        "harvester-system",
        "nvidia-driver-toolkit",
        "nvidia-driver-runtime",
        Unavailable("drivers for virtual GPUs are not installed on nodes"),
    ),
    row(
        "harvester-system",
        "pcidevices-controller",
        "harvester-pcidevices-controller",
        Unavailable("PCI devices of nodes are not listed as PCIDevice objects"),
    ),
    row(
        "harvester-system",
        "vm-import-controller",
        "harvester-vm-import-controller",
        Unavailable("virtual machines are not imported from VMware or OpenStack"),
    ),
    DefaultAddon {
        experimental: true,
        ..row(
            "kube-system",
            "descheduler",
            "descheduler",
            BuiltIn("machines are moved one at a time when the memory of nodes is used unevenly"),
        )
    },
    DefaultAddon {
        experimental: true,
        ..row(
            "kube-system",
            "kubeovn-operator",
            "kubeovn-operator",
            Unavailable("overlay networks of Kube-OVN are not available"),
        )
    },
];

/// The object of a default add-on, as a fresh cluster has it.
pub fn object(addon: &DefaultAddon) -> Value {
    let mut object = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "Addon",
        "metadata": {"name": addon.name, "namespace": addon.namespace},
        "spec": {
            "repo": "http://harvester-cluster-repo.cattle-system.svc/charts",
            "chart": addon.chart,
            "version": crate::cluster_setting::SERVER_VERSION,
            "enabled": false,
            "valuesContent": addon.values,
        },
    });
    if addon.experimental {
        object["metadata"]["labels"] = json!({"addon.harvesterhci.io/experimental": "true"});
    }
    object
}

/// The status of an add-on: its state, and the conditions that are true or false.
#[derive(Debug, PartialEq, Eq)]
pub struct AddonOutcome {
    pub status: &'static str,
    /// Type, whether it holds, reason and message.
    pub conditions: Vec<(&'static str, bool, &'static str, String)>,
}

/// The outcome of switching an add-on on or off. The message of the condition that decides says what
/// the add-on is here, also while it is off.
pub fn outcome(namespace: &str, name: &str, enabled: bool) -> AddonOutcome {
    let own = |addon: &&DefaultAddon| addon.namespace == namespace && addon.name == name;
    let support = DEFAULT_ADDONS.iter().find(own).map(|addon| addon.support);
    let support = support.unwrap_or(Unavailable("Helm charts are not installed"));
    let message = match support {
        BuiltIn(about) => about.to_owned(),
        Unavailable(why) => format!("add-on {name} is not available in this version: {why}"),
    };
    let done = |status, completed: bool, reason| {
        let conclusion = |holds: bool| {
            if holds { (holds, reason, message.clone()) } else { (holds, "", String::new()) }
        };
        let (completed, failed) = (conclusion(completed), conclusion(!completed));
        AddonOutcome {
            status,
            conditions: vec![
                ("InProgress", false, "", String::new()),
                ("Completed", completed.0, completed.1, completed.2),
                ("OperationFailed", failed.0, failed.1, failed.2),
            ],
        }
    };
    match (enabled, support) {
        (false, _) => done("AddonDisabled", true, "Disabled"),
        (true, BuiltIn(_)) => done("AddonDeploySuccessful", true, "BuiltIn"),
        (true, Unavailable(_)) => done("AddonEnabling", false, "NotAvailable"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_addon_that_does_not_exist_here_does_not_claim_success() {
        let cases = [
            ("cattle-monitoring-system", "rancher-monitoring", true, "AddonDeploySuccessful", ""),
            ("cattle-monitoring-system", "rancher-monitoring", false, "AddonDisabled", ""),
            ("harvester-system", "harvester-seeder", true, "AddonEnabling", "through a BMC"),
            ("default", "mine", true, "AddonEnabling", "Helm charts are not installed"),
            ("default", "mine", false, "AddonDisabled", ""),
        ];
        for (namespace, name, enabled, status, failure) in cases {
            let outcome = outcome(namespace, name, enabled);
            assert_eq!(outcome.status, status, "{name}");
            let failed = outcome.conditions.iter().find(|own| own.0 == "OperationFailed").unwrap();
            assert_eq!(failed.1, !failure.is_empty(), "{name}");
            assert!(failed.3.contains(failure), "{name}: {}", failed.3);
            let completed = outcome.conditions.iter().find(|own| own.0 == "Completed").unwrap();
            assert_eq!(completed.1, failure.is_empty(), "{name}");
            let decisive = if completed.1 { &completed.3 } else { &failed.3 };
            assert!(!decisive.is_empty(), "{name}: nothing says what it is");
        }
    }

    #[test]
    fn a_fresh_cluster_has_all_addons_switched_off() {
        assert_eq!(DEFAULT_ADDONS.len(), 8);
        for addon in DEFAULT_ADDONS {
            let object = object(addon);
            assert_eq!(object["spec"]["enabled"], false);
            assert!(!object["spec"]["chart"].as_str().unwrap().is_empty());
        }
    }
}
