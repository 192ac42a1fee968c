//! Fetching a program: from an API server that has it, or from the URL of its Version.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use auth::kubeconfig::Credential;
use auth::pki::{NodeCertificate, NodeFiles};
use futures_util::TryStreamExt as _;
use hci::upgrade::{ProgramDigest, ProgramRequest, UPLOADED};
use http_body_util::BodyExt as _;
use kube::Client;
use tracing::{debug, info};

use super::super::join::{Membership, connection};
use super::super::management::read_servers;
use super::super::server::PROGRAMS_PATH;
use super::store::ProgramStore;
use crate::data_dir::Layout;

/// Room for the programs of two upgrades.
const FREE_SPACE: u64 = 512 << 20;

/// Brings a program into the store, from the first place that has it.
pub(super) async fn fetch(
    layout: &Layout,
    client: &Client,
    request: &ProgramRequest,
) -> Result<()> {
    let store = ProgramStore::new(layout);
    let wanted = &request.digest;
    if store.path(wanted).exists() {
        return Ok(());
    }
    check_space(&layout.root)?;
    let mut failures = Vec::new();
    for url in servers(layout)? {
        match from_server(layout, &store, &url, wanted).await {
            Ok(()) => {
                info!(program = wanted.short(), %url, "program fetched");
                return Ok(());
            }
            Err(failure) => {
                debug!(%url, "cannot fetch the program: {failure:#}");
                failures.push(format!("{url}: {failure:#}"));
            }
        }
    }
    let url = request.url.as_deref().filter(|url| !url.starts_with(UPLOADED));
    let Some(url) = url else {
        bail!(absent(wanted.short(), &failures));
    };
    from_url(client, &store, url, wanted).await.with_context(|| format!("cannot fetch {url}"))?;
    info!(program = wanted.short(), %url, "program fetched");
    Ok(())
}

/// The complaint that the program is nowhere, with the answers of other servers if there are any.
fn absent(program: &str, failures: &[String]) -> String {
    let advice = "upload it again: sheaf upgrade --binary FILE";
    match failures.is_empty() {
        true => format!("no API server has the program {program}; {advice}"),
        false => {
            let answers = failures.join("; ");
            format!("no API server has the program {program} ({answers}); {advice}")
        }
    }
}

/// The API servers that this node knows of.
fn servers(layout: &Layout) -> Result<Vec<String>> {
    let joined = Membership::load(layout)?.map(|membership| membership.urls);
    let mut urls = read_servers(layout);
    urls.extend(joined.unwrap_or_default());
    urls.sort();
    urls.dedup();
    Ok(urls)
}

/// A client of one server, with the certificate of this node.
pub(in crate::command) async fn node_client(layout: &Layout, url: &str) -> Result<Client> {
    let files = NodeFiles::open(&layout.pki()).context("cannot open the key of this node")?;
    let ca = files.ca_pem()?.context("the cluster's CA is missing from the data directory")?;
    let own = files.identity(NodeCertificate::Client)?;
    let own = own.context("the certificate of this node is missing from the data directory")?;
    connection::client(url, &ca, Credential::Certificate(&own)).await
}

async fn from_server(
    layout: &Layout,
    store: &ProgramStore,
    url: &str,
    wanted: &ProgramDigest,
) -> Result<()> {
    let client = node_client(layout, url).await?;
    let request = http::Request::get(format!("{PROGRAMS_PATH}{wanted}"));
    let request = request.body(kube::client::Body::empty()).context("cannot build a request")?;
    let answer = client.send(request).await.context("the server does not answer")?;
    if !answer.status().is_success() {
        bail!("the server answers {}", answer.status());
    }
    let chunks = answer.into_body().into_data_stream();
    store.add(wanted, chunks.map_err(|failure| anyhow!(failure))).await?;
    Ok(())
}

/// With the proxy and the certificates of the cluster's settings.
async fn from_url(
    client: &Client,
    store: &ProgramStore,
    url: &str,
    wanted: &ProgramDigest,
) -> Result<()> {
    let client = agent::outbound_client(client).await?;
    let answer = client.get(url).send().await.and_then(reqwest::Response::error_for_status)?;
    store.add(wanted, answer.bytes_stream()).await?;
    Ok(())
}

fn check_space(dir: &Path) -> Result<()> {
    let stat = rustix::fs::statvfs(dir).context("cannot read the free space")?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free < FREE_SPACE {
        bail!(
            "{} has {} MiB of free space, and {} MiB are needed",
            dir.display(),
            free >> 20,
            FREE_SPACE >> 20
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_program_is_reported_with_the_answers_of_servers() {
        let advice = "upload it again: sheaf upgrade --binary FILE";
        assert_eq!(absent("ab", &[]), format!("no API server has the program ab; {advice}"));
        let answers = ["https://a: refused".to_owned(), "https://b: 404".to_owned()];
        assert_eq!(
            absent("ab", &answers),
            format!(
                "no API server has the program ab (https://a: refused; https://b: 404); {advice}"
            )
        );
    }
}
