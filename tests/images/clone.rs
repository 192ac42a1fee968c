//! Images that are encrypted and decrypted, machines that boot from them, and what is on disk.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{CLAIMS, IMAGES, LONGHORN, MIB, UPLOADS, disk, files, image, start, until};
use crate::harness::{Node, assemble, assert_has, eventually, poll};
use crate::volume::web::{Fault, Web};
use crate::volumes_node::lab::encrypted_class;

const PASSPHRASE: &str = "a-passphrase-in-no-other-file";
const TEXT: &[u8] = b"what must not be read in a file of the host";

/// A disk that boots, has much that cannot be compressed and something that can be searched for.
fn content() -> Vec<u8> {
    let mut content = disk();
    let boot = assemble("pulse");
    // The guest counts its boots behind its first sector.
    content[..4096].fill(0);
    content[..boot.len()].copy_from_slice(&boot);
    content[3 * MIB..][..TEXT.len()].copy_from_slice(TEXT);
    content
}

fn wish(name: &str, source: &str, operation: &str, class: &str) -> Value {
    let (namespace, source) = source.split_once('/').unwrap_or(("default", source));
    let parameters = json!({"cryptoOperation": operation, "sourceImageName": source,
        "sourceImageNamespace": namespace});
    let mut wish = image(name, "clone", json!({"securityParameters": parameters}));
    wish["metadata"]["annotations"] = json!({"harvesterhci.io/storageClassName": class});
    wish
}

/// The complete data of an image.
fn data_of(node: &Node, name: &str) -> PathBuf {
    let object = node.sheaf.http().get(&format!("{IMAGES}/{name}")).ok();
    let own = format!("vmi-{}-", object["metadata"]["uid"].as_str().unwrap());
    let all = files(node);
    let is_own = |path: &&PathBuf| {
        path.ends_with("backing") && path.to_string_lossy().contains(own.as_str())
    };
    all.iter().find(is_own).unwrap_or_else(|| panic!("no {own} in {all:?}")).clone()
}

/// Files below the node's storage that hold a text.
fn holders(node: &Node, text: &[u8]) -> String {
    let mut grep = Command::new("grep");
    let text = String::from_utf8_lossy(text).into_owned();
    let found = grep.args(["-r", "-l", "-a", "-F", &text]).arg(node.sheaf.data().join("storage"));
    String::from_utf8_lossy(&found.output().unwrap().stdout).into_owned()
}

fn opens(file: &PathBuf, passphrase: &str) -> bool {
    let mut tool = Command::new("cryptsetup");
    tool.args(["open", "--test-passphrase", "--type", "luks2", "--key-file", "-"]).arg(file);
    tool.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = tool.spawn().expect("cryptsetup is installed");
    std::io::Write::write_all(&mut running.stdin.take().unwrap(), passphrase.as_bytes()).unwrap();
    running.wait().unwrap().success()
}

#[test]
fn an_encrypted_image_boots_hides_its_data_and_comes_back_as_it_was() {
    let mut node = start();
    let web = Web::start();
    let plain = content();
    web.put("open", plain.clone(), Fault::None);
    node.kubectl().apply(&encrypted_class("hidden", PASSPHRASE));
    node.sheaf.run(&format!("image import open {}", web.url("open")));
    assert_has(holders(&node, TEXT), "backing");
    let output = node.sheaf.run("image encrypt open locked --class hidden");
    assert_has(output, "locked is ready: a disk of 12 MiB");
    assert_has(node.sheaf.run("image list"), "ready, encrypted");
    let locked = data_of(&node, "locked");
    assert!(opens(&locked, PASSPHRASE) && !opens(&locked, "another"), "as cryptsetup sees it");
    node.sheaf.run("image delete open");
    assert_eq!(holders(&node, TEXT), "");
    assert_eq!(holders(&node, PASSPHRASE.as_bytes()), "");

    // A machine begins as it, and takes next to no space.
    let line = "vm create a --image locked --memory 16Mi --disk 32Mi";
    assert_has(node.sheaf.run(line), "machine a is created");
    node.until_said("boot 1");
    let volumes = format!("{LONGHORN}/volumes");
    poll("what it takes is known", || {
        let volume = node.sheaf.http().get(&volumes).ok()["items"][0].clone();
        let taken = volume["status"]["actualSize"].as_u64().unwrap_or(0);
        if (1..2 << 20).contains(&taken) { Ok(()) } else { Err(volume.to_string()) }
    });
    let http = node.sheaf.http();
    let vmis = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
    http.delete(&format!("{vmis}/a")).ok();
    node.until_said("boot 2");
    assert_eq!(holders(&node, TEXT), "");
    node.sheaf.run("vm delete a");
    node.until_empty();

    let refusal = http.get(&format!("{UPLOADS}/locked/download"));
    let expected = "encrypted image is not supported for download";
    assert_eq!((refusal.status, &*refusal.text()), (500, expected));
    // The way back, with the server killed in the middle of it.
    http.post(IMAGES, &wish("back", "locked", "decrypt", "")).ok();
    eventually("it has begun", || {
        let folders = fs::read_dir(node.sheaf.data().join("storage/disk/backing-images"));
        folders.into_iter().flatten().flatten().count() == 2
    });
    node.sheaf.kill();
    node.sheaf.begin();
    let http = node.sheaf.http();
    let back = until(&node, "back", "Imported", "True");
    assert_eq!(back["status"]["failed"].as_i64().unwrap_or(0), 0, "a crash is no failure");
    assert_eq!(back["status"]["virtualSize"], 12 * MIB);
    assert!(fs::read(data_of(&node, "back")).unwrap() == plain);
    let class = back["status"]["storageClassName"].as_str().unwrap();
    let class = http.get(&format!("{}/{class}", super::CLASSES)).ok();
    assert_eq!(class["parameters"]["encrypted"], Value::Null, "{class}");
    eventually("no claim uses them", || http.get(CLAIMS).ok()["items"] == json!([]));
    for name in ["back", "locked"] {
        node.sheaf.run(&format!("image delete {name}"));
    }
    assert!(files(&node).is_empty(), "{:?}", files(&node));
}

