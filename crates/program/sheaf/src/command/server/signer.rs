//! The cluster's authority, for those who ask for certificates through the API.

use std::path::PathBuf;

use auth::pki::overview::record_issued;
use auth::pki::{CertificateRequest, Pki, Signer as Kind};
use base::clock;
use controllers::{CertificateAsk, CertificateSigner, ReviewedRequest, SignerError};

/// Reads its keys when they are needed, which is rare: they may have been renewed meanwhile.
pub(super) struct Signer {
    pub(super) dir: PathBuf,
}

impl CertificateSigner for Signer {
    fn review(&self, ask: &CertificateAsk<'_>) -> Result<Option<ReviewedRequest>, SignerError> {
        let Some(signer) = Kind::named(ask.signer) else { return Ok(None) };
        let checked = CertificateRequest::parse(ask.request)
            .and_then(|request| request.check(signer, ask.usages).map(|()| request));
        match checked {
            Ok(request) => Ok(Some(ReviewedRequest {
                key: request.public_key_pin(),
                is_own_endpoint: request.names_own_endpoint(),
                common_name: request.subject.common_name,
            })),
            Err(error) => Err(error.into()),
        }
    }

    fn sign(&self, ask: &CertificateAsk<'_>) -> Result<String, SignerError> {
        let signer = Kind::named(ask.signer).ok_or("this signer is not served here")?;
        let request = CertificateRequest::parse(ask.request)?;
        let pki = Pki::load(&self.dir, clock::now())?;
        let certificate = pki.sign(&request, signer, ask.usages, ask.seconds, clock::now())?;
        if signer == Kind::Client {
            record_issued(&self.dir, &certificate, clock::now())?;
        }
        Ok(certificate)
    }
}
