//! Every kind that is served, custom or built in, has an effect, or its writers are warned that it
//! has none; the same for Longhorn's settings.
//!
//! A kind has an effect if code that runs names its plural and its group. Which code that is
//! cannot be seen from here; kinds that are only read as data are in lists of their own, with the
//! reason.

use std::collections::BTreeSet;
use std::path::Path;

use hci::setting::{SETTINGS, SettingEffect};
use serde_json::{Value, json};

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

/// The API server names built-in kinds by their plural alone, which is the name of their table.
const SERVER: &str = "control-plane/apiserver/src";

/// Where constants with the names of groups may be.
const LAYERS: &[&str] = &["foundation", "control-plane", "node", "program"];

/// Where Longhorn's settings are read.
const LONGHORN: &[&str] = &[
    "control-plane/controllers/src/longhorn",
    "control-plane/controllers/src/longhorn.rs",
    "foundation/hci/src/admit/longhorn.rs",
    "foundation/hci/src/admit/recurring_job.rs",
    "node/agent/src/storage",
];

/// Kinds of backups, which are worked on: a row is removed when its kind is acted on, or when
/// `hci::inactive` names it.
const BACKUPS: &[(&str, &str)] = &[("longhorn.io", "backupvolumes")];

/// Kinds that are data: nothing has to follow from an object of them.
const DATA: &[(&str, &str, &str)] = &[
    ("harvesterhci.io", "preferences", "what the dashboard remembers for a user"),
    ("sheaf.io", "alarms", "named by a constant of hci::alarm"),
    ("sheaf.io", "alarmreceivers", "named by a constant of hci::alarm"),
    (
        "policy.networking.k8s.io",
        "clusternetworkpolicies",
        "named by a constant of hci::cluster_network_policy",
    ),
    (
        "k8s.cni.cncf.io",
        "multi-networkpolicies",
        "named by a constant of hci::multi_network_policy",
    ),
    ("kubevirt.io", "virtualmachineinstancepresets", "admission applies them to instances"),
    ("loadbalancer.harvesterhci.io", "ippools", "named by a constant of hci::address_pool"),
    ("loadbalancer.harvesterhci.io", "loadbalancers", "named by a constant of hci::address_pool"),
    ("network.harvesterhci.io", "ippools", "named by a constant of hci::dhcp"),
    ("network.harvesterhci.io", "virtualmachinenetworkconfigs", "named by a constant of hci::dhcp"),
];

/// The same for built-in kinds.
const BUILT_IN_DATA: &[(&str, &str, &str)] = &[
    ("", "bindings", "a request: it is carried out and not stored"),
    ("", "podtemplates", "a template that its user copies"),
    (
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "the API server serves their kinds, and names them by table and group",
    ),
    ("apiregistration.k8s.io", "apiservices", "the API server follows them, likewise"),
    ("authentication.k8s.io", "selfsubjectreviews", "a request: it is answered and not stored"),
    ("authentication.k8s.io", "tokenreviews", "a request: it is answered and not stored"),
    ("authorization.k8s.io", "localsubjectaccessreviews", "a request, likewise"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "a request, likewise"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "a request, likewise"),
    ("authorization.k8s.io", "subjectaccessreviews", "a request, likewise"),
];

struct SourceCode {
    files: Vec<(String, String)>,
    /// Name, value and module of the constants that are names of groups.
    groups: Vec<(String, String, String)>,
}

impl SourceCode {
    fn read() -> Self {
        let mut files = Vec::new();
        for folder in ACTING {
            source_files::collect(&crates().join(folder), &mut files);
        }
        let mut all = Vec::new();
        for folder in LAYERS {
            source_files::collect(&crates().join(folder), &mut all);
        }
        let groups = all.iter().flat_map(|(path, code)| {
            let constants = code.lines().filter_map(text_constant);
            let groups = constants.filter(|own| own.1.contains('.'));
            groups.map(move |own| (own.0.to_owned(), own.1.to_owned(), module(path).to_owned()))
        });
        Self { groups: groups.collect(), files }
    }

    /// Whether some file names both the plural and the group.
    fn names(&self, group: &str, plural: &str) -> bool {
        self.files.iter().any(|(_, code)| {
            let in_path = [format!("/{plural}\""), format!("/{plural}/"), format!("/{plural}{{")];
            let is_in_path = in_path.iter().any(|path| code.contains(path));
            code.contains(&format!("\"{plural}\"")) && self.names_group(code, group)
                || is_in_path && code.contains(&format!("{group}/"))
        })
    }

