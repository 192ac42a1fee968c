//! `keygen` on the collection of key pairs: the private key goes to the caller and is not kept.

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::KeyPair as _;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::StatusCode;
use http::header::{CONTENT_DISPOSITION, HeaderValue};
use serde_json::json;

use super::{Input, impossible, invalid};
use crate::objects::ResourceCall;
use crate::reply::{self, SteveResult};

const HARVESTER: &str = "/apis/harvesterhci.io/v1beta1";

/// A new pair as people use it.
struct GeneratedPair {
    private_pem: String,
    public_line: String,
}

/// Makes a pair, stores its public key, and answers with the private one.
pub(super) async fn generate(call: &ResourceCall<'_>, input: &Input) -> SteveResult {
    let (name, namespace) = (input.text("name"), input.text("namespace"));
    if name.is_empty() || namespace.is_empty() {
        return Err(invalid("Parameter name and namespace are required"));
    }
    let made = tokio::task::spawn_blocking(make).await.ok().flatten();
    let made = made.ok_or_else(|| impossible("failed to generate a key pair"))?;
    let pair = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "KeyPair",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"publicKey": made.public_line},
    });
    let path = format!("{HARVESTER}/namespaces/{namespace}/keypairs");
    call.session.post(&path, &pair).await?;
    let mut reply = reply::with_type(StatusCode::OK, "application/octet-stream", made.private_pem);
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename={name}.pem")) {
        reply.headers_mut().insert(CONTENT_DISPOSITION, value);
    }
    Ok(reply)
}

fn make() -> Option<GeneratedPair> {
    let pair = KeyPair::generate(KeySize::Rsa2048).ok()?;
    let private: Pkcs8V1Der<'_> = pair.as_der().ok()?;
    let public_line = public_line(pair.public_key().as_ref())?;
    Some(GeneratedPair { private_pem: pem(private.as_ref()), public_line })
}

fn pem(der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN PRIVATE KEY-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str("-----END PRIVATE KEY-----\n");
    pem
}

/// A public key in OpenSSH's form, from its form in PKCS#1. The integers of both are encoded
/// alike, so none is computed with.
fn public_line(der: &[u8]) -> Option<String> {
    let (tag, sequence, _) = element(der)?;
    let (modulus_tag, modulus, rest) = element(sequence)?;
    let (exponent_tag, exponent, _) = element(rest)?;
    if (tag, modulus_tag, exponent_tag) != (0x30, 0x02, 0x02) {
        return None;
    }
    let mut blob = Vec::new();
    for part in [b"ssh-rsa".as_slice(), exponent, modulus] {
        blob.extend_from_slice(&u32::try_from(part.len()).ok()?.to_be_bytes());
        blob.extend_from_slice(part);
    }
    Some(format!("ssh-rsa {}", BASE64_STANDARD.encode(blob)))
}

/// The first element of a DER text: its tag, its content, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let count = usize::from(first & 0x7f);
            let digits = rest.get(..count)?;
            let length = digits.iter().fold(0, |all, digit| all << 8 | usize::from(*digit));
            (length, &rest[count..])
        }
        _ => return None,
    };
    Some((tag, rest.get(..length)?, &rest[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_written_as_openssh_and_pem() {
        let made = make().unwrap();
        assert!(made.private_pem.starts_with("-----BEGIN PRIVATE KEY-----\nMII"));
        let blob = made.public_line.strip_prefix("ssh-rsa ").unwrap();
        let blob = BASE64_STANDARD.decode(blob).unwrap();
        // The name, the exponent 65537, and 257 bytes of modulus with its leading zero.
        assert_eq!(&blob[..11], b"\0\0\0\x07ssh-rsa");
        assert_eq!(&blob[11..18], [0, 0, 0, 3, 1, 0, 1]);
        assert_eq!(&blob[18..23], [0, 0, 1, 1, 0]);
        assert_eq!(blob.len(), 22 + 257);
    }

    #[test]
    fn an_invalid_key_is_refused() {
        for der in [&[][..], &[0x30], &[0x30, 0x05, 0x02], &[0x02, 0x01, 0x01], &[0x30, 0x85, 1]] {
            assert_eq!(public_line(der), None, "{der:?}");
        }
    }
}
