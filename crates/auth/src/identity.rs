//! Reading a user out of an X.509 client certificate: the common name is the user,
//! every organization a group. Whether to believe it is decided elsewhere.

use x509_parser::der_parser::{Oid, oid};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::AttributeTypeAndValue;

use crate::user::User;

/// Kubernetes' own attribute for the uid of a user.
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// Why a certificate names nobody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("certificate is not readable")]
    Unreadable,
    #[error("certificate has no common name")]
    NoCommonName,
    #[error("certificate has {count} uids instead of one")]
    ManyUids { count: usize },
    #[error("certificate has an empty uid")]
    EmptyUid,
    #[error("certificate has a name that is not text")]
    NotText,
}

/// The user that a certificate (DER) names.
pub fn user_from_certificate(der: &[u8]) -> Result<User, IdentityError> {
    let (_, cert) = X509Certificate::from_der(der).map_err(|_| IdentityError::Unreadable)?;
    let subject = cert.subject();
    let texts = |values: Vec<&AttributeTypeAndValue<'_>>| -> Result<Vec<String>, IdentityError> {
        values.into_iter().map(|value| text(value)).collect()
    };
    // Go, and with it every other Kubernetes, takes the last of several.
    let name = texts(subject.iter_common_name().collect())?.pop().unwrap_or_default();
    if name.is_empty() {
        return Err(IdentityError::NoCommonName);
    }
    let groups = texts(subject.iter_organization().collect())?;
    let uid = match texts(subject.iter_by_oid(&UID).collect())?.as_slice() {
        [] => String::new(),
        [empty] if empty.is_empty() => return Err(IdentityError::EmptyUid),
        [uid] => uid.clone(),
        many => return Err(IdentityError::ManyUids { count: many.len() }),
    };
    Ok(User { uid, ..User::new(name, groups) })
}

/// The common name of a certificate (DER).
pub fn common_name(der: &[u8]) -> Result<String, IdentityError> {
    user_from_certificate(der).map(|user| user.name)
}

fn text(value: &AttributeTypeAndValue<'_>) -> Result<String, IdentityError> {
    value.as_str().map(str::to_owned).map_err(|_| IdentityError::NotText)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn certificate(subject: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn name_groups_and_uid_come_from_the_subject() {
        let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        let der = certificate(&[
            (DnType::CommonName, "alice"),
            (DnType::OrganizationName, "staff"),
            (DnType::OrganizationalUnitName, "ignored"),
            (uid, "u-1"),
        ]);
        let user = user_from_certificate(&der).unwrap();
        assert_eq!(user, User { uid: "u-1".into(), ..User::new("alice", ["staff"]) });
    }

    #[test]
    fn nobody_is_named_without_a_common_name() {
        let der = certificate(&[(DnType::OrganizationName, "staff")]);
        assert_eq!(user_from_certificate(&der), Err(IdentityError::NoCommonName));
        let der = certificate(&[(DnType::CommonName, "")]);
        assert_eq!(user_from_certificate(&der), Err(IdentityError::NoCommonName));
        assert_eq!(user_from_certificate(b"junk"), Err(IdentityError::Unreadable));
    }
}
