//! Images: fetched and uploaded by real clients, refused when they are not what they should be,
//! taken up again after a crash, and machines that boot from them.

mod clone;
mod fault;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use http::Request;
use serde_json::{Value, json};

use crate::harness::{Node, Reply, assemble, assert_has, eventually, poll};
use crate::volume::web::{Fault, Web};

const IMAGES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const LONGHORN: &str = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system";
const UPLOADS: &str = "/v1/harvester/harvesterhci.io.virtualmachineimages/default";
const MIB: usize = 1 << 20;

/// A node whose disk takes data, however full the machine is that tests run on.
fn start() -> Node {
    let mut node = Node::start();
    node.sheaf.provokes("image cannot be imported");
    node.sheaf.provokes("upload failed");
    let http = node.sheaf.http();
    let setting = format!("{LONGHORN}/settings/storage-minimal-available-percentage");
    poll("settings can be changed", || said(&http.merge(&setting, &json!({"value": "0"}))));
    let own = format!("{LONGHORN}/nodes/one");
    poll("the node has its disk", || {
        let found = http.get(&own).json();
        match found["status"]["diskStatus"]["default-disk"]["diskUUID"].as_str() {
            Some(uuid) if !uuid.is_empty() => Ok(()),
            _ => Err(found.to_string()),
        }
    });
    let unreserved = json!({"spec": {"disks": {"default-disk": {"storageReserved": 0}}}});
    http.merge(&own, &unreserved).ok();
    node
}

fn said(reply: &Reply) -> Result<(), String> {
    if reply.status < 300 { Ok(()) } else { Err(reply.text()) }
}

/// 8 MiB of data that cannot be compressed away, in a disk of 12.
fn disk() -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut content = vec![0; 12 * MIB];
    for word in content[..8 * MIB].chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    content
}

fn qcow2(node: &Node, raw: &[u8]) -> Vec<u8> {
    let (from, to) = (node.sheaf.scratch("from.raw"), node.sheaf.scratch("to.qcow2"));
    fs::write(&from, raw).unwrap();
    let line = ["convert", "-f", "raw", "-O", "qcow2"];
    assert!(Command::new("qemu-img").args(line).arg(&from).arg(&to).status().unwrap().success());
    fs::read(to).unwrap()
}

/// An image that gives a file of the host to a guest that boots from it.
fn evil(node: &Node) -> Vec<u8> {
    let path = node.sheaf.scratch("evil.qcow2");
    let line = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "/etc/passwd"];
    assert!(Command::new("qemu-img").args(line).arg(&path).arg("1M").status().unwrap().success());
    fs::read(path).unwrap()
}

fn image(name: &str, source: &str, spec: Value) -> Value {
    let mut image = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": {"name": name},
        "spec": {"displayName": name, "sourceType": source, "retry": 0},
    });
    for (key, value) in spec.as_object().unwrap() {
        image["spec"][key] = value.clone();
    }
    image
}

fn download(node: &Node, name: &str, url: &str, spec: Value) {
    let mut image = image(name, "download", spec);
    image["spec"]["url"] = json!(url);
    node.sheaf.http().post(IMAGES, &image).ok();
}

fn condition(image: &Value, kind: &str) -> Value {
    let all = image["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|own| own["type"] == kind).unwrap_or_default()
}

#[track_caller]
fn until(node: &Node, name: &str, kind: &str, status: &str) -> Value {
    let http = node.sheaf.http();
    poll(&format!("{kind} of image {name} is {status}"), || {
        let found = http.get(&format!("{IMAGES}/{name}")).json();
        match condition(&found, kind)["status"] == status {
            true => Ok(found),
            false => Err(found.to_string()),
        }
    })
}

/// The complete images on the node's disk, and other files of any image.
fn files(node: &Node) -> Vec<PathBuf> {
    let root = node.sheaf.data().join("storage/disk/backing-images");
    let folders = fs::read_dir(root).into_iter().flatten().flatten();
    let files = folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten());
    files.flatten().map(|file| file.path()).collect()
}

#[track_caller]
fn backing(node: &Node) -> PathBuf {
    let files = files(node);
    let found = files.iter().find(|path| path.ends_with("backing"));
    found.unwrap_or_else(|| panic!("no image among {files:?}")).clone()
}

