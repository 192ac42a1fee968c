//! Fetching an image over HTTP, piece by piece, going on where a broken connection stopped.
//!
//! Users usually request an image that will exist: everything but an invalid address is retried
//! forever, and the error is reported meanwhile.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Chain};
use bytes::Bytes;
use http::StatusCode;
use http::header::{
    CONTENT_RANGE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_RANGE, LAST_MODIFIED, RANGE,
};
use reqwest::{Certificate, Client, Response, Url};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::Sender;
use tracing::debug;
use virt::reason::FillFailure;

use super::checksum::Checksum;
use super::gauge::{Gauge, StallReason};
use crate::egress::{self, Egress, EgressError, Outbound};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// A server that is silent for this long is asked again.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
const LONGEST_RETRY_DELAY: Duration = Duration::from_secs(60);

/// Why an image cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("{url:?} is not a URL that can be fetched: it has to begin with http:// or https://")]
    Url { url: String },
    #[error("cannot use the header {header:?}: it has to be \"Name: value\"")]
    Header { header: String },
    #[error("cannot use the certificates of config map {name}")]
    Certificates { name: String, source: reqwest::Error },
    #[error(transparent)]
    Egress(#[from] EgressError),
    #[error("cannot prepare requests")]
    Client(#[source] reqwest::Error),
    #[error("Unable to connect to http data source")]
    Request(#[source] reqwest::Error),
    // CDI's words, which people search for.
    #[error(
        "Unable to connect to http data source: expected status code 200, got {}. Status: {code}",
        code.as_u16()
    )]
    Status { code: StatusCode },
    #[error("the connection was cut after {got} bytes")]
    Cut { got: u64 },
    #[error("the image was replaced on the server while it was fetched")]
    Changed,
}

impl FetchError {
    /// Whether trying again is of no use.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Url { .. } | Self::Header { .. } => true,
            Self::Egress(failure) => egress::is_denied(failure),
            Self::Request(failure) => egress::is_denied(failure),
            _ => false,
        }
    }
}

/// Distinguishes versions of a server's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContentMark {
    pub(crate) validator: String,
    pub(crate) length: Option<u64>,
}

/// The parameters of a request besides the address.
#[derive(Debug, Default)]
pub(crate) struct Access {
    pub(crate) user: Option<(String, String)>,
    pub(crate) headers: Vec<String>,
    /// Name of the config map and its certificates, in PEM.
    pub(crate) certificates: Option<(String, Vec<u8>)>,
    pub(crate) egress: Egress,
}

/// How the fetching ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FetchEnd {
    /// Everything was fetched.
    Complete,
    /// The receiver takes no more.
    Closed,
}

/// An image that is being fetched.
#[derive(Debug)]
pub(crate) struct Download {
    client: Client,
    /// The settings that the client was made with.
    outbound: Arc<Outbound>,
    url: Url,
    access: Access,
    headers: HeaderMap,
    /// Bytes that were passed on.
    at: u64,
    /// The whole length, once the server has said it.
    length: Option<u64>,
    /// The server's mark of this content, to notice another.
    validator: Option<HeaderValue>,
    response: Option<Response>,
    /// New bytes that arrived in one piece with bytes passed on before.
    pending: Option<Bytes>,
    pub(super) checksum: Option<Checksum>,
    /// Connections in a row that may bring nothing.
    most_fruitless: Option<u32>,
}

impl Download {
    pub(crate) fn new(
        url: &str,
        access: Access,
        checksum: Option<Checksum>,
    ) -> Result<Self, FetchError> {
        let bad = || FetchError::Url { url: url.to_owned() };
        let parsed = Url::parse(url).map_err(|_| bad())?;
        if !matches!(parsed.scheme(), "http" | "https") || parsed.host().is_none() {
            return Err(bad());
        }
        let outbound = access.egress.outbound();
        let client = client(&access, &outbound)?;
        let headers = headers(&access.headers)?;
        Ok(Self {
            client,
            outbound,
            url: parsed,
            access,
            headers,
            at: 0,
            length: None,
            validator: None,
            response: None,
            pending: None,
            checksum,
            most_fruitless: None,
        })
    }

