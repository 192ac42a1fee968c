//! Tokens on seed disks: short, and replaced on the medium while the machine runs.
//!
//! Pure but for the reading and writing of the image. The image is changed in place, since QEMU
//! has it open, and only where the token is. A disk that the guest has written to is left alone.
//! A guest that has it mounted sees the new token after it mounts it again.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::Value;
use virt::node_access::TOKEN_SECONDS;

use super::file::no_links;

/// A block of an ISO image. The token is in blocks of its own.
const BLOCK: usize = 2048;
/// The beginning of every JSON Web Token.
const BEGINNING: &[u8] = b"eyJ";
/// A seed disk of a service account is small; nothing larger is read.
const MOST_BYTES: u64 = 4 << 20;

/// Why the token of a disk cannot be replaced while the machine runs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SeedTokenError {
    #[error("cannot read the disk")]
    Read(#[source] io::Error),
    #[error("cannot write the disk")]
    Write(#[source] io::Error),
    #[error("the guest has written to the disk")]
    Changed,
    #[error("the layout of the disk would change")]
    Layout,
}

/// The times of the token on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenTimes {
    issued: i64,
    expires: i64,
}

impl TokenTimes {
    /// Seconds from `now` until the token is to be replaced: at a third of its life, so that a
    /// guest which mounts the disk once in a while has a good one.
    pub(crate) fn due_in(self, now: Timestamp) -> u64 {
        // Tokens of an earlier version lived for a year.
        let life = (self.expires - self.issued).min(TOKEN_SECONDS);
        let due = self.issued + life / 3;
        u64::try_from(due - now.as_second()).unwrap_or(0)
    }
}

/// Reads the image of a disk that belongs to the machine's user.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, SeedTokenError> {
    let read = || -> io::Result<Vec<u8>> {
        let file = OpenOptions::new().read(true).custom_flags(no_links()).open(path)?;
        let mut image = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut image)?;
        Ok(image)
    };
    read().map_err(SeedTokenError::Read)
}

/// Writes the blocks of `fresh` that differ.
pub(super) fn replace(path: &Path, token: &[u8], fresh: &[u8]) -> Result<(), SeedTokenError> {
    let present = read(path)?;
    let blocks = changed_blocks(&present, fresh, token)?;
    let file = OpenOptions::new().write(true).custom_flags(no_links()).open(path);
    let file = file.map_err(SeedTokenError::Write)?;
    for block in blocks {
        let at = block * BLOCK;
        let end = (at + BLOCK).min(fresh.len());
        file.write_all_at(&fresh[at..end], at as u64).map_err(SeedTokenError::Write)?;
    }
    Ok(())
}

/// The blocks in which the new token lies, if nothing else differs.
fn changed_blocks(
    present: &[u8],
    fresh: &[u8],
    token: &[u8],
) -> Result<Vec<usize>, SeedTokenError> {
    if present.len() != fresh.len() || token.is_empty() {
        return Err(SeedTokenError::Layout);
    }
    let mut windows = fresh.windows(token.len());
    let start = windows.position(|bytes| bytes == token).ok_or(SeedTokenError::Layout)?;
    let own = start / BLOCK..=(start + token.len() - 1) / BLOCK;
    let blocks = present.chunks(BLOCK).zip(fresh.chunks(BLOCK)).enumerate();
    let changed: Vec<usize> =
        blocks.filter(|(_, (old, new))| old != new).map(|(number, _)| number).collect();
    match changed.iter().all(|block| own.contains(block)) {
        true => Ok(changed),
        false => Err(SeedTokenError::Changed),
    }
}

/// The times of the first token in an image. They are not verified: the guest can write here.
pub(super) fn times(image: &[u8]) -> Option<TokenTimes> {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let begins = image.windows(BEGINNING.len()).enumerate();
    let mut begins = begins.filter(|(_, bytes)| *bytes == BEGINNING).map(|(at, _)| at);
    begins.find_map(|at| {
        let token: Vec<u8> = image[at..].iter().copied().take_while(is_token).collect();
        let mut parts = token.split(|byte| *byte == b'.');
        let claims = parts.nth(1).filter(|_| parts.count() == 1)?;
        let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        let time = |claim: &str| claims[claim].as_i64().filter(|time| *time >= 0);
        Some(TokenTimes { issued: time("iat")?, expires: time("exp")? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::seed;

    const ISSUED: i64 = 1_800_000_000;

    fn token(issued: i64) -> String {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let claims = format!(r#"{{"exp":{},"iat":{issued}}}"#, issued + 86400);
        format!("{}.{}.{}", part(r#"{"alg":"ES256"}"#), part(&claims), part("signature"))
    }

    fn image(token: &str, certificates: &str) -> Vec<u8> {
        let files = [("ca.crt", certificates), ("namespace", "ns"), ("token", token)];
        let files = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
        super::super::file::iso(&seed::keys(None, files.into())).unwrap()
    }

    #[test]
    fn the_token_of_a_disk_is_due_after_a_third_of_its_life() {
        // Certificates are base64 too.
        let times = times(&image(&token(ISSUED), "eyJhbGciOiJFUzI1NiJ9\n")).unwrap();
        for (seconds, expected) in [(0, 28800), (28000, 800), (28800, 0), (90000, 0), (-60, 28860)]
        {
            let now = Timestamp::from_second(ISSUED + seconds).unwrap();
            assert_eq!(times.due_in(now), expected, "{seconds}");
            let old = TokenTimes { expires: ISSUED + 365 * 86400, ..times };
            assert_eq!(old.due_in(now), expected, "{seconds}");
        }
        assert_eq!(super::times(b"eyJ.x.y no token eyJhIjoxfQ"), None);
        assert_eq!(super::times(&[0; 4096]), None);
    }

    #[test]
    fn only_the_token_is_replaced_in_the_file_that_qemu_has_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seed.iso");
        std::fs::write(&path, image(&token(ISSUED), "CA")).unwrap();
        let open = std::fs::File::open(&path).unwrap();
        let next = token(ISSUED + 30000);
        let fresh = image(&next, "CA");
        replace(&path, next.as_bytes(), &fresh).unwrap();
        let mut seen = vec![0; fresh.len()];
        open.read_exact_at(&mut seen, 0).unwrap();
        assert_eq!(seen, fresh);

        // Other certificates lie in other blocks.
        let third = token(ISSUED + 60000);
        let other = image(&third, "CB");
        let refused = replace(&path, third.as_bytes(), &other);
        assert!(matches!(refused, Err(SeedTokenError::Changed)), "{refused:?}");
        let longer = image(&third, &"CA".repeat(4096));
        let refused = replace(&path, third.as_bytes(), &longer);
        assert!(matches!(refused, Err(SeedTokenError::Layout)), "{refused:?}");
        assert_eq!(std::fs::read(&path).unwrap(), fresh);
        // A link in the machine's folder leads nowhere.
        let link = dir.path().join("link.iso");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(
            replace(&link, third.as_bytes(), &image(&third, "CA")),
            Err(SeedTokenError::Read(_))
        ));
    }
}