fn sum(program: &str, path: &Path) -> String {
    let output = Command::new(program).arg(path).output().unwrap();
    String::from_utf8_lossy(&output.stdout).split(' ').next().unwrap().to_owned()
}

#[test]
fn machines_boot_from_an_image_that_was_fetched_and_it_stays_as_it_is() {
    let node = start();
    let web = Web::start();
    let mut raw = assemble("pulse");
    raw.resize(MIB, 0);
    let content = qcow2(&node, &raw);
    let file = node.sheaf.scratch("to.qcow2");
    web.put("pulse.qcow2", content, Fault::None);
    let sha = sum("sha512sum", &file);
    let line = format!("image import pulse {} --checksum {sha}", web.url("pulse.qcow2"));
    assert_has(node.sheaf.run(&line), "pulse is ready: a disk of 1 MiB");

    let image = until(&node, "pulse", "Imported", "True");
    let (uid, status) = (image["metadata"]["uid"].as_str().unwrap(), &image["status"]);
    let class = format!("lh-{uid}");
    assert_eq!(status["storageClassName"], class.as_str());
    assert_eq!((&status["progress"], &status["virtualSize"]), (&json!(100), &json!(MIB)));
    assert_eq!(status["size"], fs::metadata(&file).unwrap().len());
    assert_eq!(status["appliedUrl"], web.url("pulse.qcow2"));
    assert_eq!(condition(&image, "Initialized")["status"], "True");
    assert_eq!(condition(&image, "Imported")["reason"], "Imported");
    assert_eq!(image["metadata"]["labels"]["harvesterhci.io/imageDisplayName"], "pulse");
    assert_has(node.sheaf.run("image list"), "ready");
    let base = backing(&node);
    assert_eq!(fs::read(&base).unwrap(), raw);

    let line = "vm create web --image pulse --memory 16Mi --disk 16Mi";
    assert_has(node.sheaf.run(line), "machine web is created");
    node.until_said("boot 1");
    let vmi = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/web";
    let http = node.sheaf.http();
    http.delete(vmi).ok();
    node.until_said("boot 2");
    assert_eq!(fs::read(&base).unwrap(), raw, "what a machine writes is its own");
    let refusal = http.delete(&format!("{IMAGES}/pulse")).refused(422);
    assert_has(refusal, "Cannot delete image default/pulse: being used by volume default/web-disk");

    node.sheaf.run("vm delete web");
    node.until_empty();
    eventually("the claim goes with its machine", || {
        http.get(&format!("{CLAIMS}/web-disk")).status == 404
    });
    node.sheaf.run("image delete pulse");
    assert_eq!(http.get(&format!("{CLASSES}/{class}")).status, 404);
    assert_eq!(http.get(&format!("{LONGHORN}/backingimages/vmi-{uid}")).status, 404);
    assert!(files(&node).is_empty(), "{:?}", files(&node));
}

#[test]
fn images_are_fetched_through_the_proxy_of_the_cluster() {
    let node = start();
    let proxy = Web::start();
    proxy.put("disk.raw", disk(), Fault::None);
    let http = node.sheaf.http();
    let setting = "/apis/harvesterhci.io/v1beta1/settings/http-proxy";
    let value = |no_proxy: &str| {
        let value = json!({"httpProxy": proxy.url(""), "noProxy": no_proxy});
        json!({"value": value.to_string()})
    };
    let refused = http.merge(setting, &value("192.0.2.77")).refused(422);
    assert_has(refused, "The node(s) one are not covered.");
    http.merge(setting, &value("0.0.0.0/0,::/0")).ok();
    // No name server knows this host: only the proxy can have the image.
    download(&node, "far", "http://images.example.invalid/disk.raw", json!({"retry": 3}));
    until(&node, "far", "Imported", "True");
    assert_eq!(fs::read(backing(&node)).unwrap(), disk());
    let found = http.get(setting).json();
    assert_eq!(condition(&found, "configured")["status"], "True", "{found}");
    let before = proxy.asked().len();
    download(&node, "near", "http://127.0.0.1:1/disk.raw", json!({}));
    until(&node, "near", "RetryLimitExceeded", "True");
    assert_eq!(proxy.asked().len(), before, "excluded hosts are reached without the proxy");
}

