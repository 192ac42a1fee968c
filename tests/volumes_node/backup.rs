//! Machines are backed up to a bucket, and come back from it with their data.

use serde_json::{Value, json};

use super::lab::{self, CLAIMS, Lab, VMS, longhorn};
use crate::harness::{BUCKET, Bucket, KEY, eventually, poll};

const SETTING: &str = "/apis/harvesterhci.io/v1beta1/settings/backup-target";
const BACKUPS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups";
const RESTORES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinerestores";
const SECRET: &str = "/api/v1/namespaces/longhorn-system/secrets/harvester-backup-target-secret";

fn reference(name: &str) -> Value {
    json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name})
}

fn condition(setting: &Value) -> (String, String) {
    let found = setting["status"]["conditions"].as_array().and_then(|all| all.first().cloned());
    let text = |field: &str| {
        found.as_ref().map_or("", |own| own[field].as_str().unwrap_or_default()).to_owned()
    };
    (text("status"), text("message"))
}

/// Sets the target, and waits until it is said to be reached or not.
fn set_target(lab: &Lab, bucket: &Bucket, key: &str, expected: (&str, &str)) {
    let value = json!({"type": "s3", "endpoint": bucket.url(), "accessKeyId": key,
        "secretAccessKey": "very-secret", "bucketName": BUCKET, "bucketRegion": "us-east-1",
        "refreshIntervalInSeconds": 5});
    lab.node.sheaf.http().merge(SETTING, &json!({"value": value.to_string()})).ok();
    poll("the setting has the target", || {
        let setting = lab.node.sheaf.http().get(SETTING).ok();
        let stripped = !setting["value"].as_str().unwrap_or_default().contains("very-secret");
        let (status, message) = condition(&setting);
        let is = status == expected.0 && message.contains(expected.1) && stripped;
        if is { Ok(()) } else { Err(setting.to_string()) }
    });
}

fn back_up(lab: &Lab, name: &str) {
    let backup = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup",
        "metadata": {"name": name}, "spec": {"source": reference("a"), "type": "backup"}});
    lab.node.sheaf.http().post(BACKUPS, &backup).ok();
}

fn until_ready(lab: &Lab, name: &str) -> Value {
    poll(&format!("backup {name} is complete"), || {
        let backup = lab.node.sheaf.http().get(&format!("{BACKUPS}/{name}")).ok();
        if backup["status"]["readyToUse"] == true { Ok(backup) } else { Err(backup.to_string()) }
    })
}

fn write(lab: &Lab, volume: &str, commands: &[&str]) {
    lab.want(volume, Some("one"));
    lab.until_served(volume);
    lab.io(volume, commands);
    lab.want(volume, None);
    lab.until_state(volume, "detached");
}

/// The first claim of a machine.
fn claim_of(lab: &Lab, machine: &str) -> String {
    let vm = lab.node.sheaf.http().get(&format!("{VMS}/{machine}")).ok();
    let volume = &vm["spec"]["template"]["spec"]["volumes"][0];
    volume["persistentVolumeClaim"]["claimName"].as_str().unwrap().to_owned()
}

fn restore(lab: &Lab, name: &str, target: &str, backup: &str) {
    let restore = json!({"apiVersion": "harvesterhci.io/v1beta1",
        "kind": "VirtualMachineRestore", "metadata": {"name": name}, "spec": {
            "target": reference(target), "virtualMachineBackupName": backup,
            "virtualMachineBackupNamespace": "default", "newVM": true,
            "haltAfterRestore": true}});
    lab.node.sheaf.http().post(RESTORES, &restore).ok();
    poll(&format!("{name} is done"), || {
        let own = lab.node.sheaf.http().get(&format!("{RESTORES}/{name}")).ok();
        if own["status"]["complete"] == true { Ok(()) } else { Err(own.to_string()) }
    });
}

