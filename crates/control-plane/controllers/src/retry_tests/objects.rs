//! One object for each controller to work on.

use serde_json::{Value, json};

use crate::fake::Fake;

/// Kinds that a controller writes because of an object here.
pub(super) const WRITTEN: &[&str] = &[
    "/configmaps",
    "/endpoints",
    "/persistentvolumeclaims",
    "/serviceaccounts",
    "autoscaling/horizontalpodautoscalers",
    "cdi.kubevirt.io/dataimportcrons",
    "cdi.kubevirt.io/datasources",
    "cdi.kubevirt.io/datavolumes",
    "cdi.kubevirt.io/storageprofiles",
    "clone.kubevirt.io/virtualmachineclones",
    "export.kubevirt.io/virtualmachineexports",
    "harvesterhci.io/addons",
    "harvesterhci.io/keypairs",
    "harvesterhci.io/resourcequotas",
    "harvesterhci.io/schedulevmbackups",
    "harvesterhci.io/settings",
    "harvesterhci.io/supportbundles",
    "harvesterhci.io/upgrades",
    "harvesterhci.io/virtualmachinebackups",
    "harvesterhci.io/virtualmachineimages",
    "harvesterhci.io/virtualmachinetemplateversions",
    "kubevirt.io/kubevirts",
    "kubevirt.io/virtualmachineinstancemigrations",
    "kubevirt.io/virtualmachineinstancereplicasets",
    "kubevirt.io/virtualmachineinstances",
    "kubevirt.io/virtualmachines",
    "loadbalancer.harvesterhci.io/loadbalancers",
    "longhorn.io/volumes",
    "network.harvesterhci.io/hostnetworkconfigs",
    "network.harvesterhci.io/ippools",
    "network.harvesterhci.io/linkmonitors",
    "network.harvesterhci.io/virtualmachinenetworkconfigs",
    "policy/poddisruptionbudgets",
    "pool.kubevirt.io/virtualmachinepools",
    "snapshot.kubevirt.io/virtualmachinesnapshots",
    "snapshot.storage.k8s.io/volumesnapshots",
    "template.kubevirt.io/virtualmachinetemplaterequests",
];

/// The objects in groups: a test that repeats itself for each kind is quicker with few objects.
pub(super) const GROUPS: &[fn(&Fake)] =
    &[populate_machines, populate_cluster, populate_operations, populate_copies, populate_storage];

/// All of them.
pub(super) fn populate(fake: &Fake) {
    populate_places(fake);
    for group in GROUPS {
        group(fake);
    }
}

/// Objects that every group needs.
pub(super) fn populate_places(fake: &Fake) {
    for namespace in ["n", "longhorn-system", "harvester-system", "local", "p-1", virt::KUBEVIRT.0]
    {
        fake.create("/namespaces", "", json!({"metadata": {"name": namespace}}));
    }
    let class = json!({"metadata": {"name": "local"}, "provisioner": "driver.longhorn.io"});
    fake.create("storage.k8s.io/storageclasses", "", class);
}

/// A machine on a network with a pool.
fn populate_addresses(fake: &Fake) {
    let network = json!({"metadata": {"name": "lan"}, "spec": {"config": "{}"}});
    fake.create("k8s.cni.cncf.io/network-attachment-definitions", "n", network);
    let pool = json!({"metadata": {"name": "lan"}, "spec": {"networkName": "n/lan", "ipv4Config":
        {"cidr": "10.0.0.0/24", "serverIP": "10.0.0.1",
            "pool": {"start": "10.0.0.1", "end": "10.0.0.9"}}}});
    fake.create("network.harvesterhci.io/ippools", "n", pool);
    let spec = json!({"runStrategy": "Halted", "template": {"spec": {
        "networks": [{"name": "lan", "multus": {"networkName": "lan"}}],
        "domain": {"devices": {"interfaces":
            [{"name": "lan", "macAddress": "02:00:00:00:00:01", "bridge": {}}]}}}}});
    let machine = json!({"metadata": {"name": "pooled", "generation": 1}, "spec": spec});
    fake.create("kubevirt.io/virtualmachines", "n", machine);
}

