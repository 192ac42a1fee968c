//! Every command with names and values that are wrong, empty or too long.

use std::ffi::OsString;
use std::fs;
use std::process::Command;

use serde_json::json;

use super::{CLAIMS, MACHINES};
use crate::harness::{Sheaf, binary, output_of};

/// Commands without a data directory.
const WITHOUT_DATA: &[&str] = &[
    "login",
    "replica",
    "storage",
    "dev",
    "version",
    "completion",
    "man ",
    "manifests",
    "controllers",
    "kube-apiserver",
];

/// Runs a command with exactly these words; `{}` is the word in question.
fn run_words(sheaf: &Sheaf, line: &str, word: &str) -> (bool, String) {
    let mut words: Vec<OsString> =
        line.split_whitespace().map(|own| own.replace("{}", word).into()).collect();
    if !WITHOUT_DATA.iter().any(|own| line.starts_with(own)) {
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
    "network forward create new --to {} --port 2222:22",
    "network forward delete {}",
    "network addresses --network {}",
    "node show {}",
    "node label {} a=b",
    "node maintenance {}",
    "node what-if {}",
    "node maintenance {} --off",
    "node remove {}",
    "node promote {}",
    "node demote {}",
    "setting get {}",
    "setting set {} x",
    "user passwd {} --password a-long-enough-password",
    "user delete {}",
    "token revoke {}",
    "replica check {}",
    "vm move-disk {} --class other",
    "host network show {}",
    "host network confirm {}",
    "alarm acknowledge {}",
    "alarm silence {} --for 1h",
    "alarm receiver test {}",
    "alarm receiver remove {}",
    "upgrade skip {}",
    "user token revoke --user {}",
];

/// Names of images and files may be nearly anything, so they have rules of their own.
fn has_name_rules(line: &str) -> bool {
    !["image d", "image en", "replica", "token", "user token"]
        .iter()
        .any(|own| line.starts_with(own))
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
            let names_rule = word == "none"
                || !has_name_rules(line)
                || first.contains("lower-case letters")
                || word.is_empty() && first.contains("a value is required");
            if succeeds || !is_named || !names_rule || first.contains("panicked") {
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

/// Commands with a wrong word in place of `{}`, and a part of the complaint.
const WRONG: &[(&str, &str, &str)] = &[
    ("vm port-forward web {}", "0", "65535"),
    ("vm port-forward web {}", "99999999", "65535"),
    ("vm port-forward web 22 --listen {}", "here", "--listen"),
    ("vm vnc web --listen {}", "1.2.3.4", "--listen"),
    ("vm migrate web --to {}", "No_Node", "lower-case letters"),
    ("vm ssh {} -- true", "none", "there is no machine none"),
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
    ("network forward list {}", "x", "unexpected argument"),
    ("network forward create {} --to web --port 80", "1st", "begins with a letter"),
    ("network forward create new --to web --port {}", "0", "1 to 65535"),
    ("network forward create new --to web --port {}", "80/icmp", "tcp, udp or sctp"),
    ("network forward create new --to web --port 80 --address {}", "127.0.0.1", "loopback"),
    ("network forward create new --port {}", "80", "--to"),
    ("network forward create new --to {}", "web", "--port"),
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
    (
        "login {} --password x",
        "https://127.0.0.1:1",
        "cannot reach the cluster at https://127.0.0.1:1",
    ),
    ("login {} --password x", "::", "is not a URL"),
    ("login https://127.0.0.1:1 --password x --certificate-authority {}", "none.pem", "none.pem"),
    ("store backup --to {}", "none/copy.db", "none/copy.db"),
    ("store restore --from {}", "none.db", "in use by another process"),
    ("store copy --etcd-endpoints {}", "here", "in use by another process"),
    ("cluster recover {}", "x", "unexpected argument"),
    ("kubeconfig --user {}", "", "--user"),
    ("vm list -n {}", "a/b", "lower-case letters"),
    (
        "vm create {} --image big.img",
        "a234567890123456789012345678901234567890123456789012345678901234",
        "at most 63 characters",
    ),
    ("vm create web --image {}", "none.img", "no such image"),
    ("vm create web --image {}", "/dev/zero", "neither a file nor"),
    ("vm create web --image {}", "ftp://x/y", "ftp is not supported"),
    ("vm create web --image {}", "", "a value is required"),
    ("vm create web --image big.img --password {}", "", "a value is required"),
    ("vm create web --image {}", "http://", "is not a URL"),
    ("vm create web --image {}", "docker://", "docker://HOST/NAME:TAG"),
    ("vm create web --image big.img --user-data {}", "/dev/zero", "larger than 4 MiB"),
    ("vm create web --image big.img --user-data {}", "empty", "is empty"),
    ("vm create web --image big.img --user-data {}", "long", "the maximum is 2048"),
    ("vm create web --image big.img --ssh-key {}", "empty", "must hold one public key"),
    ("vm create web --image big.img --ssh-key {}", "long", "must hold one public key"),
    ("vm create web --image big.img --cpus {}", "0", "1..=512"),
    ("vm create web --image {}", "big.img", "machine web was not created"),
    ("image list -n {}", "A", "lower-case letters"),
    ("image import debian {}", "ftp://x/y", "ftp"),
    ("image import debian {}", "http://", "is not a URL"),
    ("image upload debian {}", "none.img", "none.img"),
    ("volume list -n {}", "A", "lower-case letters"),
    ("volume create data --size {}", "900Pi", "Ti"),
    ("volume create data --size {}", "9999999Ti", "is too large"),
    ("network list -n {}", "A", "lower-case letters"),
    ("network links {}", "x", "unexpected argument"),
    ("node list {}", "x", "unexpected argument"),
    ("cluster status {}", "x", "unexpected argument"),
    ("cluster reduce {}", "x", "unexpected argument"),
    ("certificate list {}", "x", "unexpected argument"),
    ("certificate revoke --serial {}", "zz", "\"zz\" is not a serial number"),
    ("certificate revoke --file {}", "none", "cannot read none"),
    ("certificate revoke --file {}", "garbage", "garbage"),
    ("certificate revoke --user jane --issued-before {}", "banana", "banana"),
    ("certificate restore --serial {}", "1f", "1f"),
    ("certificate restore --user {}", "", "--user"),
    ("alarm list {}", "x", "unexpected argument"),
    ("alarm silence x --for {}", "banana", "24h"),
    ("alarm receiver list {}", "x", "unexpected argument"),
    ("alarm receiver add {} --url https://x", "No/Name", "lower-case letters"),
    ("alarm receiver add ops --url {}", "ftp://x", "https?://"),
    ("alarm receiver add ops --url https://x --format {}", "mail", "alertmanager, slack, ntfy"),
    ("alarm receiver add ops --url-secret {}", "a/b", "lower-case letters"),
    ("host network try --file {}", "none", "none"),
    ("host network try --file {}", "empty", "has no objects"),
    ("host network try --file {}", "/dev/zero", "larger than 4 MiB"),
    ("token list {}", "x", "unexpected argument"),
    ("user list {}", "x", "unexpected argument"),
    ("user token create --user {}", "", "must not be empty"),
    ("user token list {}", "x", "unexpected argument"),
    ("upgrade --binary {}", "none", "none"),
    ("upgrade --binary {}", "empty", "is empty"),
    ("upgrade --binary {}", "/dev/zero", "is not a file"),
    ("upgrade --binary {}", "http://127.0.0.1:1/x", "--checksum"),
    ("upgrade status", "", "no upgrade"),
    ("upgrade pause", "", "no upgrade"),
    ("upgrade resume", "", "no upgrade"),
    ("upgrade retry", "", "no upgrade"),
    ("upgrade abort", "", "no upgrade"),
    ("upgrade finalize", "", "no upgrade"),
    ("store reencrypt", "", "in use by another process"),
    ("preflight {}", "x", "unexpected argument"),
    ("server --config {}", "/dev/zero", "larger than 4 MiB"),
    ("server --config {}", "garbage", "garbage: it is no text"),
    ("server --listen {}", "banana", "--listen"),
    ("server --tls-san {}", "a b", "expected host names or addresses"),
    ("server --host-disk-path {}", "", "--host-disk-path"),
    ("kubeconfig --server {}", "", "https://HOST:PORT"),
    ("kubeconfig --server {}", "banana", "https://HOST:PORT"),
    ("kubeconfig --user {}", "a\u{1}", "text in one line"),
    ("kubeconfig --user jane --group {}", "", "a group name"),
    ("user token create --user {}", "a\u{1}", "text in one line"),
    ("certificate revoke --serial={}", "-1", "\"-1\" is not a serial number"),
    ("image import debian https://127.0.0.1:1/x --checksum {}", "banana", "128 hexadecimal digits"),
    ("image upload debian big.img --checksum {}", "", "128 hexadecimal digits"),
    ("vm ssh --login={} web -- true", "-oProxyCommand=x", "a user in the guest"),
    ("login https://127.0.0.1:1 --password x --username {}", "", "a user name must not be empty"),
    ("server --join https://127.0.0.1:1 --token {}", "x", "another --data-dir"),
    ("witness --join https://127.0.0.1:1 --token {}", "x", "another --data-dir"),
    ("kube-apiserver {}", "banana", "banana"),
    ("controllers --kubeconfig garbage --identity {}", "", "--identity"),
    ("support-bundle --output {}", "/dev/null", "/dev/null is not a regular file"),
    ("server --join {} --token x", "banana", "https://HOST:PORT"),
    ("witness --join {} --token x", "banana", "https://HOST:PORT"),
    ("kube-apiserver --etcd-servers={}", "banana", "--etcd-servers \"banana\" is invalid"),
    ("controllers --kubeconfig {}", "none", "cannot read kubeconfig none: No such file"),
    ("controllers --kubeconfig {}", "garbage", "cannot read kubeconfig garbage"),
    ("manifests --only {}", "banana", "definitions"),
    ("version --output {}", "banana", "json"),
    ("completion {}", "csh", "bash"),
    ("man {}", "empty", "cannot create empty"),
    ("storage status --dir {}", "none", "no storage process"),
    ("storage create 0 --dir {}", "none", "no storage process"),
    ("storage create {}", "banana", "valid units"),
    ("storage delete {}", "x", "--dir is needed"),
    ("storage attach x --nbd-tcp {}", "here", "--nbd-tcp"),
    ("storage detach {}", "x", "--dir is needed"),
    ("storage snapshot x {}", "y", "--dir is needed"),
    ("storage delete-snapshot x {}", "y", "--dir is needed"),
    ("storage revert x {}", "y", "--dir is needed"),
    ("storage resize x {}", "banana", "valid units"),
    ("storage scrub {}", "x", "--dir is needed"),
    ("storage stop", "", "--dir is needed"),
    ("dev volume status", "", "--dir is needed"),
    ("dev volume snapshot {}", "x", "--dir is needed"),
    ("dev volume snapshots", "", "--dir is needed"),
    ("dev volume delete-snapshot {}", "x", "--dir is needed"),
    ("dev volume revert {}", "x", "--dir is needed"),
    ("dev volume resize {}", "banana", "valid units"),
    ("dev volume scrub", "", "--dir is needed"),
    ("dev volume rebuild {}", "x", "invalid value"),
    ("dev volume kill-replica {}", "x", "invalid value"),
    ("dev volume start-replica {}", "x", "invalid value"),
    ("dev volume handover", "", "--dir is needed"),
    ("dev volume salvage {}", "x", "invalid value"),
];

#[test]
fn wrong_values_of_flags_are_refused() {
    let sheaf = Sheaf::start();
    let file = |name: &str, content: &[u8]| fs::write(sheaf.scratch(name), content).unwrap();
    file("empty", b"");
    file("garbage", &[0xff; 64]);
    file("long", &[b'x'; 3000]);
    // As large as a file may be on any file system of a test, and without content.
    fs::File::create(sheaf.scratch("big.img")).unwrap().set_len(8 << 40).unwrap();
    for (line, word, expected) in WRONG {
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

/// The commands below `words` that have none below them.
fn leaves(words: &[String], found: &mut Vec<String>) {
    let output = output_of(Command::new(binary()).args(words).arg("--help"));
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    let list = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    let names = list.lines().take_while(|line| !line.is_empty());
    let names: Vec<String> = names
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        found.push(words.join(" "));
    }
    for name in names {
        leaves(&[words, &[name]].concat(), found);
    }
}

#[test]
fn every_command_is_tried_with_wrong_input() {
    let mut found = Vec::new();
    leaves(&[], &mut found);
    assert!(found.len() > 80, "the help is read: {found:?}");
    let tried: Vec<&str> =
        NAMED.iter().copied().chain(WRONG.iter().map(|(line, ..)| *line)).collect();
    found.retain(|leaf| {
        !tried.iter().any(|line| *line == leaf || line.starts_with(&format!("{leaf} ")))
    });
    assert!(found.is_empty(), "no wrong input for: {found:?}");
}
