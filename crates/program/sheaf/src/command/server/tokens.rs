//! Static tokens: read at start, again on SIGHUP and when the file changes.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use apiserver::Api;
use auth::token::StaticTokens;
use base::{Chain, Tasks};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

/// A file that was changed by hand counts within this time; `sheaf user token` sends a
/// signal.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

pub(in crate::command) fn follow(api: &Api, path: PathBuf, tasks: &Tasks) -> Result<()> {
    let mut seen = changed(&path);
    let tokens =
        read(&path).with_context(|| format!("cannot read the tokens in {}", path.display()))?;
    api.authenticator().set_static_tokens(tokens);
    let mut hangup = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
    let (api, mut stop) = (api.clone(), tasks.stop_signal());
    tasks.spawn("token file", async move {
        loop {
            tokio::select! {
                () = stop.requested() => return,
                _ = hangup.recv() => {}
                () = tokio::time::sleep(CHECK_INTERVAL) => {
                    if changed(&path) == seen {
                        continue;
                    }
                }
            }
            seen = changed(&path);
            match read(&path) {
                Ok(tokens) => {
                    info!(tokens = tokens.len(), "token file read");
                    api.authenticator().set_static_tokens(tokens);
                }
                // The tokens that were read before stay valid until the file can be read again.
                Err(error) => warn!(error = %Chain(&*error), "cannot read the token file"),
            }
        }
    });
    Ok(())
}

/// Fails if a file that was named does not exist or has something else than tokens.
pub(in crate::command) fn check(path: &Path) -> Result<()> {
    let wrong =
        || format!("--token-auth-file {}: expected a file of lines token,user,uid", path.display());
    let text = std::fs::read_to_string(path).with_context(wrong)?;
    StaticTokens::parse(&text).map(drop).with_context(wrong)
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|file| file.modified()).ok()
}

fn read(path: &Path) -> Result<StaticTokens> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(StaticTokens::parse(&text)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(StaticTokens::default()),
        Err(error) => Err(error.into()),
    }
}