    fn names_group(&self, code: &str, group: &str) -> bool {
        if code.contains(&format!("\"{group}\"")) {
            return true;
        }
        if group.is_empty() {
            return false;
        }
        let path = format!("{group}/");
        let mut constants = self.groups.iter().filter(|own| own.1 == group);
        code.contains(&path)
            || constants.any(|(name, _, module)| match name.as_str() {
                "GROUP" => {
                    let path = format!("{module}::");
                    let mut uses = code.split(&path).skip(1);
                    uses.any(|rest| {
                        let end = if rest.starts_with('{') { rest.find('}') } else { Some(6) };
                        has_word(rest.get(..end.unwrap_or(0)).unwrap_or_default(), "GROUP")
                    })
                }
                name => has_word(code, name),
            })
    }
}

fn crates() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// `NAME` and `value` of a line such as `pub const NAME: &str = "value";`.
fn text_constant(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once("const ")?;
    let (name, value) = rest.split_once(": &str = \"")?;
    Some((name, value.split_once('"')?.0))
}

/// The name of the module in a file.
fn module(path: &str) -> &str {
    let mut parts = path.rsplit('/');
    match parts.next().unwrap_or_default() {
        "lib.rs" => parts.nth(1).unwrap_or_default(),
        file => file.strip_suffix(".rs").unwrap_or(file),
    }
}

fn has_word(code: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        !code[..at].ends_with(is_part) && !code[at + word.len()..].starts_with(is_part)
    })
}

fn kinds() -> BTreeSet<(String, String)> {
    let name = |definition: Value| {
        let text = |at: &str| crate::object::text(&definition, at).to_owned();
        (text("/spec/group"), text("/spec/names/plural"))
    };
    hci::definitions().chain(virt::definitions()).map(name).collect()
}

#[test]
fn every_kind_has_an_effect_or_a_warning() {
    let code = SourceCode::read();
    let mut idle = Vec::new();
    for (group, plural) in kinds() {
        let is_data = DATA.iter().any(|own| (own.0, own.1) == (&*group, &*plural));
        let is_backup = BACKUPS.contains(&(&*group, &*plural));
        let is_warned_of = hci::inactive::concerns(&group, &plural);
        if !(is_data || is_backup || is_warned_of || code.names(&group, &plural)) {
            idle.push(format!("{plural}.{group}"));
        }
    }
    assert_eq!(idle, [""; 0], "add a row to hci::inactive, or to DATA with its reason");
}

#[test]
fn every_built_in_kind_has_an_effect_or_a_warning() {
    let code = SourceCode::read();
    let mut server = Vec::new();
    source_files::collect(&crates().join(SERVER), &mut server);
    let mut idle = Vec::new();
    for row in kinds::builtin() {
        let is_table = server.iter().any(|(_, code)| code.contains(&format!("\"{}\"", row.plural)));
        let is_data = BUILT_IN_DATA.iter().any(|own| (own.0, own.1) == (row.group, row.plural));
        let is_warned_of = hci::inactive::concerns(row.group, row.plural)
            || !(row.strategy.warnings)(&json!({})).is_empty();
        if !(is_table || is_data || is_warned_of || code.names(row.group, row.plural)) {
            idle.push(format!("{}.{}", row.plural, row.group));
        }
    }
    assert_eq!(idle, [""; 0], "add a row to hci::inactive, or to BUILT_IN_DATA with its reason");
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
    for (group, plural, reason) in BUILT_IN_DATA {
        let mut rows = kinds::builtin().iter();
        let is_built_in = rows.any(|own| (own.group, own.plural) == (*group, *plural));
        assert!(is_built_in && !reason.is_empty(), "{plural}.{group}");
        assert!(!hci::inactive::concerns(group, plural), "{plural}.{group} is in both lists");
    }
}

#[test]
fn a_setting_of_longhorn_is_applied_if_code_reads_it() {
    let mut files = Vec::new();
    for place in LONGHORN {
        let path = crates().join(place);
        if path.is_dir() {
            source_files::collect(&path, &mut files);
        } else {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
            files.push((path.display().to_string(), code));
        }
    }
    for setting in SETTINGS {
        let name = format!("\"{}\"", setting.name);
        let is_read = files.iter().any(|(_, code)| code.contains(&name));
        let is_applied = hci::setting::effect(setting.name) == SettingEffect::Applied;
        assert_eq!(is_applied, is_read, "{}: hci::setting::effect is wrong", setting.name);
    }
}
