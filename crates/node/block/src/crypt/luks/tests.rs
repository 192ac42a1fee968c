//! Headers of our own, and those of `cryptsetup`.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;

const CHEAP: Cost = Cost { memory: 64, time: 1 };

/// A volume in memory that may stop taking writes.
struct Memory {
    bytes: Vec<u8>,
    writes_left: usize,
}

impl Memory {
    fn new() -> Self {
        Self { bytes: vec![0; HEADER as usize], writes_left: usize::MAX }
    }
}

impl HeaderDisk for Memory {
    fn read(&mut self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        assert!(offset.is_multiple_of(4096) && len.is_multiple_of(4096), "{offset}+{len}");
        Ok(self.bytes[offset as usize..][..len].to_vec())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        assert!(
            offset.is_multiple_of(4096) && data.len().is_multiple_of(4096),
            "{offset}+{}",
            data.len()
        );
        self.writes_left = self.writes_left.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
        self.bytes[offset as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct OnDisk(File);

impl HeaderDisk for OnDisk {
    fn read(&mut self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.0.read_exact_at(&mut bytes, offset).map(|()| bytes)
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}

fn word(text: &str) -> Passphrase {
    Passphrase::new(text)
}

/// A block encrypted with the volume key: the same for the same key.
fn print_of(cipher: &Cipher) -> Vec<u8> {
    cipher.encrypt(HEADER, &[1; 4096]).to_vec()
}

#[test]
fn every_passphrase_that_was_set_opens_the_same_volume() {
    let disk = &mut Memory::new();
    assert!(matches!(unlock(disk, &word("a")), Err(LuksError::NotEncrypted)));
    let first = print_of(&format(disk, &word("a"), CHEAP).unwrap());
    assert!(matches!(format(disk, &word("a"), CHEAP), Err(LuksError::HoldsData)));
    assert_eq!(print_of(&unlock(disk, &word("a")).unwrap()), first);
    assert!(matches!(unlock(disk, &word("b")), Err(LuksError::WrongPassphrase)));
    add_passphrase(disk, &word("a"), &word("b"), CHEAP).unwrap();
    assert_eq!(print_of(&unlock(disk, &word("b")).unwrap()), first);
    change_passphrase(disk, &word("a"), &word("c"), CHEAP).unwrap();
    assert!(matches!(unlock(disk, &word("a")), Err(LuksError::WrongPassphrase)));
    assert_eq!(print_of(&unlock(disk, &word("c")).unwrap()), first);
    remove_passphrase(disk, &word("b")).unwrap();
    assert!(matches!(unlock(disk, &word("b")), Err(LuksError::WrongPassphrase)));
    assert!(matches!(remove_passphrase(disk, &word("c")), Err(LuksError::Last)));
    assert!(matches!(add_passphrase(disk, &word("c"), &word(""), CHEAP), Err(LuksError::Empty)));
    assert_eq!(print_of(&unlock(disk, &word("c")).unwrap()), first);
}

#[test]
fn there_is_room_for_thirty_two_passphrases() {
    let disk = &mut Memory::new();
    format(disk, &word("0"), CHEAP).unwrap();
    for number in 1..32 {
        add_passphrase(disk, &word("0"), &word(&number.to_string()), CHEAP).unwrap();
    }
    let more = add_passphrase(disk, &word("0"), &word("more"), CHEAP);
    assert!(matches!(more, Err(LuksError::Full)), "{more:?}");
    remove_passphrase(disk, &word("7")).unwrap();
    add_passphrase(disk, &word("31"), &word("more"), CHEAP).unwrap();
    unlock(disk, &word("more")).unwrap();
}

#[test]
fn a_change_that_is_cut_off_anywhere_leaves_a_passphrase_that_works() {
    let disk = &mut Memory::new();
    format(disk, &word("old"), CHEAP).unwrap();
    let before = disk.bytes.clone();
    for writes in 0.. {
        disk.bytes.clone_from(&before);
        disk.writes_left = writes;
        let changed = change_passphrase(disk, &word("old"), &word("new"), CHEAP);
        let works = |disk: &mut Memory, text| unlock(disk, &word(text)).is_ok();
        assert!(works(disk, "old") || works(disk, "new"), "after {writes} writes");
        if changed.is_ok() {
            assert!(writes > 3 && !works(disk, "old"));
            break;
        }
    }
}

#[test]
fn one_damaged_copy_costs_nothing_and_two_are_distinguished_from_none() {
    let disk = &mut Memory::new();
    let first = print_of(&format(disk, &word("a"), CHEAP).unwrap());
    for at in [0, 3, 100, 5000, 16384, 16390, 16384 + 4200] {
        let mut damaged = Memory { bytes: disk.bytes.clone(), ..Memory::new() };
        damaged.bytes[at] ^= 0x10;
        assert_eq!(print_of(&unlock(&mut damaged, &word("a")).unwrap()), first, "byte {at}");
    }
    disk.bytes[5000] ^= 1;
    disk.bytes[16384 + 5000] ^= 1;
    assert!(matches!(unlock(disk, &word("a")), Err(LuksError::Damaged)));
}

#[test]
fn garbage_is_an_error_and_never_a_panic() {
    let disk = &mut Memory::new();
    format(disk, &word("a"), CHEAP).unwrap();
    let good = disk.bytes[..32 << 10].to_vec();
    let mut seed = 1u64;
    let mut draw = |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    for round in 0..300 {
        disk.bytes[..32 << 10].copy_from_slice(&good);
        for _ in 0..=draw(8) {
            let at = draw(6000);
            let byte = draw(256) as u8;
            disk.bytes[at] = byte;
            disk.bytes[16384 + at] = byte;
        }
        if round % 2 == 0 {
            // As if a user had written nonsense on purpose.
            for start in [0, 16384] {
                let sum = header::sum_for_tests(&disk.bytes[start..start + 16384]);
                disk.bytes[start + 448..start + 480].copy_from_slice(&sum);
            }
        }
        let _: Result<Cipher, LuksError> = unlock(disk, &word("a"));
    }
}

/// Runs `cryptsetup` with a passphrase on its standard input.
fn cryptsetup(args: &[&str], path: &Path, passphrase: &str) -> Result<String, String> {
    let mut child = Command::new("cryptsetup")
        .args(args)
        .arg(path)
        .arg("--key-file=-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cryptsetup is installed (package cryptsetup-bin)");
    child.stdin.take().unwrap().write_all(passphrase.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(said),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn volume(dir: &tempfile::TempDir) -> (std::path::PathBuf, OnDisk) {
    let path = dir.path().join("volume");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.set_len(20 << 20).unwrap();
    (path, OnDisk(file))
}

#[test]
fn cryptsetup_opens_what_we_make() {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut disk) = volume(&dir);
    format(&mut disk, &word("one"), CHEAP).unwrap();
    add_passphrase(&mut disk, &word("one"), &word("two"), CHEAP).unwrap();
    for passphrase in ["one", "two"] {
        cryptsetup(&["open", "--test-passphrase"], &path, passphrase).unwrap();
    }
    cryptsetup(&["open", "--test-passphrase"], &path, "three").unwrap_err();
    let dump = cryptsetup(&["luksDump"], &path, "").unwrap();
    for line in ["aes-xts-plain64", "sector: 4096 [bytes]", "argon2id", "offset: 16777216 [bytes]"]
    {
        assert!(dump.contains(line), "{line}: {dump}");
    }
    remove_passphrase(&mut disk, &word("one")).unwrap();
    cryptsetup(&["open", "--test-passphrase"], &path, "one").unwrap_err();
}

#[test]
fn we_open_what_cryptsetup_makes() {
    for kdf in [
        &["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000", "--hash=sha512"][..],
        &["--pbkdf=argon2id", "--pbkdf-memory=1024", "--pbkdf-force-iterations=4"],
        &["--pbkdf=argon2i", "--pbkdf-memory=1024", "--pbkdf-force-iterations=4"],
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut disk) = volume(&dir);
        let mut args = vec!["luksFormat", "--type=luks2", "-q", "--sector-size=4096"];
        args.extend(["--cipher=aes-xts-plain64", "--key-size=512"]);
        args.extend(kdf);
        cryptsetup(&args, &path, "geheim").unwrap();
        unlock(&mut disk, &word("geheim")).unwrap();
        let wrong = unlock(&mut disk, &word("falsch"));
        assert!(matches!(wrong, Err(LuksError::WrongPassphrase)), "{wrong:?}");
        // It still reads headers that we change; unknown fields in them stay.
        add_passphrase(&mut disk, &word("geheim"), &word("zwei"), CHEAP).unwrap();
        cryptsetup(&["open", "--test-passphrase"], &path, "zwei").unwrap();
        cryptsetup(&["open", "--test-passphrase"], &path, "geheim").unwrap();
        // The key that it shows is the one that we use.
        let dump = ["luksDump", "-q", "--dump-volume-key"];
        let shown = cryptsetup(&dump, &path, "geheim").unwrap();
        let (_, hex) = shown.split_once("MK dump:").expect("the key is shown");
        let digits: Vec<u32> = hex.chars().filter_map(|it| it.to_digit(16)).collect();
        let key: Vec<u8> = digits.chunks(2).map(|it| (it[0] << 4 | it[1]) as u8).collect();
        let theirs = Cipher::new(&key.try_into().unwrap(), HEADER, 4096, 0);
        let ours = unlock(&mut disk, &word("zwei")).unwrap();
        assert_eq!(print_of(&ours), print_of(&theirs));
    }
}
