//! Reading a user out of an X.509 client certificate: the common name is the user,
//! every organization a group. Whether to believe it is decided elsewhere.

use x509_parser::prelude::{FromDer, X509Certificate};

use crate::subject::{CertificateSubject, SubjectError};
use crate::user::User;

/// Why a certificate names no user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("certificate is not readable")]
    Unreadable,
    #[error("certificate names no user")]
    Subject(#[source] SubjectError),
}

/// The user that a certificate (DER) names.
pub fn user_from_certificate(der: &[u8]) -> Result<User, IdentityError> {
    let (_, cert) = X509Certificate::from_der(der).map_err(|_| IdentityError::Unreadable)?;
    let CertificateSubject { common_name, organizations, uid } =
        CertificateSubject::of(cert.subject()).map_err(IdentityError::Subject)?;
    Ok(User { uid, ..User::new(common_name, organizations) })
}

/// The common name of a certificate (DER).
pub fn common_name(der: &[u8]) -> Result<String, IdentityError> {
    user_from_certificate(der).map(|user| user.name)
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
    fn a_certificate_without_a_common_name_is_refused() {
        let missing = Err(IdentityError::Subject(SubjectError::NoCommonName));
        let der = certificate(&[(DnType::OrganizationName, "staff")]);
        assert_eq!(user_from_certificate(&der), missing);
        let der = certificate(&[(DnType::CommonName, "")]);
        assert_eq!(user_from_certificate(&der), missing);
        assert_eq!(user_from_certificate(b"junk"), Err(IdentityError::Unreadable));
    }
}