/// Imports that were given up are alarms, which are acknowledged and end with their cause.
fn check_alarms(node: &Node) {
    let all = "/apis/sheaf.io/v1/alarms";
    let http = node.sheaf.http();
    eventually("every image that failed is an alarm", || image_alarms(node).len() == 6);
    let listed = node.sheaf.run("alarm list");
    assert_has(&listed, "image default/wrong was not imported");
    assert_has(&listed, "kubectl -n default describe virtualmachineimages.harvesterhci.io wrong");
    let items = image_alarms(node);
    let own = items.iter().find(|own| own["status"]["object"]["name"] == "wrong").unwrap();
    let name = own["metadata"]["name"].as_str().unwrap();
    node.sheaf.run(&format!("alarm acknowledge {name} --comment known"));
    let spec = http.get(&format!("{all}/{name}")).ok()["spec"].clone();
    assert_eq!((&spec["acknowledged"], &spec["comment"]), (&json!(true), &json!("known")));
    assert!(!spec["acknowledgedBy"].as_str().unwrap().is_empty(), "{spec}");
    let listed = node.sheaf.run("alarm list");
    assert!(!listed.contains("image default/wrong"), "{listed}");
    assert_has(&listed, "1 acknowledged or silenced");
    assert_has(http.delete(&format!("{all}/{name}")).refused(403), "spec.acknowledged");
}

/// Alarms about imports.
fn image_alarms(node: &Node) -> Vec<Value> {
    let all = node.sheaf.http().get("/apis/sheaf.io/v1/alarms").ok();
    let mut items = all["items"].as_array().cloned().unwrap_or_default();
    items.retain(|own| own["status"]["rule"] == "ImageFailed");
    items
}

#[test]
fn wrong_images_are_refused_and_leave_nothing() {
    let node = start();
    let web = Web::start();
    let good = qcow2(&node, &disk());
    web.put("good", good.clone(), Fault::None);
    web.put("short", good[..good.len() / 2].to_vec(), Fault::None);
    web.put("evil", evil(&node), Fault::None);
    let wrong = "0".repeat(128);
    download(&node, "wrong", &web.url("good"), json!({"checksum": wrong}));
    download(&node, "no-sum", &web.url("good"), json!({"checksum": "abc"}));
    download(&node, "short", &web.url("short"), json!({}));
    download(&node, "evil", &web.url("evil"), json!({}));
    download(&node, "missing", &web.url("nothing"), json!({}));
    download(&node, "nowhere", "http://no-such-host.invalid/x", json!({}));
    for (name, kind, part) in [
        ("wrong", "Imported", "checksum mismatch: expected 000"),
        ("no-sum", "Initialized", "is not a SHA-512: it must have 128"),
        ("short", "Imported", "exceeding the end of the file"),
        ("evil", "Imported", "/etc/passwd"),
        ("missing", "Initialized", "got 404 status code from"),
        ("nowhere", "Initialized", "no such host"),
    ] {
        let image = until(&node, name, kind, "False");
        assert_has(condition(&image, kind)["message"].as_str().unwrap(), part);
        assert_eq!(condition(&image, "RetryLimitExceeded")["status"], "True", "{image}");
        assert_eq!(image["status"]["failed"], 1, "{image}");
    }
    assert_eq!(until(&node, "wrong", "Imported", "False")["status"]["progress"], 100);
    assert!(files(&node).is_empty(), "space is given back: {:?}", files(&node));
    let listed = node.sheaf.run("image list");
    assert_has(&listed, "checksum mismatch");
    check_alarms(&node);
    for name in ["wrong", "no-sum", "short", "evil", "missing", "nowhere"] {
        node.sheaf.run(&format!("image delete {name}"));
    }
    assert_eq!(node.sheaf.http().get(IMAGES).ok()["items"], json!([]));
    eventually("alarms end with their images", || image_alarms(&node).is_empty());
}

