//! The names of guests in the zone of the cluster, which the name servers of all nodes serve.

/// The zone in which guests find one another.
pub(crate) const ZONE: &str = "cluster.local";

/// DNS names of a guest with this host name.
pub(crate) fn names_below(namespace: &str, host: &str, subdomain: Option<&str>) -> Vec<String> {
    let mut names = vec![format!("{host}.{namespace}.vm.{ZONE}")];
    if let Some(subdomain) = subdomain.filter(|each| !each.is_empty()) {
        names.push(format!("{host}.{subdomain}.{namespace}.svc.{ZONE}"));
    }
    names
}
