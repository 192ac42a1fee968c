//! The keys of service-account tokens: one key that signs, and any number that only
//! verify because tokens they signed are still in use.
//!
//! Keys that we make are on P-256 (ES256). A key that was made elsewhere, as for a server
//! that replaces another, may be RSA as well (RS256).

use aws_lc_rs::digest::{SHA256, digest};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, PublicKeyData};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::{PemObject, SectionKind};
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer, SubjectPublicKeyInfo, X509Certificate};
use x509_parser::public_key::PublicKey;

use crate::pki::encode_pem;

/// SubjectPublicKeyInfo of an uncompressed P-256 point, up to the point (RFC 5480).
const P256_PREFIX: [u8; 27] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04,
];

/// Why keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("file is not PEM")]
    Pem(#[source] rustls::pki_types::pem::Error),
    #[error("private key is missing")]
    NoPrivateKey,
    #[error("private key is not usable")]
    Private(#[source] rcgen::Error),
    #[error("key is neither on curve P-256 nor RSA")]
    Unsupported,
    #[error("certificate is not readable")]
    Certificate,
}

/// The signing key and all keys that verify, the signing one included.
#[derive(Debug)]
pub struct KeyRing {
    signing: KeyPair,
    verifying: Vec<VerifyingKey>,
}

impl KeyRing {
    /// A ring with one fresh key.
    pub fn generate() -> Result<Self, KeyError> {
        Self::new(KeyPair::generate().map_err(KeyError::Private)?, Vec::new())
    }

    fn new(signing: KeyPair, older: Vec<VerifyingKey>) -> Result<Self, KeyError> {
        let own = VerifyingKey::from_spki(&signing.subject_public_key_info())?;
        let mut verifying = vec![own];
        for key in older {
            if verifying.iter().all(|known| known.id != key.id) {
                verifying.push(key);
            }
        }
        Ok(Self { signing, verifying })
    }

    /// Reads PEM: the first private key signs, every other key, private or public, verifies.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let mut signing = None;
        let mut older = Vec::new();
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(text.as_bytes()) {
            let (kind, der) = section.map_err(KeyError::Pem)?;
            match kind {
                SectionKind::PublicKey => older.push(VerifyingKey::from_spki(&der)?),
                SectionKind::Certificate => older.push(VerifyingKey::from_certificate(&der)?),
                SectionKind::PrivateKey
                | SectionKind::EcPrivateKey
                | SectionKind::RsaPrivateKey => {
                    let key = private_key(kind, der)?;
                    match &signing {
                        None => signing = Some(key),
                        Some(_) => {
                            older.push(VerifyingKey::from_spki(&key.subject_public_key_info())?);
                        }
                    }
                }
                _ => {}
            }
        }
        Self::new(signing.ok_or(KeyError::NoPrivateKey)?, older)
    }

    /// A ring that signs with the key of `next`; the keys of this one only verify.
    pub fn switched(&self, next: &Self) -> Result<Self, KeyError> {
        next.with_verifying(self.verifying.clone())
    }

    /// A ring with the same signing key that verifies with these keys and no others.
    pub fn with_verifying(&self, others: Vec<VerifyingKey>) -> Result<Self, KeyError> {
        let key = KeyPair::try_from(self.signing.serialized_der()).map_err(KeyError::Private)?;
        Self::new(key, others)
    }

    pub fn to_pem(&self) -> String {
        let older = self.verifying.iter().skip(1);
        let older: String = older.map(|key| encode_pem("PUBLIC KEY", &key.spki)).collect();
        self.signing.serialize_pem() + &older
    }

    /// The signing key first.
    pub fn verifying(&self) -> &[VerifyingKey] {
        &self.verifying
    }

    /// The ID of the signing key.
    pub fn signing_id(&self) -> &str {
        &self.verifying[0].id
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        self.verifying[0].algorithm()
    }

    pub(super) fn encoding_key(&self) -> EncodingKey {
        match self.algorithm() {
            Algorithm::RS256 => EncodingKey::from_rsa_pem(self.signing.serialize_pem().as_bytes())
                .expect("an RSA key that was read and written again"),
            _ => EncodingKey::from_ec_der(self.signing.serialized_der()),
        }
    }
}

fn private_key(kind: SectionKind, der: Vec<u8>) -> Result<KeyPair, KeyError> {
    let der = match kind {
        SectionKind::EcPrivateKey => PrivateKeyDer::Sec1(der.into()),
        SectionKind::RsaPrivateKey => PrivateKeyDer::Pkcs1(der.into()),
        _ => PrivateKeyDer::Pkcs8(der.into()),
    };
    match KeyPair::from_der_and_sign_algo(&der, &PKCS_ECDSA_P256_SHA256) {
        Ok(key) => Ok(key),
        Err(error) => KeyPair::from_der_and_sign_algo(&der, &PKCS_RSA_SHA256).map_err(|_| error),
    }
    .map_err(KeyError::Private)
}

/// A public key, named by the hash of its encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyingKey {
    id: String,
    spki: Vec<u8>,
    numbers: KeyNumbers,
}

/// The numbers of a key, each as big-endian bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum KeyNumbers {
    P256 { x: Vec<u8>, y: Vec<u8> },
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
}

