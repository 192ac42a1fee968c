//! The dependencies between our crates: the table of allowed edges, the folders as layers, the
//! longest chain and the share of one crate. An edge that is not in the table is an error.

use std::collections::BTreeMap;

use crate::tree;

/// The folders of `crates/`, and the folders whose crates theirs may name, besides their own.
const FOLDERS: &[(&str, &[&str])] = &[
    // Definitions of objects, and code that every crate needs.
    ("foundation", &[]),
    ("control-plane", &["foundation"]),
    // Mechanism of one node: guests, disks, networks. Meets the control plane in objects only.
    ("node", &["foundation"]),
    ("program", &["foundation", "control-plane", "node"]),
    ("developer", &["foundation"]),
];

/// Which crates each crate may name. A new edge is a design decision: change this table in a
/// commit of its own and say there why.
const MAY_USE: &[(&str, &[&str])] = &[
    ("base", &[]),
    // Pure engines: JSON in, JSON and errors out.
    ("schema", &[]),
    ("merge", &["schema"]),
    ("types", &["schema"]),
    ("kinds", &["schema", "types"]),
    // Identity knows the rules for names; neither HTTP nor the store.
    ("auth", &["kinds", "schema"]),
    // Bytes and revisions; nothing of Kubernetes.
    ("store", &["base"]),
    // The etcd process, its members, and how a node becomes one; nothing of Kubernetes.
    ("quorum", &["base"]),
    // Mechanism on one node; nothing of Kubernetes.
    ("block", &["base"]),
    ("backup", &["base"]),
    ("net", &["base"]),
    ("qemu", &["base"]),
    // How custom kinds are written down.
    ("crd", &["types"]),
    // KubeVirt's kinds, apart from the built-in ones so that those compile without them.
    ("virt", &["crd", "kinds", "schema", "types"]),
    // Harvester's and Longhorn's kinds.
    ("hci", &["crd", "kinds", "schema", "types"]),
    ("apiserver", &["auth", "base", "kinds", "merge", "schema", "store", "types"]),
    // Ordinary clients of any Kubernetes: neither the server nor the store.
    ("client", &["base"]),
    ("controllers", &["base", "client", "hci", "kinds", "types", "virt"]),
    // KubeVirt's subresources; a client too, so it can run outside as well.
    ("gateway", &["base", "client", "virt"]),
    // Harvester's REST API: requests of the same user to the Kubernetes API.
    ("steve", &["base", "client", "hci", "virt"]),
    // The files of the dashboard; requests of its pages go through the API like those of any
    // client.
    ("ui", &["base"]),
    // Realizes the objects of one node, as an ordinary client.
    (
        "agent",
        &["backup", "base", "block", "client", "hci", "kinds", "net", "qemu", "types", "virt"],
    ),
    (
        "sheaf",
        &[
            "agent",
            "apiserver",
            "auth",
            "base",
            "block",
            "client",
            "controllers",
            "gateway",
            "hci",
            "quorum",
            "steve",
            "store",
            "ui",
            "virt",
        ],
    ),
    // For developers.
    ("tidy", &[]),
    ("bench", &["base", "client"]),
];

/// `sheaf`, `apiserver`, `auth`, `kinds`, `types`, `schema`; the aim is to get it smaller.
const LONGEST_CHAIN: usize = 6;

#[test]
fn every_crate_names_only_those_below_it() {
    let allowed: BTreeMap<_, _> = MAY_USE.iter().copied().collect();
    for (name, uses) in tree::edges() {
        let Some(may_use) = allowed.get(name.as_str()) else {
            panic!("crate {name} is not in the table of layers; add it and say why in the commit");
        };
        for used in uses {
            assert!(
                may_use.contains(&used.as_str()),
                "{name} may not name {used}: see ARCHITECTURE.md, and the table in crates/developer/tidy"
            );
        }
    }
}

#[test]
fn folders_show_the_layers() {
    let folders = tree::folders();
    let folder = |name: &str| folders[name].as_str();
    for (name, uses) in tree::edges() {
        let own = folder(&name);
        let (_, below) = FOLDERS
            .iter()
            .find(|(row, _)| *row == own)
            .unwrap_or_else(|| panic!("crates/{own} is not in the table of folders"));
        for used in uses {
            let other = folder(&used);
            assert!(
                other == own || below.contains(&other),
                "{name} in {own} may not name {used} in {other}"
            );
        }
    }
}

#[test]
fn the_table_itself_keeps_the_invariants() {
    let reach = |from: &str| {
        let mut seen: Vec<&str> = vec![];
        let mut next: Vec<&str> = vec![from];
        while let Some(name) = next.pop() {
            let (_, uses) = MAY_USE.iter().find(|(row, _)| *row == name).expect("a row per name");
            for used in *uses {
                if !seen.contains(used) {
                    seen.push(used);
                    next.push(used);
                }
            }
        }
        seen
    };
    // Controllers must be able to run in another Kubernetes cluster.
    for client in ["controllers", "client", "agent", "gateway", "steve"] {
        for hidden in ["apiserver", "store", "auth", "sheaf"] {
            assert!(!reach(client).contains(&hidden), "{client} can reach {hidden}");
        }
    }
    for mechanism in ["qemu", "block", "net"] {
        assert!(!reach("controllers").contains(&mechanism), "controllers can reach {mechanism}");
        assert_eq!(reach(mechanism), ["base"], "{mechanism} does not know Kubernetes");
    }
    for engine in ["schema", "merge", "types", "kinds", "virt"] {
        for hidden in ["apiserver", "store", "client", "auth"] {
            assert!(!reach(engine).contains(&hidden), "{engine} can reach {hidden}");
        }
    }
    assert_eq!(reach("store"), ["base"], "the store does not know Kubernetes");
    assert!(!reach("auth").contains(&"store"));
}

#[test]
fn the_longest_chain_of_crates_does_not_grow() {
    fn depth(name: &str, edges: &BTreeMap<String, Vec<String>>) -> usize {
        1 + edges[name].iter().map(|used| depth(used, edges)).max().unwrap_or(0)
    }
    let edges = tree::edges();
    let longest = edges.keys().map(|name| depth(name, &edges)).max().expect("there are crates");
    assert!(longest <= LONGEST_CHAIN, "a chain of {longest} crates; {LONGEST_CHAIN} were enough");
}

#[test]
fn no_crate_holds_more_than_a_quarter_of_the_code() {
    let sizes: Vec<_> = tree::edges().into_keys().map(|name| (tree::lines(&name), name)).collect();
    let total: usize = sizes.iter().map(|(lines, _)| lines).sum();
    for (lines, name) in sizes {
        assert!(lines * 4 <= total, "{name} has {lines} of {total} lines");
    }
}

#[test]
fn the_map_names_every_crate() {
    let map =
        std::fs::read_to_string(tree::root().join("ARCHITECTURE.md")).expect("the map exists");
    for name in tree::edges().into_keys() {
        assert!(map.contains(&format!("`{name}`")), "ARCHITECTURE.md does not name {name}");
    }
}