#[test]
fn a_clone_that_makes_no_sense_is_refused_and_a_secret_in_use_stays() {
    let node = start();
    let web = Web::start();
    web.put("open", content(), Fault::None);
    node.kubectl().apply(&encrypted_class("hidden", PASSPHRASE));
    node.sheaf.run(&format!("image import open {}", web.url("open")));
    let http = node.sheaf.http();
    for (wish, part) in [
        (wish("x", "none", "encrypt", "hidden"), "source image default/none not found"),
        (wish("x", "open", "decrypt", ""), "can not re-decrypt, source image default/open (open)"),
        (
            wish("x", "open", "encrypt", "harvester-longhorn"),
            "storage class harvester-longhorn is not for encryption or decryption",
        ),
    ] {
        assert_has(http.post(IMAGES, &wish).refused(422), part);
    }
    let refusal = node.sheaf.command("image decrypt open x");
    assert_has(String::from_utf8_lossy(&refusal.stderr), "can not re-decrypt");

    // A user who may create images here may not read those of others.
    let token = narrow_token(&node);
    let reply = node.sheaf.bearer(&token).post(IMAGES, &wish("x", "other/x", "encrypt", "hidden"));
    let text = "user \"system:serviceaccount:default:narrow\" is not allowed to access source image other/x";
    assert_has(reply.refused(422), text);

    http.post(IMAGES, &wish("locked", "open", "encrypt", "hidden")).ok();
    until(&node, "locked", "Imported", "True");
    assert_has(
        http.post(IMAGES, &wish("x", "locked", "encrypt", "hidden")).refused(422),
        "can not re-encrypt, source image default/locked (locked) is already encrypted",
    );
    let secret = "/api/v1/namespaces/longhorn-system/secrets/crypto";
    let refusal = http.delete(secret).refused(422);
    assert_has(refusal, "Secret is used by encrypted storage classes: [hidden lh-");
    for name in ["locked", "open"] {
        node.sheaf.run(&format!("image delete {name}"));
    }
    assert!(files(&node).is_empty(), "{:?}", files(&node));
}

/// A token of an account that may make images in one namespace.
fn narrow_token(node: &Node) -> String {
    node.kubectl().apply(
        "
apiVersion: v1
kind: ServiceAccount
metadata: {name: narrow}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: narrow}
rules: [{apiGroups: [harvesterhci.io], resources: [virtualmachineimages], verbs: [get, create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: narrow}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: narrow}
subjects: [{kind: ServiceAccount, name: narrow, namespace: default}]
",
    );
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {}});
    let path = "/api/v1/namespaces/default/serviceaccounts/narrow/token";
    let token = poll("a token is had", || {
        let reply = node.sheaf.http().post(path, &request);
        if reply.status < 300 { Ok(reply.json()) } else { Err(reply.text()) }
    });
    token["status"]["token"].as_str().unwrap().to_owned()
}