#[test]
fn an_image_is_at_most_as_large_as_the_node_allows() {
    let mut node = start();
    node.sheaf.kill();
    let arguments = ["--node-name", "one", "--guest-network", "user", "--max-image-size", "10Mi"];
    node.sheaf.set_arguments(arguments.map(str::to_owned).to_vec());
    node.sheaf.begin();
    let web = Web::start();
    let raw = disk();
    web.put("raw", raw.clone(), Fault::None);
    // 8 MiB as it comes, and 12 as a disk.
    web.put("qcow2", qcow2(&node, &raw), Fault::None);
    let packed = node.sheaf.scratch("zeros");
    fs::write(&packed, vec![0; 12 * MIB]).unwrap();
    let output = Command::new("xz").args(["-0", "-c"]).arg(&packed).output().unwrap();
    web.put("packed", output.stdout, Fault::None);
    let limit = "more than 10485760 bytes, the limit of this node (--max-image-size)";
    for (name, kind) in [("raw", "Initialized"), ("qcow2", "Imported"), ("packed", "Imported")] {
        download(&node, name, &web.url(name), json!({}));
        let image = until(&node, name, kind, "False");
        assert_has(condition(&image, kind)["message"].as_str().unwrap(), limit);
    }
    let http = node.sheaf.http();
    http.post(IMAGES, &image("up", "upload", json!({}))).ok();
    for size in ["", "&size=12582912"] {
        let request = Request::post(format!("{UPLOADS}/up?action=upload{size}"))
            .header("content-type", "application/octet-stream");
        let reply = http.send(request, raw.clone());
        assert_eq!(reply.status, 500, "{}", reply.text());
        assert_has(reply.text(), limit);
    }
    assert!(files(&node).is_empty(), "space is given back: {:?}", files(&node));
    web.put("small", raw[..8 * MIB].to_vec(), Fault::None);
    download(&node, "small", &web.url("small"), json!({}));
    until(&node, "small", "Imported", "True");
}

#[test]
fn an_import_is_tried_again_and_goes_on_after_a_crash() {
    let mut node = start();
    let web = Web::start();
    let content = qcow2(&node, &disk());
    download(&node, "late", &web.url("late"), json!({"retry": 2}));
    let image = until(&node, "late", "RetryLimitExceeded", "False");
    assert_has(
        condition(&image, "RetryLimitExceeded")["message"].as_str().unwrap(),
        "failed due to error: got 404 status code from",
    );
    // A truncated download frees its space, and is fetched again when the file is complete.
    web.put("cut", content[..content.len() / 2].to_vec(), Fault::None);
    download(&node, "cut", &web.url("cut"), json!({"retry": 2}));
    let image = until(&node, "cut", "RetryLimitExceeded", "False");
    let message = condition(&image, "RetryLimitExceeded")["message"].clone();
    assert_has(message.as_str().unwrap(), "exceeding the end of the file");
    assert!(files(&node).is_empty(), "space is given back: {:?}", files(&node));
    web.put("cut", content.clone(), Fault::None);
    web.put("late", content.clone(), Fault::None);
    web.put("slow", content.clone(), Fault::Hangs(5 * MIB));
    download(&node, "slow", &web.url("slow"), json!({}));
    let part = || files(&node).into_iter().find(|path| path.ends_with("download"));
    let stored = |path: PathBuf| fs::metadata(path).is_ok_and(|data| data.len() == 5 * MIB as u64);
    eventually("a part is stored", || part().is_some_and(stored));
    until(&node, "slow", "Imported", "Unknown");
    until(&node, "late", "Imported", "True");
    until(&node, "cut", "Imported", "True");
    let before = web.asked().len();
    node.sheaf.kill();
    node.sheaf.begin();
    eventually("the download is taken up again", || web.asked().len() > before);
    assert_eq!(web.asked()[before], 5 * MIB as u64, "from where it was");
    web.open();
    let image = until(&node, "slow", "Imported", "True");
    assert_eq!(image["status"]["failed"].as_i64().unwrap_or(0), 0, "a crash is no failure");
    let complete: Vec<PathBuf> =
        files(&node).into_iter().filter(|path| path.ends_with("backing")).collect();
    assert_eq!(complete.len(), 3);
    for path in complete {
        assert!(fs::read(&path).unwrap() == disk(), "{} differs", path.display());
    }
    // They are in use before their checksum is known; the downloaded files are removed after that.
    let sha = sum("sha512sum", &node.sheaf.scratch("to.qcow2"));
    for name in ["slow", "late", "cut"] {
        until_summed(&node, name, &sha);
    }
    let has_leftovers = |node: &Node| files(node).iter().any(|path| path.ends_with("download"));
    eventually("what they were made of is gone", || !has_leftovers(&node));

    // A process that ended in between leaves that to the next.
    node.sheaf.kill();
    let folder = backing(&node).parent().unwrap().to_owned();
    for name in ["download", "disk", "download.json"] {
        fs::write(folder.join(name), "what is left").unwrap();
    }
    node.sheaf.begin();
    eventually("leftovers are removed", || !has_leftovers(&node));
    assert!(fs::read(folder.join("backing")).unwrap() == disk());
}