impl VerifyingKey {
    /// From the DER of a SubjectPublicKeyInfo.
    pub fn from_spki(spki: &[u8]) -> Result<Self, KeyError> {
        let numbers = numbers(spki).ok_or(KeyError::Unsupported)?;
        let id = BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, spki));
        Ok(Self { id, spki: spki.to_vec(), numbers })
    }

    pub(crate) fn from_certificate(der: &[u8]) -> Result<Self, KeyError> {
        let (_, cert) = X509Certificate::from_der(der).map_err(|_| KeyError::Certificate)?;
        Self::from_spki(cert.public_key().raw)
    }

    /// The key ID in the header of a token.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its SubjectPublicKeyInfo.
    pub(super) fn spki(&self) -> &[u8] {
        &self.spki
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        match self.numbers {
            KeyNumbers::P256 { .. } => Algorithm::ES256,
            KeyNumbers::Rsa { .. } => Algorithm::RS256,
        }
    }

    /// RFC 7517.
    pub fn jwk(&self) -> Value {
        let text = |bytes: &Vec<u8>| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        match &self.numbers {
            KeyNumbers::P256 { x, y } => json!({
                "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
                "x": text(x), "y": text(y),
            }),
            KeyNumbers::Rsa { modulus, exponent } => json!({
                "use": "sig", "kty": "RSA", "kid": self.id, "alg": "RS256",
                "n": text(modulus), "e": text(exponent),
            }),
        }
    }

    pub(crate) fn decoding_key(&self) -> DecodingKey {
        match &self.numbers {
            KeyNumbers::P256 { x, y } => {
                let [x, y] = [x, y].map(|bytes| BASE64_URL_SAFE_NO_PAD.encode(bytes));
                DecodingKey::from_ec_components(&x, &y).expect("two base64 texts that we just made")
            }
            KeyNumbers::Rsa { modulus, exponent } => {
                DecodingKey::from_rsa_raw_components(modulus, exponent)
            }
        }
    }
}

fn numbers(spki: &[u8]) -> Option<KeyNumbers> {
    if let Some(point) = spki.strip_prefix(&P256_PREFIX) {
        let (x, y) = point.split_at_checked(32)?;
        return (y.len() == 32).then(|| KeyNumbers::P256 { x: x.to_vec(), y: y.to_vec() });
    }
    let (_, info) = SubjectPublicKeyInfo::from_der(spki).ok()?;
    let Ok(PublicKey::RSA(key)) = info.parsed() else { return None };
    let plain = |bytes: &[u8]| {
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        bytes[zeros..].to_vec()
    };
    Some(KeyNumbers::Rsa { modulus: plain(key.modulus), exponent: plain(key.exponent) })
}

/// The ID of the key that a token says to be signed with. Nothing is verified.
pub fn key_id(token: &str) -> Option<String> {
    jsonwebtoken::decode_header(token).ok()?.kid
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(ring: KeyRing) -> KeyRing {
        ring.switched(&KeyRing::generate().unwrap()).unwrap()
    }

    #[test]
    fn a_ring_survives_being_written_and_read() {
        let ring = fresh(fresh(KeyRing::generate().unwrap()));
        let read = KeyRing::parse(&ring.to_pem()).unwrap();
        assert_eq!(read.verifying(), ring.verifying());
        assert_eq!(read.verifying().len(), 3);
    }

    #[test]
    fn a_second_private_key_only_verifies() {
        let (a, b) = (KeyRing::generate().unwrap(), KeyRing::generate().unwrap());
        let read = KeyRing::parse(&(a.to_pem() + &b.to_pem())).unwrap();
        assert_eq!(read.signing_id(), a.signing_id());
        assert_eq!(read.verifying()[1], b.verifying()[0]);
    }

    #[test]
    fn a_key_of_others_may_be_rsa_and_come_in_a_certificate() {
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
        let params = rcgen::CertificateParams::new(vec!["signer".to_owned()]).unwrap();
        let cert = params.self_signed(&key).unwrap().pem();
        let ring = KeyRing::parse(&(key.serialize_pem() + &cert)).unwrap();
        assert_eq!(ring.verifying().len(), 1, "the certificate has the same key");
        assert_eq!(ring.algorithm(), Algorithm::RS256);
        let jwk = ring.verifying()[0].jwk();
        assert_eq!((&jwk["kty"], &jwk["e"]), (&json!("RSA"), &json!("AQAB")));
        let tokens = crate::token::ServiceAccountTokens::new("https://i", vec![], vec![], &ring);
        let grant = crate::token::TokenGrant {
            namespace: "n".into(),
            service_account: crate::token::ObjectRef::new("a", "u"),
            expiration_seconds: 600,
            ..Default::default()
        };
        let now = jiff::Timestamp::from_second(1_800_000_000).unwrap();
        let token = tokens.issue(&grant, now).token;
        assert!(tokens.verify(&token, &[], now).is_ok());
    }

    #[test]
    fn an_invalid_key_is_refused() {
        assert!(matches!(KeyRing::parse(""), Err(KeyError::NoPrivateKey)));
        let public = fresh(KeyRing::generate().unwrap()).to_pem();
        let public = public.split_inclusive("-----END PRIVATE KEY-----\n").nth(1).unwrap();
        assert!(matches!(KeyRing::parse(public), Err(KeyError::NoPrivateKey)));
        let other = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        assert!(matches!(KeyRing::parse(&other.serialize_pem()), Err(KeyError::Private(_))));
        assert!(matches!(
            VerifyingKey::from_spki(&other.subject_public_key_info()),
            Err(KeyError::Unsupported)
        ));
    }
}
