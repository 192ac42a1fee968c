//! Tables of operators' writes.

use serde_json::json;

use super::super::tests::{Cluster, uuid};
use super::super::validate;
use super::*;

/// The verdict about a write in namespace `harvester-system`.
fn judged(
    kind: (&str, &str),
    name: &str,
    object: Option<&Value>,
    old: Option<&Value>,
    cluster: &Cluster,
) -> String {
    let write = Write {
        group: kind.0,
        resource: kind.1,
        namespace: SYSTEM,
        name,
        object,
        old,
        trusted: false,
        objects: cluster,
        writer: cluster,
        uuid: &uuid,
    };
    match validate(&write) {
        Ok(()) => "allowed".to_owned(),
        Err(refusal) => {
            let message = refusal.message.split("denied the request: ").nth(1).unwrap_or_default();
            format!("{} {message}", refusal.code)
        }
    }
}

const ADDONS: (&str, &str) = (HARVESTER, "addons");

fn addon(chart: &str, enabled: bool) -> Value {
    json!({"spec": {"repo": "r", "chart": chart, "version": "1", "enabled": enabled}})
}

#[test]
fn addons_are_switched_one_at_a_time() {
    let mut cluster = Cluster(vec![(HARVESTER, "addons", addon("a", false))]);
    let (off, on) = (addon("b", false), addon("b", true));
    let mut busy = off.clone();
    busy["status"] = json!({"conditions": [{"type": "InProgress", "status": "True"}]});
    for (name, object, old, expected) in [
        ("b", Some(&off), None, "allowed"),
        ("b", Some(&on), Some(&off), "allowed"),
        (
            "b",
            Some(&addon("a", false)),
            None,
            "409 addon with Chart \"a\" has been created, cannot create a new one",
        ),
        ("b", Some(&addon("c", false)), Some(&off), "400 chart field cannot be changed."),
        (
            "b",
            Some(&on),
            Some(&busy),
            "400 cannot perform operation, as an existing operation is in progress on addon b",
        ),
        (
            "descheduler",
            Some(&on),
            Some(&off),
            "400 descheduler addon cannot be enabled as not enough nodes exist in the cluster",
        ),
        (
            "pcidevices-controller",
            None,
            Some(&off),
            "400 harvester-system/pcidevices-controller addon cannot be deleted",
        ),
        ("b", None, Some(&off), "allowed"),
    ] {
        assert_eq!(judged(ADDONS, name, object, old, &cluster), expected, "{name}");
    }
    let machine = json!({
        "metadata": {"namespace": "default", "name": "gpu"},
        "spec": {"template": {"spec": {"domain": {"devices": {"hostDevices": [{"name": "x"}]}}}}},
    });
    cluster.0.push(("kubevirt.io", "virtualmachines", machine));
    assert_eq!(
        judged(ADDONS, "pcidevices-controller", Some(&off), Some(&on), &cluster),
        "400 pcidevices-controller addon cannot be disabled as the following VMs are using passthrough devices: [default/gpu]"
    );
}