    /// Goes on after `at` bytes that came before, of content with this mark.
    pub(crate) fn resume(&mut self, at: u64, mark: &ContentMark) {
        (self.at, self.length) = (at, mark.length);
        self.validator = mark.validator.parse().ok();
    }

    /// Identifies the version of the content; nothing if the server does not.
    pub(crate) fn mark(&self) -> Option<ContentMark> {
        let validator = self.validator.as_ref()?.to_str().ok()?.to_owned();
        Some(ContentMark { validator, length: self.length })
    }

    /// The whole length, if the server has said it.
    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Lets it fail after more connections in a row than this have brought nothing.
    pub(crate) fn limit_fruitless_connections(&mut self, connections: u32) {
        self.most_fruitless = Some(connections);
    }

    /// Asks the server once, without taking anything.
    pub(crate) async fn prepare(&mut self) -> Result<(), FetchError> {
        if self.length.is_some_and(|length| length == self.at) {
            return Ok(());
        }
        if self.response.is_none() {
            self.response = Some(self.open().await?);
        }
        Ok(())
    }

    /// Passes on all bytes, however often the connection breaks. `into` may be missing when
    /// only the checksum is still of interest. Cancel-safe in that dropping it stops it.
    pub(crate) async fn run(
        &mut self,
        mut into: Option<&Sender<io::Result<Bytes>>>,
        gauge: &Gauge,
    ) -> Result<FetchEnd, FetchError> {
        let mut backoff = Backoff::new(FIRST_RETRY_DELAY, LONGEST_RETRY_DELAY);
        let mut fruitless = 0;
        loop {
            if self.at > 0 && self.length == Some(self.at) {
                return Ok(FetchEnd::Complete);
            }
            let before = self.at;
            let failure = match self.pass(&mut into, gauge).await {
                Ok(end) => return Ok(end),
                Err(failure) if failure.is_final() => return Err(failure),
                Err(FetchError::Changed) => return Err(FetchError::Changed),
                Err(failure) => failure,
            };
            (self.response, self.pending) = (None, None);
            if self.at > before {
                backoff.reset();
                fruitless = 0;
            }
            fruitless += 1;
            if self.most_fruitless.is_some_and(|most| fruitless > most) {
                return Err(failure);
            }
            let pause = backoff.delay();
            let text = format!("{}; trying again in {} s", Chain(&failure), pause.as_secs());
            debug!(url = %self.url, at = self.at, error = text, "fetching is held up");
            gauge.stumble(StallReason { reason: FillFailure::Error, message: text });
            tokio::time::sleep(pause).await;
        }
    }

    /// One connection, until its end.
    async fn pass(
        &mut self,
        into: &mut Option<&Sender<io::Result<Bytes>>>,
        gauge: &Gauge,
    ) -> Result<FetchEnd, FetchError> {
        let mut response = match self.response.take() {
            Some(response) => response,
            None => self.open().await?,
        };
        gauge.recover();
        loop {
            let piece = match self.pending.take() {
                Some(piece) => Some(piece),
                None => response.chunk().await.map_err(FetchError::Request)?,
            };
            let Some(piece) = piece else { break };
            self.at += piece.len() as u64;
            if let Some(checksum) = &mut self.checksum {
                checksum.update(&piece);
            }
            self.show(gauge);
            if let Some(sender) = into
                && sender.send(Ok(piece)).await.is_err()
            {
                self.response = Some(response);
                return Ok(FetchEnd::Closed);
            }
        }
        match self.length {
            Some(length) if self.at < length => Err(FetchError::Cut { got: self.at }),
            _ => Ok(FetchEnd::Complete),
        }
    }

