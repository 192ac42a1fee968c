//! Waiting for a volume, with a word to whoever waits.

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;
use tokio::time::Instant;

use super::text;
use crate::command::link::Link;

const PAUSE: Duration = Duration::from_millis(100);
/// After this long without a word, it is said what is waited for.
const SILENCE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(300);

/// Looks at an object until `done` has an answer. Nothing is given for one that is gone.
pub(super) async fn until<T>(
    link: &Link,
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
        if began.elapsed() > PATIENCE {
            bail!("gave up after {} s: {what} is not done, and may still be", PATIENCE.as_secs());
        }
        if !told && began.elapsed() > SILENCE {
            told = true;
            eprintln!("waiting: {what} …");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Why a claim gets no volume, if somebody said so.
pub(super) async fn complaint(link: &Link, claim: &Value) -> Result<Option<String>> {
    let events = link.items(&link.core("events")).await?;
    let about = |event: &&Value| {
        text(event, "/involvedObject/uid") == text(claim, "/metadata/uid")
            && text(event, "/reason") == "ProvisioningFailed"
    };
    Ok(events.iter().rfind(about).map(|event| text(event, "/message").to_owned()))
}
