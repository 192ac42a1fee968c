//! Writing a kubeconfig: one cluster, one user, one context, all called `sheaf`
//! except the user.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine as _};

use crate::pki::{Identity, first_der};
use crate::revocation::ClientCertificate;

/// How the user of a kubeconfig proves who they are.
#[derive(Debug, Clone, Copy)]
pub enum Credential<'a> {
    Certificate(&'a Identity),
    Token(&'a str),
}

/// The text of a kubeconfig. `server` is a URL, `ca_pem` what its certificate is checked against.
pub fn kubeconfig(server: &str, ca_pem: &str, user: &str, credential: Credential<'_>) -> String {
    let data = |text: &str| BASE64_STANDARD.encode(text);
    // A JSON string is a YAML string.
    let quote = |text: &str| serde_json::Value::from(text).to_string();
    let (server, user, ca) = (quote(server), quote(user), data(ca_pem));
    let mut text = end(credential);
    let _ = write!(
        text,
        "apiVersion: v1\nkind: Config\n\
         clusters:\n- name: sheaf\n  cluster:\n    server: {server}\n    certificate-authority-data: {ca}\n\
         contexts:\n- name: sheaf\n  context:\n    cluster: sheaf\n    user: {user}\n\
         current-context: sheaf\npreferences: {{}}\n\
         users:\n- name: {user}\n  user:\n"
    );
    let _ = match credential {
        Credential::Token(token) => writeln!(text, "    token: {}", quote(token)),
        Credential::Certificate(Identity { cert_pem, key_pem }) => {
            let (cert, key) = (data(cert_pem), data(key_pem));
            writeln!(text, "    client-certificate-data: {cert}\n    client-key-data: {key}")
        }
    };
    text
}

/// A comment about the end of a certificate.
fn end(credential: Credential<'_>) -> String {
    let Credential::Certificate(identity) = credential else { return String::new() };
    let der = first_der(&identity.cert_pem).ok();
    let Some(own) = der.and_then(|der| ClientCertificate::of(&der).ok()) else {
        return String::new();
    };
    format!(
        "# The certificate {} of {:?} ends at {}.\n",
        own.serial,
        own.user,
        own.expires.strftime("%Y-%m-%dT%H:%M:%SZ")
    )
}

/// Writes a kubeconfig that only its owner can read, replacing an old one atomically.
pub fn write_kubeconfig(path: &Path, text: &str) -> io::Result<()> {
    crate::pki::write_private(path, text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use expect_test::expect;

    use super::*;

    #[test]
    fn a_certificate_is_embedded() {
        let identity = Identity { cert_pem: "CERT".into(), key_pem: "KEY".into() };
        let credential = Credential::Certificate(&identity);
        let text = kubeconfig("https://127.0.0.1:6443", "CA", "system:admin", credential);
        expect![[r#"
            apiVersion: v1
            kind: Config
            clusters:
            - name: sheaf
              cluster:
                server: "https://127.0.0.1:6443"
                certificate-authority-data: Q0E=
            contexts:
            - name: sheaf
              context:
                cluster: sheaf
                user: "system:admin"
            current-context: sheaf
            preferences: {}
            users:
            - name: "system:admin"
              user:
                client-certificate-data: Q0VSVA==
                client-key-data: S0VZ
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn the_end_of_a_certificate_is_in_the_first_line() {
        let dir = tempfile::tempdir().unwrap();
        let now = jiff::Timestamp::from_second(1_800_000_000).unwrap();
        let (pki, _) = crate::pki::Pki::open(dir.path(), &Default::default(), now).unwrap();
        let text = kubeconfig("https://h", "CA", "u", Credential::Certificate(&pki.admin()));
        let line = text.lines().next().unwrap();
        assert!(line.ends_with(" of \"system:admin\" ends at 2028-01-15T08:00:00Z."), "{line}");
    }

    #[test]
    fn a_token_is_quoted_whatever_it_contains() {
        let text = kubeconfig("https://h", "CA", "u", Credential::Token("a: \"b\" # c"));
        assert!(text.ends_with("    token: \"a: \\\"b\\\" # c\"\n"), "{text}");
    }

    #[test]
    fn only_its_owner_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        write_kubeconfig(&path, "one").unwrap();
        write_kubeconfig(&path, "two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
