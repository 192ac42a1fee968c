//! The commands for people: wrong input, unreachable servers, interruptions.

mod interruption;
mod wrong_input;

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use rustix::fs::{FlockOperation, flock};
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
        (
            "vm create web --image http://x/y --storage-class none".into(),
            "there is no storage class none",
        ),
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

#[test]
fn flags_of_the_guest_network_are_checked() {
    let sheaf = Sheaf::prepared(&[]);
    for (flags, expected) in [
        ("--guest-network banana", "--guest-network"),
        ("--guest-network banana", "10.52.0.0/24"),
        ("--guest-network fd00::/64", "IPv4 network"),
        ("--guest-network 127.0.0.0/8", "10.52.0.0/24"),
        ("--log-level banana", "banana is not a level"),
        ("--guest-bridge a-name-that-is-too-long", "--guest-bridge"),
        ("--guest-bridge a-name-that-is-too-long", "1 to 15 characters"),
        ("--guest-bridge a/b", "letters, digits"),
    ] {
        let line = format!("server --no-agent --listen 127.0.0.1:0 {flags}");
        assert_has(refused(&sheaf, &line), expected);
    }
    let overlap = "server --listen 127.0.0.1:0 --guest-network 10.53.0.0/24";
    assert_has(refused(&sheaf, overlap), "addresses in common");
    assert!(!sheaf.data().exists(), "nothing was created");
}

#[test]
fn flags_of_a_server_are_checked_before_anything_is_made() {
    let sheaf = Sheaf::prepared(&[]);
    let file = sheaf.scratch("file");
    fs::write(&file, "no tokens").unwrap();
    let file = file.display();
    for (flags, expected) in [
        ("--host-disk-path disks", "expected an absolute path"),
        ("--host-disk-path /none/disks", "expected a directory that exists"),
        (&format!("--host-disk-path {file}"), "expected a directory, and it is none"),
        ("--tls-san a,b/c", "expected host names or addresses"),
        ("--tls-san a,,b", "--tls-san"),
        ("--max-image-size 1", "the minimum is 1Mi"),
        ("--token-auth-file /none/tokens", "--token-auth-file /none/tokens: expected a file"),
        (&format!("--token-auth-file {file}"), "token,user,uid"),
        ("--listen localhost:6443", "0.0.0.0:6443"),
        ("--advertise-address 0.0.0.0", "the address of one machine"),
        ("--dashboard-listen 127.0.0.1:7 --listen 127.0.0.1:7", "both have port 7"),
        ("--service-cluster-ip-range banana", "--service-cluster-ip-range"),
        ("--service-cluster-ip-range 127.0.0.0/8", "not loopback"),
        ("--node-name No_Such", "lower-case letters"),
        ("--import-allow banana", "127.0.0.0/8"),
        ("--event-ttl 0", "--event-ttl"),
        ("--max-watches-per-user 0", "--max-watches-per-user"),
        ("--max-connections 5 --reserved-connections 5", "--reserved-connections is 5"),
        ("--oidc-issuer-url http://x --oidc-client-id y", "must begin with https://"),
        ("--oidc-groups-claim x", "--oidc-issuer-url"),
        ("--admin-password short", "--admin-password is not accepted"),
        ("--etcd-endpoints http://127.0.0.1:1", "--store etcd"),
        ("--log-level= ", "--log-level is empty"),
    ] {
        let line = format!("server --no-agent {flags}");
        assert_has(refused(&sheaf, &line), expected);
    }
    // The same from a file, and from the environment.
    let config = sheaf.scratch("config.yaml");
    fs::write(&config, "tls-san: [sheaf.example.org, a b]\n").unwrap();
    let line = format!("server --no-agent --config {}", config.display());
    assert_has(refused(&sheaf, &line), "expected host names or addresses");
    let mut command = Command::new(binary());
    command.args(["server", "--no-agent", "--data-dir"]).arg(sheaf.data());
    let output = output_of(command.env("SHEAF_ADMIN_PASSWORD", "short"));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("at least 12"), "{text}");
    assert!(!sheaf.data().exists(), "nothing was created");
}

#[test]
fn a_data_directory_on_the_command_line_wins_over_the_kubeconfig_of_the_environment() {
    let sheaf = Sheaf::start();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        let output =
            output_of(command.args(arguments).env("KUBECONFIG", sheaf.scratch("elsewhere")));
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let data = sheaf.data().display().to_string();
    let (succeeds, text) = run(&["vm", "list", "--data-dir", &data]);
    assert!(succeeds, "{text}");
    let (succeeds, text) = run(&["vm", "list"]);
    assert!(!succeeds && text.contains("elsewhere"), "{text}");
    let output =
        output_of(Command::new(binary()).args(["vm", "list"]).env("KUBECONFIG", "/dev/zero"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("it is a device"));
    let several = format!("/none:{}", sheaf.kubeconfig().display());
    let output = output_of(Command::new(binary()).args(["vm", "list"]).env("KUBECONFIG", several));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let none = sheaf.scratch("none").display().to_string();
    let (succeeds, text) = run(&["vm", "list", "--data-dir", &data, "--kubeconfig", &none]);
    assert!(!succeeds && text.contains("none"), "{text}");
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
