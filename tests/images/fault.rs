//! Images that come in parts, clients that break off, disks that are full.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use http::Request;
use serde_json::json;

use super::{
    IMAGES, LONGHORN, MIB, UPLOADS, backing, condition, disk, download, files, image, qcow2, start,
    until,
};
use crate::harness::{Node, Reply, assert_has, eventually, poll};
use crate::volume::web::{Fault, Web};

#[test]
fn an_upload_goes_on_where_it_was_and_images_come_out_again() {
    let mut node = start();
    let content = qcow2(&node, &disk());
    let all = content.len();
    node.sheaf.http().post(IMAGES, &image("up", "upload", json!({}))).ok();
    let path = format!("{UPLOADS}/up?action=upload");
    let send = |node: &Node, range: std::ops::Range<usize>| -> Reply {
        let at = format!("{path}&size={all}&offset={}", range.start);
        node.sheaf.http().send(Request::post(at), content[range].to_vec())
    };
    assert_eq!(send(&node, 0..3 * MIB).status, 200);
    assert_eq!(node.sheaf.http().get(&path).ok()["offset"], 3 * MIB);
    let early = send(&node, MIB..2 * MIB);
    assert_eq!(early.status, 409, "{}", early.text());
    assert_has(early.text(), "upload offset is 1048576; expected 3145728");
    let bare = node.sheaf.http().send(Request::post(format!("{path}&offset=0")), "x");
    assert_eq!(bare.status, 400, "{}", bare.text());
    // Files of an image that was deleted while the node was down are found at the next start.
    let stray = node.sheaf.data().join("storage/disk/backing-images/gone-00112233");
    node.sheaf.kill();
    fs::create_dir_all(&stray).unwrap();
    fs::write(stray.join("download"), "what is left").unwrap();
    node.sheaf.begin();
    eventually("leftovers are removed", || !stray.exists());
    poll("the part is still there", || {
        let found = node.sheaf.http().get(&path);
        if found.status == 200 && found.json()["offset"] == 3 * MIB {
            Ok(())
        } else {
            Err(found.text())
        }
    });
    let early = node.sheaf.http().get(&format!("{UPLOADS}/up/download"));
    let expected = "please wait until the image has been imported";
    assert_eq!((early.status, &*early.text()), (500, expected));
    assert_eq!(send(&node, 3 * MIB..5 * MIB).status, 200);
    let last = send(&node, 5 * MIB..all);
    assert_eq!(last.status, 200, "{}", last.text());
    until(&node, "up", "Imported", "True");
    assert!(fs::read(backing(&node)).unwrap() == disk());

    let got = node.sheaf.http().get(&format!("{UPLOADS}/up/download"));
    assert_eq!(got.status, 200);
    assert_eq!(got.header("content-disposition"), "attachment; filename=up.gz");
    assert!(gunzip(&got.body) == disk(), "{} bytes came", got.body.len());
    let raw = node.sheaf.http().get(&format!("{UPLOADS}/up/download?format=raw"));
    assert!(raw.body.as_ref() == disk().as_slice(), "{} bytes came", raw.body.len());
    let refusal = node.sheaf.anonymous().get(&format!("{UPLOADS}/up/download")).status;
    assert!(refusal == 401 || refusal == 403, "{refusal}");
    let file = node.sheaf.scratch("out.raw");
    let output = node.sheaf.run(&format!("image download up {}", file.display()));
    assert_has(output, "a raw disk of 12 MiB");
    assert!(fs::read(file).unwrap() == disk());
    node.sheaf.run("image delete up");
    assert!(files(&node).is_empty(), "{:?}", files(&node));
}

/// Unpacks with the tool that users have.
fn gunzip(packed: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let mut command = Command::new("gzip");
    let command = command.args(["-d", "-c"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut input, packed) = (child.stdin.take().unwrap(), packed.to_vec());
    let writer = std::thread::spawn(move || input.write_all(&packed));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "the data is damaged");
    output.stdout
}

/// A kubeconfig for an account that may do everything, by its token.
fn with_token(node: &Node) -> PathBuf {
    let http = node.sheaf.http();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "sender"}});
    http.post("/api/v1/namespaces/default/serviceaccounts", &account).ok();
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding", "metadata": {"name": "sender"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "sender", "namespace": "default"}]});
    http.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).ok();
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {}});
    let path = "/api/v1/namespaces/default/serviceaccounts/sender/token";
    let token = http.post(path, &request).ok()["status"]["token"].as_str().unwrap().to_owned();
    let admin = fs::read_to_string(node.sheaf.data().join("admin.kubeconfig")).unwrap();
    let lines = admin.lines().filter(|line| !line.contains("client-key-data"));
    let line = |line: &str| match line.find("client-certificate-data") {
        Some(at) => format!("{}token: {token}", &line[..at]),
        None => line.to_owned(),
    };
    let text: Vec<String> = lines.map(line).collect();
    let path = node.sheaf.scratch("token.kubeconfig");
    fs::write(&path, text.join("\n") + "\n").unwrap();
    path
}