#[test]
fn a_machine_that_was_deleted_comes_back_from_its_backup() {
    let lab = Lab::start();
    let http = lab.node.sheaf.http();
    let bucket = Bucket::start();
    set_target(&lab, &bucket, "wrong", ("False", "failed to connect to backup target"));
    set_target(&lab, &bucket, KEY, ("True", ""));
    assert!(http.get(SECRET).ok()["data"]["AWS_SECRET_ACCESS_KEY"].is_string());

    let volume = lab.claim("root", "64Mi");
    write(&lab, &volume, &["write -P 1 0 4M", "write -P 2 20M 4M", "flush"]);
    lab.node.kubectl().apply(&lab::machine("a", "root", "Halted"));
    back_up(&lab, "monday");
    let backup = until_ready(&lab, "monday");
    assert_eq!(backup["status"]["progress"], 100, "{backup}");
    assert_eq!(backup["status"]["volumeBackups"].as_array().unwrap().len(), 1);
    // Two blocks of ones are one file, and two of twos another.
    assert_eq!(bucket.take_written().len(), 2);
    eventually("nothing is left of the snapshot", || {
        let left = |kind: &str| http.get(&longhorn(kind)).ok()["items"].as_array().unwrap().len();
        left("snapshots") == 0 && left("volumes") == 1
    });

    write(&lab, &volume, &["write -P 3 40M 2M", "write -P 0 0 2M", "flush"]);
    back_up(&lab, "tuesday");
    until_ready(&lab, "tuesday");
    assert_eq!(bucket.take_written().len(), 1, "only what changed is sent");

    http.delete(&format!("{VMS}/a")).ok();
    http.delete(&format!("{CLAIMS}/root")).ok();
    eventually("the volume is gone", || {
        http.get(&longhorn("volumes")).ok()["items"].as_array().unwrap().is_empty()
    });

    restore(&lab, "back", "b", "tuesday");
    restore(&lab, "older", "c", "monday");
    let read = |machine: &str, commands: &[&str]| {
        let volume = lab.until_bound(&claim_of(&lab, machine));
        write(&lab, &volume, commands);
    };
    let newer = ["read -P 0 0 2M", "read -P 1 2M 2M", "read -P 0 4M 16M", "read -P 2 20M 4M"];
    read("b", &[&newer[..], &["read -P 3 40M 2M", "read -P 0 42M 22M"]].concat());
    read("c", &["read -P 1 0 4M", "read -P 0 4M 16M", "read -P 2 20M 4M", "read -P 0 24M 40M"]);

    http.delete(&format!("{BACKUPS}/monday")).ok();
    eventually("the backup is gone", || http.get(&format!("{BACKUPS}/monday")).status == 404);
    assert_eq!(bucket.keys("/backups/").len(), 1);
    assert_eq!(bucket.keys(".blk").len(), 3, "the other backup has its blocks");
    http.delete(&format!("{BACKUPS}/tuesday")).ok();
    eventually("the blocks are gone", || bucket.keys(".blk").is_empty());
}