/// Waits until it is known what an image was made of.
#[track_caller]
fn until_summed(node: &Node, name: &str, expected: &str) {
    let http = node.sheaf.http();
    let uid = http.get(&format!("{IMAGES}/{name}")).ok()["metadata"]["uid"].clone();
    let path = format!("{LONGHORN}/backingimages/vmi-{}", uid.as_str().unwrap());
    poll(&format!("image {name} is summed"), || {
        let found = http.get(&path).json();
        match found["status"]["checksum"] == expected {
            true => Ok(()),
            false => Err(found["status"].to_string()),
        }
    });
}

#[test]
fn images_of_all_kinds_become_the_disk_that_they_hold() {
    let node = start();
    let web = Web::start();
    let raw = node.sheaf.scratch("from.raw");
    fs::write(&raw, disk()).unwrap();
    let convert = |name: &str, options: &[&str]| {
        let to = node.sheaf.scratch(name);
        let mut tool = Command::new("qemu-img");
        let tool = tool.args(["convert", "-f", "raw"]).args(options).arg(&raw).arg(&to);
        assert!(tool.status().unwrap().success());
        to
    };
    let zipped = node.sheaf.scratch("from.raw.gz");
    assert!(Command::new("gzip").args(["-1", "-k"]).arg(&raw).status().unwrap().success());
    for (name, file) in [
        ("raw", raw.clone()),
        ("old", convert("old", &["-O", "qcow2", "-o", "compat=0.10"])),
        ("packed", convert("packed", &["-O", "qcow2", "-c"])),
        ("large", convert("large", &["-O", "qcow2", "-o", "cluster_size=2M"])),
        ("vdi", convert("vdi", &["-O", "vdi"])),
        ("zipped", zipped),
    ] {
        web.put(name, fs::read(&file).unwrap(), Fault::None);
        download(&node, name, &web.url(name), json!({}));
        until(&node, name, "Imported", "True");
        assert!(fs::read(backing(&node)).unwrap() == disk(), "{name}");
        until_summed(&node, name, &sum("sha512sum", &file));
        node.sheaf.run(&format!("image delete {name}"));
        assert!(files(&node).is_empty(), "{name} leaves {:?}", files(&node));
    }
}

#[test]
fn an_image_that_no_disk_takes_says_so_until_one_does() {
    let node = start();
    let web = Web::start();
    web.put("good", qcow2(&node, &disk()), Fault::None);
    let parameters = json!({"storageClassParameters": {"diskSelector": "nvme"}});
    download(&node, "picky", &web.url("good"), parameters);
    let initialized = || {
        let image = node.sheaf.http().get(&format!("{IMAGES}/picky")).json();
        condition(&image, "Initialized")
    };
    let why = "disk default-disk of node one does not have the tag nvme";
    eventually("it says that there is no disk", || initialized()["reason"] == "NoDisk");
    assert_has(initialized()["message"].as_str().unwrap(), why);
    assert_eq!(initialized()["status"], "Unknown", "nothing has failed");
    assert_has(node.sheaf.run("image list"), why);
    let own = format!("{LONGHORN}/nodes/one");
    let closed = json!({"spec": {"disks": {"default-disk": {"allowScheduling": false}}}});
    node.sheaf.http().merge(&own, &closed).ok();
    let is_closed = || initialized()["message"].as_str().unwrap().contains("is not schedulable");
    eventually("it says what has changed", is_closed);
    let open = json!({"allowScheduling": true, "tags": ["nvme"]});
    node.sheaf.http().merge(&own, &json!({"spec": {"disks": {"default-disk": open}}})).ok();
    let image = until(&node, "picky", "Imported", "True");
    assert_eq!(condition(&image, "Initialized")["status"], "True");
    assert_eq!(image["status"]["failed"].as_i64().unwrap_or(0), 0);
    let file = node.sheaf.scratch("to.qcow2");
    let line = format!("image import mine {}", file.display());
    let refused = node.sheaf.command(&line);
    assert!(!refused.status.success());
    assert_has(String::from_utf8_lossy(&refused.stderr), "sheaf image upload mine");
}

