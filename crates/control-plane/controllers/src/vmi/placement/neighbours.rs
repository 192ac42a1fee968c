//! Rules about who else is near: affinity and anti-affinity between instances, and how
//! evenly they are spread.

use std::collections::BTreeMap;

use serde_json::Value;
use virt::reason::Unfit;

use super::{ScheduledInstance, SchedulingRequest, domain, is_wanted};
use crate::object::{int, list, name, text};
use crate::selector;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// The instances on each node.
pub(super) struct AffinityIndex<'a> {
    nodes: BTreeMap<&'a str, &'a Value>,
    tenants: &'a [&'a ScheduledInstance],
}

impl<'a> AffinityIndex<'a> {
    pub(super) fn new(nodes: &'a [Value], tenants: &'a [&'a ScheduledInstance]) -> Self {
        Self { nodes: nodes.iter().map(|node| (name(node), node)).collect(), tenants }
    }

    /// Why the node is unfit because of the instances near it.
    pub(super) fn objection(&self, wish: &SchedulingRequest<'_>, node: &Value) -> Option<Unfit> {
        if !self.is_spread(wish, node) {
            return Some(Unfit::Spread);
        }
        for term in terms(wish.spec, "podAffinity") {
            if !self.near(term, wish.namespace, node) && !self.is_first_of_its_kind(term, wish) {
                return Some(Unfit::Affinity);
            }
        }
        for term in terms(wish.spec, "podAntiAffinity") {
            // Without the label that the term counts by, no pod can be near.
            if self.near(term, wish.namespace, node) {
                return Some(Unfit::AntiAffinity);
            }
        }
        let repelled = self.tenants.iter().any(|tenant| {
            let hits = |term: &&Value| {
                selects(term, &tenant.namespace, wish.namespace, wish.labels)
                    && self.shares_domain(term, tenant, node)
            };
            tenant.repels.iter().any(|term| hits(&term))
        });
        repelled.then_some(Unfit::Repelled)
    }

    /// How much the node is preferred because of the instances near it.
    pub(super) fn attraction(&self, wish: &SchedulingRequest<'_>, node: &Value) -> i64 {
        let sum = |kind: &str| -> i64 {
            list(wish.spec, &format!("/affinity/{kind}/{PREFERRED}"))
                .iter()
                .filter(|own| {
                    let term = own.get("podAffinityTerm").unwrap_or(&Value::Null);
                    self.near(term, wish.namespace, node)
                })
                .map(|own| int(own, "/weight").unwrap_or_default())
                .sum()
        };
        sum("podAffinity") - sum("podAntiAffinity")
    }

    fn near(&self, term: &Value, namespace: &str, node: &Value) -> bool {
        self.tenants.iter().any(|tenant| {
            selects(term, namespace, &tenant.namespace, &tenant.labels)
                && self.shares_domain(term, tenant, node)
        })
    }

    fn shares_domain(&self, term: &Value, tenant: &ScheduledInstance, node: &Value) -> bool {
        let theirs = self.nodes.get(&*tenant.node).and_then(|other| domain(other, term));
        theirs.is_some() && theirs == domain(node, term)
    }

    /// The first of a group that wants to be together must be allowed somewhere.
    fn is_first_of_its_kind(&self, term: &Value, wish: &SchedulingRequest<'_>) -> bool {
        let exists = |tenant: &&ScheduledInstance| {
            selects(term, wish.namespace, &tenant.namespace, &tenant.labels)
        };
        selects(term, wish.namespace, wish.namespace, wish.labels)
            && !self.tenants.iter().any(exists)
    }

    fn is_spread(&self, wish: &SchedulingRequest<'_>, node: &Value) -> bool {
        let strict = |own: &&Value| text(own, "/whenUnsatisfiable") == "DoNotSchedule";
        list(wish.spec, "/topologySpreadConstraints").iter().filter(strict).all(|constraint| {
            let Some(here) = domain(node, constraint) else { return false };
            let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
            for other in self.nodes.values().filter(|other| is_wanted(wish.spec, other)) {
                if let Some(domain) = domain(other, constraint) {
                    counts.entry(domain).or_default();
                }
            }
            for tenant in self.tenants.iter().filter(|tenant| tenant.namespace == wish.namespace) {
                let selector = constraint.get("labelSelector").unwrap_or(&Value::Null);
                let node = self.nodes.get(&*tenant.node);
                if let Some(domain) = node.and_then(|node| domain(node, constraint))
                    && let Some(count) = counts.get_mut(domain)
                    && selector::matches(selector, &tenant.labels)
                {
                    *count += 1;
                }
            }
            let least = counts.values().min().copied().unwrap_or_default();
            let most = int(constraint, "/maxSkew").unwrap_or(1);
            counts.get(here).copied().unwrap_or_default() + 1 - least <= most
        })
    }
}

/// Required terms of one sort.
fn terms<'a>(spec: &'a Value, kind: &str) -> &'a [Value] {
    list(spec, &format!("/affinity/{kind}/{REQUIRED}"))
}

/// Whether a term that is written in `home` selects objects with these labels.
fn selects(term: &Value, home: &str, namespace: &str, labels: &Value) -> bool {
    let named = list(term, "/namespaces");
    let all = term.get("namespaceSelector").is_some_and(|own| own == &serde_json::json!({}));
    let here =
        if named.is_empty() { home == namespace } else { named.iter().any(|own| own == namespace) };
    (all || here) && selector::matches(term.get("labelSelector").unwrap_or(&Value::Null), labels)
}
