use super::*;
use crate::object::text;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn image(source: &str) -> Value {
    json!({
        "metadata": {"name": "debian", "namespace": "n", "uid": "u"},
        "spec": {
            "displayName": "debian", "sourceType": source, "url": "http://x/i", "retry": 1,
            "targetStorageClassName": "harvester-longhorn",
            "storageClassParameters": {"numberOfReplicas": "2", "diskSelector": "ssd, big"},
        },
    })
}

fn file(source: &str, state: &str, progress: i64, size: i64, message: &str) -> Value {
    json!({
        "metadata": {"name": "vmi-u", "creationTimestamp": "1970-01-01T00:01:40Z"},
        "spec": {"sourceType": source},
        "status": {"size": size, "virtualSize": 2 * size, "diskFileStatusMap": {
            "d": {"state": state, "progress": progress, "message": message},
        }},
    })
}

/// Does the plan with an image, and answers its conditions.
fn step(image: &mut Value, backing: Option<&Value>, second: i64) -> (ImagePlan, String) {
    let seen = ImageInput {
        image,
        backing,
        class: None,
        source: None,
        copy: None,
        origin: None,
        obstacle: None,
    };
    let plan = plan(seen, at(second));
    if let Some(patch) = &plan.patch {
        for (key, value) in patch["status"].as_object().unwrap() {
            image["status"][key] = value.clone();
        }
    }
    let conditions: Vec<String> = condition::of(image)
        .iter()
        .map(|own| format!("{}={}", text(own, "/type"), text(own, "/status")))
        .collect();
    (plan, conditions.join(" "))
}

#[test]
fn a_download_is_initialized_when_its_server_has_answered() {
    let mut image = image("download");
    let (plan, conditions) = step(&mut image, None, 0);
    assert_eq!(conditions, "");
    let class = plan.class.unwrap();
    assert_eq!(class["metadata"]["name"], "lh-u");
    assert_eq!(class["parameters"]["backingImage"], "vmi-u");
    assert_eq!(class["parameters"]["numberOfReplicas"], "2");
    let backing = plan.backing.unwrap();
    assert_eq!(backing["spec"]["sourceParameters"]["url"], "http://x/i");
    assert_eq!(backing["spec"]["diskSelector"], json!(["ssd", "big"]));
    assert_eq!(backing["metadata"]["annotations"][IMAGE_ID], "n/debian");
    assert_eq!(image["status"]["storageClassName"], "lh-u");

    let (_, conditions) = step(&mut image, Some(&file("download", "in-progress", 0, 0, "")), 1);
    assert_eq!(conditions, "");
    let coming = file("download", "in-progress", 100, 7, "");
    let (_, conditions) = step(&mut image, Some(&coming), 2);
    assert_eq!(conditions, "Initialized=True Imported=Unknown");
    assert_eq!((&image["status"]["progress"], &image["status"]["size"]), (&json!(99), &json!(7)));
    assert_eq!(step(&mut image, Some(&coming), 3).0.patch, None, "nothing is said twice");
    let (_, conditions) = step(&mut image, Some(&file("download", "ready", 100, 7, "")), 4);
    assert_eq!(conditions, "Initialized=True Imported=True RetryLimitExceeded=False");
    assert_eq!(image["status"]["progress"], 100);
    assert_eq!(image["status"]["virtualSize"], 14);
}

#[test]
fn failures_are_counted_once_and_tried_again_until_the_limit() {
    let mut image = image("download");
    step(&mut image, None, 90);
    let failed = file("download", "failed", 0, 0, "no such host");
    let (plan, conditions) = step(&mut image, Some(&failed), 101);
    assert_eq!(conditions, "RetryLimitExceeded=False");
    assert_eq!(plan.again, Some(at(111)));
    assert_eq!(image["status"]["failed"], 1);
    assert_eq!(text(&image, "/status/conditions/0/message"), "failed due to error: no such host");
    let (plan, _) = step(&mut image, Some(&failed), 105);
    assert_eq!((plan.patch, plan.again, plan.delete_backing), (None, Some(at(111)), false));
    let (plan, _) = step(&mut image, Some(&failed), 111);
    assert!(plan.delete_backing);
    let (plan, _) = step(&mut image, None, 112);
    assert!(plan.backing.is_some());

    let mut again = failed;
    again["metadata"]["creationTimestamp"] = json!("1970-01-01T00:01:53Z");
    let (plan, conditions) = step(&mut image, Some(&again), 114);
    assert_eq!(conditions, "RetryLimitExceeded=True Initialized=False");
    assert_eq!(plan.again, None);
    assert_eq!(image["status"]["failed"], 2);
    assert_eq!(text(&image, "/status/conditions/1/message"), "no such host");
    assert_eq!(
        text(&image, "/status/conditions/0/message"),
        "retry attempted 1/1 failed due to error: no such host"
    );
    assert_eq!(step(&mut image, Some(&again), 999).0, ImagePlan::default());
}

#[test]
fn a_failure_after_the_start_is_an_import_that_failed() {
    let mut image = image("download");
    image["spec"]["retry"] = json!(0);
    step(&mut image, None, 90);
    step(&mut image, Some(&file("download", "in-progress", 5, 7, "")), 101);
    let failed = file("download", "failed", 100, 7, "checksum mismatch");
    let (_, conditions) = step(&mut image, Some(&failed), 102);
    assert_eq!(conditions, "Initialized=True Imported=False RetryLimitExceeded=True");
    assert_eq!(image["status"]["progress"], 100);
}