fn populate_machines(fake: &Fake) {
    let machines = "kubevirt.io";
    let spec = |strategy: &str| {
        json!({"runStrategy": strategy, "template": {"spec": {"domain": {"memory":
            {"guest": "1Gi"}, "devices": {}}}}})
    };
    fake.create(
        "/nodes",
        "",
        json!({"metadata": {"name": "one"}, "status": {
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    fake.create(
        "kubevirt.io/virtualmachines",
        "n",
        json!({"metadata": {"name": "vm", "generation": 1}, "spec": spec("Always")}),
    );
    let set = json!({"metadata": {"name": "set"}, "spec": {"replicas": 1, "selector":
        {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"domain": {"memory": {"guest": "1Gi"}}}}}});
    fake.create("kubevirt.io/virtualmachineinstancereplicasets", "n", set);
    let pool = json!({"metadata": {"name": "pool"}, "spec": {"replicas": 1, "selector":
        {"matchLabels": {"c": "d"}}, "virtualMachineTemplate": {"metadata":
        {"labels": {"c": "d"}}, "spec": spec("Always")}}});
    fake.create("pool.kubevirt.io/virtualmachinepools", "n", pool);
    let claim = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"storageClassName": "local",
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Pending"}})
    };
    fake.create("/persistentvolumeclaims", "n", claim("claim"));
    let volume = json!({"metadata": {"name": "filled"}, "spec": {"source": {"blank": {}},
        "pvc": claim("x")["spec"]}});
    fake.create("cdi.kubevirt.io/datavolumes", "n", volume);
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "10"}}});
    fake.create("/resourcequotas", "n", quota);
    let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"a": "b"},
        "ports": [{"port": 80}]}});
    fake.create("/services", "n", service);
    let snapshot = json!({"metadata": {"name": "snap"}, "spec": {"source":
        {"apiGroup": machines, "kind": "VirtualMachine", "name": "vm"}}});
    fake.create("snapshot.kubevirt.io/virtualmachinesnapshots", "n", snapshot);
    let restore = json!({"metadata": {"name": "restore"}, "spec": {"virtualMachineSnapshotName":
        "snap", "target": {"apiGroup": machines, "kind": "VirtualMachine", "name": "vm"}}});
    fake.create("snapshot.kubevirt.io/virtualmachinerestores", "n", restore);
    let image = json!({"metadata": {"name": "image"}, "spec": {"displayName": "i",
        "sourceType": "download", "url": "http://127.0.0.1/x"}});
    fake.create("harvesterhci.io/virtualmachineimages", "n", image);
}

