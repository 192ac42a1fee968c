//! Volumes of a node: made for claims, filled from everywhere, grown and removed, whatever
//! happens in between.

pub(crate) mod registry;
pub(crate) mod web;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use serde_json::{Value, json};

use crate::harness::{Http, Node, Sheaf, assert_has, eventually, poll};
use registry::Registry;
use web::{Fault, Web};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const DATA_VOLUMES: &str = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datavolumes";
const MIB: usize = 1 << 20;

/// A server with its agent.
fn node() -> (Sheaf, Http) {
    let mut sheaf = Sheaf::prepared(&["--node-name", "one", "--guest-network", "user"]);
    // Images are read by a user who owns nothing else, and who must be able to pass.
    let above = sheaf.data().parent().unwrap().to_owned();
    fs::set_permissions(above, fs::Permissions::from_mode(0o711)).unwrap();
    sheaf.begin();
    let http = sheaf.http();
    (sheaf, http)
}

/// 24 MiB of which a third is data that does not repeat and cannot be compressed away.
fn disk() -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut content = vec![0; 24 * MIB];
    for (index, chunk) in content.chunks_mut(MIB).enumerate() {
        if index % 3 != 0 {
            continue;
        }
        for word in chunk.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
    }
    content
}

/// The disk as an image of some format.
fn image(sheaf: &Sheaf, format: &str) -> Vec<u8> {
    let (raw, out) = (sheaf.scratch("disk.raw"), sheaf.scratch("disk.out"));
    fs::write(&raw, disk()).unwrap();
    run(Command::new("qemu-img").args(["convert", "-f", "raw", "-O", format]).arg(&raw).arg(&out));
    let image = fs::read(&out).unwrap();
    fs::remove_file(&out).unwrap();
    image
}

fn squeeze(sheaf: &Sheaf, tool: &str, content: &[u8]) -> Vec<u8> {
    let file = sheaf.scratch("squeezed");
    fs::write(&file, content).unwrap();
    let output = Command::new(tool).arg("-c").arg("-1").arg(&file).output();
    let output = output.unwrap_or_else(|error| panic!("{tool} cannot be run: {error}"));
    assert!(output.status.success());
    output.stdout
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {complaint}");
}

fn sha256(content: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), content).unwrap();
    let output = Command::new("sha256sum").arg(file.path()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).split(' ').next().unwrap().to_owned()
}

fn data_volume(name: &str, source: &Value, size: &str) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {"name": name},
        "spec": {"source": source, "storage": {
            "storageClassName": "local-immediate",
            "resources": {"requests": {"storage": size}},
        }},
    })
}

fn import(http: &Http, name: &str, source: &Value, size: &str) {
    http.post(DATA_VOLUMES, &data_volume(name, source, size)).ok();
}

fn web_source(url: &str) -> Value {
    json!({"http": {"url": url}})
}

#[track_caller]
fn until_phase(http: &Http, name: &str, phase: &str) -> Value {
    let mut last = Value::Null;
    poll(&format!("the data volume {name} is {phase}"), || {
        last = http.get(&format!("{DATA_VOLUMES}/{name}")).ok();
        if last["status"]["phase"] == phase { Ok(()) } else { Err(last["status"].to_string()) }
    });
    last
}

#[track_caller]
fn until_trouble(http: &Http, name: &str, part: &str) {
    poll(&format!("the data volume {name} complains"), || {
        let status = http.get(&format!("{DATA_VOLUMES}/{name}")).ok()["status"].to_string();
        if status.contains(part) { Ok(()) } else { Err(status) }
    });
}

#[track_caller]
fn refused(http: &Http, name: &str, part: &str) {
    let dv = until_phase(http, name, "Failed");
    assert_has(dv["status"]["conditions"].to_string(), part);
}

/// The directory of a claim's volume.
fn folder(sheaf: &Sheaf, http: &Http, claim: &str) -> PathBuf {
    let claim = http.get(&format!("{CLAIMS}/{claim}")).ok();
    sheaf.data().join("volumes").join(claim["spec"]["volumeName"].as_str().unwrap())
}

