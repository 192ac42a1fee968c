use serde_json::json;

use super::*;

fn shelf() -> (tempfile::TempDir, CacheDir) {
    let folder = tempfile::tempdir().unwrap();
    let shelf = CacheDir::open(folder.path().join("images")).unwrap();
    (folder, shelf)
}

fn key_of(digest: &str) -> String {
    key("registry.test/a", digest, None)
}

fn keep(shelf: &CacheDir, digest: &str, image: &str, content: &str) -> ContainerDisk {
    let folder = shelf.begin().unwrap();
    let disk = folder.path().join("raw");
    fs::write(&disk, content).unwrap();
    shelf.keep(&key_of(digest), &folder, &disk, ("n", image, None)).unwrap()
}

#[test]
fn a_disk_is_found_by_the_names_that_mean_it_now() {
    let (_folder, shelf) = shelf();
    assert_eq!(shelf.find("n", "a:1", None), None);
    let one = keep(&shelf, "sha256:1", "a:1", "one");
    assert_eq!(shelf.find("n", "a:1", None), Some(one.clone()));
    assert_eq!(shelf.find("n", "a:1", Some("/x")), None);
    let two = keep(&shelf, "sha256:2", "a:1", "two");
    assert_eq!(shelf.find("n", "a:1", None), Some(two.clone()), "the tag moved");
    keep(&shelf, "sha256:1", "b:1", "again");
    assert_eq!(shelf.find("n", "b:1", None), Some(one.clone()));
    assert_eq!(fs::read_to_string(&one.path).unwrap(), "one", "what is here stays");
}

#[test]
fn another_namespace_asks_the_registry_first() {
    let (_folder, shelf) = shelf();
    let one = keep(&shelf, "sha256:1", "a:1", "one");
    assert_eq!(shelf.find("other", "a:1", None), None);
    let named = shelf.name(&key_of("sha256:1"), "other", "a:1", None).unwrap();
    assert_eq!(named, Some(one.clone()));
    assert_eq!(shelf.find("other", "a:1", None), Some(one));
}

#[test]
fn what_a_killed_pull_left_goes() {
    let (folder, shelf) = shelf();
    let pulling = shelf.begin().unwrap();
    fs::write(pulling.path().join("image"), "half").unwrap();
    std::mem::forget(pulling);
    CacheDir::open(folder.path().join("images")).unwrap();
    assert_eq!(fs::read_dir(folder.path().join("images")).unwrap().count(), 0);
}

#[test]
fn images_are_removed_when_they_were_not_used_for_long() {
    let (_folder, shelf) = shelf();
    keep(&shelf, "sha256:1", "a:1", "one");
    keep(&shelf, "sha256:2", "b:1", "two");
    let vmi = |phase: &str| {
        json!({"status": {"phase": phase},
               "spec": {"volumes": [{"containerDisk": {"image": "a:1"}}]}})
    };
    let (running, over) = (vmi("Running"), vmi("Succeeded"));
    let now = clock::now();
    let later = now + SignedDuration::from_hours(48);
    assert_eq!(Used::of([&over].into_iter()), Used::default());
    let container = json!({"image": "k:1", "kernelPath": "/boot/vmlinuz"});
    let kernel = json!({"spec": {"domain": {"firmware": {"kernelBoot": {
        "container": container,
    }}}}});
    let files = BTreeSet::from([("k:1".to_owned(), Some("/boot/vmlinuz".to_owned()))]);
    assert!(Used::of([&kernel].into_iter()).0.is_superset(&files));
    let used = Used::of([&running].into_iter());
    assert_eq!(shelf.collect(&used, now).unwrap(), Vec::<String>::new());
    assert_eq!(shelf.collect(&used, later).unwrap(), [key_of("sha256:2")]);
    assert!(shelf.find("n", "a:1", None).is_some());
}

#[test]
fn the_same_digest_with_another_file_or_of_another_repository_is_another_disk() {
    let own = |path| key("registry.test/a", "sha256:ab", path);
    assert!(own(None).starts_with("sha256-ab-"), "{}", own(None));
    assert_ne!(own(Some("/x")), own(Some("/y")));
    assert_ne!(own(Some("/x")), own(None));
    for other in ["registry.test/b", "attacker.test/a", "registry.test/a/x"] {
        assert_ne!(key(other, "sha256:ab", None), own(None), "{other}");
    }
}

#[test]
fn a_manifest_that_another_registry_shows_is_no_way_to_a_private_image() {
    let (_folder, shelf) = shelf();
    keep(&shelf, "sha256:1", "registry.test/a:1", "secret");
    // The registry of the attacker answers with the manifest of the private image.
    let forged = key("attacker.test/a", "sha256:1", None);
    let named = shelf.name(&forged, "attacker", "attacker.test/a:1", None).unwrap();
    assert_eq!(named, None, "the layers have to be pulled from there");
    assert_eq!(shelf.find("attacker", "attacker.test/a:1", None), None);
}

#[test]
fn disks_that_an_earlier_version_kept_are_used_and_removed_as_before() {
    let (_folder, shelf) = shelf();
    let folder = shelf.begin().unwrap();
    let disk = folder.path().join("raw");
    fs::write(&disk, "old").unwrap();
    let old = shelf.keep("sha256-1", &folder, &disk, ("n", "a:1", None)).unwrap();
    assert_eq!(shelf.find("n", "a:1", None), Some(old));
    let new = keep(&shelf, "sha256:1", "a:1", "again");
    assert_eq!(shelf.find("n", "a:1", None), Some(new));
    let later = clock::now() + SignedDuration::from_hours(48);
    let running = json!({"spec": {"volumes": [{"containerDisk": {"image": "a:1"}}]}});
    let used = Used::of([&running].into_iter());
    assert_eq!(shelf.collect(&used, later).unwrap(), ["sha256-1"]);
}
