//! Tests of the columns of `kubectl get`.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::row;

fn check(plural: &str, object: &Value, expect: Expect) {
    let now = "2026-01-02T00:00:00Z".parse().unwrap();
    let printer = row(plural).printer;
    let cells = (printer.cells)(object, now);
    let lines = printer.columns.iter().zip(cells).map(|(column, cell)| {
        let wide = if column.priority > 0 { " (wide)" } else { "" };
        format!("{}{wide}: {cell}", column.name)
    });
    expect.assert_eq(&lines.collect::<Vec<_>>().join("\n"));
}

#[test]
fn nodes() {
    let node = json!({
        "metadata": {
            "name": "n1", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "worker"},
        },
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1", "kernelVersion": "6.1", "architecture": "amd64"},
        },
    });
    check(
        "nodes",
        &node,
        expect![[r#"
        Name: "n1"
        Status: "Ready,SchedulingDisabled"
        Roles: "control-plane,worker"
        Age: "24h"
        Version: "v1"
        Internal-IP (wide): "10.0.0.1"
        External-IP (wide): "<none>"
        OS-Image (wide): "<unknown>"
        Kernel-Version (wide): "6.1 (amd64)"
        Container-Runtime (wide): "<unknown>""#]],
    );
}

#[test]
fn services() {
    let service = json!({
        "metadata": {"name": "web"},
        "spec": {
            "type": "LoadBalancer", "clusterIPs": ["10.0.0.5"], "externalIPs": ["1.2.3.4"],
            "ports": [
                {"port": 80, "nodePort": 30080, "protocol": "TCP"},
                {"port": 53, "protocol": "UDP"},
            ],
            "selector": {"b": "2", "a": "1"},
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}, {"hostname": "h"}]}},
    });
    check(
        "services",
        &service,
        expect![[r#"
        Name: "web"
        Type: "LoadBalancer"
        Cluster-IP: "10.0.0.5"
        External-IP: "9.9.9.9,h,1.2.3.4"
        Port(s): "80:30080/TCP,53/UDP"
        Age: "<unknown>"
        Selector (wide): "a=1,b=2""#]],
    );
}

#[test]
fn volumes_and_claims() {
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {"volumeName": "pv1", "storageClassName": "fast", "volumeMode": "Block"},
        "status": {
            "phase": "Bound", "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
        },
    });
    check(
        "persistentvolumeclaims",
        &claim,
        expect![[r#"
        Name: "data"
        Status: "Bound"
        Volume: "pv1"
        Capacity: "10Gi"
        Access Modes: "RWO,RWX"
        StorageClass: "fast"
        VolumeAttributesClass: "<unset>"
        Age: "<unknown>"
        VolumeMode (wide): "Block""#]],
    );
    let volume = json!({
        "metadata": {"name": "pv1", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOncePod"],
            "claimRef": {"namespace": "ns", "name": "data"},
            "persistentVolumeReclaimPolicy": "Delete",
        },
    });
    check(
        "persistentvolumes",
        &volume,
        expect![[r#"
        Name: "pv1"
        Capacity: "10Gi"
        Access Modes: "RWOP"
        Reclaim Policy: "Delete"
        Status: "Terminating"
        Claim: "ns/data"
        StorageClass: ""
        VolumeAttributesClass: "<unset>"
        Reason: ""
        Age: "<unknown>"
        VolumeMode (wide): "<unset>""#]],
    );
    let class = json!({
        "metadata": {"name": "fast", "annotations": {
            "storageclass.kubernetes.io/is-default-class": "true",
        }},
        "provisioner": "x/y",
    });
    check(
        "storageclasses",
        &class,
        expect![[r#"
        Name: "fast (default)"
        Provisioner: "x/y"
        ReclaimPolicy: "Delete"
        VolumeBindingMode: "Immediate"
        AllowVolumeExpansion: false
        Age: "<unknown>""#]],
    );
}

#[test]
fn events_in_both_versions() {
    let mut event = json!({
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec"},
        "type": "Normal", "reason": "Started", "message": " it runs \n", "count": 3,
        "firstTimestamp": "2026-01-01T23:00:00Z", "lastTimestamp": "2026-01-01T23:59:50Z",
        "source": {"component": "kubelet", "host": "n1"},
    });
    let expect = expect![[r#"
        Last Seen: "10s"
        Type: "Normal"
        Reason: "Started"
        Object: "pod/p"
        Subobject (wide): "spec"
        Source (wide): "kubelet, n1"
        Message: "it runs"
        First Seen (wide): "60m"
        Count (wide): 3
        Name (wide): "e""#]];
    check("events", &event, expect);
    let newer = crate::find("events.k8s.io", "v1", "events").unwrap();
    let conversion = newer.conversion.unwrap();
    let before = event.clone();
    (conversion.from_storage)(&mut event);
    assert_eq!(event["note"], " it runs \n");
    assert_eq!(event["regarding"]["name"], "p");
    let cells = (newer.printer.cells)(&event, "2026-01-02T00:00:00Z".parse().unwrap());
    assert_eq!(cells[3], "pod/p");
    (conversion.to_storage)(&mut event);
    event["apiVersion"].take();
    let mut before = before;
    before["apiVersion"].take();
    assert_eq!(event, before);
}

#[test]
fn slices_endpoints_and_quotas() {
    let slice = json!({
        "metadata": {"name": "s"}, "addressType": "IPv4", "ports": [{"port": 80}, {"name": "x"}],
        "endpoints": [{"addresses": ["1.1.1.1", "2.2.2.2"]}, {"addresses": ["3.3.3.3", "4.4.4.4"]}],
    });
    check(
        "endpointslices",
        &slice,
        expect![[r#"
        Name: "s"
        AddressType: "IPv4"
        Ports: "80,x"
        Endpoints: "1.1.1.1,2.2.2.2,3.3.3.3 + 1 more..."
        Age: "<unknown>""#]],
    );
    let endpoints = json!({"subsets": [{
        "addresses": [{"ip": "1.1.1.1"}, {"ip": "fd00::1"}], "ports": [{"port": 80}, {"port": 81}],
    }]});
    check(
        "endpoints",
        &endpoints,
        expect![[r#"
        Name: ""
        Endpoints: "1.1.1.1:80,[fd00::1]:80,1.1.1.1:81 + 1 more..."
        Age: "<unknown>""#]],
    );
    let quota = json!({"status": {
        "hard": {"pods": "10", "limits.cpu": "4"}, "used": {"pods": "2"},
    }});
    check(
        "resourcequotas",
        &quota,
        expect![[r#"
        Name: ""
        Request: "pods: 2/10"
        Limit: "limits.cpu: 0/4"
        Age: "<unknown>""#]],
    );
}

#[test]
fn workloads() {
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
            "template": {"spec": {"containers": [
                {"name": "a", "image": "x:1"}, {"name": "b", "image": "y"},
            ]}},
        },
        "status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1},
    });
    check(
        "deployments",
        &deployment,
        expect![[r#"
        Name: "web"
        Ready: "2/3"
        Up-to-date: 3
        Available: 1
        Age: "<unknown>"
        Containers (wide): "a,b"
        Images (wide): "x:1,y"
        Selector (wide): "app=web""#]],
    );
    let job = json!({
        "spec": {"parallelism": 2},
        "status": {"succeeded": 1, "startTime": "2026-01-01T23:00:00Z"},
    });
    check(
        "jobs",
        &job,
        expect![[r#"
        Name: ""
        Status: "Running"
        Completions: "1/1 of 2"
        Duration: "60m"
        Age: "<unknown>"
        Containers (wide): ""
        Images (wide): ""
        Selector (wide): "<none>""#]],
    );
}
