//! The commands for people: wrong input, unreachable servers, interruptions.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::harness::{Sheaf, assert_has, binary, output_of, poll};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";

#[track_caller]
fn refused(sheaf: &Sheaf, line: &str) -> String {
    let output = sheaf.command(line);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "sheaf {line} succeeds: {text}");
    text
}

#[test]
fn wrong_input_is_refused_and_changes_nothing() {
    let sheaf = Sheaf::start();
    let file = |name: &str, content: &[u8]| {
        let path = sheaf.scratch(name);
        fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let (empty, text) = (file("empty.img", b""), file("text.img", b"hello\n"));
    let (raw, packed) = (file("raw.img", &[0; 4 << 20]), file("packed.gz", b"\x1f\x8b\x08rest"));
    for (line, expected) in [
        (format!("vm create web --image {empty}"), "is empty"),
        (format!("vm create web --image {text}"), "is not a disk image"),
        (format!("vm create web --image {packed}"), "add --disk SIZE"),
        (format!("vm create web --image {raw} --disk 2Mi"), "the image needs at least 4Mi"),
        (format!("vm create web --image {raw} --memory 256"), "did you mean 256Mi?"),
        (format!("vm create web --image {raw} --memory 1Ki"), "the minimum is 16Mi"),
        (format!("vm create Web --image {raw}"), "lower-case letters"),
        ("vm start a/../b".into(), "lower-case letters"),
        ("vm list -n a/b".into(), "lower-case letters"),
        ("volume create data --size 10".into(), "did you mean 10Gi?"),
        ("volume create data --size 0".into(), "the minimum is 1Mi"),
        ("volume create data --size 1Gi --class none".into(), "there is no storage class none"),
        (format!("image upload debian {empty}"), "is empty"),
        ("image import debian debian.img".into(), "sheaf image upload"),
    ] {
        assert_has(refused(&sheaf, &line), expected);
    }
    let http = sheaf.http();
    let images = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages";
    for path in [CLAIMS, MACHINES, images] {
        assert_eq!(http.get(path).ok()["items"], json!([]), "{path}");
    }
}

/// Runs a command with exactly these words; `{}` is the word in question.
fn run_words(sheaf: &Sheaf, line: &str, word: &str) -> (bool, String) {
    let mut words: Vec<OsString> =
        line.split_whitespace().map(|own| own.replace("{}", word).into()).collect();
    if !line.starts_with("login") && !line.starts_with("replica") {
        // Arguments after `--` are for another program.
        let end = words.iter().position(|own| own == "--").unwrap_or(words.len());
        words.splice(end..end, ["--data-dir".into(), sheaf.data().into()]);
    }
    let mut command = Command::new(binary());
    let output = output_of(command.args(words).current_dir(sheaf.scratch(".")));
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Commands that take the name of something that has to exist.
const NAMED: &[&str] = &[
    "vm start {}",
    "vm stop {}",
    "vm restart {}",
    "vm pause {}",
    "vm unpause {}",
    "vm migrate {}",
    "vm migrate {} --cancel",
    "vm delete {}",
    "vm console {}",
    "vm vnc {} --proxy-only",
    "vm ssh {} -- true",
    "vm port-forward {} 22",
    "vm logs {}",
    "vm why {}",
    "volume grow {} 2Gi",
    "volume snapshot {}",
    "volume clone {} copy",
    "volume salvage {}",
    "volume status {}",
    "volume delete {}",
    "volume create copy --from-snapshot {}",
    "image export {} copy",
    "image download {} copy.raw",
    "image encrypt {} copy --class locked",
    "image decrypt {} copy",
    "image delete {}",
    "network show {}",
    "network trace {} --to 10.52.0.9:80",
    "network create office --cluster-network {} --vlan 5",
    "node show {}",
    "node label {} a=b",
    "node maintenance {}",
    "node what-if {}",
    "node maintenance {} --off",
    "node remove {}",
    "setting get {}",
    "setting set {} x",
    "user passwd {} --password a-long-enough-password",
    "user delete {}",
    "token revoke {}",
    "replica check {}",
];

/// Names of images and files may be nearly anything, so they have rules of their own.
fn has_name_rules(line: &str) -> bool {
    !["image d", "image en", "replica", "token"].iter().any(|own| line.starts_with(own))
}

#[test]
fn every_command_names_the_argument_that_is_wrong() {
    let sheaf = Sheaf::start();
    let long = "a".repeat(300);
    let mut wrong = Vec::new();
    for line in NAMED {
        for word in ["", "none", "No_Such", long.as_str()] {
            let (succeeds, text) = run_words(&sheaf, line, word);
            let first = text.lines().next().unwrap_or_default();
            let is_named = match word {
                "" => ["<", "[", "--", "empty"].iter().any(|mark| first.contains(mark)),
                word => first.contains(&word[..word.len().min(40)]),
            };
            let tells_rule = word == "none"
                || !has_name_rules(line)
                || first.contains("lower-case letters")
                || word.is_empty() && first.contains("a value is required");
            if succeeds || !is_named || !tells_rule || first.contains("panicked") {
                let word: String = word.chars().take(12).collect();
                wrong.push(format!("{line} with {word:?}: {text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let left: Vec<_> = fs::read_dir(sheaf.scratch(".")).unwrap().map(|own| own.unwrap()).collect();
    let left: Vec<_> = left.iter().map(|own| own.file_name()).collect();
    assert!(
        !left.iter().any(|name| name.to_string_lossy().contains("copy")),
        "files were left: {left:?}"
    );
    let http = sheaf.http();
    let images = "/apis/harvesterhci.io/v1beta1/virtualmachineimages";
    for path in [CLAIMS, MACHINES, images] {
        assert_eq!(http.get(path).ok()["items"], json!([]), "{path}");
    }
}

#[test]
fn wrong_values_of_flags_are_refused() {
    let sheaf = Sheaf::start();
    for (line, word, expected) in [
        ("vm port-forward web {}", "0", "65535"),
        ("vm port-forward web {}", "99999999", "65535"),
        ("vm port-forward web 22 --listen {}", "here", "--listen"),
        ("vm vnc web --listen {}", "1.2.3.4", "--listen"),
        ("vm migrate web --to {}", "No_Node", "lower-case letters"),
        ("volume grow data {}", "99999999999999999999Gi", "99999999999999999999Gi"),
        ("volume grow data {}", "", "expected a size"),
        ("volume grow data {}", "-1Gi", "-1"),
        ("volume salvage data --replica {}", "a/b", "lower-case letters"),
        ("image download debian {}", ".", "debian"),
        ("network create office --cluster-network mgmt --vlan {}", "4095", "1 to 4094"),
        ("network create office --cluster-network mgmt --vlan {}", "x", "1 to 4094"),
        ("network create office --cluster-network mgmt --trunk {}", "9-2", "9-2 is no range"),
        ("network create office --cluster-network mgmt --type {}", "vlan", "--vlan ID"),
        ("network create office --cluster-network mgmt --type {}", "ovn", "untagged"),
        ("network create office --cluster-network mgmt", "", "--type untagged"),
        ("network trace web --to {}", "10.52.0.9", "HOST:PORT"),
        ("network trace web --to {}", "web:0", "1 to 65535"),
        ("network trace web --to web:80 --protocol {}", "icmp", "sctp"),
        ("network create office --vlan {}", "5", "--cluster-network"),
        ("user create {} --password x", "Jane Doe", "lower-case letters"),
        ("user create jane --role {}", "king", "administrator"),
        ("user create jane --password {}", "x", "Password must be at least"),
        ("user create jane", "", "--password"),
        ("token create --ttl {}", "400d", "365d"),
        ("token create --ttl {}", "", "--ttl"),
        ("token create --uses {}", "0", "1 to 1000"),
        ("token create --server {}", "ftp://x", "https://HOST:PORT"),
        ("setting set log-level {} more", "x", "more"),
        ("setting set overcommit-config {}", "{\"cpu\":-1}", "Cannot undercommit"),
        ("setting set kubevirt-migration {}", "{\"progressTimeout\":\"x\"}", "progressTimeout"),
        ("support-bundle --output {}", "none/bundle.zip", "none/bundle.zip"),
        ("support-bundle --output {}", ".", "is a directory"),
        ("support-bundle --extra-namespaces {}", "A/b", "lower-case letters"),
        ("login {} --password x", "http://127.0.0.1:1", "https://"),
        ("login {} --password x", "https://127.0.0.1:1", "cannot reach"),
        ("login {} --password x", "::", "is not a URL"),
        (
            "login https://127.0.0.1:1 --password x --certificate-authority {}",
            "none.pem",
            "none.pem",
        ),
        ("store backup --to {}", "none/copy.db", "none/copy.db"),
        ("store restore --from {}", "none.db", "in use by another process"),
        ("store copy --etcd-endpoints {}", "here", "in use by another process"),
        ("cluster recover {}", "x", "unexpected argument"),
        ("kubeconfig --user {}", "", "--user"),
    ] {
        let (succeeds, text) = run_words(&sheaf, line, word);
        let line = line.replace("{}", word);
        assert!(!succeeds, "sheaf {line} succeeds");
        assert!(text.contains(expected), "sheaf {line}: {expected:?} is not in: {text}");
        assert!(!text.contains("panicked"), "sheaf {line}: {text}");
    }
    let path = "/apis/harvesterhci.io/v1beta1/namespaces/harvester-system/supportbundles";
    assert_eq!(sheaf.http().get(path).ok()["items"], json!([]), "a bundle was left");
    assert_eq!(sheaf.run("user list").lines().count(), 2, "a user was created");
}

#[test]
fn flags_of_the_guest_network_are_checked() {
    let sheaf = Sheaf::prepared(&[]);
    for (flags, expected) in [
        ("--guest-network banana", "--guest-network"),
        ("--guest-network banana", "10.52.0.0/24"),
        ("--guest-network fd00::/64", "IPv4 network"),
        ("--guest-bridge a-name-that-is-too-long", "--guest-bridge"),
        ("--guest-bridge a-name-that-is-too-long", "1 to 15 characters"),
        ("--guest-bridge a/b", "letters, digits"),
    ] {
        let line = format!("server --no-agent --listen 127.0.0.1:0 {flags}");
        assert_has(refused(&sheaf, &line), expected);
    }
    assert!(!sheaf.data().exists(), "nothing was created");
}

#[test]
fn an_unreachable_server_is_named() {
    let mut sheaf = Sheaf::start();
    let address = sheaf.address();
    sheaf.terminate();
    for line in ["vm list", "vm start a", "vm console a", "volume list", "image list"] {
        let text = refused(&sheaf, line);
        assert_has(&text, &format!("cannot reach the cluster at https://{address}"));
        assert_has(&text, "refused");
    }
}

#[test]
fn objects_are_written_under_our_own_name() {
    let sheaf = Sheaf::start();
    sheaf.run("volume create data --size 1Gi --no-wait");
    let claim = sheaf.http().get(&format!("{CLAIMS}/data")).ok();
    assert_eq!(claim["metadata"]["managedFields"][0]["manager"], "sheaf");
}

#[test]
fn a_volume_without_room_is_not_called_ready() {
    let sheaf = Sheaf::start();
    let text = refused(&sheaf, "volume create data --size 1Gi --class harvester-longhorn");
    assert_has(&text, "data cannot be stored");
    assert_has(&text, "sheaf volume delete data");
}

#[test]
fn an_interrupted_command_says_what_continues() {
    let sheaf = Sheaf::start();
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": "never"}, "provisioner": "example.com/never"});
    sheaf.http().post("/apis/storage.k8s.io/v1/storageclasses", &class).ok();
    let told = sheaf.scratch("told");
    let command = Command::new(binary())
        .args(["volume", "create", "data", "--size", "1Gi", "--class", "never", "--data-dir"])
        .arg(sheaf.data())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&told).unwrap())
        .spawn()
        .unwrap();
    poll("it waits", || {
        let text = fs::read_to_string(&told).unwrap();
        if text.contains("waiting for volume data") { Ok(()) } else { Err(text) }
    });
    kill_process(Pid::from_child(&command), Signal::INT).unwrap();
    let Output { status, .. } = command.wait_with_output().unwrap();
    assert_eq!(status.code(), Some(130));
    let text = fs::read_to_string(&told).unwrap();
    assert_has(&text, "interrupted: volume data is still being created");
    assert_has(&text, "sheaf volume delete data");
}

#[test]
fn a_new_server_waits_until_the_old_one_has_ended() {
    let mut sheaf = Sheaf::start();
    sheaf.kill();
    // As if the kernel had not torn the old process down yet.
    let lock = File::open(sheaf.data().join("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let log = sheaf.scratch("stderr");
    let old = std::thread::spawn(move || {
        poll("the new server waits", || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let waits = text.contains("waiting for another process to release the lock");
            if waits { Ok(()) } else { Err(text) }
        });
        drop(lock);
    });
    sheaf.begin();
    old.join().unwrap();
    assert_eq!(sheaf.http().get("/readyz").status, 200);
}

#[test]
fn a_data_directory_that_guests_cannot_enter_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let sheaf = Sheaf::prepared(&[]);
    let above = sheaf.data().parent().unwrap().to_owned();
    fs::set_permissions(&above, fs::Permissions::from_mode(0o700)).unwrap();
    let line = "server --listen 127.0.0.1:0 --node-name one --guest-network user";
    assert_has(refused(&sheaf, line), &format!("chmod o+x {}", above.display()));
}