#[test]
fn versions_upgrades_bundles_and_quotas_are_checked() {
    let unsummed = json!({"metadata": {"namespace": SYSTEM, "name": "v0"},
        "spec": {"isoURL": "https://example.org/sheaf"}});
    let namespace = json!({"metadata": {"name": "kube-system"}});
    let cluster = Cluster(vec![
        (HARVESTER, "versions", version()),
        (HARVESTER, "versions", unsummed),
        ("", "namespaces", namespace),
    ]);
    let none = Value::Null;
    let bundle = |extra: Value| json!({"spec": {"extraCollectionNamespaces": extra}});
    let quota =
        |bytes: i64| json!({"spec": {"snapshotLimit": {"vmTotalSnapshotSizeQuota": {"a": bytes}}}});
    for (resource, name, object, old, expected) in [
        ("versions", "v", json!({"spec": {"isoChecksum": "a".repeat(128)}}), &none, "allowed"),
        (
            "versions",
            "v",
            json!({"spec": {"isoChecksum": "xyz"}}),
            &none,
            "400 invalid isoChecksum xyz",
        ),
        ("upgrades", "u", json!({"spec": {"version": "v1"}}), &none, "allowed"),
        ("upgrades", "u", json!({"spec": {"version": "v2"}}), &none, "400 version v2 is not found"),
        (
            "upgrades",
            "u",
            json!({"spec": {"version": "v0"}}),
            &none,
            "400 version v0 has no spec.isoChecksum; give the SHA-512 sum of the program: nodes run nothing else",
        ),
        (
            "upgrades",
            "u",
            json!({"metadata": {"annotations": {INTENT: "stop"}}, "spec": {"version": "v1"}}),
            &json!({"spec": {"version": "v1"}}),
            "400 annotation sheaf.io/upgrade-intent must be pause, abort or finalize",
        ),
        (
            "upgrades",
            "u",
            json!({"spec": {"version": "v0"}}),
            &json!({"spec": {"version": "v1"}}),
            "400 the version of an upgrade cannot be changed; abort it first",
        ),
        (
            "upgrades",
            "u",
            json!({"spec": {}}),
            &none,
            "400 version or image field are not specified.",
        ),
        (
            "upgradelogs",
            "l",
            json!({"spec": {"upgradeName": "u"}}),
            &none,
            "400 upgradelog can only be created by the harvester controller",
        ),
        ("supportbundles", "b", bundle(json!(["kube-system"])), &none, "allowed"),
        (
            "supportbundles",
            "b",
            bundle(json!(["kube-system", "no"])),
            &none,
            "400 namespace no not found",
        ),
        (
            "supportbundles",
            "b",
            bundle(json!([])),
            &bundle(json!(["a"])),
            "400 modifying the spec of an existing support bundle is not allowed",
        ),
        ("resourcequotas", "default-resource-quota", quota(0), &none, "allowed"),
        (
            "resourcequotas",
            "default-resource-quota",
            quota(-1),
            &none,
            "422 must be greater than or equal to 0",
        ),
        ("resourcequotas", "other", quota(1), &none, "422 name must be default-resource-quota"),
    ] {
        let old = Some(old).filter(|old| !old.is_null());
        let verdict = judged((HARVESTER, resource), name, Some(&object), old, &cluster);
        assert_eq!(verdict, expected, "{resource} {object}");
    }
    let running =
        json!({"metadata": {"namespace": SYSTEM, "name": "one"}, "spec": {"version": "v1"}});
    let cluster =
        Cluster(vec![(HARVESTER, "upgrades", running), (HARVESTER, "versions", version())]);
    let next = json!({"spec": {"version": "v1"}});
    assert_eq!(
        judged((HARVESTER, "upgrades"), "two", Some(&next), None, &cluster),
        "409 cannot proceed until previous upgrade \"one\" completes"
    );
}

fn version() -> Value {
    json!({"metadata": {"namespace": SYSTEM, "name": "v1"},
        "spec": {"isoURL": "https://example.org/sheaf", "isoChecksum": "a".repeat(128)}})
}

#[test]
fn an_upgrade_begins_in_a_healthy_cluster() {
    let node = json!({"metadata": {"name": "n1"}});
    let cluster = Cluster(vec![(HARVESTER, "versions", version()), ("", "nodes", node)]);
    let upgrade =
        |notes: Value| json!({"metadata": {"annotations": notes}, "spec": {"version": "v1"}});
    let refused = "400 node n1 is not ready; bring it back, or remove it: sheaf node remove n1";
    for (notes, expected) in [(json!({}), refused), (json!({SKIP_CHECKS: "true"}), "allowed")] {
        let object = upgrade(notes);
        assert_eq!(judged((HARVESTER, "upgrades"), "u", Some(&object), None, &cluster), expected);
    }
}

#[test]
fn objects_in_use_stay() {
    let class = json!({"metadata": {"name": "crypt"}, "parameters": {
        "encrypted": "true", "csi.storage.k8s.io/node-stage-secret-name": "key",
        "csi.storage.k8s.io/node-stage-secret-namespace": SYSTEM,
    }});
    let machine = json!({
        "metadata": {"namespace": SYSTEM, "name": "db"},
        "spec": {"template": {"spec": {
            "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "shared"}}],
            "domain": {"devices": {"disks": [{"name": "d", "shareable": true}]}},
        }}},
    });
    let image = json!({"metadata": {"namespace": SYSTEM, "name": "suse"}});
    let cluster = Cluster(vec![
        ("storage.k8s.io", "storageclasses", class),
        ("kubevirt.io", "virtualmachines", machine),
        (HARVESTER, "virtualmachineimages", image),
    ]);
    let empty = json!({});
    let secrets = ("", "secrets");
    assert_eq!(
        judged(secrets, "key", None, Some(&empty), &cluster),
        "422 Secret is used by encrypted storage classes: [crypt]"
    );
    assert_eq!(judged(secrets, "other", None, Some(&empty), &cluster), "allowed");
    let snapshots = ("snapshot.storage.k8s.io", "volumesnapshots");
    let snapshot = |claim: &str| json!({"spec": {"source": {"persistentVolumeClaimName": claim}}});
    assert_eq!(
        judged(snapshots, "s", Some(&snapshot("shared")), None, &cluster),
        "422 cannot snapshot PVC harvester-system/shared: it is attached to VM harvester-system/db as a shareable disk and may be written by multiple VMs concurrently"
    );
    assert_eq!(judged(snapshots, "s", Some(&snapshot("own")), None, &cluster), "allowed");
    let data = ("cdi.kubevirt.io", "datavolumes");
    let owned =
        json!({"metadata": {"ownerReferences": [{"kind": "VirtualMachineImage", "name": "suse"}]}});
    assert_eq!(
        judged(data, "d", None, Some(&owned), &cluster),
        "422 can not delete DataVolume harvester-system/d which is owned by VMImage harvester-system/suse"
    );
    assert_eq!(judged(data, "d", None, Some(&empty), &cluster), "allowed");
    let templates = json!([{"metadata": {"name": "d"}, "spec": {}}]).to_string();
    let annotations = json!({"harvesterhci.io/volumeClaimTemplates": templates});
    let machine = json!({"metadata":
        {"name": "web", "namespace": SYSTEM, "annotations": annotations}});
    let cluster = Cluster(vec![("kubevirt.io", "virtualmachines", machine)]);
    assert_eq!(
        judged(data, "d", None, Some(&empty), &cluster),
        "422 can not delete DataVolume harvester-system/d which is attached to VM harvester-system/web"
    );
}