/// Objects that every cluster has.
fn populate_cluster(fake: &Fake) {
    let network = json!({
        "metadata": {"name": "mgmt"},
        "status": {"conditions": [{"type": "ready", "status": "True"}]},
    });
    fake.create("network.harvesterhci.io/clusternetworks", "", network);
    let host = json!({"metadata": {"name": "storage"}, "spec":
        {"clusterNetwork": "mgmt", "vlanID": 100, "mode": "dhcp"}});
    fake.create("network.harvesterhci.io/hostnetworkconfigs", "", host);
    let leaving = json!({"metadata": {"name": "leaving"}, "spec": {"finalizers": ["kubernetes"]}});
    fake.create("/namespaces", "", leaving);
    fake.delete("/namespaces", "", "leaving", "Background");
    let token = json!({"metadata": {"name": "token", "annotations":
        {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token"});
    fake.create("/secrets", "n", token);
    let role = json!({"metadata": {"name": "all"}, "aggregationRule":
        {"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]}, "rules": []});
    fake.create("rbac.authorization.k8s.io/clusterroles", "", role);
    let request = json!({"metadata": {"name": "csr"}, "spec": {"request": "",
        "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]},
        "status": {"conditions": [{"type": "Approved", "status": "True"}]}});
    fake.create("certificates.k8s.io/certificatesigningrequests", "", request);
    let scaler = json!({"metadata": {"name": "scaler"}, "spec": {"minReplicas": 1,
        "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceReplicaSet", "name": "set"},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 50}}}]}});
    fake.create("autoscaling/horizontalpodautoscalers", "n", scaler);
    let budget = json!({"metadata": {"name": "budget", "generation": 1}, "spec":
        {"minAvailable": 1, "selector": {}}});
    fake.create("policy/poddisruptionbudgets", "n", budget);
    let node = json!({"metadata": {"name": "two",
        "annotations": {"harvesterhci.io/maintain-status": "running"}},
        "spec": {"unschedulable": true}, "status": {
            "conditions": [{"type": "Ready", "status": "True"}]}});
    fake.create("/nodes", "", node);
}

/// Objects that operators of a cluster configure.
fn populate_operations(fake: &Fake) {
    let kubevirt = json!({"metadata": {"name": virt::KUBEVIRT.1}, "spec": {"configuration": {}}});
    fake.create("kubevirt.io/kubevirts", virt::KUBEVIRT.0, kubevirt);
    let addon = json!({"metadata": {"name": "rancher-logging"}, "spec": {"enabled": true}});
    fake.create("harvesterhci.io/addons", "n", addon);
    fake.create("/namespaces", "", json!({"metadata": {"name": "kube-system"}}));
    let balance = json!({"metadata": {"name": "descheduler"}, "spec": {"enabled": true}});
    fake.create("harvesterhci.io/addons", "kube-system", balance);
    let quota = json!({"metadata": {"name": hci::snapshot_usage::QUOTA_NAME},
        "spec": {"snapshotLimit": {"namespaceTotalSnapshotSizeQuota": 1}}});
    fake.create("harvesterhci.io/resourcequotas", "n", quota);
    let migration = json!({"metadata": {"name": "kubevirt-migration"},
        "value": "{\"parallelMigrationsPerCluster\":1}"});
    fake.create("harvesterhci.io/settings", "", migration);
    let balancer = json!({"metadata": {"name": "lb"}, "spec": {"workloadType": "vm",
        "ipam": "pool", "backendServerSelector": {"a": ["b"]}, "listeners":
            [{"name": "web", "port": 80, "backendPort": 80, "protocol": "TCP"}]}});
    fake.create("loadbalancer.harvesterhci.io/loadbalancers", "n", balancer);
    populate_addresses(fake);
    let project = json!({"metadata": {"name": "p-1"}, "spec": {"clusterName": "local",
        "displayName": "p"}});
    fake.create("management.cattle.io/projects", "local", project);
    let bundle = json!({"metadata": {"name": "bundle"}, "spec": {"description": "d"}});
    fake.create("harvesterhci.io/supportbundles", "harvester-system", bundle);
    let upgrade = json!({"metadata": {"name": "u"}, "spec": {"version": "v2"}});
    fake.create("harvesterhci.io/upgrades", "harvester-system", upgrade);
    let key = json!({"metadata": {"name": "key"}, "spec": {"publicKey": "none"}});
    fake.create("harvesterhci.io/keypairs", "n", key);
}

/// Objects that copy machines, or move them.
fn populate_copies(fake: &Fake) {
    let vm = json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"});
    let clone = json!({"metadata": {"name": "clone"}, "spec": {"source": vm, "target":
        {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "copy"}}});
    fake.create("clone.kubevirt.io/virtualmachineclones", "n", clone);
    let export = json!({"metadata": {"name": "export"}, "spec": {"source":
        {"apiGroup": "", "kind": "PersistentVolumeClaim", "name": "claim"}}});
    fake.create("export.kubevirt.io/virtualmachineexports", "n", export);
    let backup = json!({"metadata": {"name": "backup"}, "spec": {"type": "snapshot",
        "source": vm}});
    fake.create("harvesterhci.io/virtualmachinebackups", "n", backup);
    let schedule = json!({"metadata": {"name": "schedule"}, "spec": {"cron": "0 2 * * *",
        "suspend": true, "vmbackup": {"type": "snapshot", "source": vm}}});
    fake.create("harvesterhci.io/schedulevmbackups", "n", schedule);
    let migration = json!({"metadata": {"name": "move"}, "spec": {"vmiName": "vm"}});
    fake.create("kubevirt.io/virtualmachineinstancemigrations", "n", migration);
    let dumped = json!({"metadata": {"name": "dumped", "generation": 1},
        "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {}}}},
        "status": {"memoryDumpRequest": {"claimName": "claim", "phase": "Associating"}}});
    fake.create("kubevirt.io/virtualmachines", "n", dumped);
    let request = json!({"metadata": {"name": "request"}, "spec": {"virtualMachineRef":
        {"namespace": "n", "name": "vm"}}});
    fake.create("template.kubevirt.io/virtualmachinetemplaterequests", "n", request);
    let template = json!({"metadata": {"name": "template"}, "spec": {}});
    fake.create("harvesterhci.io/virtualmachinetemplates", "n", template);
    let version = json!({"metadata": {"name": "version"}, "spec": {"templateId": "n/template",
        "imageId": "n/image", "vm": {"spec": {"template": {"spec": {}}}}}});
    fake.create("harvesterhci.io/virtualmachinetemplateversions", "n", version);
}

fn populate_storage(fake: &Fake) {
    let source = json!({"pvc": {"namespace": "n", "name": "claim"}});
    let named = json!({"metadata": {"name": "source"}, "spec": {"source": source}});
    fake.create("cdi.kubevirt.io/datasources", "n", named);
    let storage = json!({"resources": {"requests": {"storage": "1Gi"}}});
    let cron = json!({"metadata": {"name": "cron"}, "spec": {"schedule": "* * * * *",
        "managedDataSource": "managed", "template": {"spec": {"storage": storage,
            "source": {"registry": {"url": "docker://127.0.0.1/x"}}}}}});
    fake.create("cdi.kubevirt.io/dataimportcrons", "n", cron);
    let import = json!({"metadata": {"name": "import"}, "spec": {"source":
        {"http": {"url": "http://127.0.0.1/x"}}}});
    fake.create("cdi.kubevirt.io/volumeimportsources", "n", import);
    let populated = json!({"metadata": {"name": "populated"}, "spec": {
        "storageClassName": "local", "accessModes": ["ReadWriteOnce"],
        "resources": storage["resources"], "dataSourceRef": {"apiGroup": "cdi.kubevirt.io",
            "kind": "VolumeImportSource", "name": "import"}}, "status": {"phase": "Pending"}});
    fake.create("/persistentvolumeclaims", "n", populated);
    let snapshot = json!({"metadata": {"name": "disk"}, "spec": {"volumeSnapshotClassName":
        "none", "source": {"persistentVolumeClaimName": "claim"}}});
    fake.create("snapshot.storage.k8s.io/volumesnapshots", "n", snapshot);
    let longhorn = "longhorn-system";
    let volume: Value = json!({"metadata": {"name": "v"}, "spec": {"size": "1073741824",
        "numberOfReplicas": 1, "nodeID": "one"}});
    fake.create("longhorn.io/volumes", longhorn, volume);
    let own = json!({"metadata": {"name": "s"}, "spec": {"volume": "v", "createSnapshot": true}});
    fake.create("longhorn.io/snapshots", longhorn, own);
    let backup = json!({"metadata": {"name": "b"}, "spec": {"snapshotName": "s"}});
    fake.create("longhorn.io/backups", longhorn, backup);
    let gone = json!({"metadata": {"name": "gone"}, "spec": {"allowScheduling": true,
        "evictionRequested": true, "disks": {}}});
    fake.create("longhorn.io/nodes", longhorn, gone);
    let job = json!({"metadata": {"name": "job"}, "spec": {"name": "job", "task": "snapshot",
        "cron": "* * * * *", "retain": 1, "concurrency": 1, "groups": ["default"]}});
    fake.create("longhorn.io/recurringjobs", longhorn, job);
}