/// The disk of a claim must have this content at its start, zeros after it, and this length.
#[track_caller]
fn assert_disk(folder: &Path, content: &[u8], length: usize) {
    let found = fs::read(folder.join("disk.img")).unwrap();
    assert_eq!(found.len(), length);
    assert!(&found[..content.len()] == content, "the content differs");
    assert!(found[content.len()..].iter().all(|byte| *byte == 0));
    let names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["disk.img"]);
}

#[test]
fn an_image_is_imported_in_all_its_wrappings() {
    let (sheaf, http) = node();
    let web = Web::start();
    let qcow2 = image(&sheaf, "qcow2");
    let cases = [
        ("raw", disk()),
        ("qcow2", qcow2.clone()),
        ("vmdk", image(&sheaf, "vmdk")),
        ("vdi", image(&sheaf, "vdi")),
        ("vhdx", image(&sheaf, "vhdx")),
        ("raw-gz", squeeze(&sheaf, "gzip", &disk())),
        ("qcow2-xz", squeeze(&sheaf, "xz", &qcow2)),
        ("raw-zst", squeeze(&sheaf, "zstd", &disk())),
    ];
    for (name, content) in &cases {
        web.put(name, content.clone(), Fault::None);
        let checksum = format!("sha256:{}", sha256(content));
        let source = json!({"http": {"url": web.url(name), "checksum": checksum}});
        import(&http, name, &source, "32Mi");
    }
    for (name, _) in &cases {
        let dv = until_phase(&http, name, "Succeeded");
        assert_eq!(dv["status"]["progress"], "100.0%");
        assert_disk(&folder(&sheaf, &http, name), &disk(), 32 * MIB);
    }
    let taken = Command::new("du").arg("-sm").arg(folder(&sheaf, &http, "raw")).output().unwrap();
    let taken = String::from_utf8_lossy(&taken.stdout);
    let taken: usize = taken.split('\t').next().unwrap().parse().unwrap();
    assert!(taken < 16, "holes stay holes, but {taken} MiB are taken");
}

#[test]
fn a_broken_connection_goes_on_where_it_stopped() {
    let (sheaf, http) = node();
    let content = image(&sheaf, "qcow2");
    let sum = format!("sha256:{}", sha256(&content));
    for (name, fault) in [
        ("ranges", Fault::Breaks(content.len() / 3 + 1)),
        ("none", Fault::BreaksWithoutRanges(content.len() / 2 + 1)),
    ] {
        let web = Web::start();
        web.put("image", content.clone(), fault);
        let source = json!({"http": {"url": web.url("moved/image"), "checksum": sum}});
        import(&http, name, &source, "32Mi");
        let dv = until_phase(&http, name, "Succeeded");
        assert!(dv["status"]["restartCount"].as_u64().unwrap() >= 1, "{}", dv["status"]);
        assert_disk(&folder(&sheaf, &http, name), &disk(), 32 * MIB);
        if name == "ranges" {
            let third = content.len() as u64 / 3 + 1;
            assert_eq!(web.asked(), [0, third, 2 * third]);
        }
    }
}

