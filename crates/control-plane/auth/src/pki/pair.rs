//! A private key with its certificate, and the facts that decisions need of one.

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::Identity;

/// Why a key and its certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    #[error("file is not PEM")]
    Pem(#[source] rustls::pki_types::pem::Error),
    #[error("private key is missing")]
    NoKey,
    #[error("certificate is missing")]
    NoCertificate,
    #[error("private key is not usable")]
    Key(#[source] rcgen::Error),
    #[error("certificate is not readable")]
    Certificate,
    #[error("private key does not belong to the certificate of {subject:?}")]
    Mismatch { subject: String },
}

/// The fields of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    /// Subject and issuer, as they are encoded.
    pub subject: Vec<u8>,
    pub issuer: Vec<u8>,
    /// DNS names and addresses it may serve.
    pub names: BTreeSet<String>,
    public_key: Vec<u8>,
    subject_text: String,
}

impl CertificateFacts {
    pub fn of(der: &[u8]) -> Result<Self, PairError> {
        let (_, cert) = X509Certificate::from_der(der).map_err(|_| PairError::Certificate)?;
        let validity = cert.validity();
        let time = |time: x509_parser::time::ASN1Time| {
            Timestamp::from_second(time.timestamp()).map_err(|_| PairError::Certificate)
        };
        let mut names = BTreeSet::new();
        if let Ok(Some(san)) = cert.subject_alternative_name() {
            names.extend(san.value.general_names.iter().filter_map(|name| match name {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
                _ => None,
            }));
        }
        Ok(Self {
            not_before: time(validity.not_before)?,
            not_after: time(validity.not_after)?,
            subject: cert.subject().as_raw().to_vec(),
            issuer: cert.issuer().as_raw().to_vec(),
            names,
            public_key: cert.public_key().raw.to_vec(),
            subject_text: cert.subject().to_string(),
        })
    }

    /// The pin of its public key, which stays when the certificate is renewed.
    pub fn public_key_pin(&self) -> String {
        public_key_pin(&self.public_key)
    }
}

/// SHA-256 of an encoded SubjectPublicKeyInfo, in hexadecimal digits.
pub(crate) fn public_key_pin(public_key: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, public_key);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

/// A key and a chain of certificates whose first one belongs to it.
#[derive(Debug)]
pub(super) struct Pair {
    key: KeyPair,
    certs: Vec<CertificateDer<'static>>,
    facts: CertificateFacts,
}

impl Pair {
    pub(super) fn new(
        key: KeyPair,
        certs: Vec<CertificateDer<'static>>,
    ) -> Result<Self, PairError> {
        let facts = CertificateFacts::of(certs.first().ok_or(PairError::NoCertificate)?)?;
        if facts.public_key != key.subject_public_key_info() {
            return Err(PairError::Mismatch { subject: facts.subject_text });
        }
        Ok(Self { key, certs, facts })
    }

    /// Reads one private key and at least one certificate, in any order.
    pub(super) fn parse(text: &str) -> Result<Self, PairError> {
        let key = match PrivateKeyDer::from_pem_slice(text.as_bytes()) {
            Ok(der) => KeyPair::try_from(&der).map_err(PairError::Key)?,
            Err(rustls::pki_types::pem::Error::NoItemsFound) => return Err(PairError::NoKey),
            Err(error) => return Err(PairError::Pem(error)),
        };
        Self::new(key, parse_certs(text)?)
    }

    pub(super) fn with_certs(
        &self,
        certs: Vec<CertificateDer<'static>>,
    ) -> Result<Self, PairError> {
        let key = KeyPair::try_from(self.key.serialized_der()).map_err(PairError::Key)?;
        Self::new(key, certs)
    }

    pub(super) fn key(&self) -> &KeyPair {
        &self.key
    }

    pub(super) fn certs(&self) -> &[CertificateDer<'static>] {
        &self.certs
    }

    pub(super) fn into_certs(self) -> Vec<CertificateDer<'static>> {
        self.certs
    }

    pub(super) fn facts(&self) -> &CertificateFacts {
        &self.facts
    }

    pub(super) fn identity(&self) -> Identity {
        Identity { cert_pem: certs_pem(&self.certs), key_pem: self.key.serialize_pem() }
    }

    pub(super) fn to_pem(&self) -> String {
        self.key.serialize_pem() + &certs_pem(&self.certs)
    }
}

pub(super) fn parse_certs(text: &str) -> Result<Vec<CertificateDer<'static>>, PairError> {
    CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(PairError::Pem)
}

/// The first certificate of a PEM text.
pub fn first_der(text: &str) -> Result<CertificateDer<'static>, PairError> {
    parse_certs(text)?.into_iter().next().ok_or(PairError::NoCertificate)
}

pub(super) fn certs_pem<'a>(
    certs: impl IntoIterator<Item = &'a CertificateDer<'static>>,
) -> String {
    certs.into_iter().map(|cert| pem("CERTIFICATE", cert)).collect()
}

/// RFC 7468: lines of 64 characters.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    let encoded = BASE64_STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in encoded.as_bytes().chunks(64) {
        text.push_str(std::str::from_utf8(line).expect("base64 is ASCII"));
        text.push('\n');
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}
