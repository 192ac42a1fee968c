//! Real images, honest and hostile, through real qemu-img.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use super::receive::{Compression, receive};
use super::*;
use crate::tests::run;

/// Three quarters of a megabyte, mostly holes.
fn pattern() -> Vec<u8> {
    let mut bytes = vec![0; 768 << 10];
    for (index, byte) in bytes.iter_mut().enumerate().skip(200_000).take(100_000) {
        *byte = (index % 251) as u8;
    }
    bytes
}

fn qemu_img(dir: &Path, arguments: &[&str]) {
    run(Command::new("qemu-img").current_dir(dir).args(arguments));
}

#[tokio::test]
async fn every_kind_becomes_the_same_raw_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("raw"), pattern()).unwrap();
    let kinds = [
        (ImageKind::Qcow2, vec![]),
        (ImageKind::Vmdk, vec!["-o", "subformat=streamOptimized"]),
        (ImageKind::Vmdk, vec!["-o", "subformat=monolithicSparse"]),
        (ImageKind::Vdi, vec![]),
        (ImageKind::Vhdx, vec![]),
        (ImageKind::Vpc, vec!["-o", "force_size=on"]),
    ];
    for (kind, options) in kinds {
        let mut arguments = vec!["convert", "-f", "raw", "-O", kind.driver()];
        arguments.extend(&options);
        arguments.extend(["raw", "image"]);
        qemu_img(dir.path(), &arguments);
        let info = inspect(&Tool::default(), &path("image")).await.unwrap();
        assert_eq!((info.kind, info.virtual_size), (kind, 768 << 10), "{options:?}");
        let mut reports = Vec::new();
        let to = path("disk.img");
        let from = path("image");
        convert(&Tool::default(), (&from, kind), (&to, ImageFormat::Raw), |percent| {
            reports.push(percent);
        })
        .await
        .unwrap();
        assert_eq!(reports.last(), Some(&100.0), "{reports:?}");
        let disk = std::fs::read(&to).unwrap();
        assert!(disk == pattern(), "{kind:?} {options:?}");
        let blocks = std::fs::metadata(&to).unwrap().blocks() * 512;
        assert!(blocks < 400_000, "{blocks} bytes on disk");
        std::fs::remove_file(&to).unwrap();
        std::fs::remove_file(path("image")).unwrap();
    }
}

#[tokio::test]
async fn images_that_lead_to_other_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("secret"), pattern()).unwrap();
    let secret = path("secret").display().to_string();
    qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "-F", "raw", "-b", &secret, "backed"]);
    let data = format!("data_file={secret}2,data_file_raw=on");
    qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "-o", &data, "data", "1M"]);
    let key = ["--object", "secret,id=k,data=abc"];
    let locked = ["-o", "encrypt.format=luks,encrypt.key-secret=k", "locked", "1M"];
    qemu_img(dir.path(), &[&["create", "-q"], &key[..], &["-f", "qcow2"], &locked[..]].concat());
    let flat = ["-o", "subformat=monolithicFlat", "flat.vmdk", "1M"];
    qemu_img(dir.path(), &[&["create", "-q", "-f", "vmdk"], &flat[..]].concat());
    let lean = ["-F", "vmdk", "-b", "base.vmdk", "child.vmdk"];
    qemu_img(dir.path(), &["create", "-q", "-f", "vmdk", "base.vmdk", "1M"]);
    qemu_img(dir.path(), &[&["create", "-q", "-f", "vmdk"], &lean[..]].concat());
    let mut empty = std::fs::read(path("base.vmdk")).unwrap();
    empty[12..20].fill(0);
    std::fs::write(path("empty.vmdk"), empty).unwrap();
    let cases = [
        ("backed", Refusal::Backing { file: secret.clone() }),
        ("data", Refusal::DataFile),
        ("locked", Refusal::Encrypted),
        ("flat.vmdk", Refusal::Description),
        ("child.vmdk", Refusal::Backing { file: "base.vmdk".to_owned() }),
        ("empty.vmdk", Refusal::Description),
    ];
    for (name, expected) in cases {
        let error = inspect(&Tool::default(), &path(name)).await.unwrap_err();
        let ImageError::Refused { refusal, .. } = &error else { panic!("{name}: {error:?}") };
        assert_eq!(refusal, &expected, "{name}");
        let stream = File::open(path(name)).unwrap();
        let received = receive(stream, &path("target"), 1 << 30, |_| {});
        assert!(matches!(received, Err(ReceiveError::Refused(_))), "{name}: {received:?}");
        assert!(!path("target").exists());
    }
}

