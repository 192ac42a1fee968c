//! The cost of tracking and applying: `cargo run --release -p merge --example cost` prints
//! microseconds per write for a ConfigMap of 4 KB and a virtual machine of 6 KB.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program for the terminal")]

use std::hint::black_box;
use std::time::Instant;

use merge::{MergeRequest, Set, apply, equal_ignoring_timestamps, track_update};
use schema::Schema;
use serde_json::{Value, json};

#[path = "../tests/vectors/form.rs"]
mod form;

fn metadata() -> Value {
    let text = json!({"type": "string"});
    let texts = json!({"type": "object", "values": text});
    json!({"type": "object", "properties": {
        "name": text, "namespace": text, "uid": text, "resourceVersion": text,
        "creationTimestamp": text, "generation": {"type": "number"},
        "labels": texts, "annotations": texts,
        "finalizers": {"type": "array", "set": true, "items": text},
        "managedFields": {"type": "array", "items": {}},
    }})
}

fn kind(fields: Value) -> Schema {
    let mut schema = json!({"type": "object", "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": metadata(),
    }});
    for (name, field) in fields.as_object().unwrap() {
        schema["properties"][name] = field.clone();
    }
    form::schema(&schema)
}

fn config_map() -> (Schema, Value) {
    let schema = kind(json!({"data": {"type": "object", "values": {"type": "string"}}}));
    let mut object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "n", "uid": "u", "labels": {"app": "x"}},
        "data": {},
    });
    for at in 0..10 {
        object["data"][format!("key-{at}")] = "x".repeat(400).into();
    }
    (schema, object)
}

fn machine() -> (Schema, Value) {
    let text = json!({"type": "string"});
    let free = json!({});
    let named = |items: Value| json!({"type": "array", "keys": ["name"], "items": {"type": "object", "properties": items}});
    let disk = json!({"name": text, "bootOrder": {"type": "number"}, "disk": free, "cache": text});
    let schema = kind(json!({
        "spec": {"type": "object", "properties": {
            "runStrategy": text,
            "template": {"type": "object", "properties": {
                "metadata": metadata(),
                "spec": {"type": "object", "properties": {
                    "disks": named(disk),
                    "volumes": named(json!({"name": text, "source": free})),
                    "networks": named(json!({"name": text, "multus": free})),
                    "domain": free,
                }},
            }},
        }},
        "status": free,
    }));
    let list = |count: usize, item: &dyn Fn(usize) -> Value| -> Value {
        (0..count).map(item).collect::<Vec<Value>>().into()
    };
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {
            "name": "vm", "namespace": "n", "uid": "u",
            "labels": {"a": "1", "b": "2", "c": "3"},
            "annotations": {"note": "x".repeat(1200)},
            "finalizers": ["a/b"],
        },
        "spec": {"runStrategy": "Always", "template": {
            "metadata": {"labels": {"vm": "vm"}},
            "spec": {
                "disks": list(14, &|at| json!({"name": format!("disk-{at}"), "bootOrder": at,
                    "disk": {"bus": "virtio", "readonly": false}, "cache": "none"})),
                "volumes": list(14, &|at| json!({"name": format!("disk-{at}"), "source":
                    {"persistentVolumeClaim": {"claimName": format!("claim-{at}"), "hotpluggable": true}}})),
                "networks": list(6, &|at| json!({"name": format!("net-{at}"),
                    "multus": {"networkName": format!("default/net-{at}")}})),
                "domain": {
                    "cpu": {"cores": 4, "sockets": 1, "threads": 1, "model": "host-model"},
                    "memory": {"guest": "8Gi"},
                    "devices": {"interfaces": list(6, &|at| json!({"name": format!("net-{at}"),
                        "masquerade": {}, "macAddress": "02:00:00:00:00:01"}))},
                    "features": {"acpi": {"enabled": true}, "smm": {"enabled": true}},
                    "machine": {"type": "q35"}, "resources": {"requests": {"memory": "8Gi"}},
                },
            },
        }},
    });
    (schema, object)
}

/// Prints the best of several rounds, which is the least disturbed one.
fn measure(what: &str, mut work: impl FnMut()) {
    const TIMES: u32 = 500;
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..TIMES {
            work();
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES));
    }
    println!("{what:34} {best:7.2} µs");
}

fn costs(name: &str, schema: &Schema, object: &Value, status: &Value) {
    let nothing = Set::new();
    let request = MergeRequest {
        manager: "one",
        subresource: "",
        api_version: object["apiVersion"].as_str().unwrap(),
        kind: object["kind"].as_str().unwrap(),
        now: "2026-01-02T03:04:05Z",
        schema,
        reset: &nothing,
        versions: &[],
        blank: None,
    };
    measure(&format!("{name} copy"), || drop(black_box(object.clone())));
    let mut stored = object.clone();
    track_update(None, &mut stored, &request);
    measure(&format!("{name} create (with copy)"), || {
        let mut new = object.clone();
        track_update(None, &mut new, &request);
        black_box(new);
    });
    measure(&format!("{name} unchanged (with copy)"), || {
        let mut new = stored.clone();
        track_update(Some(&stored), &mut new, &request);
        black_box(new);
    });
    let mut other = stored.clone();
    other["metadata"]["labels"]["added"] = "y".into();
    track_update(Some(&stored), &mut other, &MergeRequest { manager: "two", ..request });
    let mut changed = other.clone();
    changed["metadata"]["labels"]["added"] = "z".into();
    measure(&format!("{name} one label (with copy)"), || {
        let mut new = changed.clone();
        track_update(Some(&other), &mut new, &MergeRequest { manager: "three", ..request });
        black_box(new);
    });
    let mut with_status = other.clone();
    with_status["status"] = status.clone();
    measure(&format!("{name} status (with copy)"), || {
        let mut new = with_status.clone();
        let request = MergeRequest { manager: "ctl", subresource: "status", ..request };
        track_update(Some(&other), &mut new, &request);
        black_box(new);
    });
    let applier = MergeRequest { manager: "applier", ..request };
    let applied = apply(Some(&other), object, &applier, true).unwrap().unwrap();
    measure(&format!("{name} apply again"), || {
        black_box(apply(Some(&applied), object, &applier, true).unwrap());
    });
    measure(&format!("{name} compare"), || {
        black_box(equal_ignoring_timestamps(&applied, &applied));
    });
}

fn main() {
    let status = json!({"ready": true, "conditions": [{"type": "Ready", "status": "True"}]});
    let (schema, object) = config_map();
    println!("ConfigMap of {} bytes", object.to_string().len());
    costs("config map", &schema, &object, &status);
    let (schema, object) = machine();
    println!("machine of {} bytes", object.to_string().len());
    costs("machine", &schema, &object, &status);
}