/// A form as browsers send it.
fn form(content: &[u8]) -> Vec<u8> {
    let head = "--frontier\r\nContent-Disposition: form-data; name=\"chunk\"; filename=\"a\"\r\n\
                Content-Type: application/octet-stream\r\n\r\n";
    [head.as_bytes(), content, b"\r\n--frontier--\r\n"].concat()
}

#[test]
fn images_are_uploaded_by_browsers_and_at_the_terminal() {
    let node = start();
    let http = node.sheaf.http();
    http.post(IMAGES, &image("up", "upload", json!({}))).ok();
    let send = |name: &str, body: Vec<u8>, size: usize| {
        let request = Request::post(format!("{UPLOADS}/{name}?action=upload&size={size}"))
            .header("content-type", "multipart/form-data; boundary=frontier");
        http.send(request, body)
    };
    let content = qcow2(&node, &disk());
    assert_eq!(send("nothing", form(&content), content.len()).status, 404);
    let bare = Request::post(format!("{UPLOADS}/up?action=upload&size=1"));
    let refusal = node.sheaf.anonymous().send(bare, "x").status;
    assert!(refusal == 401 || refusal == 403, "{refusal}");
    let bad = evil(&node);
    let reply = send("up", form(&bad), bad.len());
    assert_eq!(reply.status, 500, "{}", reply.text());
    assert_has(reply.text(), "upload failed");
    assert_has(reply.text(), "/etc/passwd");
    let image = until(&node, "up", "Imported", "False");
    assert_eq!(condition(&image, "Imported")["reason"], "UploadFailed");
    let odd = send("up", form(&vec![7; 1000]), 1000);
    assert_eq!(odd.status, 500, "{}", odd.text());
    assert_has(odd.text(), "should be a multiple of 512 bytes");
    let mut cut = form(&content);
    cut.truncate(MIB);
    assert_eq!(send("up", cut, content.len()).status, 500);
    eventually("what was cut off is removed", || files(&node).is_empty());
    let reply = send("up", form(&content), content.len());
    assert_eq!(reply.status, 200, "{}", reply.text());
    let image = until(&node, "up", "Imported", "True");
    assert_eq!(image["status"]["virtualSize"], 12 * MIB);
    assert!(fs::read(backing(&node)).unwrap() == disk());
    assert_eq!(send("up", form(&content), content.len()).status, 409, "it is complete");
    node.sheaf.run("image delete up");

    let packed = node.sheaf.scratch("disk.xz");
    fs::write(node.sheaf.scratch("disk"), disk()).unwrap();
    let output = Command::new("xz").args(["-0", "-c"]).arg(node.sheaf.scratch("disk")).output();
    fs::write(&packed, output.unwrap().stdout).unwrap();
    let printed = node.sheaf.run(&format!("image upload Debian_12 {}", packed.display()));
    assert_has(printed, "Debian_12 is ready: a disk of 12 MiB");
    assert!(fs::read(backing(&node)).unwrap() == disk());
    node.sheaf.run("image delete Debian_12");
    assert!(files(&node).is_empty(), "{:?}", files(&node));
}

#[test]
fn a_volume_becomes_an_image_while_its_machine_runs() {
    let node = start();
    let web = Web::start();
    let mut raw = assemble("pulse");
    raw.resize(MIB, 0);
    web.put("pulse", raw, Fault::None);
    node.sheaf.run(&format!("image import pulse {}", web.url("pulse")));
    node.sheaf.run("vm create web --image pulse --memory 16Mi --disk 16Mi");
    node.until_said("boot 1");
    let printed = node.sheaf.run("image export web-disk golden");
    assert_has(printed, "golden is ready: a disk of 16 MiB");
    node.sheaf.run("vm delete web");
    node.until_empty();
    let http = node.sheaf.http();
    eventually("nothing is left of the volume and its copy", || {
        http.get(&format!("{LONGHORN}/volumes")).ok()["items"] == json!([])
    });
    node.sheaf.run("image delete pulse");
    node.sheaf.run("vm create web --image golden --memory 16Mi");
    node.until_said("boot 2");
    node.sheaf.run("vm delete web");
    node.until_empty();
    eventually("the image can go", || node.sheaf.command("image delete golden").status.success());
    assert!(files(&node).is_empty(), "{:?}", files(&node));
}
