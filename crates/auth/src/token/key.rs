//! The keys of service-account tokens: one P-256 key that signs (ES256), and any
//! number that only verify because tokens they signed are still about.

use aws_lc_rs::digest::{SHA256, digest};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use jsonwebtoken::{DecodingKey, EncodingKey};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use rustls::pki_types::pem::{PemObject, SectionKind};
use serde_json::{Value, json};

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
    #[error("key is not on curve P-256")]
    NotP256,
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
        let older = older.into_iter().filter(|key| key.id != own.id);
        let verifying = std::iter::once(own.clone()).chain(older).collect();
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
                SectionKind::PrivateKey | SectionKind::EcPrivateKey => {
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

    /// This ring with a fresh signing key; the present ones go on verifying.
    pub fn rotated(&self) -> Result<Self, KeyError> {
        let fresh = KeyPair::generate().map_err(KeyError::Private)?;
        Self::new(fresh, self.verifying.clone())
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

    pub(super) fn signing_id(&self) -> &str {
        &self.verifying[0].id
    }

    pub(super) fn encoding_key(&self) -> EncodingKey {
        EncodingKey::from_ec_der(self.signing.serialized_der())
    }
}

fn private_key(kind: SectionKind, der: Vec<u8>) -> Result<KeyPair, KeyError> {
    let der = match kind {
        SectionKind::EcPrivateKey => rustls::pki_types::PrivateKeyDer::Sec1(der.into()),
        _ => rustls::pki_types::PrivateKeyDer::Pkcs8(der.into()),
    };
    let key = KeyPair::from_der_and_sign_algo(&der, &PKCS_ECDSA_P256_SHA256);
    key.map_err(KeyError::Private)
}

/// A public key, named by the hash of its encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyingKey {
    id: String,
    spki: Vec<u8>,
}

impl VerifyingKey {
    /// From the DER of a SubjectPublicKeyInfo.
    pub fn from_spki(spki: &[u8]) -> Result<Self, KeyError> {
        let point = spki.strip_prefix(&P256_PREFIX).ok_or(KeyError::NotP256)?;
        if point.len() != 64 {
            return Err(KeyError::NotP256);
        }
        let id = BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, spki));
        Ok(Self { id, spki: spki.to_vec() })
    }

    /// What the header of a token calls it.
    pub fn id(&self) -> &str {
        &self.id
    }

    fn coordinates(&self) -> (String, String) {
        let (x, y) = self.spki[P256_PREFIX.len()..].split_at(32);
        (BASE64_URL_SAFE_NO_PAD.encode(x), BASE64_URL_SAFE_NO_PAD.encode(y))
    }

    /// RFC 7517.
    pub fn jwk(&self) -> Value {
        let (x, y) = self.coordinates();
        json!({
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": x, "y": y,
        })
    }

    pub(super) fn decoding_key(&self) -> DecodingKey {
        let (x, y) = self.coordinates();
        DecodingKey::from_ec_components(&x, &y).expect("two base64 texts that we just made")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_survives_being_written_and_read() {
        let ring = KeyRing::generate().unwrap().rotated().unwrap().rotated().unwrap();
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
    fn what_is_no_key_is_refused() {
        assert!(matches!(KeyRing::parse(""), Err(KeyError::NoPrivateKey)));
        let public = KeyRing::generate().unwrap().rotated().unwrap().to_pem();
        let public = public.split_inclusive("-----END PRIVATE KEY-----\n").nth(1).unwrap();
        assert!(matches!(KeyRing::parse(public), Err(KeyError::NoPrivateKey)));
        let other = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        assert!(matches!(KeyRing::parse(&other.serialize_pem()), Err(KeyError::Private(_))));
        assert!(matches!(
            VerifyingKey::from_spki(&other.subject_public_key_info()),
            Err(KeyError::NotP256)
        ));
    }
}