    fn show(&self, gauge: &Gauge) {
        match self.length {
            #[expect(clippy::cast_precision_loss, reason = "a percentage")]
            Some(length) if length > 0 => gauge.set(self.at as f32 / length as f32 * FETCHING),
            _ => gauge.unknown(),
        }
    }

    /// Asks for what is missing.
    async fn open(&mut self) -> Result<Response, FetchError> {
        let outbound = self.access.egress.outbound();
        if !Arc::ptr_eq(&outbound, &self.outbound) {
            self.client = client(&self.access, &outbound)?;
            self.outbound = outbound;
        }
        // Addresses are not resolved, so they have to be checked here; names are, for the message.
        self.access.egress.check(self.url.host_str().unwrap_or_default()).await?;
        let mut request = self.client.get(self.url.clone()).headers(self.headers.clone());
        if let Some((user, password)) = &self.access.user {
            request = request.basic_auth(user, Some(password));
        }
        if self.at > 0 {
            request = request.header(RANGE, format!("bytes={}-", self.at));
            if let Some(validator) = &self.validator {
                request = request.header(IF_RANGE, validator.clone());
            }
        }
        let response = request.send().await.map_err(FetchError::Request)?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT if starts_at(&response) == Some(self.at) => Ok(response),
            StatusCode::OK => self.begin(response).await,
            StatusCode::RANGE_NOT_SATISFIABLE => Err(FetchError::Changed),
            code => Err(FetchError::Status { code }),
        }
    }

    /// The whole content from its beginning; bytes that were passed on already are skipped.
    async fn begin(&mut self, mut response: Response) -> Result<Response, FetchError> {
        let headers = response.headers();
        let validator = headers.get(ETAG).or_else(|| headers.get(LAST_MODIFIED)).cloned();
        let length = response.content_length();
        if self.at == 0 {
            (self.validator, self.length) = (validator, length);
            return Ok(response);
        }
        if validator != self.validator || length != self.length || validator.is_none() {
            return Err(FetchError::Changed);
        }
        let mut skipped = 0;
        while skipped < self.at {
            let piece = response.chunk().await.map_err(FetchError::Request)?;
            let mut piece = piece.ok_or(FetchError::Cut { got: skipped })?;
            let left = usize::try_from(self.at - skipped).unwrap_or(usize::MAX);
            if piece.len() > left {
                self.pending = Some(piece.split_off(left));
            }
            skipped += piece.len() as u64;
        }
        Ok(response)
    }
}

/// The part of the work that fetching is; the rest is for what comes after.
pub(super) const FETCHING: f32 = 0.9;

fn client(access: &Access, outbound: &Outbound) -> Result<Client, FetchError> {
    // Without a proxy in the settings the one in the environment of the process is used.
    let builder = Client::builder()
        .user_agent(concat!("sheaf/", env!("CARGO_PKG_VERSION")))
        .dns_resolver(access.egress.clone())
        .redirect(access.egress.redirects())
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT);
    let mut builder = outbound.apply(builder).map_err(FetchError::Client)?;
    if let Some((name, pem)) = &access.certificates {
        let bad = |source| FetchError::Certificates { name: name.clone(), source };
        builder = builder.tls_certs_merge(Certificate::from_pem_bundle(pem).map_err(bad)?);
    }
    builder.build().map_err(FetchError::Client)
}

fn headers(lines: &[String]) -> Result<HeaderMap, FetchError> {
    let mut headers = HeaderMap::new();
    for line in lines {
        let bad = || FetchError::Header { header: line.clone() };
        let (name, value) = line.split_once(':').ok_or_else(bad)?;
        let name: HeaderName = name.trim().parse().map_err(|_| bad())?;
        let value: HeaderValue = value.trim().parse().map_err(|_| bad())?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// The first byte of a part: `bytes 100-199/200`.
fn starts_at(response: &Response) -> Option<u64> {
    let range = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok()
}