#[test]
fn faults_of_an_image_are_reported() {
    let (mut sheaf, http) = node();
    sheaf.provokes("claim cannot be filled");
    let web = Web::start();
    let qcow2 = image(&sheaf, "qcow2");
    web.put("good", qcow2.clone(), Fault::None);
    let url = web.url("good");
    let wrong = format!("sha256:{}", "0".repeat(64));
    import(&http, "sum", &json!({"http": {"url": url, "checksum": wrong}}), "32Mi");
    import(&http, "large", &web_source(&url), "8Mi");
    let evil = sheaf.scratch("evil");
    let line = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "/etc/passwd"];
    run(Command::new("qemu-img").args(line).arg(&evil).arg("1M"));
    web.put("evil", fs::read(&evil).unwrap(), Fault::None);
    import(&http, "evil", &web_source(&web.url("evil")), "32Mi");
    web.put("cut", qcow2[..qcow2.len() / 2].to_vec(), Fault::None);
    import(&http, "cut", &web_source(&web.url("cut")), "32Mi");
    let mut damaged = squeeze(&sheaf, "gzip", &disk());
    damaged.truncate(MIB);
    web.put("damaged", damaged, Fault::None);
    import(&http, "damaged", &web_source(&web.url("damaged")), "32Mi");
    refused(&http, "sum", "checksum mismatch: expected 0000");
    let both = format!(
        "Virtual image size {} is larger than the reported available storage {}",
        24 * MIB,
        8 * MIB
    );
    refused(&http, "large", &both);
    refused(&http, "evil", "/etc/passwd");
    refused(&http, "cut", "");
    refused(&http, "damaged", "cannot read the image");
    for name in ["sum", "large", "evil", "cut", "damaged"] {
        let folder = folder(&sheaf, &http, name);
        let left = fs::read_dir(&folder).unwrap().count();
        assert_eq!(left, 1, "{name}: only the empty disk is there");
    }
}

#[test]
fn hostile_images_get_no_room_and_no_files_of_the_host() {
    let (mut sheaf, http) = node();
    sheaf.provokes("claim cannot be filled");
    let web = Web::start();
    // A gigabyte of zeros in a megabyte, and of something else in not much more.
    let zeros = vec![0; 1 << 30];
    web.put("zeros", squeeze(&sheaf, "gzip", &zeros), Fault::None);
    drop(zeros);
    let ones = vec![1; 256 * MIB];
    web.put("ones", squeeze(&sheaf, "zstd", &ones), Fault::None);
    let out = sheaf.scratch("packed");
    let raw = sheaf.scratch("ones");
    fs::write(&raw, &ones).unwrap();
    drop(ones);
    run(Command::new("qemu-img").args(["convert", "-c", "-O", "qcow2"]).arg(&raw).arg(&out));
    fs::remove_file(&raw).unwrap();
    web.put("packed", fs::read(&out).unwrap(), Fault::None);
    let vast = sheaf.scratch("vast");
    run(Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&vast).arg("64T"));
    web.put("vast", fs::read(&vast).unwrap(), Fault::None);
    // Its data in a file of the host.
    let outside = sheaf.scratch("outside");
    let option = format!("data_file={},data_file_raw=on", sheaf.scratch("victim").display());
    let create = ["create", "-q", "-f", "qcow2", "-o", &option];
    run(Command::new("qemu-img").args(create).arg(&outside).arg("1M"));
    web.put("outside", fs::read(&outside).unwrap(), Fault::None);
    for name in ["zeros", "ones", "packed", "vast", "outside"] {
        import(&http, name, &web_source(&web.url(name)), "8Mi");
    }
    for (name, message) in [
        ("zeros", "larger than"),
        ("ones", "larger than"),
        ("packed", "is larger than the reported available storage"),
        ("vast", "is larger than the reported available storage"),
        ("outside", "its data is in another file"),
    ] {
        refused(&http, name, message);
        let folder = folder(&sheaf, &http, name);
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            1,
            "{name}: only the empty disk is there"
        );
        let disk = fs::metadata(folder.join("disk.img")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::blocks(&disk), 0, "{name}");
    }
}

#[test]
fn a_container_disk_that_points_at_the_host_is_refused() {
    let mut node = Node::start();
    node.sheaf.provokes("image cannot be pulled");
    node.sheaf.provokes("guest cannot be started yet");
    let registry = Registry::start(&node.sheaf.scratch("registry"));
    let tree = node.sheaf.scratch("tree");
    fs::create_dir_all(tree.join("disk")).unwrap();
    let line = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "/etc/passwd"];
    run(Command::new("qemu-img").args(line).arg(tree.join("disk/evil.qcow2")).arg("1M"));
    let layer = node.sheaf.scratch("layer.tar.gz");
    run(Command::new("tar").arg("-czf").arg(&layer).arg("-C").arg(&tree).arg("disk"));
    let image = registry.push("team/evil", &fs::read(&layer).unwrap());
    let vmi = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "a"},
        "spec": {
            "domain": {"memory": {"guest": "16Mi"}, "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
            "volumes": [{"name": "root", "containerDisk": {"image": image}}],
        },
    });
    let path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
    let http = node.sheaf.http();
    http.post(path, &vmi).ok();
    poll("the reason is reported", || {
        let output = node.sheaf.run("vm why a");
        if output.contains("only complete images") { Ok(()) } else { Err(output) }
    });
    assert!(node.processes().is_empty());
    http.delete(&format!("{path}/a")).ok();
    node.until_empty();
}