#[tokio::test]
async fn a_damaged_image_is_an_error_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, b"QFI\xfb").unwrap();
    let error = check_header(&path).unwrap_err();
    assert!(error.to_string().contains("cut short or damaged"), "{error}");
    qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "image", "64M"]);
    check(&Tool::default(), &path).await.unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    // The place of the first-level table, in the middle of nowhere.
    bytes[40..48].copy_from_slice(&0x1234_5678_0000u64.to_be_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let error = check(&Tool::default(), &path).await.unwrap_err();
    assert!(matches!(error, ImageError::Tool(ToolError::Failed { .. })), "{error:?}");
}

#[test]
fn an_xz_stream_cannot_ask_for_any_amount_of_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("disk"), pattern()).unwrap();
    run(Command::new("sh").current_dir(dir.path()).args(["-c", "xz -9 < disk > packed"]));
    let mut packed = std::fs::read(path("packed")).unwrap();
    receive(std::io::Cursor::new(packed.clone()), &path("target"), 1 << 30, |_| {}).unwrap();
    std::fs::remove_file(path("target")).unwrap();
    // The header of the first block: its size, its flags, one filter with the size of the
    // dictionary, and a checksum. 40 means 4 GiB.
    assert_eq!(packed[12..16], [2, 0, 0x21, 1]);
    packed[16] = 40;
    let mut checksum = flate2::Crc::new();
    checksum.update(&packed[12..20]);
    packed[20..24].copy_from_slice(&checksum.sum().to_le_bytes());
    let refused = receive(std::io::Cursor::new(packed), &path("target"), 1 << 30, |_| {});
    let Err(ReceiveError::Read(error)) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("needs more than 128 MiB of memory"), "{error}");
    assert!(!path("target").exists());
}

#[test]
fn streams_are_decompressed_by_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("disk"), pattern()).unwrap();
    let packers = [
        (Compression::None, "cat"),
        (Compression::Gzip, "gzip"),
        (Compression::Xz, "xz"),
        (Compression::Zstd, "zstd"),
    ];
    for (compression, packer) in packers {
        // Twice, because each of the formats may be concatenated.
        let script = format!("({packer} < disk; {packer} < disk) > packed");
        run(Command::new("sh").current_dir(dir.path()).args(["-c", &script]));
        let mut last = 0;
        let stream = File::open(path("packed")).unwrap();
        let received = receive(stream, &path("target"), 1 << 30, |bytes| last = bytes).unwrap();
        let whole = pattern().repeat(2);
        assert_eq!(received.compression, compression);
        assert_eq!((received.kind, received.bytes, last), (ImageKind::Raw, 1536 << 10, 1536 << 10));
        assert!(std::fs::read(path("target")).unwrap() == whole, "{packer}");
        let blocks = std::fs::metadata(path("target")).unwrap().blocks() * 512;
        assert!(blocks < 800_000, "{blocks} bytes on disk");
        std::fs::remove_file(path("target")).unwrap();

        let stream = File::open(path("packed")).unwrap();
        let most = 1 << 20;
        let large = receive(stream, &path("target"), most, |_| {});
        assert!(matches!(large, Err(ReceiveError::TooLarge { .. })), "{large:?}");
        assert!(!path("target").exists());
        if compression != Compression::None {
            let packed = std::fs::read(path("packed")).unwrap();
            let torn = std::io::Cursor::new(packed[..packed.len() / 3].to_vec());
            let torn = receive(torn, &path("target"), 1 << 30, |_| {});
            assert!(matches!(torn, Err(ReceiveError::Read(_))), "{packer}: {torn:?}");
            assert!(!path("target").exists());
        }
    }
    let nothing = receive(io::empty(), &path("target"), 1, |_| {});
    assert!(matches!(nothing, Err(ReceiveError::Empty)), "{nothing:?}");
}

