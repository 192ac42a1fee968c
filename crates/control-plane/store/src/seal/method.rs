//! The ways to seal bytes with a secret.

use aws_lc_rs::aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptionContext, PaddedBlockDecryptingKey,
    PaddedBlockEncryptingKey, UnboundCipherKey,
};
use crypto_secretbox::XSalsa20Poly1305;
use crypto_secretbox::aead::{AeadInPlace as _, KeyInit as _};

/// How bytes are sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// AES-CBC with PKCS#7 padding: hides, but does not notice changes.
    AesCbc,
    /// AES-GCM with random nonces.
    AesGcm,
    /// XSalsa20 and Poly1305.
    Secretbox,
}

impl Method {
    /// As it is written in front of values.
    pub fn name(self) -> &'static str {
        match self {
            Self::AesCbc => "aescbc",
            Self::AesGcm => "aesgcm",
            Self::Secretbox => "secretbox",
        }
    }
}

/// Why something cannot be a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("{name:?} cannot be the name of a key: not empty, and without a colon")]
    Name { name: String },
    #[error("a secret of {found} bytes does not fit {method}: it needs {wanted}")]
    Length { method: &'static str, found: usize, wanted: &'static str },
}

const CBC_IV: usize = 16;
const GCM_NONCE: usize = 12;
const BOX_NONCE: usize = 24;

pub(super) struct Secret {
    method: Method,
    bytes: Vec<u8>,
}

impl Secret {
    pub(super) fn new(method: Method, bytes: &[u8]) -> Result<Self, SecretError> {
        let (fits, wanted) = match method {
            Method::AesCbc | Method::AesGcm => {
                (matches!(bytes.len(), 16 | 24 | 32), "16, 24 or 32")
            }
            Method::Secretbox => (bytes.len() == 32, "32"),
        };
        if !fits {
            let (method, found) = (method.name(), bytes.len());
            return Err(SecretError::Length { method, found, wanted });
        }
        Ok(Self { method, bytes: bytes.to_vec() })
    }

    pub(super) fn method(&self) -> Method {
        self.method
    }

    /// Appends nonce and sealed bytes to `out`.
    pub(super) fn seal(&self, value: &[u8], context: &[u8], out: &mut Vec<u8>) {
        match self.method {
            Method::AesCbc => {
                let mut sealed = value.to_vec();
                let key = PaddedBlockEncryptingKey::cbc_pkcs7(self.cipher());
                let key = key.expect("the length of the secret was checked");
                let iv = key.encrypt(&mut sealed).expect("memory can be encrypted");
                let iv: &[u8] = (&iv).try_into().expect("this mode has an iv");
                out.extend_from_slice(iv);
                out.extend_from_slice(&sealed);
            }
            Method::AesGcm => {
                let nonce = random::<GCM_NONCE>();
                let mut sealed = value.to_vec();
                self.gcm()
                    .seal_in_place_append_tag(
                        Nonce::assume_unique_for_key(nonce),
                        Aad::from(context),
                        &mut sealed,
                    )
                    .expect("values are far below the limit of this mode");
                out.extend_from_slice(&nonce);
                out.extend_from_slice(&sealed);
            }
            Method::Secretbox => {
                let nonce = random::<BOX_NONCE>();
                let mut sealed = value.to_vec();
                self.secretbox()
                    .encrypt_in_place(&nonce.into(), b"", &mut sealed)
                    .expect("memory can be encrypted");
                out.extend_from_slice(&nonce);
                out.extend_from_slice(&sealed);
            }
        }
    }

    /// The plaintext, unless the secret or the bytes are different.
    pub(super) fn open(&self, sealed: &[u8], context: &[u8]) -> Option<Vec<u8>> {
        match self.method {
            Method::AesCbc => {
                let (iv, rest) = sealed.split_at_checked(CBC_IV)?;
                let iv = <[u8; CBC_IV]>::try_from(iv).ok()?;
                let key = PaddedBlockDecryptingKey::cbc_pkcs7(self.cipher()).ok()?;
                let mut bytes = rest.to_vec();
                let context = DecryptionContext::Iv128((&iv).into());
                Some(key.decrypt(&mut bytes, context).ok()?.to_vec())
            }
            Method::AesGcm => {
                let (nonce, rest) = sealed.split_at_checked(GCM_NONCE)?;
                let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
                let mut bytes = rest.to_vec();
                let open = self.gcm();
                let opened = open.open_in_place(nonce, Aad::from(context), &mut bytes).ok()?;
                Some(opened.to_vec())
            }
            Method::Secretbox => {
                let (nonce, rest) = sealed.split_at_checked(BOX_NONCE)?;
                let nonce = <[u8; BOX_NONCE]>::try_from(nonce).ok()?;
                let mut bytes = rest.to_vec();
                self.secretbox().decrypt_in_place(&nonce.into(), b"", &mut bytes).ok()?;
                Some(bytes)
            }
        }
    }

    fn cipher(&self) -> UnboundCipherKey {
        let algorithm = match self.bytes.len() {
            16 => &AES_128,
            24 => &AES_192,
            _ => &AES_256,
        };
        UnboundCipherKey::new(algorithm, &self.bytes).expect("the length of the secret was checked")
    }

    fn gcm(&self) -> LessSafeKey {
        let algorithm = match self.bytes.len() {
            16 => &AES_128_GCM,
            24 => &AES_192_GCM,
            _ => &AES_256_GCM,
        };
        let key = UnboundKey::new(algorithm, &self.bytes);
        LessSafeKey::new(key.expect("the length of the secret was checked"))
    }

    fn secretbox(&self) -> XSalsa20Poly1305 {
        XSalsa20Poly1305::new_from_slice(&self.bytes).expect("the length of the secret was checked")
    }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).expect("every Linux has random numbers");
    bytes
}