#[test]
fn missing_sources_are_waited_for() {
    let (sheaf, http) = node();
    let web = Web::start();
    let locked = json!({"http": {"url": web.url("locked"), "secretRef": "key"}});
    import(&http, "late", &web_source(&web.url("late")), "32Mi");
    import(&http, "locked", &locked, "32Mi");
    until_trouble(&http, "late", "expected status code 200, got 404. Status: 404 Not Found");
    until_trouble(&http, "locked", "secret key does not exist");
    web.put("late", disk(), Fault::None);
    web.put("locked", disk(), Fault::Locked);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"},
        "data": {"accessKeyId": STANDARD.encode("user"), "secretKey": STANDARD.encode("word")},
    });
    http.post("/api/v1/namespaces/default/secrets", &secret).ok();
    for name in ["late", "locked"] {
        until_phase(&http, name, "Succeeded");
        assert_disk(&folder(&sheaf, &http, name), &disk(), 32 * MIB);
    }
}

#[test]
fn an_image_is_uploaded_with_a_token() {
    let (mut sheaf, http) = node();
    sheaf.provokes("upload failed");
    import(&http, "up", &json!({"upload": {}}), "32Mi");
    until_phase(&http, "up", "UploadReady");
    let tokens = "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/default/uploadtokenrequests";
    let request = json!({
        "apiVersion": "upload.cdi.kubevirt.io/v1beta1", "kind": "UploadTokenRequest",
        "metadata": {"name": "t"}, "spec": {"pvcName": "up"},
    });
    let token = http.post(tokens, &request).ok()["status"]["token"].as_str().unwrap().to_owned();
    let client = sheaf.bearer(&token);
    let send = |content: Vec<u8>| client.send(Request::post("/v1beta1/upload-async"), content);
    let evil = sheaf.scratch("evil");
    let line = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "/etc/passwd"];
    run(Command::new("qemu-img").args(line).arg(&evil).arg("1M"));
    let refusal = send(fs::read(&evil).unwrap());
    assert_eq!(refusal.status, 400, "{}", refusal.text());
    assert_has(refusal.text(), "/etc/passwd");
    until_phase(&http, "up", "UploadReady");
    let reply = send(squeeze(&sheaf, "gzip", &image(&sheaf, "qcow2")));
    assert_eq!(reply.status, 200, "{}", reply.text());
    until_phase(&http, "up", "Succeeded");
    assert_disk(&folder(&sheaf, &http, "up"), &disk(), 32 * MIB);
    let again = send(disk());
    assert_eq!(again.status, 404, "a filled claim takes no second upload: {}", again.text());
}