#[tokio::test]
async fn a_stream_from_the_network_is_fed_to_a_thread() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("target");
    let (sender, reader) = feed();
    let target = path.clone();
    let work = tokio::task::spawn_blocking(move || receive(reader, &target, 1 << 30, |_| {}));
    for piece in pattern().chunks(10_000) {
        sender.send(Ok(bytes::Bytes::copy_from_slice(piece))).await.unwrap();
    }
    drop(sender);
    assert_eq!(work.await.unwrap().unwrap().bytes, 768 << 10);
    assert!(std::fs::read(&path).unwrap() == pattern());

    let (sender, reader) = feed();
    let target = dir.path().join("other");
    let work = tokio::task::spawn_blocking(move || receive(reader, &target, 1 << 30, |_| {}));
    sender.send(Ok(vec![1; 100_000].into())).await.unwrap();
    sender.send(Err(io::ErrorKind::ConnectionAborted.into())).await.unwrap();
    assert!(matches!(work.await.unwrap(), Err(ReceiveError::Read(_))));
    assert!(!dir.path().join("other").exists());
}

#[tokio::test]
async fn disks_are_made_and_grow_but_never_shrink() {
    let dir = tempfile::tempdir().unwrap();
    let tool = Tool::default();
    for format in [ImageFormat::Raw, ImageFormat::Qcow2] {
        let path = dir.path().join(format.name());
        create(&tool, &path, format, 1 << 20).await.unwrap();
        grow(&tool, &path, format, 4 << 20).await.unwrap();
        let size = inspect(&tool, &path).await.unwrap().virtual_size;
        assert_eq!(size, 4 << 20);
        grow(&tool, &path, format, 1 << 20).await.unwrap_err();
        assert_eq!(inspect(&tool, &path).await.unwrap().virtual_size, size);
    }
    let overlay = dir.path().join("overlay");
    let backing = FileImage::raw(dir.path().join("raw"));
    create_overlay(&tool, &overlay, &backing, None).await.unwrap();
    let error = inspect(&tool, &overlay).await.unwrap_err();
    assert!(matches!(error, ImageError::Refused { .. }), "{error:?}");
}

#[tokio::test]
async fn a_hostile_image_cannot_take_all_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = File::create(dir.path().join("huge")).unwrap();
    // A qcow2 header that promises a first-level table of 16 GiB.
    let mut header = vec![0u8; 104];
    header[..4].copy_from_slice(b"QFI\xfb");
    header[4..8].copy_from_slice(&3u32.to_be_bytes());
    header[20..24].copy_from_slice(&16u32.to_be_bytes());
    header[24..32].copy_from_slice(&(1u64 << 60).to_be_bytes());
    header[36..40].copy_from_slice(&u32::MAX.to_be_bytes());
    header[40..48].copy_from_slice(&65536u64.to_be_bytes());
    header[96..100].copy_from_slice(&4u32.to_be_bytes());
    header[100..104].copy_from_slice(&104u32.to_be_bytes());
    file.write_all(&header).unwrap();
    file.set_len(1 << 20).unwrap();
    let error = inspect(&Tool::default(), &dir.path().join("huge")).await.unwrap_err();
    assert!(matches!(error, ImageError::Tool(_)), "{error:?}");
}
