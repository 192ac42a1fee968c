//! A guest moves with a volume of the class `local`, which is a file of one node: the file is
//! copied, the volume is on the other node then, and a copy that is interrupted leaves nothing.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::join::until_ready;
use super::lab::{Wire, token};
use super::migrate::{CLAIMS, MIGRATIONS, VMIS, counter, migrate, until_on, until_over};
use crate::harness::{Node, assemble, assert_has, eventually, poll};

const KUBEVIRT: &str = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt";
const VOLUMES: &str = "/api/v1/persistentvolumes";
/// Where the guest counts; behind this nothing of its disk changes.
const COUNTED: usize = 1024;
const SIZE: usize = 24 << 20;

/// The file of a volume on a node.
fn file(node: &Node, volume: &str) -> PathBuf {
    node.sheaf.data().join("volumes").join(volume).join("disk.img")
}

/// A local volume of node `one` with the guest that counts and data behind it; its name.
fn counting_volume(one: &Node, data: &[u8]) -> String {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "root", "annotations": {"volume.kubernetes.io/selected-node": "one"}},
        "spec": {"storageClassName": "local", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "24Mi"}}}});
    one.sheaf.http().post(CLAIMS, &claim).ok();
    let claim = one.until(&format!("{CLAIMS}/root"), "/status/phase", "Bound");
    let volume = claim["spec"]["volumeName"].as_str().unwrap().to_owned();
    fs::write(file(one, &volume), data).unwrap();
    volume
}

/// The guest, then data with a hole.
fn disk() -> Vec<u8> {
    let mut disk = assemble("migrate");
    disk.resize(COUNTED, 0);
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    while disk.len() < SIZE - (4 << 20) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        disk.extend(state.to_le_bytes());
    }
    disk.resize(SIZE, 0);
    disk
}

