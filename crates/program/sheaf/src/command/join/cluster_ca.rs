//! The CA of the cluster that a token is for, from the first server that answers. A server that does
//! not answer yet (it is starting, or busy) is asked again for a while; a server of another cluster
//! is refused at once.

use std::time::Duration;

use anyhow::{Context as _, Result};
use auth::pki::find_pinned;
use base::Backoff;
use tokio::time::{Instant, sleep};
use tracing::warn;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// After this time without an answer of any server, joining fails.
const REACH_TIMEOUT: Duration = Duration::from_secs(30);
const FIRST_DELAY: Duration = Duration::from_millis(500);
const LONGEST_DELAY: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(
        "cannot reach the cluster: {}; is the server running, and is its port open to this machine?",
        .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    )]
    Unreachable(Vec<ServerFailure>),
    #[error(
        "the server at {url} is not of the cluster that the token is for: its CA does not have the \
         pin {pin}…; check the URL, or create a token on that cluster: sheaf token create"
    )]
    OtherCluster { url: String, pin: String },
}

/// The reason why a server gave no certificates.
#[derive(Debug, thiserror::Error)]
enum ServerFailure {
    #[error("{url}: {}", base::Chain(.source))]
    NoAnswer { url: String, source: reqwest::Error },
    #[error("{url} answers {status}")]
    Refused { url: String, status: reqwest::StatusCode },
}

/// The URL of a server that answers, and the PEM of its cluster's CA, which has the pin `pin`.
pub(super) async fn fetch(urls: &[String], pin: &str) -> Result<(String, String)> {
    // The answer is only trusted as far as the pin confirms it.
    let http = reqwest::Client::builder()
        .tls_danger_accept_invalid_certs(true)
        .no_proxy()
        .timeout(REQUEST_TIMEOUT)
        .build()
        .context("cannot set up HTTPS")?;
    let deadline = Instant::now() + REACH_TIMEOUT;
    let mut backoff = Backoff::new(FIRST_DELAY, LONGEST_DELAY);
    loop {
        let failure = match fetch_once(&http, urls, pin).await {
            Ok(found) => return Ok(found),
            Err(failure @ FetchError::OtherCluster { .. }) => return Err(failure.into()),
            Err(failure @ FetchError::Unreachable(_)) => failure,
        };
        let delay = backoff.delay();
        let left = deadline.saturating_duration_since(Instant::now());
        if left <= delay {
            return Err(failure.into());
        }
        warn!("{failure} Trying again for {} s", left.as_secs());
        sleep(delay).await;
    }
}

/// Asks each server once, in their order, until one answers.
async fn fetch_once(
    http: &reqwest::Client,
    urls: &[String],
    pin: &str,
) -> Result<(String, String), FetchError> {
    let mut failures = Vec::new();
    for url in urls {
        match bundle(http, url).await {
            Ok(bundle) => {
                let root = find_pinned(&bundle, pin).ok_or_else(|| FetchError::OtherCluster {
                    url: url.clone(),
                    pin: pin.chars().take(12).collect(),
                })?;
                return Ok((url.clone(), root));
            }
            Err(failure) => failures.push(failure),
        }
    }
    Err(FetchError::Unreachable(failures))
}

/// The certificates that a server publishes.
async fn bundle(http: &reqwest::Client, url: &str) -> Result<String, ServerFailure> {
    let no_answer = |source| ServerFailure::NoAnswer { url: url.to_owned(), source };
    let answer = http.get(format!("{url}/cacerts")).send().await.map_err(no_answer)?;
    if !answer.status().is_success() {
        return Err(ServerFailure::Refused { url: url.to_owned(), status: answer.status() });
    }
    answer.text().await.map_err(no_answer)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_named_with_what_to_check() {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", socket.local_addr().unwrap());
        drop(socket);
        let http = reqwest::Client::new();
        let failure = fetch_once(&http, std::slice::from_ref(&url), "0123").await.unwrap_err();
        assert!(matches!(failure, FetchError::Unreachable(_)), "{failure}");
        let text = failure.to_string();
        assert!(text.contains(&url) && text.contains("is its port open"), "{text}");
    }
}
