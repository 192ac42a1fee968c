//! Encryption of secrets at rest, and the errors without the key.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::harness::{Etcd, Sheaf, assert_has, eventually};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn make(server: &Sheaf, name: &str, value: &str) {
    let secret = json!({"metadata": {"name": name}, "stringData": {"key": value}});
    server.http().post(SECRETS, &secret).ok();
}

fn read(server: &Sheaf, name: &str) -> String {
    let secret = server.http().get(&format!("{SECRETS}/{name}")).ok();
    String::from_utf8(STANDARD.decode(secret["data"]["key"].as_str().unwrap()).unwrap()).unwrap()
}

/// Whether any file below `path` has the value, as secrets have it.
fn holds(path: &Path, value: &str) -> bool {
    if path.is_dir() {
        let mut entries = std::fs::read_dir(path).unwrap();
        return entries.any(|entry| holds(&entry.unwrap().path(), value));
    }
    let wanted = STANDARD.encode(value);
    let bytes = std::fs::read(path).unwrap_or_default();
    bytes.windows(wanted.len()).any(|part| part == wanted.as_bytes())
}

const VALUE: &str = "something that no other user may read";

#[test]
fn secrets_are_unreadable_in_files_and_backups() {
    let mut server = Sheaf::with(&["--encrypt-secrets"]);
    make(&server, "s", VALUE);
    server.http().merge(&format!("{SECRETS}/s"), &json!({"metadata": {"labels": {"a": "b"}}})).ok();
    let backup = server.scratch("backup.db");
    server.run(&format!("store backup --to {}", backup.display()));
    assert!(!holds(&server.data(), VALUE) && !holds(&backup, VALUE));
    server.kill();
    server.begin();
    assert_eq!(read(&server, "s"), VALUE);
    let map = json!({"metadata": {"name": "m"}, "data": {"key": STANDARD.encode(VALUE)}});
    server.http().post("/api/v1/namespaces/default/configmaps", &map).ok();
    assert!(holds(&server.data(), VALUE), "others are kept plain");
}

#[test]
fn secrets_are_encrypted_by_default_and_those_from_before_are_rewritten() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut server = Sheaf::with(&["--encrypt-secrets=false"]);
    make(&server, "s", VALUE);
    server.terminate();
    assert!(holds(&server.data(), VALUE));
    server.set_arguments(Vec::new());
    server.begin();
    assert!(!holds(&server.data(), VALUE), "what was there before is encrypted now");
    assert_eq!(read(&server, "s"), VALUE);
    let keys = server.data().join("encryption.keys");
    assert_eq!(std::fs::metadata(&keys).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!server.data().join("encryption.pending").exists());
    // The key may lie elsewhere.
    server.terminate();
    server.run("store reencrypt --encrypt-secrets=false");
    assert!(holds(&server.data(), VALUE));
    let apart = server.scratch("apart.keys");
    server.set_arguments(vec![format!("--encryption-key-file={}", apart.display())]);
    server.begin();
    assert!(apart.exists() && !holds(&server.data(), VALUE));
    assert_eq!(read(&server, "s"), VALUE);
}

#[test]
fn without_its_key_a_server_does_not_start_and_changes_nothing() {
    let mut server = Sheaf::with(&["--encrypt-secrets"]);
    make(&server, "s", VALUE);
    server.terminate();
    let (keys, kept) = (server.data().join("encryption.keys"), server.scratch("keys"));
    std::fs::rename(&keys, &kept).unwrap();
    let before = std::fs::read(server.data().join("state.db")).unwrap();
    for flags in ["", "--encrypt-secrets", "--encrypt-secrets=false"] {
        let output = server.command(&format!("server --no-agent --listen 127.0.0.1:0 {flags}"));
        assert!(!output.status.success());
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_has(&complaint, "is encrypted with key");
        assert_has(&complaint, "which is not among the keys given");
        assert!(!keys.exists(), "no new key hides that the old one is missing");
    }
    assert_eq!(std::fs::read(server.data().join("state.db")).unwrap(), before);
    std::fs::rename(&kept, &keys).unwrap();
    server.begin();
    assert_eq!(read(&server, "s"), VALUE);
}