#[test]
fn a_volume_lives_from_claim_to_removal() {
    let (sheaf, http) = node();
    let web = Web::start();
    web.put("image", disk(), Fault::None);
    import(&http, "base", &web_source(&web.url("image")), "32Mi");
    let from = json!({"pvc": {"namespace": "default", "name": "base"}});
    import(&http, "copy", &from, "48Mi");
    let plain = |name: &str, extra: Value| {
        let mut claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {
                "storageClassName": "local-immediate", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "32Mi"}},
            },
        });
        for (key, value) in extra.as_object().unwrap() {
            claim["spec"][key] = value.clone();
        }
        http.post(CLAIMS, &claim).ok();
    };
    plain("twin", json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "base"}}));
    plain("later", json!({"storageClassName": "local"}));
    until_phase(&http, "base", "Succeeded");
    until_phase(&http, "copy", "Succeeded");
    assert_disk(&folder(&sheaf, &http, "copy"), &disk(), 48 * MIB);
    let bound =
        |name: &str| http.get(&format!("{CLAIMS}/{name}")).ok()["status"]["phase"] == "Bound";
    eventually("the twin is bound", || bound("twin"));
    assert_disk(&folder(&sheaf, &http, "twin"), &disk(), 32 * MIB);
    assert!(!bound("later"), "no pod consumes it");

    let larger = json!({"spec": {"resources": {"requests": {"storage": "64Mi"}}}});
    http.merge(&format!("{CLAIMS}/twin"), &larger).ok();
    eventually("the twin has grown", || {
        http.get(&format!("{CLAIMS}/twin")).ok()["status"]["capacity"]["storage"] == "64Mi"
    });
    let twin = folder(&sheaf, &http, "twin");
    assert_disk(&twin, &disk(), 64 * MIB);
    let volume = twin.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(
        http.get(&format!("{VOLUMES}/{volume}")).ok()["spec"]["capacity"]["storage"],
        "64Mi"
    );
    // Its file cannot be opened any more.
    fs::remove_file(twin.join("disk.img")).unwrap();
    fs::create_dir(twin.join("disk.img")).unwrap();
    let larger = json!({"spec": {"resources": {"requests": {"storage": "72Mi"}}}});
    http.merge(&format!("{CLAIMS}/twin"), &larger).ok();
    eventually("the claim says why it does not grow", || {
        let events = http.get("/api/v1/namespaces/default/events").ok();
        events["items"].as_array().unwrap().iter().any(|event| {
            event["reason"] == "VolumeResizeFailed" && event["involvedObject"]["name"] == "twin"
        })
    });
    fs::remove_dir(twin.join("disk.img")).unwrap();

    let copy = folder(&sheaf, &http, "copy");
    let kept = copy.file_name().unwrap().to_str().unwrap().to_owned();
    let retain = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
    http.merge(&format!("{VOLUMES}/{kept}"), &retain).ok();
    http.delete(&format!("{CLAIMS}/twin")).ok();
    http.delete(&format!("{DATA_VOLUMES}/copy")).ok();
    eventually("the twin is gone", || {
        !twin.exists() && http.get(&format!("{VOLUMES}/{volume}")).status == 404
    });
    eventually("the copy is released", || {
        http.get(&format!("{VOLUMES}/{kept}")).ok()["status"]["phase"] == "Released"
    });
    http.delete(&format!("{VOLUMES}/{kept}")).ok();
    eventually("the copy's volume is gone", || {
        http.get(&format!("{VOLUMES}/{kept}")).status == 404
    });
    assert_disk(&copy, &disk(), 48 * MIB);
}

#[test]
fn a_killed_import_begins_again_and_leaves_nothing() {
    let (mut sheaf, _) = node();
    let web = Web::start();
    let content = disk();
    web.put("image", content.clone(), Fault::Hangs(content.len() / 2));
    import(&sheaf.http(), "held", &web_source(&web.url("image")), "32Mi");
    import(&sheaf.http(), "gone", &web_source(&web.url("image")), "32Mi");
    let http = sheaf.http();
    let folders = ["held", "gone"].map(|name| {
        until_phase(&http, name, "ImportInProgress");
        let folder = folder(&sheaf, &http, name);
        eventually("half of it is there", || {
            fs::read_dir(&folder).unwrap().any(|entry| {
                let entry = entry.unwrap();
                entry.file_name().to_string_lossy().starts_with("fill-")
                    && entry.metadata().unwrap().len() > 4 * MIB as u64
            })
        });
        folder
    });
    sheaf.kill();
    // Made by a process that had no time to make the volume.
    let orphan = sheaf.data().join("volumes/pvc-00000000-0000-0000-0000-000000000000");
    fs::create_dir(&orphan).unwrap();
    fs::write(orphan.join("new"), "").unwrap();
    // Not made by Sheaf.
    let foreign = sheaf.data().join("volumes/pvc-11111111-1111-1111-1111-111111111111");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("disk.img"), "data").unwrap();
    sheaf.begin();
    let http = sheaf.http();
    eventually("the orphan is gone", || !orphan.exists());
    // A deleted claim ends its import, though the server hangs.
    http.delete(&format!("{DATA_VOLUMES}/gone")).ok();
    eventually("the deleted one is gone", || !folders[1].exists());
    web.open();
    until_phase(&http, "held", "Succeeded");
    assert_disk(&folders[0], &content, 32 * MIB);
    assert!(foreign.join("disk.img").exists());
}

