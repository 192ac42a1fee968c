//! The user data of a new machine: from a file, or made of SSH keys and a password.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::manifest;
use crate::cli::CreateArgs;
use crate::text_file;

/// The largest user data that a machine can hold itself, as in KubeVirt.
const LARGEST: usize = 2048;

/// The user data for cloud-init; nothing if none is asked for.
pub(super) fn of(args: &CreateArgs) -> Result<Option<String>> {
    if let Some(path) = &args.user_data {
        return given(path).map(Some);
    }
    let keys: Result<Vec<String>> = args.ssh_key.iter().map(|path| key(path)).collect();
    let made = manifest::user_data(&args.machine.name, &keys?, args.password.as_deref());
    made.map(|text| check_length("--ssh-key", text)).transpose()
}

fn key(path: &Path) -> Result<String> {
    let text = read(path)?;
    let line = text.trim();
    if line.contains("PRIVATE KEY") {
        bail!("--ssh-key {}: this is a private key; the public one ends in .pub", path.display());
    }
    if line.lines().count() != 1 || hci::public_key::fingerprint(line).is_none() {
        bail!(
            "--ssh-key {}: must hold one public key, for example ssh-ed25519 AAAA… me@home",
            path.display()
        );
    }
    Ok(line.to_owned())
}

/// User data as it is in a file, if a machine can hold it.
fn given(path: &Path) -> Result<String> {
    let text = read(path)?;
    if text.trim().is_empty() {
        bail!("--user-data {}: the file is empty", path.display());
    }
    check_length(&format!("--user-data {}", path.display()), text)
}

/// Refuses user data that a machine cannot hold, and names the flag that it comes from.
fn check_length(flag: &str, text: String) -> Result<String> {
    if text.len() <= LARGEST {
        return Ok(text);
    }
    bail!(
        "{flag}: the user data has {} bytes, and the maximum is {LARGEST}; put longer user data into a \
         Secret and name it in cloudInitNoCloud.secretRef",
        text.len()
    )
}

fn read(path: &Path) -> Result<String> {
    text_file::read(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        file
    }

    #[test]
    fn a_file_with_a_key_has_one_public_key() {
        let public =
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me";
        assert_eq!(key(file(&format!("{public}\n")).path()).unwrap(), public);
        for other in ["", "hello", "ssh-ed25519 AAAA", &format!("{public}\n{public}\n")] {
            let refused = key(file(other).path()).unwrap_err().to_string();
            assert!(refused.contains("must hold one public key"), "{other}: {refused}");
        }
        let private = key(file("-----BEGIN OPENSSH PRIVATE KEY-----").path()).unwrap_err();
        assert!(private.to_string().contains("ends in .pub"));
    }

    #[test]
    fn user_data_is_not_empty_and_not_too_long() {
        assert_eq!(given(file("#cloud-config\n").path()).unwrap(), "#cloud-config\n");
        given(file(&"x".repeat(2048)).path()).unwrap();
        for (content, expected) in
            [("", "is empty"), (" \n", "is empty"), (&*"x".repeat(2049), "the maximum is 2048")]
        {
            let refused = given(file(content).path()).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
        }
    }
}
