//! OpenSSH public keys: whether a text is one, and its fingerprint.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};

/// Kinds of keys that OpenSSH knows.
const ALGORITHMS: &[&str] = &[
    "ssh-rsa",
    "ssh-dss",
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

/// The fingerprint of a line of an `authorized_keys` file, as Harvester writes it (MD5, in
/// pairs of digits). Nothing if the line holds no public key.
pub fn fingerprint(line: &str) -> Option<String> {
    let mut digits = String::new();
    for byte in Md5::digest(blob(line)?) {
        let colon = if digits.is_empty() { "" } else { ":" };
        write!(digits, "{colon}{byte:02x}").expect("a string takes everything");
    }
    Some(digits)
}

/// The key itself. Options may come first, a comment last.
fn blob(line: &str) -> Option<Vec<u8>> {
    let mut words = line.split_ascii_whitespace();
    let algorithm = words.by_ref().find(|word| ALGORITHMS.contains(word))?;
    let blob = STANDARD.decode(words.next()?).ok()?;
    is_whole(&blob, algorithm).then_some(blob)
}

/// A key is a row of strings, each after its length; the first names the algorithm again.
fn is_whole(blob: &[u8], algorithm: &str) -> bool {
    let mut rest = blob;
    let mut count = 0;
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let Some((string, after)) = after.split_at_checked(u32::from_be_bytes(*length) as usize)
        else {
            return false;
        };
        if count == 0 && string != algorithm.as_bytes() {
            return false;
        }
        count += 1;
        rest = after;
    }
    rest.is_empty() && count > 1
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";

    #[test]
    fn keys_are_recognised_wherever_they_stand_in_the_line() {
        let plain = fingerprint(&format!("ssh-ed25519 {KEY}")).unwrap();
        assert_eq!(plain.len(), 47);
        for line in [
            format!("ssh-ed25519 {KEY} me@home"),
            format!("  ssh-ed25519   {KEY}\n"),
            format!("command=\"ls\",no-pty ssh-ed25519 {KEY} me"),
        ] {
            assert_eq!(fingerprint(&line), Some(plain.clone()), "{line}");
        }
    }

    #[test]
    fn everything_else_is_no_key() {
        let cut = &KEY[..KEY.len() - 4];
        for line in [
            String::new(),
            "ssh-ed25519".to_owned(),
            "ssh-ed25519 ???".to_owned(),
            format!("ssh-rsa {KEY}"),
            format!("ssh-ed25519 {cut}"),
            format!("ssh-unknown {KEY}"),
            "-----BEGIN OPENSSH PRIVATE KEY-----".to_owned(),
        ] {
            assert_eq!(fingerprint(&line), None, "{line}");
        }
    }
}
