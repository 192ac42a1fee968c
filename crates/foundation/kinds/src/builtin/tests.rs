use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::*;
use crate::resource::Scope;

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

#[test]
fn every_resource_is_named_once() {
    let mut seen = BTreeSet::new();
    for row in builtin() {
        assert!(seen.insert((row.group, row.version, row.plural)), "{}", row.plural);
        assert!(find(row.group, row.version, row.plural).is_some());
    }
}

#[test]
fn rows_are_well_formed() {
    for row in builtin() {
        let name = row.plural;
        assert!(row.verbs.is_sorted(), "{name}");
        assert_eq!(row.is_stored(), row.verbs.contains(&"get"), "{name}");
        assert_eq!(row.singular, row.kind.to_lowercase(), "{name}");
        for subresource in row.subresources {
            assert!(subresource.verbs.is_sorted(), "{name}/{}", subresource.name);
        }
        assert!(row.subresources.is_sorted_by_key(|it| it.name), "{name}");
        assert!(row.fields.is_sorted_by_key(|(label, _)| *label), "{name}");
        assert!(
            row.printer.columns.iter().any(|it| it.format == "name") || name.contains("migrat")
        );
        if row.scope == Scope::Cluster {
            assert!(!row.fields.iter().any(|(label, _)| *label == "metadata.namespace"), "{name}");
        }
    }
}

#[test]
fn two_kinds_share_a_table_only_if_they_are_versions_of_one() {
    for (index, row) in builtin().iter().enumerate() {
        for other in &builtin()[..index] {
            if row.is_stored() && row.table == other.table {
                assert_eq!(row.kind, other.kind, "{}", row.table);
                let (a, b) = (row.conversion.is_some(), other.conversion.is_some());
                assert!(a != b, "{}: exactly one of two versions is stored", row.table);
            }
        }
    }
}

/// Calls everything a row offers.
fn exercise(row: &Resource, new: &Value, old: &Value) {
    let strategy = &row.strategy;
    let mut errors = Vec::new();
    let mut object = new.clone();
    (strategy.default)(&mut object);
    let mut created = object.clone();
    (strategy.prepare_create)(&mut created);
    (strategy.validate)(&created, &mut errors);
    let mut updated = object.clone();
    (strategy.prepare_update)(&mut updated, old);
    (strategy.validate_update)(&updated, old, &mut errors);
    (strategy.prepare_status)(&mut object, old);
    (strategy.validate_status)(&object, old, &mut errors);
    (strategy.warnings)(&object);
    assert_eq!((row.printer.cells)(new, now()).len(), row.printer.columns.len());
    for (_, read) in row.fields {
        read(new);
    }
    if let Some(conversion) = &row.conversion {
        let mut object = new.clone();
        (conversion.to_storage)(&mut object);
        (conversion.from_storage)(&mut object);
    }
}

#[test]
fn an_empty_object_is_handled_by_every_kind() {
    for row in builtin() {
        for object in [json!({}), json!(null), json!([]), json!({"spec": null, "status": []})] {
            exercise(row, &object, &json!({}));
        }
    }
}

#[test]
fn defaults_settle_at_once() {
    for row in builtin() {
        let mut once = json!({"metadata": {"name": "a"}, "spec": {"template": {}}});
        (row.strategy.default)(&mut once);
        let mut twice = once.clone();
        (row.strategy.default)(&mut twice);
        assert_eq!(once, twice, "{}", row.plural);
    }
}

/// Random objects made of the words that kinds search for, so that hooks go deep.
#[test]
fn no_object_makes_a_kind_panic() {
    for row in builtin() {
        for seed in 1..=40 {
            let mut random = Random(u64::wrapping_mul(seed, 0x9E37_79B9_7F4A_7C15));
            let (new, old) = (random.object(5), random.object(5));
            let run = catch_unwind(AssertUnwindSafe(|| exercise(row, &new, &old)));
            assert!(run.is_ok(), "{} with seed {seed}: {new}", row.plural);
        }
    }
}

/// A small generator: the same seed gives the same object on every machine.
struct Random(u64);

const KEYS: &[&str] = &[
    "metadata",
    "spec",
    "status",
    "name",
    "namespace",
    "labels",
    "annotations",
    "ports",
    "port",
    "type",
    "kind",
    "template",
    "containers",
    "initContainers",
    "volumes",
    "image",
    "conditions",
    "selector",
    "matchLabels",
    "matchExpressions",
    "operator",
    "values",
    "key",
    "value",
    "rules",
    "resources",
    "requests",
    "limits",
    "storage",
    "capacity",
    "accessModes",
    "clusterIP",
    "clusterIPs",
    "ipFamilies",
    "webhooks",
    "clientConfig",
    "service",
    "url",
    "versions",
    "names",
    "plural",
    "group",
    "subsets",
    "addresses",
    "endpoints",
    "ip",
    "hard",
    "scopes",
    "metrics",
    "behavior",
    "scaleUp",
    "data",
    "stringData",
    "taints",
    "effect",
    "drivers",
    "limited",
    "max",
    "min",
    "default",
    "replicas",
    "strategy",
    "rollingUpdate",
    "maxUnavailable",
    "maxSurge",
    "schedule",
    "jobTemplate",
    "loadBalancer",
    "ingress",
    "usages",
    "request",
    "subjects",
    "tls",
    "additionalPrinterColumns",
    "jsonPath",
    "selectableFields",
    "schema",
    "openAPIV3Schema",
    "storageClassName",
    "dataSource",
    "dataSourceRef",
    "finalizers",
    "ownerReferences",
];
const WORDS: &[&str] = &[
    "",
    "a",
    "Exists",
    "In",
    "Always",
    "RollingUpdate",
    "LoadBalancer",
    "NodePort",
    "ClusterIP",
    "None",
    "10.0.0.1",
    "fd00::1",
    "10.0.0.0/8",
    "1Gi",
    "-5",
    "25%",
    "Resource",
    "Webhook",
    "v1",
    "../..",
    "é",
    "TCP",
    "cpu",
    "memory",
    "Container",
    "Ready",
    "True",
    "2026-01-01T00:00:00Z",
    "*",
    "a/b",
    ".spec.x",
    "kubernetes.io/tls",
    "https://u@h/p?q#f",
    "Limited",
    "Queue",
    "-",
];

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    fn object(&mut self, depth: usize) -> Value {
        let count = self.next(9);
        let fields: Map<String, Value> = (0..count)
            .map(|_| (KEYS[self.next(KEYS.len())].to_owned(), self.value(depth)))
            .collect();
        let mut object = Value::Object(fields);
        if depth == 5 {
            object["spec"] = self.object(4);
            object["status"] = self.object(4);
            object["metadata"] = self.object(2);
        }
        object
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.next(if depth == 0 { 5 } else { 10 }) {
            0 => Value::Null,
            1 => Value::from(self.next(70_000)),
            2 => Value::Bool(self.next(2) == 0),
            3 | 4 => WORDS[self.next(WORDS.len())].into(),
            5 | 6 => {
                let count = self.next(4);
                (0..count).map(|_| self.value(depth - 1)).collect()
            }
            _ => self.object(depth - 1),
        }
    }
}
