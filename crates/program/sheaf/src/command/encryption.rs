//! Keys for what is encrypted at rest: from a configuration that somebody keeps, or from a
//! file of our own in the data directory.
//!
//! The file has one key per line, `NAME BASE64`; the first one seals, all of them open.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use apiserver::encryption;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use store::{Method, SealKey, Sealing};

use crate::cli::EncryptionArgs;

/// How values are kept, and what to undo should the server not start.
#[derive(Debug)]
pub(super) struct ChosenEncryption {
    pub(super) sealing: Sealing,
    /// A key file that was made just now.
    made: Option<PathBuf>,
}

impl ChosenEncryption {
    pub(super) fn made(&self) -> Option<PathBuf> {
        self.made.clone()
    }
}

/// A key that has sealed nothing yet is of no use if nothing could be started with it, and
/// would hide that another one is missing.
pub(super) fn give_up(made: Option<&Path>) {
    if let Some(file) = made {
        let _ = std::fs::remove_file(file);
    }
}

/// What the flags say; `own` is where a key of our own lies.
pub(super) fn choose(args: &EncryptionArgs, own: &Path) -> Result<ChosenEncryption> {
    if let Some(file) = &args.encryption_provider_config {
        return Ok(ChosenEncryption { sealing: configured(file)?, made: None });
    }
    let mut keys = read(own)?;
    let mut made = None;
    if args.encrypt_secrets && keys.is_empty() {
        keys = vec![generate()?];
        write(own, &keys)?;
        made = Some(own.to_owned());
    }
    if keys.is_empty() {
        return Ok(ChosenEncryption { sealing: Sealing::default(), made });
    }
    Ok(ChosenEncryption { sealing: sealing(&keys, args.encrypt_secrets, own)?, made })
}

pub(super) fn configured(file: &Path) -> Result<Sealing> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    encryption::parse(&text).with_context(|| format!("cannot use {}", file.display()))
}

/// With the keys of our own file; without `seals` they only open.
pub(super) fn sealing(keys: &[(String, Vec<u8>)], seals: bool, own: &Path) -> Result<Sealing> {
    let key = |(name, secret): &(String, Vec<u8>)| SealKey::new(name, Method::AesGcm, secret);
    let keys = keys.iter().map(key).collect::<Result<Vec<_>, _>>();
    let keys = keys.with_context(|| format!("cannot use the keys in {}", own.display()))?;
    Ok(if seals { encryption::of_secrets(keys) } else { encryption::plain_secrets(keys) })
}

/// A fresh key, with a name that no other has.
pub(super) fn generate() -> Result<(String, Vec<u8>)> {
    use std::io::Read as _;
    let mut secret = vec![0_u8; 32];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut secret))
        .context("cannot make a key")?;
    Ok((uuid::Uuid::new_v4().simple().to_string()[..12].to_owned(), secret))
}

pub(super) fn read(own: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let text = match std::fs::read_to_string(own) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", own.display()));
        }
    };
    let mut keys = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let parsed = line.split_once(' ').and_then(|(name, secret)| {
            Some((name.to_owned(), STANDARD.decode(secret.trim()).ok()?))
        });
        match parsed {
            Some(key) => keys.push(key),
            None => bail!("line {} of {} is not `NAME BASE64`", number + 1, own.display()),
        }
    }
    Ok(keys)
}

pub(super) fn write(own: &Path, keys: &[(String, Vec<u8>)]) -> Result<()> {
    let mut text = String::new();
    for (name, secret) in keys {
        let _ = writeln!(text, "{name} {}", STANDARD.encode(secret));
    }
    auth::kubeconfig::write_kubeconfig(own, &text)
        .with_context(|| format!("cannot write {}", own.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_being_written_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("encryption.keys");
        assert!(read(&file).unwrap().is_empty());
        let keys = vec![generate().unwrap(), generate().unwrap()];
        assert_ne!(keys[0], keys[1]);
        assert_eq!(keys[0].1.len(), 32);
        write(&file, &keys).unwrap();
        assert_eq!(read(&file).unwrap(), keys);
        std::fs::write(&file, "nonsense").unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("line 1"));
    }
}