#[test]
fn the_repository_of_an_upgrade_stays_until_it_has_ended() {
    let labels =
        json!({"harvesterhci.io/upgrade": "u", "harvesterhci.io/upgradeComponent": "repo"});
    let repository = json!({"metadata": {"labels": labels}});
    let text = "422 cannot delete deployment harvester-system/repo: upgrade u is still in progress (component: repo)";
    for (completed, expected) in [("Unknown", text), ("True", "allowed"), ("False", "allowed")] {
        let upgrade = json!({"metadata": {"name": "u", "namespace": SYSTEM},
            "status": {"conditions": [{"type": "Completed", "status": completed}]}});
        let cluster = Cluster(vec![(HARVESTER, "upgrades", upgrade)]);
        let kind = ("apps", "deployments");
        assert_eq!(judged(kind, "repo", None, Some(&repository), &cluster), expected);
        let other = json!({"metadata": {}});
        assert_eq!(judged(kind, "repo", None, Some(&other), &cluster), "allowed");
    }
}

#[test]
fn snapshots_beyond_the_quota_are_refused() {
    let named = |name: &str| json!({"name": name, "namespace": SYSTEM});
    let quota = |namespace: i64, machine: i64| {
        json!({"metadata": named(QUOTA_NAME), "spec": {"snapshotLimit": {
            "namespaceTotalSnapshotSizeQuota": namespace,
            "vmTotalSnapshotSizeQuota": {"web": machine}}}})
    };
    let volumes = json!([{"name": "a", "persistentVolumeClaim": {"claimName": "root"}}]);
    let web =
        json!({"metadata": named("web"), "spec": {"template": {"spec": {"volumes": volumes}}}});
    let mut claim = json!({"metadata": named("root"), "spec": {"volumeName": "pvc-1"}});
    claim["metadata"]["annotations"] =
        json!({"volume.kubernetes.io/storage-provisioner": "driver.longhorn.io"});
    let taken = json!({"metadata": {"name": "s", "namespace": "longhorn-system"},
        "spec": {"volume": "pvc-1"}, "status": {"size": 4096}});
    let snapshot = json!({"spec": {"source": {"persistentVolumeClaimName": "root"}}});
    let other = json!({"spec": {"source": {"persistentVolumeClaimName": "other"}}});
    let backup = json!({"spec": {"type": "snapshot", "source": {"name": "web"}}});
    let (volume, machine) =
        (("snapshot.storage.k8s.io", "volumesnapshots"), (HARVESTER, "virtualmachinebackups"));
    let kubevirt = ("snapshot.kubevirt.io", "virtualmachinesnapshots");
    let refused = "422 total snapshot size limit 1Ki is less than total snapshot usage 4Ki";
    for (limits, kind, object, expected) in [
        ((0, 0), volume, &snapshot, "allowed"),
        ((4096, 4096), machine, &backup, "allowed"),
        ((0, 1024), volume, &snapshot, refused),
        ((0, 1024), volume, &other, "allowed"),
        ((1024, 0), volume, &other, refused),
        ((0, 1024), machine, &backup, refused),
        ((1024, 0), machine, &backup, refused),
        ((0, 1024), kubevirt, &backup, refused),
    ] {
        let cluster = Cluster(vec![
            (HARVESTER, "resourcequotas", quota(limits.0, limits.1)),
            ("kubevirt.io", "virtualmachines", web.clone()),
            ("", "persistentvolumeclaims", claim.clone()),
            ("longhorn.io", "snapshots", taken.clone()),
        ]);
        let found = judged(kind, "new", Some(object), None, &cluster);
        assert!(found.starts_with(expected), "{kind:?} {limits:?}: {found}");
    }
}
