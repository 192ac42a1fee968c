//! Keys for encryption at rest: from a provider configuration, or from a file of our own in the
//! data directory.
//!
//! The file has one key per line, `NAME BASE64`; the first one seals, all of them open.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use apiserver::encryption;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use store::{Config, Method, SealKey, Sealing};
use tracing::info;

use crate::cli::EncryptionArgs;
use crate::data_dir::Layout;
use crate::text_file;

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

/// The encryption that the flags request; `own` is the path of our own key, and `seals` whether it
/// encrypts.
pub(super) fn choose(args: &EncryptionArgs, own: &Path, seals: bool) -> Result<ChosenEncryption> {
    if let Some(file) = &args.encryption_provider_config {
        return Ok(ChosenEncryption { sealing: configured(file)?, made: None });
    }
    let mut keys = read(own)?;
    let mut made = None;
    if seals && keys.is_empty() {
        keys = vec![generate()?];
        write(own, &keys)?;
        made = Some(own.to_owned());
    }
    if keys.is_empty() {
        return Ok(ChosenEncryption { sealing: Sealing::default(), made });
    }
    Ok(ChosenEncryption { sealing: sealing(&keys, seals, own)?, made })
}

/// Marks a store that has no key yet: its secrets are to be encrypted. The mark is made before the
/// key, so that a start that is interrupted is completed by the next one.
pub(super) fn note_plain_secrets(layout: &Layout, own: &Path) -> Result<()> {
    if !layout.database().exists() || !read(own)?.is_empty() {
        return Ok(());
    }
    let mark = layout.encryption_pending();
    std::fs::write(&mark, "").with_context(|| format!("cannot write {}", mark.display()))
}

/// Encrypts the secrets of a store that is marked.
pub(super) async fn encrypt_plain_secrets(layout: &Layout, sealing: Sealing) -> Result<()> {
    let mark = layout.encryption_pending();
    if !mark.exists() {
        return Ok(());
    }
    let mut config = Config::sqlite(layout.database());
    config.sealing = Arc::new(sealing.counting_stale());
    let outcome = store::reencrypt(config, |_| {}).await;
    if let Ok(objects) = &outcome {
        info!(objects, "encrypted the secrets that were stored in plain text");
    }
    // A store that cannot be read is marked again by the next start.
    std::fs::remove_file(&mark).with_context(|| format!("cannot remove {}", mark.display()))?;
    outcome.map(drop).context("cannot read and encrypt the secrets of the store")
}

pub(super) fn configured(file: &Path) -> Result<Sealing> {
    let text = text_file::read(file).with_context(|| format!("cannot read {}", file.display()))?;
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
