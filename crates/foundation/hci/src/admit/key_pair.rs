//! Admission of key pairs: only public keys are accepted.

use super::{AdmissionResult, Refusal, Write, text};
use crate::public_key;

pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    let Some(object) = write.object else { return Ok(()) };
    let key = text(object, "/spec/publicKey");
    if key.is_empty() {
        return Err(Refusal::invalid("spec.publicKey", "public key is required"));
    }
    match public_key::fingerprint(key) {
        Some(_) => Ok(()),
        None => {
            Err(Refusal::invalid("spec.publicKey", "key is not in valid OpenSSH public key format"))
        }
    }
}