#[test]
fn an_upload_goes_on_where_the_server_was_killed() {
    let mut lab = Lab::start();
    let bucket = Bucket::start();
    set_target(&lab, &bucket, KEY, ("True", ""));
    let volume = lab.claim("root", "64Mi");
    let all: Vec<String> = (0..20).map(|n| format!("write -P {} {}M 2M", n + 1, n * 2)).collect();
    let mut commands: Vec<&str> = all.iter().map(String::as_str).collect();
    commands.push("flush");
    write(&lab, &volume, &commands);
    lab.node.kubectl().apply(&lab::machine("a", "root", "Halted"));
    bucket.allow(Some(7));
    back_up(&lab, "monday");
    eventually("the upload is under way", || bucket.written() == 7);
    lab.node.sheaf.kill();
    let configs = bucket.keys("/backups/");
    let config = bucket.get(configs.first().unwrap()).unwrap();
    let config: Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(config["CreatedTime"], "", "a partial upload is not reported as complete");
    bucket.allow(None);
    lab.node.sheaf.begin();
    until_ready(&lab, "monday");
    let mut written = bucket.take_written();
    written.sort();
    let count = written.len();
    written.dedup();
    // Those that were on their way when the server died arrived all the same.
    assert_eq!((count, written.len()), (20, 20), "no block is sent twice");
    restore(&lab, "back", "b", "monday");
    let restored = lab.until_bound(&claim_of(&lab, "b"));
    let all: Vec<String> = all.iter().map(|own| own.replace("write", "read")).collect();
    write(&lab, &restored, &all.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_machine_comes_back_in_another_cluster_with_its_secrets() {
    let bucket = Bucket::start();
    {
        let lab = Lab::start();
        set_target(&lab, &bucket, KEY, ("True", ""));
        let volume = lab.claim("root", "64Mi");
        write(&lab, &volume, &["write -P 7 8M 4M", "flush"]);
        lab.node.kubectl().apply(SEED);
        let machine = lab::machine("a", "root", "Halted")
            .replace("{bus: virtio}}]", "{bus: virtio}}, {name: seed, disk: {bus: virtio}}]")
            .replace(
                "{claimName: root}}]",
                "{claimName: root}}, {name: seed, cloudInitNoCloud: {secretRef: {name: seed}}}]",
            );
        lab.node.kubectl().apply(&machine);
        back_up(&lab, "monday");
        let stored = until_described(&lab, "monday");
        assert_eq!(stored["status"]["secretBackups"][0]["name"], "seed");
        assert!(!stored.to_string().contains("Ym9vdA=="), "the secret is not in the backup");
    }
    let files = bucket.keys("harvester/vmbackups/");
    assert_eq!(files, ["harvester/vmbackups/default/monday.cfg"]);
    let described: Value = serde_json::from_slice(&bucket.get(&files[0]).unwrap()).unwrap();
    assert_eq!(described["vmSourceSpec"]["metadata"]["name"], "a");
    assert_eq!(described["secretBackups"][0]["data"]["userdata"], "Ym9vdA==");

    let lab = Lab::start();
    let http = lab.node.sheaf.http();
    set_target(&lab, &bucket, KEY, ("True", ""));
    eventually("the backup of the other cluster is found", || {
        http.get(&format!("{BACKUPS}/monday")).status == 200
    });
    let backup = until_described(&lab, "monday");
    assert_eq!(backup["status"]["readyToUse"], true, "{backup}");
    assert!(!backup.to_string().contains("Ym9vdA=="), "the secret is not in the backup");
    restore(&lab, "back", "b", "monday");
    let volume = lab.until_bound(&claim_of(&lab, "b"));
    write(&lab, &volume, &["read -P 0 0 8M", "read -P 7 8M 4M", "read -P 0 12M 52M"]);
    let secret = http.get("/api/v1/namespaces/default/secrets/b-seed").ok();
    assert_eq!(secret["data"]["userdata"], "Ym9vdA==");
    let vm = http.get(&format!("{VMS}/b")).ok();
    let volumes = vm["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
    let seed = volumes.iter().find(|own| own["name"] == "seed").unwrap();
    assert_eq!(seed["cloudInitNoCloud"]["secretRef"]["name"], "b-seed");

    http.delete(&format!("{BACKUPS}/monday")).ok();
    eventually("the backup is gone", || http.get(&format!("{BACKUPS}/monday")).status == 404);
    assert!(bucket.keys("harvester/").is_empty(), "its description is gone with it");
    eventually("the blocks are gone", || bucket.keys(".blk").is_empty());
    let left = http.get("/api/v1/namespaces/longhorn-system/secrets").ok();
    assert!(!left.to_string().contains("sheaf.io/vm-backup-metadata"), "{left}");
}

const SEED: &str = "
apiVersion: v1
kind: Secret
metadata: {name: seed}
stringData: {userdata: boot}
";

/// Waits until the description of a backup is on the target.
fn until_described(lab: &Lab, name: &str) -> Value {
    poll(&format!("backup {name} is described"), || {
        let backup = lab.node.sheaf.http().get(&format!("{BACKUPS}/{name}")).ok();
        let conditions = backup["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_stored = |own: &Value| own["type"] == "MetadataReady" && own["status"] == "True";
        if conditions.iter().any(is_stored) { Ok(backup) } else { Err(backup.to_string()) }
    })
}
