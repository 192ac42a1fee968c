//! From flags to an issuer whose tokens are believed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use apiserver::oidc::{Fetch, OidcLogin};
use auth::token::oidc::{OidcAlgorithm, OidcConfig};
use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::cli::OidcArgs;
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
    fn fetch<'a>(
        &'a self,
        url: &'a str,
    ) -> BoxFuture<'a, Result<Bytes, Box<dyn std::error::Error + Send + Sync>>> {
        Box::pin(async move {
            let answer = self.0.get(url).send().await?.error_for_status()?;
            if answer.content_length().is_some_and(|length| length > LARGEST as u64) {
                return Err("its answer is too large".into());
            }
            let bytes = answer.bytes().await?;
            if bytes.len() > LARGEST {
                return Err("its answer is too large".into());
            }
            Ok(bytes)
        })
    }
}
