//! `sheaf network trace`: which rule decides about a connection. The decision itself is made in
//! `agent`.

use std::fmt::Write as _;
use std::net::IpAddr;

use agent::{TraceObjects, TracePath, TraceProtocol, TraceQuery};
use anyhow::{Result, bail};
use serde_json::Value;

use crate::cli::{DestinationHost, ProtocolArg, TraceArgs};
use crate::command::link::ClusterClient;

pub(super) async fn run(wanted: &TraceArgs) -> Result<()> {
    let cluster = ClusterClient::to(&wanted.place).await?;
    let (namespace, machine) = (wanted.place.namespace.as_str(), wanted.name.as_str());
    if cluster.find(&cluster.machine(machine)).await?.is_none()
        && cluster
            .find(&cluster.objects(&format!("virtualmachineinstances/{machine}")))
            .await?
            .is_none()
    {
        bail!("there is no machine {machine} in namespace {namespace}");
    }
    let objects = TraceObjects {
        policies: cluster.items("/apis/networking.k8s.io/v1/networkpolicies").await?,
        cluster_policies: cluster
            .items("/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies")
            .await?,
        multi_policies: cluster
            .items("/apis/k8s.cni.cncf.io/v1beta1/multi-networkpolicies")
            .await?,
        pools: cluster.items("/apis/network.harvesterhci.io/v1alpha1/ippools").await?,
        namespaces: cluster.items("/api/v1/namespaces").await?,
        pods: cluster.items("/api/v1/pods").await?,
        instances: cluster.items(super::INSTANCES).await?,
        services: cluster.items("/api/v1/services").await?,
        slices: cluster.items("/apis/discovery.k8s.io/v1/endpointslices").await?,
        nodes: cluster.items(super::NODES).await?,
        leases: cluster.items("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases").await?,
    };
    let to = resolve(&objects, &wanted.to.host, namespace)?;
    let protocol = match wanted.protocol {
        ProtocolArg::Tcp => TraceProtocol::Tcp,
        ProtocolArg::Udp => TraceProtocol::Udp,
        ProtocolArg::Sctp => TraceProtocol::Sctp,
    };
    let query = TraceQuery { namespace, machine, to, port: wanted.to.port, protocol };
    let paths = agent::trace(&objects, &query)?;
    crate::command::print(&describe(&paths))?;
    if !paths.iter().any(TracePath::is_accepted) {
        bail!("the connection would not be made");
    }
    Ok(())
}

/// The address that a name resolves to: that of a service, or else of a machine.
fn resolve(objects: &TraceObjects, host: &DestinationHost, own: &str) -> Result<IpAddr> {
    let (name, namespace) = match host {
        DestinationHost::Address(address) => return Ok(*address),
        DestinationHost::Named { name, namespace } => (name, namespace.as_deref().unwrap_or(own)),
    };
    let is_it = |object: &&Value| {
        object["metadata"]["namespace"] == namespace && object["metadata"]["name"] == **name
    };
    let service = objects.services.iter().find(is_it);
    let service = service.and_then(|own| own["spec"]["clusterIP"].as_str());
    let instance = objects.instances.iter().find(is_it);
    let instance = instance.and_then(|own| own["status"]["interfaces"][0]["ipAddress"].as_str());
    let found = [service, instance].into_iter().flatten().find_map(|text| text.parse().ok());
    match found {
        Some(address) => Ok(address),
        None => bail!(
            "--to: there is neither a service with an address nor a machine that runs of the name \
             {name} in namespace {namespace}"
        ),
    }
}

/// One line for each step.
fn describe(paths: &[TracePath]) -> String {
    let mut text = String::new();
    for path in paths {
        let verdict = if path.is_accepted() { "accepted" } else { "dropped" };
        let _ = writeln!(text, "to {}: {verdict}", path.to);
        for step in &path.steps {
            let mark = if step.is_accepted { "pass" } else { "DROP" };
            let _ = writeln!(text, "  {:<8} {mark}  {}", step.stage, step.detail);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use agent::TraceStep;
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_those_of_services_and_machines() {
        let object = |name: &str| json!({"metadata": {"namespace": "n", "name": name}});
        let mut service = object("web");
        service["spec"]["clusterIP"] = json!("10.53.0.9");
        let mut headless = object("db");
        headless["spec"]["clusterIP"] = json!("None");
        let mut machine = object("db");
        machine["status"]["interfaces"] = json!([{"ipAddress": "10.52.0.3"}]);
        let objects = TraceObjects {
            services: vec![service, headless],
            instances: vec![machine],
            ..TraceObjects::default()
        };
        let named = |name: &str, namespace: Option<&str>| DestinationHost::Named {
            name: name.into(),
            namespace: namespace.map(str::to_owned),
        };
        for (host, expected) in [
            (named("web", None), Some("10.53.0.9")),
            (named("db", Some("n")), Some("10.52.0.3")),
            (named("web", Some("m")), None),
            (DestinationHost::Address([192, 0, 2, 1].into()), Some("192.0.2.1")),
        ] {
            let found = resolve(&objects, &host, "n").ok().map(|address| address.to_string());
            assert_eq!(found.as_deref(), expected, "{host:?}");
        }
    }

    #[test]
    fn each_step_is_a_line() {
        let step = |stage, is_accepted, detail: &str| TraceStep {
            stage,
            is_accepted,
            detail: detail.into(),
        };
        let path = TracePath {
            to: "10.52.0.3:80".into(),
            steps: vec![
                step("egress", true, "no policy"),
                step("ingress", false, "n/p0 selects it"),
            ],
        };
        expect![[r"
            to 10.52.0.3:80: dropped
              egress   pass  no policy
              ingress  DROP  n/p0 selects it
        "]]
        .assert_eq(&describe(&[path]));
    }
}