#[test]
fn an_image_is_sent_by_whoever_has_a_token() {
    let node = start();
    let kubeconfig = with_token(&node);
    let file = node.sheaf.scratch("disk.raw");
    fs::write(&file, disk()).unwrap();
    let line =
        format!("image upload debian {} --kubeconfig {}", file.display(), kubeconfig.display());
    assert_has(node.sheaf.run(&line), "debian is ready: a disk of 12 MiB");
    assert!(fs::read(backing(&node)).unwrap() == disk());
}

/// A small file system, which goes with the test.
struct Small(PathBuf);

impl Small {
    fn mount(path: PathBuf, size: &str) -> Self {
        fs::create_dir_all(&path).unwrap();
        let line = ["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"];
        let done = Command::new("mount").args(line).arg(&path).status().unwrap();
        assert!(done.success(), "mounting needs root");
        Self(path)
    }

    fn resize(&self, size: &str) {
        let options = format!("remount,size={size}");
        let done = Command::new("mount").args(["-o", &options]).arg(&self.0).status().unwrap();
        assert!(done.success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

fn used(path: &Path) -> u64 {
    let output = Command::new("du").args(["-s", "-B1"]).arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_full_disk_is_reported_gives_its_space_back_and_is_tried_again() {
    let node = start();
    let http = node.sheaf.http();
    let small = Small::mount(node.sheaf.scratch("small"), "96M");
    let own = format!("{LONGHORN}/nodes/one");
    let disks = json!({"spec": {"disks": {
        "default-disk": {"allowScheduling": false},
        "small": {"type": "filesystem", "path": small.0, "allowScheduling": true,
            "storageReserved": 0, "tags": []},
    }}});
    http.merge(&own, &disks).ok();
    poll("the small disk is known", || {
        let found = http.get(&own).json();
        match found["status"]["diskStatus"]["small"]["diskUUID"].as_str() {
            Some(uuid) if !uuid.is_empty() => Ok(()),
            _ => Err(found.to_string()),
        }
    });
    let web = Web::start();
    // It becomes larger than there is room for when it is unpacked.
    let mut content = disk();
    content.resize(40 * MIB, 1);
    let raw = node.sheaf.scratch("large.raw");
    fs::write(&raw, &content).unwrap();
    let packed = Command::new("gzip").args(["-1", "-c"]).arg(&raw).output().unwrap().stdout;
    web.put("large", packed, Fault::None);
    let empty = used(&small.0);
    download(&node, "large", &web.url("large"), json!({"retry": 5}));
    let image = until(&node, "large", "RetryLimitExceeded", "False");
    let message = condition(&image, "RetryLimitExceeded")["message"].clone();
    assert_has(message.as_str().unwrap(), "bytes available");
    eventually("the space is given back", || used(&small.0) <= empty + 65_536);
    // Without another request.
    small.resize("400M");
    until(&node, "large", "Imported", "True");
    node.sheaf.run("image delete large");
    eventually("nothing is left", || used(&small.0) <= empty + 65_536);
    // Another program takes the last of it while an image comes.
    small.resize("240M");
    web.put("slow", content, Fault::Hangs(5 * MIB));
    download(&node, "slow", &web.url("slow"), json!({"retry": 5}));
    eventually("a part is there", || used(&small.0) > empty + 4 * MIB as u64);
    let filler = small.0.join("filler");
    fill(&filler);
    web.open();
    let image = until(&node, "slow", "RetryLimitExceeded", "False");
    let message = condition(&image, "RetryLimitExceeded")["message"].clone();
    assert_has(message.as_str().unwrap(), "No space left on device");
    let own = || used(&small.0) - used(&filler);
    eventually("the space is given back", || own() <= empty + 65_536);
    fs::remove_file(&filler).unwrap();
    until(&node, "slow", "Imported", "True");
    node.sheaf.run("image delete slow");
    eventually("nothing is left", || used(&small.0) <= empty + 65_536);
}

/// Takes all the room that there is but for 2 MiB.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    let piece = vec![1; MIB];
    while file.write_all(&piece).is_ok() {}
    let length = file.metadata().unwrap().len();
    file.set_len(length - 2 * MIB as u64).unwrap();
}