#[test]
fn existing_secrets_are_encrypted_rotated_and_decrypted_again() {
    let mut server = Sheaf::with(&["--encrypt-secrets=false"]);
    make(&server, "s", VALUE);
    server.terminate();
    assert!(holds(&server.data(), VALUE));
    let keys = || std::fs::read_to_string(server.data().join("encryption.keys")).unwrap();

    assert_has(server.run("store reencrypt --encrypt-secrets"), "written again");
    assert!(!holds(&server.data(), VALUE), "not in history, not in free pages");
    let first = keys();
    server.run("store reencrypt --encrypt-secrets --new-key");
    let second = keys();
    assert_eq!((first.lines().count(), second.lines().count()), (1, 1));
    assert_ne!(first, second);
    assert_has(server.run("store reencrypt --encrypt-secrets"), "0 objects");
    server.set_arguments(vec!["--encrypt-secrets".to_owned()]);
    server.begin();
    assert_eq!(read(&server, "s"), VALUE);
    server.terminate();

    server.run("store reencrypt --encrypt-secrets=false");
    server.set_arguments(vec!["--encrypt-secrets=false".to_owned()]);
    server.begin();
    assert_eq!(read(&server, "s"), VALUE);
    assert!(holds(&server.data(), VALUE));
}

#[test]
fn a_configuration_says_what_is_encrypted_in_etcd() {
    let etcd = Etcd::start();
    let mut server = Sheaf::prepared(&[]);
    let file = server.scratch("encryption.yaml");
    let write = |keys: &[(&str, u8)], provider: &str| {
        let keys: Vec<String> = keys
            .iter()
            .map(|(name, byte)| {
                format!("{{name: {name}, secret: {}}}", STANDARD.encode([*byte; 32]))
            })
            .collect();
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
             - resources: [secrets, '*.kubevirt.io']\n  providers: [{{{provider}: {{keys: [{}]}}}}, {{identity: {{}}}}]\n",
            keys.join(", ")
        );
        std::fs::write(&file, text).unwrap();
    };
    write(&[("one", 1)], "secretbox");
    let mut arguments = etcd.arguments();
    arguments.push(format!("--encryption-provider-config={}", file.display()));
    server.set_arguments(arguments.clone());
    server.begin();
    make(&server, "s", VALUE);
    server.kill();

    // A new key seals, the old one still opens; then nothing needs the old one.
    write(&[("two", 2), ("one", 1)], "secretbox");
    server.begin();
    assert_eq!(read(&server, "s"), VALUE);
    let endpoints = etcd.endpoints();
    let line = format!(
        "store reencrypt --encryption-provider-config={} --etcd-endpoints {endpoints}",
        file.display()
    );
    assert_has(server.run(&line), "written again");
    assert_eq!(read(&server, "s"), VALUE, "while the server runs");
    server.terminate();
    write(&[("two", 2)], "secretbox");
    server.begin();
    assert_eq!(read(&server, "s"), VALUE);
    server.terminate();

    write(&[("three", 3)], "aesgcm");
    let output =
        server.command(&format!("server --no-agent --listen 127.0.0.1:0 {}", arguments.join(" ")));
    assert!(!output.status.success());
    assert_has(
        String::from_utf8_lossy(&output.stderr),
        "is encrypted with key \"two\" (secretbox)",
    );
}

#[test]
fn a_migration_encrypts_what_is_there_while_the_server_runs() {
    let mut server = Sheaf::start();
    make(&server, "s", VALUE);
    server.terminate();
    server.set_arguments(vec!["--encrypt-secrets".to_owned()]);
    server.begin();
    let migrations = "/apis/storagemigration.k8s.io/v1/storageversionmigrations";
    let http = server.http();
    for (name, resource) in [("good", "secrets"), ("bad", "nonsense")] {
        let migration = json!({"metadata": {"name": name}, "spec": {"resource": {"group": "", "resource": resource}}});
        http.post(migrations, &migration).ok();
    }
    let is = |name: &str, kind: &str| {
        let migration = http.get(&format!("{migrations}/{name}")).ok();
        let conditions = migration["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|it| it["type"] == kind && it["status"] == "True")
    };
    eventually("it is done", || is("good", "Succeeded"));
    eventually("the other cannot be done", || is("bad", "Failed"));
    assert_eq!(read(&server, "s"), VALUE);
    server.terminate();
    assert_has(server.run("store reencrypt --encrypt-secrets"), "0 objects");
}