#[test]
fn a_container_disk_is_imported_from_a_registry() {
    let (mut sheaf, http) = node();
    sheaf.provokes("claim cannot be filled");
    let registry = Registry::start(&sheaf.scratch("registry"));
    let tree = sheaf.scratch("tree");
    fs::create_dir_all(tree.join("disk")).unwrap();
    fs::write(tree.join("disk/disk.qcow2"), image(&sheaf, "qcow2")).unwrap();
    let layer = sheaf.scratch("layer.tar.gz");
    run(Command::new("tar").arg("-czf").arg(&layer).arg("-C").arg(&tree).arg("disk"));
    let name = registry.push("team/disk", &fs::read(&layer).unwrap());
    fs::rename(tree.join("disk"), tree.join("other")).unwrap();
    run(Command::new("tar").arg("-czf").arg(&layer).arg("-C").arg(&tree).arg("other"));
    let empty = registry.push("team/empty", &fs::read(&layer).unwrap());
    let source = |name: &str| json!({"registry": {"url": format!("docker://{name}")}});
    import(&http, "disk", &source(&name), "32Mi");
    import(&http, "empty", &source(&empty), "32Mi");
    import(&http, "missing", &source(&format!("{}/absent/image:1", registry.address)), "32Mi");
    until_phase(&http, "disk", "Succeeded");
    assert_disk(&folder(&sheaf, &http, "disk"), &disk(), 32 * MIB);
    refused(&http, "empty", "has no disk");
    until_trouble(&http, "missing", "trying again");
}

#[test]
fn a_machine_starts_from_a_container_disk_and_keeps_nothing() {
    let mut node = Node::start();
    node.sheaf.provokes("image cannot be pulled");
    node.sheaf.provokes("guest cannot be started yet");
    let registry = Registry::start(&node.sheaf.scratch("registry"));
    let tree = node.sheaf.scratch("tree");
    fs::create_dir_all(tree.join("disk")).unwrap();
    fs::rename(node.disk("pulse.img"), tree.join("disk/pulse.img")).unwrap();
    let layer = node.sheaf.scratch("layer.tar.gz");
    run(Command::new("tar").arg("-czf").arg(&layer).arg("-C").arg(&tree).arg("disk"));
    let http = node.sheaf.http();
    let vm = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "a"},
        "spec": {"runStrategy": "Always", "template": {"spec": {
            "domain": {"memory": {"guest": "16Mi"}, "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "default", "masquerade": {}}]}},
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "root", "containerDisk": {
                "image": format!("{}/team/pulse:1", registry.address)}}],
        }}},
    });
    http.post("/apis/kubevirt.io/v1/namespaces/default/virtualmachines", &vm).ok();
    let path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/a";
    poll("the image is missed", || {
        let vmi = http.get(path).text();
        let is_missing = vmi.contains("ErrImagePull") || vmi.contains("ImagePullBackOff");
        if is_missing { Ok(()) } else { Err(vmi) }
    });
    registry.push("team/pulse", &fs::read(&layer).unwrap());
    let first = node.until(path, "/status/phase", "Running")["metadata"]["uid"].clone();
    node.until_said("boot 1");
    http.delete(path).ok();
    eventually("it is started again", || {
        let vmi = http.get(path).json();
        vmi["metadata"]["uid"] != first && vmi["status"]["phase"] == "Running"
    });
    node.until_said("boot 1");
    assert!(!node.said().contains("boot 2"));
}
