//! Making certificates. P-256 throughout: every client verifies it, and it signs fast.

use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber, SigningKey,
};
use rustls::pki_types::CertificateDer;

/// Clocks of peers may be this much behind ours.
pub(crate) const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

/// From `BACKDATE` before `now` until `lifetime` after it, but never beyond `limit`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lifetime {
    pub(super) now: Timestamp,
    pub(super) length: SignedDuration,
    pub(super) limit: Option<Timestamp>,
}

impl Lifetime {
    pub(super) fn params(self) -> CertificateParams {
        let mut params = CertificateParams::default();
        let end = self.now.saturating_add(self.length).unwrap_or(Timestamp::MAX);
        let end = self.limit.map_or(end, |limit| end.min(limit));
        let since_epoch = |time: Timestamp| {
            let seconds = u64::try_from(time.as_second()).unwrap_or_default();
            rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds)
        };
        let start = self.now.saturating_sub(BACKDATE).unwrap_or(self.now);
        params.not_before = since_epoch(start);
        params.not_after = since_epoch(end);
        // By default, rcgen derives it from the key, which a renewed certificate keeps.
        params.serial_number = Some(SerialNumber::from_slice(uuid::Uuid::new_v4().as_bytes()));
        params
    }
}

/// A self-signed CA certificate.
pub(super) fn authority(
    key: &KeyPair,
    name: &str,
    lifetime: Lifetime,
) -> Result<CertificateDer<'static>, rcgen::Error> {
    let mut params = lifetime.params();
    params.distinguished_name = common_name(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    Ok(params.self_signed(key)?.der().clone())
}

/// A certificate for a server that is reached under `names` (DNS names and addresses).
pub(super) fn server(
    issuer: &Issuer<'_, &KeyPair>,
    key: &KeyPair,
    names: impl IntoIterator<Item = String>,
    lifetime: Lifetime,
) -> Result<CertificateDer<'static>, rcgen::Error> {
    serving(names, lifetime)?.signed_by(key, issuer).map(Into::into)
}

/// The same, self-signed.
pub(super) fn self_signed(
    key: &KeyPair,
    names: impl IntoIterator<Item = String>,
    lifetime: Lifetime,
) -> Result<CertificateDer<'static>, rcgen::Error> {
    serving(names, lifetime)?.self_signed(key).map(Into::into)
}

fn serving(
    names: impl IntoIterator<Item = String>,
    lifetime: Lifetime,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = lifetime.params();
    params.distinguished_name = common_name("kube-apiserver");
    for name in names {
        let name = match name.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(name.as_str().try_into()?),
        };
        params.subject_alt_names.push(name);
    }
    Ok(leaf(params, ExtendedKeyUsagePurpose::ServerAuth))
}

/// A certificate for a member of etcd, which is a server and a client of the others. Addresses
/// only: for a name, members would look up the address of each peer.
pub(super) fn etcd_member(
    issuer: &Issuer<'_, &KeyPair>,
    key: &impl PublicKeyData,
    address: IpAddr,
    lifetime: Lifetime,
) -> Result<CertificateDer<'static>, rcgen::Error> {
    let mut params = lifetime.params();
    params.distinguished_name = common_name("sheaf-etcd");
    params.subject_alt_names.push(SanType::IpAddress(address));
    let mut params = leaf(params, ExtendedKeyUsagePurpose::ServerAuth);
    params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    params.signed_by(key, issuer).map(Into::into)
}

/// A certificate that names a user and the groups they are in.
pub(super) fn client(
    issuer: &Issuer<'_, &KeyPair>,
    key: &KeyPair,
    user: &str,
    groups: &[&str],
    lifetime: Lifetime,
) -> Result<CertificateDer<'static>, rcgen::Error> {
    let mut params = lifetime.params();
    params.distinguished_name = common_name(user);
    let params = leaf(params, ExtendedKeyUsagePurpose::ClientAuth);
    let cert: CertificateDer<'static> = params.signed_by(key, issuer)?.into();
    if groups.is_empty() {
        return Ok(cert);
    }
    with_subject(&cert, &subject(user, groups), issuer.key())
}

fn leaf(mut params: CertificateParams, purpose: ExtendedKeyUsagePurpose) -> CertificateParams {
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
    params
}

pub(super) fn common_name(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}

// Every group is an `O` of its own, but rcgen's names hold one value per attribute.
// So the certificate is made without groups, its subject replaced, and signed again.

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const BIT_STRING: u8 = 0x03;
const UTF8_STRING: u8 = 0x0c;
/// 2.5.4.3 and 2.5.4.10
const COMMON_NAME: &[u8] = &[0x06, 0x03, 0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x06, 0x03, 0x55, 0x04, 0x0a];
/// RFC 5280: version, serialNumber, signature, issuer, validity, subject, …
const SUBJECT_INDEX: usize = 5;

fn subject(user: &str, groups: &[&str]) -> Vec<u8> {
    let attribute = |oid: &[u8], value: &str| {
        let value = encode(UTF8_STRING, value.as_bytes());
        encode(SET, &encode(SEQUENCE, &[oid, &value].concat()))
    };
    let groups = groups.iter().map(|group| attribute(ORGANIZATION, group));
    let attributes: Vec<u8> = groups.chain([attribute(COMMON_NAME, user)]).flatten().collect();
    encode(SEQUENCE, &attributes)
}

pub(super) fn with_subject(
    cert: &[u8],
    subject: &[u8],
    signer: &KeyPair,
) -> Result<CertificateDer<'static>, rcgen::Error> {
    let unreadable = rcgen::Error::CouldNotParseCertificate;
    let parts = contents(cert).and_then(elements).ok_or(unreadable.clone())?;
    let [to_sign, algorithm, _] = parts.as_slice() else { return Err(unreadable) };
    let mut fields = contents(to_sign).and_then(elements).ok_or(unreadable.clone())?;
    *fields.get_mut(SUBJECT_INDEX).ok_or(unreadable)? = subject;
    let to_sign = encode(SEQUENCE, &fields.concat());
    // A bit string begins with the number of unused bits.
    let signature = [vec![0], signer.sign(&to_sign)?].concat();
    let signature = encode(BIT_STRING, &signature);
    Ok(encode(SEQUENCE, &[&to_sign, *algorithm, &signature].concat()).into())
}

fn encode(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len().to_be_bytes();
    let digits: Vec<u8> = length.into_iter().skip_while(|byte| *byte == 0).collect();
    match content.len() {
        short if short < 0x80 => out.push(short.to_le_bytes()[0]),
        _ => {
            out.push(0x80 | digits.len().to_le_bytes()[0]);
            out.extend(&digits);
        }
    }
    out.extend(content);
    out
}

/// Where the content of the first element begins, and where the element ends.
fn extent(der: &[u8]) -> Option<(usize, usize)> {
    let first = *der.get(1)?;
    let (start, length) = match first & 0x80 {
        0 => (2, usize::from(first)),
        _ => {
            let count = usize::from(first & 0x7f);
            let digits = der.get(2..2 + count).filter(|_| count <= 4)?;
            let length = digits.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            (2 + count, length)
        }
    };
    (start + length <= der.len()).then_some((start, start + length))
}

fn contents(der: &[u8]) -> Option<&[u8]> {
    let (start, end) = extent(der)?;
    der.get(start..end)
}

fn elements(mut content: &[u8]) -> Option<Vec<&[u8]>> {
    let mut elements = Vec::new();
    while !content.is_empty() {
        let (_, end) = extent(content)?;
        let (element, rest) = content.split_at(end);
        elements.push(element);
        content = rest;
    }
    Some(elements)
}
