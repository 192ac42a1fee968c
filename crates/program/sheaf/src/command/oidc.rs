//! From flags to an issuer whose tokens are accepted, and to logins there.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use apiserver::oidc::{Fetch, OidcLogin};
use auth::token::oidc::{OidcAlgorithm, OidcConfig};
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http::StatusCode;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use steve::{OidcProvider, OidcTransport, TransportError};

use crate::cli::{OidcArgs, OidcLoginArgs};
use crate::text_file;

/// No provider's documents are larger.
const LARGEST: usize = 1 << 20;

pub(super) fn login(args: &OidcArgs) -> Result<Option<OidcLogin>> {
    let Some(issuer) = &args.oidc_issuer_url else { return Ok(None) };
    if !issuer.starts_with("https://") {
        bail!("--oidc-issuer-url {issuer:?} is invalid: it must begin with https://");
    }
    let Some(client_id) = &args.oidc_client_id else {
        bail!("--oidc-client-id is missing: it is the audience of tokens");
    };
    let mut required_claims = BTreeMap::new();
    for claim in &args.oidc_required_claim {
        match claim.split_once('=') {
            Some((name, value)) => required_claims.insert(name.to_owned(), value.to_owned()),
            None => bail!("--oidc-required-claim {claim:?} is not NAME=VALUE"),
        };
    }
    let algorithm = |name: &String| {
        OidcAlgorithm::named(name).with_context(|| {
            format!("--oidc-signing-algs {name:?} is not one of RS256, RS384, RS512, ES256, ES384, PS256, PS384, PS512")
        })
    };
    let mut algorithms =
        args.oidc_signing_algs.iter().map(algorithm).collect::<Result<Vec<_>>>()?;
    if algorithms.is_empty() {
        algorithms.push(OidcAlgorithm::USUAL);
    }
    let config = OidcConfig {
        issuer: issuer.clone(),
        client_id: client_id.clone(),
        username_claim: args.oidc_username_claim.clone().unwrap_or_else(|| "sub".to_owned()),
        username_prefix: args.oidc_username_prefix.clone(),
        groups_claim: args.oidc_groups_claim.clone(),
        groups_prefix: args.oidc_groups_prefix.clone().unwrap_or_default(),
        required_claims,
        algorithms,
    };
    let fetch = Arc::new(Web(client(args.oidc_ca_file.as_deref())?));
    Ok(Some(OidcLogin { config, fetch }))
}

/// The provider that users of the dashboard log in at.
pub(super) fn provider(args: &OidcArgs, login: &OidcLoginArgs) -> Result<Option<OidcProvider>> {
    let (Some(issuer), Some(client_id)) = (&args.oidc_issuer_url, &args.oidc_client_id) else {
        return Ok(None);
    };
    let is_scope =
        |scope: &&String| !scope.is_empty() && scope.bytes().all(|own| own.is_ascii_graphic());
    if let Some(scope) = login.oidc_scopes.iter().find(|scope| !is_scope(scope)) {
        bail!("--oidc-scopes {scope:?} is not a name: scopes are separated by commas");
    }
    let client_secret = login.oidc_client_secret_file.as_deref().map(secret).transpose()?;
    let others = login.oidc_scopes.iter().filter(|scope| *scope != "openid").cloned();
    Ok(Some(OidcProvider {
        issuer: issuer.clone(),
        client_id: client_id.clone(),
        client_secret,
        scopes: std::iter::once("openid".to_owned()).chain(others).collect(),
        label: login.oidc_label.clone(),
        transport: Arc::new(Web(client(args.oidc_ca_file.as_deref())?)),
    }))
}

fn secret(file: &Path) -> Result<String> {
    let text = text_file::read(file)
        .with_context(|| format!("--oidc-client-secret-file: cannot read {}", file.display()))?;
    match text.trim() {
        "" => bail!("--oidc-client-secret-file {} is empty", file.display()),
        secret => Ok(secret.to_owned()),
    }
}

fn client(ca: Option<&Path>) -> Result<reqwest::Client> {
    let mut builder = reqwest::Client::builder().timeout(Duration::from_secs(10)).https_only(true);
    if let Some(file) = ca {
        let pem =
            text_file::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let certs = reqwest::Certificate::from_pem_bundle(pem.as_bytes())
            .with_context(|| format!("cannot use {}", file.display()))?;
        builder = builder.tls_certs_only(certs);
    }
    builder.build().context("cannot set up a client for the issuer")
}

struct Web(reqwest::Client);

impl Fetch for Web {
    fn fetch<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Bytes, TransportError>> {
        Box::pin(async move { limited(self.0.get(url).send().await?.error_for_status()?).await })
    }
}

impl OidcTransport for Web {
    fn get<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Bytes, TransportError>> {
        self.fetch(url)
    }

    fn post<'a>(
        &'a self,
        url: &'a str,
        authorization: Option<String>,
        form: String,
    ) -> BoxFuture<'a, Result<(StatusCode, Bytes), TransportError>> {
        Box::pin(async move {
            let mut request =
                self.0.post(url).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
            if let Some(value) = authorization {
                request = request.header(AUTHORIZATION, value);
            }
            let answer = request.body(form).send().await?;
            Ok((answer.status(), limited(answer).await?))
        })
    }
}

/// The body of an answer, read no further than [`LARGEST`].
async fn limited(mut answer: reqwest::Response) -> Result<Bytes, TransportError> {
    let mut bytes = BytesMut::new();
    while let Some(part) = answer.chunk().await? {
        if bytes.len() + part.len() > LARGEST {
            return Err("its answer is too large".into());
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes.freeze())
}
