//! Volumes whose replicas hold ciphertext.

use std::process::Command;

use crate::lab::{Lab, MIB, qemu_io, read_replica};

const HOW: &[&str] = &["passphrase=geheim"];

#[test]
fn a_client_reads_what_it_wrote_and_the_replicas_do_not_show_it() {
    let mut lab = Lab::start(32 * MIB, 2, HOW);
    qemu_io(
        &lab,
        &[
            "write -P 0x5a 0 4M",
            "write -P 0x5b 4608 512",
            "write -z 1M 64k",
            "discard 2M 64k",
            "write -P 0 3M 64k",
            "flush",
            "read -P 0x5b 4608 512",
            "read -P 0x5a 5120 4k",
            "read -P 0 1M 64k",
            "read -P 0 2M 64k",
            "read -P 0 3M 64k",
            "read -P 0 31M 1M",
        ],
    );
    // A killed engine asks for nothing but the passphrase.
    lab.kill_engine();
    lab.resume();
    qemu_io(&lab, &["read -P 0x5b 4608 512", "read -P 0x5a 3584k 512k", "read -P 0 2M 64k"]);
    lab.wait_in_sync(2);
    lab.stop();
    let whole = lab.compare_replicas();
    let content = read_replica(&lab.volume_dir().join("replica-0"), 48 * MIB);
    assert_eq!(whole[..32 << 20], content[..32 << 20]);
    assert!(content.starts_with(b"LUKS\xba\xbe"));
    let data = &content[16 << 20..];
    for byte in [0x5a, 0x5b] {
        let plain = [byte; 32];
        assert!(!data.windows(32).any(|it| it == plain), "{byte:#x} shows");
    }
    assert!(data[1 << 20..][..64 << 10].iter().all(|byte| *byte == 0), "zeroed blocks are holes");
    assert!(data[3 << 20..][..4096].iter().any(|byte| *byte != 0), "zeroes as data are not");
}

#[test]
fn an_exported_volume_opens_with_cryptsetup() {
    let mut lab = Lab::start(32 * MIB, 1, HOW);
    qemu_io(&lab, &["write -P 1 0 1M", "flush"]);
    lab.stop();
    let image = lab.dir.path().join("raw");
    let key = lab.dir.path().join("key");
    std::fs::write(&image, read_replica(&lab.volume_dir().join("replica-0"), 48 * MIB)).unwrap();
    for (passphrase, opens) in [("geheim", true), ("falsch", false)] {
        std::fs::write(&key, passphrase).unwrap();
        let mut cryptsetup = Command::new("cryptsetup");
        cryptsetup.args(["open", "--test-passphrase", "--key-file"]).arg(&key).arg(&image);
        let output = cryptsetup.output().expect("cryptsetup is installed (package cryptsetup-bin)");
        assert_eq!(output.status.success(), opens, "{output:?}");
    }
}

#[test]
fn a_wrong_passphrase_ends_with_a_clear_word() {
    let mut lab = Lab::start(32 * MIB, 1, HOW);
    lab.stop();
    for (how, says) in [
        (&["passphrase=falsch"][..], "the volume cannot be unlocked: the passphrase is wrong"),
        (&[][..], "NoPassphrase"),
    ] {
        let said = lab.fail(how);
        assert!(said.contains(says), "{said}");
    }
    let mut plain = Lab::start(32 * MIB, 1, &[]);
    plain.stop();
    let said = plain.fail(HOW);
    assert!(said.contains("NotEncrypted"), "{said}");
    lab.resume();
    qemu_io(&lab, &["read -P 0 0 1M"]);
    lab.stop();
}