#[test]
fn an_upload_that_broke_may_come_again() {
    let mut image = image("upload");
    let (_, conditions) = step(&mut image, None, 0);
    assert_eq!(conditions, "Initialized=True");
    let (_, conditions) = step(&mut image, Some(&file("upload", "pending", 0, 0, "")), 1);
    assert_eq!(conditions, "Initialized=True Imported=Unknown");
    step(&mut image, Some(&file("upload", "pending", 0, 0, "cut off")), 2);
    assert_eq!(text(&image, "/status/conditions/1/reason"), "UploadFailed");
    step(&mut image, Some(&file("upload", "in-progress", 50, 9, "")), 3);
    assert_eq!(text(&image, "/status/conditions/1/reason"), "Importing");
}

#[test]
fn an_impossible_import_is_reported_and_not_begun() {
    let unbound = image("export-from-volume");
    let mut cdi = image("download");
    cdi["spec"]["backend"] = json!("cdi");
    let mut encrypted = image("upload");
    encrypted["spec"]["storageClassParameters"]["encrypted"] = json!("true");
    for (mut image, part) in [
        (image("restore"), "spec.sourceType restore"),
        (image("clone"), "source image / not found"),
        (encrypted, "the storage class is encrypted"),
        (cdi, "spec.backend cdi"),
        (unbound, "is not bound"),
    ] {
        let (plan, conditions) = step(&mut image, None, 0);
        assert_eq!((conditions.as_str(), plan.backing), ("Initialized=False", None));
        let message = text(&image, "/status/conditions/0/message");
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_volume_is_copied_before_it_is_exported_and_the_copy_goes() {
    let image = image("export-from-volume");
    let source = json!({"metadata": {"name": "pvc-1"}, "spec": {"size": "4096"}});
    let at_first = ImageInput {
        image: &image,
        backing: None,
        class: None,
        source: Some(&source),
        copy: None,
        origin: None,
        obstacle: None,
    };
    let copied = plan(at_first, at(0)).copy.unwrap();
    assert_eq!(copied["spec"]["dataSource"], "vol://pvc-1");
    assert_eq!(plan(ImageInput { copy: Some(&copied), ..at_first }, at(1)), ImagePlan::default());
    let mut complete = copied;
    complete["status"] = json!({"cloneStatus": {"state": "completed"}});
    let begun = plan(ImageInput { copy: Some(&complete), ..at_first }, at(2));
    let parameters = &begun.backing.unwrap()["spec"]["sourceParameters"];
    assert_eq!(parameters["volume-name"], "export-u");
    let mut imported = image.clone();
    imported["status"] = json!({"conditions": [{"type": "Imported", "status": "True"}]});
    let over = ImageInput { image: &imported, copy: Some(&complete), ..at_first };
    assert!(plan(over, at(3)).delete_copy);
}

#[test]
fn data_that_is_gone_is_missed() {
    let mut image = image("download");
    image["status"] = json!({"conditions": [{"type": "Imported", "status": "True"}]});
    let (plan, conditions) = step(&mut image, None, 0);
    assert_eq!(conditions, "Imported=True BackingImageMissing=True");
    assert!(plan.backing.is_none() && plan.class.is_some());
}

#[test]
fn an_image_without_a_disk_says_what_it_waits_for() {
    for source in ["download", "upload"] {
        let mut image = image(source);
        step(&mut image, None, 0);
        let backing = json!({"metadata": {"name": "vmi-u"}, "spec": {"sourceType": source}});
        let mut state = |obstacle: Option<&str>| {
            let backing = Some(&backing);
            let seen = ImageInput {
                image: &image,
                backing,
                class: None,
                source: None,
                copy: None,
                origin: None,
                obstacle,
            };
            if let Some(patch) = plan(seen, at(1)).patch {
                image["status"]["conditions"] = patch["status"]["conditions"].clone();
            }
            let all = condition::of(&image);
            let own = condition::find(&all, "Initialized").cloned().unwrap_or_default();
            ["status", "reason", "message"].map(|key| own[key].as_str().unwrap_or("").to_owned())
        };
        assert_eq!(state(Some("all are full")), ["Unknown", "NoDisk", "all are full"], "{source}");
        assert_eq!(state(Some("one is down")), ["Unknown", "NoDisk", "one is down"], "{source}");
        assert_eq!(state(None), ["Unknown", "", ""], "{source}");
        let coming = file(source, "in-progress", 7, 0, "");
        let (_, conditions) = step(&mut image, Some(&coming), 2);
        assert_eq!(conditions, "Initialized=True Imported=Unknown", "{source}");
    }
}

#[test]
fn an_image_that_its_node_finds_damaged_says_so_until_it_is_whole() {
    let mut image = image("upload");
    let whole = file("upload", "ready", 100, 10, "");
    let (_, conditions) = step(&mut image, Some(&whole), 0);
    assert!(!conditions.contains("Intact"), "{conditions}");
    let damaged = file("upload", "ready", 100, 10, "the image is damaged: 4096 bytes");
    let (_, conditions) = step(&mut image, Some(&damaged), 1);
    assert!(conditions.contains("Imported=True"), "volumes use it: {conditions}");
    assert!(conditions.contains("Intact=False"), "{conditions}");
    let all = condition::of(&image);
    let intact = condition::find(&all, "Intact").unwrap();
    assert_eq!(text(intact, "/reason"), "ImageDamaged");
    assert_eq!(text(intact, "/message"), "the image is damaged: 4096 bytes");
    let (_, conditions) = step(&mut image, Some(&whole), 2);
    assert!(!conditions.contains("Intact"), "{conditions}");
}