fn machine() -> Value {
    let preferred = json!([{"weight": 100, "preference": {"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["one"]}]}}]);
    json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "a"},
    "spec": {"runStrategy": "Always", "template": {"spec": {
        "terminationGracePeriodSeconds": 1,
        "affinity": {"nodeAffinity":
            {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
        "domain": {"memory": {"guest": "16Mi"}, "devices": {
            "disks": [
                {"name": "root", "disk": {"bus": "virtio"}, "bootOrder": 1},
                {"name": "scratch", "disk": {"bus": "virtio"}}],
            "interfaces": [{"name": "default", "masquerade": {}}]}},
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [
            {"name": "root", "persistentVolumeClaim": {"claimName": "root"}},
            {"name": "scratch", "emptyDisk": {"capacity": "8Mi"}}],
    }}}})
}

/// A management node and a worker, and a guest that counts on a local volume of the first.
struct Pair {
    one: Node,
    two: Node,
    volume: String,
    data: Vec<u8>,
    // Dropped last.
    _wire: Wire,
}

impl Pair {
    fn new(name: &str, prefix: &str) -> Self {
        let wire = Wire::new(name, prefix);
        let one = Node::management(&wire.here());
        let (url, text) = token(&one.sheaf.run("token create"));
        let mut two = wire.outsider(&url, &text, "two");
        two.sheaf.begin();
        until_ready(&one, "two");
        let data = disk();
        let volume = counting_volume(&one, &data);
        let http = one.sheaf.http();
        http.post("/apis/kubevirt.io/v1/namespaces/default/virtualmachines", &machine()).ok();
        one.until(&format!("{VMIS}/a"), "/status/phase", "Running");
        until_on(&one, "one");
        let pair = Self { one, two, volume, data, _wire: wire };
        poll("it can be migrated", || {
            let vmi = pair.get(&format!("{VMIS}/a"));
            let conditions = vmi["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let yes = |own: &Value| own["type"] == "LiveMigratable" && own["status"] == "True";
            let is_block = vmi["status"]["migrationMethod"] == "BlockMigration";
            let is_ready = is_block && conditions.iter().any(yes);
            if is_ready { Ok(()) } else { Err(vmi["status"].to_string()) }
        });
        pair
    }

    fn get(&self, path: &str) -> Value {
        self.one.sheaf.http().get(path).ok()
    }

    /// The volume is a complete file of one node, and nothing is left of it on the other.
    fn is_only_on(&self, node: &Node, name: &str) {
        let other = if name == "one" { &self.two } else { &self.one };
        let volume = poll("the volume does not move", || {
            let volume = self.get(&format!("{VOLUMES}/{}", self.volume));
            match volume["metadata"]["annotations"]["sheaf.io/volume-move"].is_null() {
                true => Ok(volume),
                false => Err(volume.to_string()),
            }
        });
        let terms = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
        assert_eq!(terms[0]["matchExpressions"][0]["values"], json!([name]), "{volume}");
        assert_eq!(terms.as_array().map(Vec::len), Some(1), "{volume}");
        eventually("the other node has no file of it", || {
            !file(other, &self.volume).parent().unwrap().exists()
        });
        eventually("its directory has no mark", || {
            let directory = fs::read_dir(file(node, &self.volume).parent().unwrap()).unwrap();
            directory.count() == 1
        });
        let now = fs::read(file(node, &self.volume)).unwrap();
        assert_eq!(now.len(), SIZE);
        assert!(now[..512] == self.data[..512], "its first sector has changed");
        assert!(now[COUNTED..] == self.data[COUNTED..], "data is lost");
        let counted = u32::from_le_bytes(now[512..516].try_into().unwrap());
        assert!(counted > 0, "the guest does not write to it");
    }

    /// Has migrations copy slowly, or as fast as they can.
    fn limit(&self, bandwidth: Value) {
        let migrations = json!({"bandwidthPerMigration": bandwidth});
        let patch = json!({"spec": {"configuration": {"migrations": migrations}}});
        self.one.sheaf.http().merge(KUBEVIRT, &patch).ok();
    }

    /// Begins a migration that copies slowly, and waits until it does.
    fn begin(&self, name: &str) {
        self.limit(json!("200Ki"));
        migrate(&self.one, name, &json!({}));
        self.one.until(&format!("{MIGRATIONS}/{name}"), "/status/phase", "Running");
        for node in [&self.one, &self.two] {
            eventually("both nodes have a file", || file(node, &self.volume).exists());
        }
    }
}

#[test]
fn a_local_volume_moves_with_its_guest_and_back() {
    let pair = Pair::new("shfmigloc", "10.199.73");
    let (one, two) = (&pair.one, &pair.two);
    let first = counter(one);
    let printed = one.sheaf.run("vm migrate a --to two");
    assert_has(&printed, "a is migrating to node two");
    assert_has(&printed, "a is on node two now");
    until_on(one, "two");
    pair.is_only_on(two, "two");
    let second = counter(one);
    assert!(second > first, "{first} {second}: it was started again");
    eventually("the source is gone", || one.processes().is_empty());
    let volume = pair.get(&format!("{VOLUMES}/{}", pair.volume));
    assert_eq!(volume["metadata"]["annotations"]["sheaf.io/previous-nodes"], "one");
    let claim = pair.get(&format!("{CLAIMS}/root"));
    assert_eq!(claim["status"]["phase"], "Bound", "{claim}");

    // Its next start is where the volume is by now.
    one.sheaf.run("vm restart a");
    poll("it is started again on its node", || {
        let reply = one.sheaf.http().get(&format!("{VMIS}/a")).json();
        let status = &reply["status"];
        let is_new = status["phase"] == "Running" && status["migrationState"].is_null();
        if is_new { Ok(()) } else { Err(reply.to_string()) }
    });
    until_on(one, "two");
    let third = counter(one);

    // And back, to a node that has had it.
    poll("it can be migrated again", || {
        let output = one.sheaf.command("vm migrate a --no-wait");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    });
    until_on(one, "one");
    pair.is_only_on(one, "one");
    assert!(counter(one) > third);
    eventually("the source is gone", || two.processes().is_empty());
    let volume = pair.get(&format!("{VOLUMES}/{}", pair.volume));
    assert_eq!(volume["metadata"]["annotations"]["sheaf.io/previous-nodes"], "two");
}

#[test]
fn a_copy_that_is_interrupted_leaves_nothing_and_the_guest_where_it_is() {
    let mut pair = Pair::new("shfmiglox", "10.199.74");
    let first = counter(&pair.one);

    // The agent of the target is killed.
    pair.begin("target");
    pair.two.sheaf.kill();
    until_over(&pair.one, "target", "Failed");
    until_on(&pair.one, "one");
    let second = counter(&pair.one);
    assert!(second > first, "{first} {second}: it was started again");
    pair.two.sheaf.begin();
    pair.is_only_on(&pair.one, "one");
    eventually("the target is gone", || pair.two.processes().is_empty());

    // It moves later.
    pair.limit(Value::Null);
    until_ready(&pair.one, "two");
    migrate(&pair.one, "there", &json!({}));
    until_over(&pair.one, "there", "Succeeded");
    pair.is_only_on(&pair.two, "two");
    let third = counter(&pair.one);
    assert!(third > second, "{second} {third}: it was started again");

    // The agent of the source is killed.
    pair.begin("source");
    pair.two.sheaf.kill();
    pair.two.sheaf.begin();
    until_over(&pair.one, "source", "Failed");
    until_on(&pair.one, "two");
    let fourth = counter(&pair.one);
    assert!(fourth > third, "{third} {fourth}: it was started again");
    pair.is_only_on(&pair.two, "two");
    eventually("the target is gone", || pair.one.processes().is_empty());

    // Cancelled by a person.
    pair.begin("cancelled");
    assert_has(pair.one.sheaf.run("vm migrate a --cancel"), "is being cancelled");
    eventually("it is cancelled", || {
        pair.one.sheaf.http().get(&format!("{MIGRATIONS}/cancelled")).status == 404
    });
    assert!(counter(&pair.one) > fourth);
    pair.is_only_on(&pair.two, "two");
}
