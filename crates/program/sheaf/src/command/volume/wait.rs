//! Waiting for volumes, with progress messages.

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;
use tokio::time::Instant;

use super::text;
use crate::command::link::ClusterClient;

const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// After this long, the user is told what is waited for.
const NOTICE_DELAY: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(300);

/// Reads an object until `done` has an answer; it is given nothing for an object that is gone.
pub(super) async fn until<T>(
    link: &ClusterClient,
    path: &str,
    what: &str,
    mut done: impl FnMut(Option<&Value>) -> Result<Option<T>>,
) -> Result<T> {
    let began = Instant::now();
    let mut told = !std::io::stderr().is_terminal();
    loop {
        let found = link.find(path).await?;
        if let Some(answer) = done(found.as_ref())? {
            return Ok(answer);
        }
        if began.elapsed() > TIMEOUT {
            bail!(
                "timed out after {} s waiting for {what}; it continues in the cluster",
                TIMEOUT.as_secs()
            );
        }
        if !told && began.elapsed() > NOTICE_DELAY {
            told = true;
            eprintln!("waiting for {what} ...");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Why a claim gets no volume, according to its events.
pub(in crate::command) async fn complaint(
    link: &ClusterClient,
    claim: &Value,
) -> Result<Option<String>> {
    let events = link.items(&link.core("events")).await?;
    let about = |event: &&Value| {
        text(event, "/involvedObject/uid") == text(claim, "/metadata/uid")
            && text(event, "/reason") == "ProvisioningFailed"
    };
    Ok(events.iter().rfind(about).map(|event| text(event, "/message").to_owned()))
}
