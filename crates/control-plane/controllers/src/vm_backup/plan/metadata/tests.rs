use super::*;

fn backup() -> Value {
    json!({
        "metadata": {"name": "monday", "namespace": "n", "uid": "u-1"},
        "spec": {"source": {"kind": "VirtualMachine", "name": "web"}, "type": "backup"},
        "status": {
            "readyToUse": true, "conditions": [{"type": "Ready", "status": "True"}],
            "backupTarget": {"endpoint": "", "bucketName": "bu", "bucketRegion": "re"},
            "source": {"metadata": {"name": "web", "uid": "v"}, "spec": {"template": {"spec": {
                "domain": {"devices": {}},
                "volumes": [
                    {"name": "root", "persistentVolumeClaim": {"claimName": "c"}},
                    {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "user"},
                        "networkDataSecretRef": {"name": "gone"}}},
                ],
                "accessCredentials": [{"sshPublicKey": {"source": {"secret":
                    {"secretName": "keys"}}, "propagationMethod": {"noCloud": {}}}}],
            }}}},
            "volumeBackups": [{"name": "s0", "volumeName": "root", "readyToUse": true,
                "progress": 100, "longhornBackupName": "backup-u1-0", "persistentVolumeClaim":
                    {"metadata": {"name": "c"}, "spec": {"storageClassName": "image-class"}}}],
        },
    })
}

fn secrets() -> Vec<SecretBackup> {
    ["user", "keys"]
        .map(|name| json!({"metadata": {"name": name}, "data": {"k": "eA=="}}))
        .iter()
        .map(secret_backup)
        .collect()
}

fn found() -> (Value, VmBackupMetadata) {
    let secret = json!({"metadata": {"name": "vm-backup-found-1"}});
    (secret, described(&backup(), secrets()).unwrap())
}

#[test]
fn a_description_has_the_machine_its_disks_and_its_secrets() {
    assert_eq!(secrets_of(&backup()), ["gone", "keys", "user"].map(str::to_owned).into());
    let own = described(&backup(), secrets()).unwrap();
    let read = VmBackupMetadata::parse(&carried(&carrier("u-1", &own))).unwrap();
    assert_eq!(read, own);
    assert_eq!(read.secret_backups[0].data["k"], "eA==");
    assert_eq!(
        (read.volume_backups[0].progress, read.volume_backups[0].ready_to_use),
        (None, None)
    );
    let patch = handed_over(&backup(), &own, Timestamp::UNIX_EPOCH);
    assert_eq!(
        patch["status"]["secretBackups"],
        json!([{"name": "user", "data": {}},
        {"name": "keys", "data": {}}]),
        "readers of backups do not read secrets"
    );
    assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 2);
}

#[test]
fn a_deleted_backup_waits_for_its_file_on_the_target_where_it_is() {
    let at = |url: &str| json!({"spec": {"backupTargetURL": url}});
    let mut own = backup();
    assert_eq!(state(&own), MetadataState::Unwritten);
    assert!(!is_on_target(&own, &at("s3://bu@re/")), "it was never written");
    own["status"]["conditions"] = json!([{"type": METADATA_READY, "status": "True"}]);
    assert!(is_on_target(&own, &at("s3://bu@re/")));
    assert!(!is_on_target(&own, &at("s3://other@re/")), "the target is another one");
    assert!(!is_on_target(&own, &at("")), "there is no target");
    own["status"]["conditions"] = json!([{"type": METADATA_READY, "status": "False"}]);
    assert_eq!(state(&own), MetadataState::NotStored);
}

#[test]
fn a_file_becomes_a_backup_when_its_disks_are_known_and_free() {
    let (secret, metadata) = found();
    let disk = |state: &str, owner: Option<&str>| {
        Some(json!({"metadata": {"annotations": {upload::BELONGS_TO: owner}},
            "status": {"state": state}}))
    };
    let owners = BTreeSet::from(["alive".to_owned()]);
    let ask = |existing: Option<&Value>, disk: Option<Value>| {
        import(&secret, &metadata, existing, &[disk], &owners)
    };
    let wait = Import::Wait { backup: "backup-u1-0".to_owned() };
    assert_eq!(ask(None, disk("Completed", None)), Import::Create);
    assert_eq!(ask(None, disk("Completed", Some("former"))), Import::Create);
    assert_eq!(ask(None, disk("Completed", Some("alive"))), wait, "another backup's data");
    assert_eq!(ask(None, disk("InProgress", None)), wait);
    assert_eq!(ask(None, None), wait);
    assert_eq!(ask(Some(&backup()), disk("Completed", None)), Import::Known);
    let mut begun = backup();
    begun["metadata"]["annotations"] = json!({IMPORTED_FROM: "vm-backup-found-1"});
    assert_eq!(ask(Some(&begun), None), Import::Complete);
}

#[test]
fn an_imported_backup_can_be_restored_and_has_no_secrets_to_read() {
    let (secret, metadata) = found();
    let target = json!({"spec": {"backupTargetURL": "s3://bu@re/"}});
    let own = imported(&secret, &metadata, &target, Timestamp::UNIX_EPOCH);
    assert_eq!(own["status"]["readyToUse"], true);
    assert_eq!(own["status"]["sourceUID"], "v");
    assert_eq!(own["status"]["volumeBackups"][0]["longhornBackupName"], "backup-u1-0");
    assert!(upload::is_held(&own), "its deletion removes the data");
    assert_eq!(state(&own), MetadataState::Stored);
    assert!(!own.to_string().contains("eA=="), "{own}");
    assert!(is_on_target(&own, &target));
}

#[test]
fn a_new_machine_has_secrets_of_its_own() {
    let mut own = backup();
    own["status"]["secretBackups"] = json!([{"name": "user"}, {"name": "keys"}]);
    let restore = json!({"metadata": {"name": "r", "namespace": "n"},
        "spec": {"newVM": true, "target": {"name": "web-2"}}});
    let patches = secret_patches(&restore, &own);
    let patches: Vec<Value> =
        patches.iter().map(|own| serde_json::from_str(own).unwrap()).collect();
    assert_eq!(patches.len(), 2, "a secret that is not in the backup is left alone");
    let base = "/spec/template/spec";
    assert_eq!(patches[0]["path"], format!("{base}/volumes/1/cloudInitNoCloud/secretRef/name"));
    assert_eq!(patches[0]["value"], "web-2-user");
    assert_eq!(patches[1]["value"], "web-2-keys");
    let vm = json!({"metadata": {"name": "web-2", "uid": "w"}});
    let secret = restored_secret(&restore, &vm, &secrets()[0]);
    assert_eq!(secret["metadata"]["name"], "web-2-user");
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], "w");
    assert_eq!(restored_name(&json!({"spec": {"newVM": false}}), "user"), "user");
}

#[test]
fn a_class_of_another_cluster_is_replaced_by_the_default() {
    let class = |known: &[&str]| {
        let known = known.iter().map(|&own| own.to_owned()).collect();
        let own = with_known_classes(&backup(), &known);
        let disk = &own["status"]["volumeBackups"][0];
        disk["persistentVolumeClaim"]["spec"]["storageClassName"].clone()
    };
    assert_eq!(class(&["image-class"]), "image-class");
    assert_eq!(class(&["longhorn"]), Value::Null);
}
