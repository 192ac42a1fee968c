use super::*;

fn folder() -> (tempfile::TempDir, Folder) {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder(dir.path().join("backing-images/i-1"));
    folder.open().unwrap();
    (dir, folder)
}

#[test]
fn a_download_goes_on_where_it_was_and_has_the_sum_of_all() {
    let (_dir, folder) = folder();
    let content: Vec<u8> = (0_u32..100_000).flat_map(u32::to_be_bytes).collect();
    let whole = folder.store(&content[..], 0, true).unwrap();
    folder.start_over().unwrap();
    let mark = ContentMark { validator: "\"one\"".into(), length: Some(content.len() as u64) };
    folder.note(Some(&mark)).unwrap();
    folder.store(&content[..70_000], 0, true).unwrap();
    assert_eq!(folder.partial(), Some((70_000, mark)));
    let resumed = folder.store(&content[70_000..], 70_000, true).unwrap();
    assert_eq!((resumed.size, &resumed.checksum), (400_000, &whole.checksum));
    assert_eq!(resumed.form, ImageForm::Disk);
    assert!(fs::read(folder.disk()).unwrap() == content);
}

#[test]
fn after_another_start_of_the_machine_only_what_was_synced_is_there() {
    let (_dir, folder) = folder();
    let mark = ContentMark { validator: "\"one\"".into(), length: Some(6) };
    folder.note(Some(&mark)).unwrap();
    folder.store(&b"abcdef"[..], 0, false).unwrap();
    assert_eq!(folder.partial().map(|(at, _)| at), Some(6));
    for (synced, expected) in [(0, None), (4, Some(4)), (9, Some(6))] {
        let note = folder.noted().unwrap();
        folder.write(&DownloadRecord { boot: "another".into(), synced, ..note }).unwrap();
        assert_eq!(folder.partial().map(|(at, _)| at), expected, "{synced}");
    }
}

#[test]
fn an_image_is_there_completely_or_not_at_all() {
    let (_dir, folder) = folder();
    let fetched = folder.store(&b"data"[..], 0, false).unwrap();
    assert_eq!(folder.facts(), None);
    let facts = folder.publish(&folder.disk(), &fetched).unwrap();
    assert_eq!((facts.size, facts.virtual_size), (4, 512));
    assert_eq!(folder.facts(), Some(facts.clone()));
    assert!(!folder.is_settled());
    // A process that ends now leaves the rest to the next.
    assert!(folder.sum(|| false).is_err());
    let checksum = hex(&Sha512::digest("data"));
    let summed = Some(ImageFacts { checksum, ..facts });
    assert_eq!(folder.sum(|| true).unwrap(), summed);
    folder.start_over().unwrap();
    assert!(folder.is_settled(), "what it was made of is gone");
    assert_eq!(folder.sum(|| true).unwrap(), summed);
    fs::write(folder.work(), "left by a crash").unwrap();
    folder.open().unwrap();
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 2);
    folder.remove().unwrap();
    assert!(!folder.0.exists());
    folder.remove().unwrap();
}

#[test]
fn files_of_others_stay() {
    let (_dir, folder) = folder();
    fs::write(folder.0.join("notes"), "mine").unwrap();
    assert!(folder.remove().is_err());
    assert!(folder.0.join("notes").exists());
}
