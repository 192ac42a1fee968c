//! Every kind that is served has an effect, or its writers are warned that it has none.
//!
//! A kind has an effect if code that runs names it. Which code that is cannot be seen from here;
//! kinds that are only read as data are in lists of their own, with the reason.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::source_files;

/// Where code acts on objects.
const ACTING: &[&str] = &[
    "control-plane/controllers/src",
    "control-plane/gateway/src",
    "control-plane/steve/src",
    "node/agent/src",
    "node/net/src",
    "program/sheaf/src",
];

/// Kinds of backups, which are worked on: a row is removed when its kind is acted on, or when
/// `hci::inactive` names it.
const BACKUPS: &[(&str, &str)] = &[("longhorn.io", "backupvolumes")];

/// Kinds that are data: nothing has to follow from an object of them.
const DATA: &[(&str, &str, &str)] = &[
    ("harvesterhci.io", "preferences", "what the dashboard remembers for a user"),
    ("sheaf.io", "alarms", "named by a constant of hci::alarm"),
    ("kubevirt.io", "virtualmachineinstancepresets", "admission applies them to instances"),
    ("loadbalancer.harvesterhci.io", "ippools", "named by a constant of hci::address_pool"),
    ("loadbalancer.harvesterhci.io", "loadbalancers", "named by a constant of hci::address_pool"),
];

fn kinds() -> BTreeSet<(String, String)> {
    let name = |definition: Value| {
        let text = |at: &str| crate::object::text(&definition, at).to_owned();
        (text("/spec/group"), text("/spec/names/plural"))
    };
    hci::definitions().chain(virt::definitions()).map(name).collect()
}

#[test]
fn every_kind_has_an_effect_or_a_warning() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in ACTING {
        source_files::collect(&crates.join(folder), &mut files);
    }
    let mut idle = Vec::new();
    for (group, plural) in kinds() {
        let name = format!("\"{plural}\"");
        let is_named = files.iter().any(|(_, code)| code.contains(&name));
        let is_data = DATA.iter().any(|own| (own.0, own.1) == (&*group, &*plural));
        let is_backup = BACKUPS.contains(&(&*group, &*plural));
        let is_warned_of = hci::inactive::concerns(&group, &plural);
        if !(is_named || is_data || is_backup || is_warned_of) {
            idle.push(format!("{plural}.{group}"));
        }
    }
    assert_eq!(idle, [""; 0], "add a row to hci::inactive, or to DATA with its reason");
}

#[test]
fn the_lists_name_kinds_that_are_served() {
    let kinds = kinds();
    let served = |group: &str, plural: &str| kinds.contains(&(group.to_owned(), plural.to_owned()));
    for (group, plural) in BACKUPS {
        assert!(served(group, plural), "{plural}.{group}");
        assert!(!hci::inactive::concerns(group, plural), "{plural}.{group} is in both lists");
    }
    for (group, plural, reason) in DATA {
        assert!(served(group, plural), "{plural}.{group}");
        assert!(!reason.is_empty());
        assert!(!hci::inactive::concerns(group, plural), "{plural}.{group} is in both lists");
    }
}
