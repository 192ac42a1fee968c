//! The subject of a certificate, or of a request for one: exactly one common name, any number of
//! organizations, at most one uid.
//!
//! Identity, signing and admission all read subjects here. Two readers that pick different ones
//! of several common names would let a request pass as one user and log in as another.

use x509_parser::der_parser::{Oid, oid};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// Kubernetes' own attribute for the uid of a user.
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// The parts of a subject that Kubernetes reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateSubject {
    /// The name of the user; never empty.
    pub common_name: String,
    /// The groups of the user.
    pub organizations: Vec<String>,
    /// Empty if there is none.
    pub uid: String,
}

/// Why a subject names no user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    #[error("subject has no common name")]
    NoCommonName,
    #[error("subject has {count} common names instead of one")]
    ManyCommonNames { count: usize },
    #[error("subject has {count} uids instead of one")]
    ManyUids { count: usize },
    #[error("subject has an empty uid")]
    EmptyUid,
    #[error("subject has an attribute that is not text")]
    NotText,
}

impl CertificateSubject {
    /// Reads the subject of a parsed certificate or certificate request.
    pub fn of(name: &X509Name<'_>) -> Result<Self, SubjectError> {
        let common_name = match texts(name.iter_common_name())?.as_slice() {
            [] => return Err(SubjectError::NoCommonName),
            [empty] if empty.is_empty() => return Err(SubjectError::NoCommonName),
            [one] => one.clone(),
            many => return Err(SubjectError::ManyCommonNames { count: many.len() }),
        };
        let organizations = texts(name.iter_organization())?;
        let uid = match texts(name.iter_by_oid(&UID))?.as_slice() {
            [] => String::new(),
            [empty] if empty.is_empty() => return Err(SubjectError::EmptyUid),
            [uid] => uid.clone(),
            many => return Err(SubjectError::ManyUids { count: many.len() }),
        };
        Ok(Self { common_name, organizations, uid })
    }
}

fn texts<'a, 'b: 'a>(
    values: impl Iterator<Item = &'a AttributeTypeAndValue<'b>>,
) -> Result<Vec<String>, SubjectError> {
    let text = |value: &AttributeTypeAndValue<'_>| value.as_str().map(str::to_owned);
    values.map(|value| text(value).map_err(|_| SubjectError::NotText)).collect()
}

#[cfg(test)]
mod tests {
    use x509_parser::prelude::FromDer;

    use super::*;

    /// The DER of a name; each attribute is the last byte of its OID below 2.5.4, and its text.
    fn name(attributes: &[(u8, &str)]) -> Vec<u8> {
        let wrap = |tag: u8, content: Vec<u8>| {
            let mut out = vec![tag, u8::try_from(content.len()).unwrap()];
            out.extend(content);
            out
        };
        let attributes = attributes.iter().flat_map(|(kind, text)| {
            let value = wrap(0x0c, text.as_bytes().to_vec());
            let pair = [vec![0x06, 0x03, 0x55, 0x04, *kind], value].concat();
            wrap(0x31, wrap(0x30, pair))
        });
        wrap(0x30, attributes.collect())
    }

    #[test]
    fn a_subject_has_exactly_one_common_name() {
        const CN: u8 = 3;
        const O: u8 = 10;
        for (attributes, expected) in [
            (&[(CN, "jane"), (O, "dev"), (O, "ops")][..], Ok(("jane", 2))),
            (&[(O, "dev")], Err(SubjectError::NoCommonName)),
            (&[(CN, "")], Err(SubjectError::NoCommonName)),
            (
                &[(CN, "system:node:a"), (CN, "system:admin")],
                Err(SubjectError::ManyCommonNames { count: 2 }),
            ),
            (&[(CN, "jane"), (CN, "")], Err(SubjectError::ManyCommonNames { count: 2 })),
        ] {
            let der = name(attributes);
            let (_, parsed) = X509Name::from_der(&der).unwrap();
            let read = CertificateSubject::of(&parsed);
            let read = read.as_ref().map(|it| (it.common_name.as_str(), it.organizations.len()));
            assert_eq!(read.map_err(Clone::clone), expected, "{attributes:?}");
        }
    }
}
