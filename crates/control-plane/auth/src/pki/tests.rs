use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::identity::user_from_certificate;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

const DAY: i64 = 86_400;

fn at(day: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + day * DAY).unwrap()
}

fn names() -> ServingNames {
    ServingNames { dns: vec!["node1".into()], addresses: vec!["10.43.0.1".parse().unwrap()] }
}

fn open(dir: &Path, day: i64) -> (Pki, Vec<PkiChange>) {
    Pki::open(dir, &names(), at(day)).unwrap()
}

fn text(dir: &Path, file: &str) -> String {
    std::fs::read_to_string(dir.join(file)).unwrap()
}

fn der(identity: &Identity) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(identity.cert_pem.as_bytes()).unwrap()
}

fn chain(error: &PkiError) -> String {
    base::Chain(error).to_string()
}

#[test]
fn the_first_start_makes_everything_and_the_second_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("deep/pki");
    let (pki, changes) = open(&dir, 0);
    let made: Vec<&str> = changes.iter().map(|change| change.file).collect();
    assert_eq!(made, FILES);
    assert!(changes.iter().all(|change| change.reason == Reason::Created));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for entry in std::fs::read_dir(&dir).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
    assert_eq!(text(&dir, "ca.crt"), pki.ca_pem());
    let (again, changes) = open(&dir, 1);
    assert_eq!(changes, []);
    assert_eq!(again.serving(), pki.serving());
}

#[test]
fn certificates_say_whom_they_are_for() {
    let dir = tempfile::tempdir().unwrap();
    let (pki, _) = open(dir.path(), 0);
    let admin = user_from_certificate(&der(&pki.admin())).unwrap();
    assert_eq!(
        (admin.name.as_str(), admin.groups.as_slice()),
        ("system:admin", &[MASTERS.to_owned()][..])
    );
    let facts = CertificateFacts::of(&der(&pki.serving())).unwrap();
    assert_eq!(facts.names, names().all());
    assert_eq!(facts.not_after, at(365));
    let groups = ["a", "b", &"long ".repeat(60)];
    let alice = pki.issue_client("alice", &groups, SignedDuration::from_hours(1), at(0)).unwrap();
    let user = user_from_certificate(&der(&alice)).unwrap();
    assert_eq!(user.name, "alice");
    assert_eq!(user.groups, groups);
    let facts = CertificateFacts::of(&der(&alice)).unwrap();
    assert_eq!(facts.not_after.duration_since(at(0)), SignedDuration::from_hours(1));
}

#[test]
fn no_certificate_outlives_its_authority() {
    let dir = tempfile::tempdir().unwrap();
    let (pki, _) = open(dir.path(), 0);
    let long = SignedDuration::from_hours(24 * 36_500);
    let identity = pki.issue_client("a", &[], long, at(0)).unwrap();
    assert_eq!(CertificateFacts::of(&der(&identity)).unwrap().not_after, at(3650));
}

#[test]
fn leaves_are_renewed_in_time_with_the_same_key() {
    let dir = tempfile::tempdir().unwrap();
    let (mut pki, _) = open(dir.path(), 0);
    let old = pki.serving();
    assert_eq!(pki.renew_if_due(&names(), at(200)).unwrap(), []);
    let changes = pki.renew_if_due(&names(), at(250)).unwrap();
    let renewed: Vec<_> = changes.iter().map(|change| (change.file, change.reason)).collect();
    assert_eq!(
        renewed,
        [
            ("admin.pem", Reason::Renewed),
            ("front-proxy-client.pem", Reason::Renewed),
            ("serving.pem", Reason::Renewed)
        ]
    );
    assert_eq!(pki.serving().key_pem, old.key_pem);
    // Two certificates of one authority with one number confuse clients that cache them.
    let serial = |identity: &Identity| {
        let der = der(identity);
        x509_parser::parse_x509_certificate(&der).unwrap().1.raw_serial().to_vec()
    };
    assert_ne!(serial(&pki.serving()), serial(&old));
    assert_eq!(open(dir.path(), 250).1, []);
}

#[test]
fn new_names_bring_a_new_serving_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let (mut pki, _) = open(dir.path(), 0);
    let more = ServingNames { dns: vec!["node1".into(), "lb.example".into()], ..names() };
    let changes = pki.renew_if_due(&more, at(0)).unwrap();
    assert_eq!(changes, [PkiChange { file: "serving.pem", reason: Reason::NamesChanged }]);
    assert_eq!(CertificateFacts::of(&der(&pki.serving())).unwrap().names, more.all());
}

#[test]
fn a_clock_that_went_back_renews_leaves_but_not_authorities() {
    let dir = tempfile::tempdir().unwrap();
    let (mut pki, _) = open(dir.path(), 1000);
    let ca = pki.ca_pem();
    let changes = pki.renew_if_due(&names(), at(0)).unwrap();
    assert_eq!(changes.len(), 3);
    assert_eq!(pki.ca_pem(), ca);
    assert!(CertificateFacts::of(&der(&pki.serving())).unwrap().not_before < at(0));
}

#[test]
fn a_new_authority_is_trusted_before_it_signs_and_the_old_one_after() {
    let dir = tempfile::tempdir().unwrap();
    let (mut pki, _) = open(dir.path(), 0);
    let first = pki.ca_pem();
    let reasons = |changes: &[PkiChange]| -> Vec<_> {
        changes.iter().map(|change| (change.file, change.reason)).collect()
    };

    let changes = pki.renew_if_due(&names(), at(2500)).unwrap();
    assert!(reasons(&changes).contains(&("ca-next.pem", Reason::AuthorityPrepared)));
    let both = pki.ca_pem();
    assert!(both.starts_with(&first) && both.len() > first.len());
    assert_eq!(text(dir.path(), "ca.crt"), both);
    let old_client = pki.issue_client("a", &[], LEAF_LIFETIME, at(2500)).unwrap();

    let (mut pki, changes) = open(dir.path(), 3100);
    assert!(reasons(&changes).contains(&("ca.pem", Reason::AuthoritySwitched)));
    assert!(reasons(&changes).contains(&("serving.pem", Reason::AuthorityChanged)));
    assert!(pki.ca_pem().ends_with(&first), "the old authority is still trusted");
    assert!(!dir.path().join("ca-next.pem").exists());
    let tls = tls::Tls::new(&pki).unwrap();
    assert!(tls.peer(&[der(&old_client)], at(2501)).is_ok());

    let changes = pki.renew_if_due(&names(), at(3660)).unwrap();
    assert!(reasons(&changes).contains(&("ca.pem", Reason::Pruned)));
    assert!(!pki.ca_pem().contains(&first));
}

#[test]
fn an_authority_that_ended_while_the_power_was_off_is_replaced_at_once() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), 0));
    let (pki, _) = open(dir.path(), 5000);
    let facts = CertificateFacts::of(&der(&pki.serving())).unwrap();
    assert!(facts.not_after > at(5000));
    assert!(tls::Tls::new(&pki).unwrap().peer(&[der(&pki.admin())], at(5000)).is_ok());
}

#[test]
fn a_crash_between_switching_and_removing_is_repaired() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), 0));
    drop(open(dir.path(), 2500));
    let next = text(dir.path(), "ca-next.pem");
    let (pki, _) = open(dir.path(), 3100);
    let trusted = pki.ca_pem();
    drop(pki);
    std::fs::write(dir.path().join("ca-next.pem"), next).unwrap();
    let (pki, changes) = open(dir.path(), 3100);
    assert_eq!((pki.ca_pem(), changes), (trusted, vec![]));
}

#[test]
fn a_start_killed_at_any_moment_is_finished_by_the_next() {
    let whole = tempfile::tempdir().unwrap();
    let (pki, changes) = open(whole.path(), 0);
    for written in 0..=changes.len() {
        let dir = tempfile::tempdir().unwrap();
        for PkiChange { file, .. } in &changes[..written] {
            std::fs::copy(whole.path().join(file), dir.path().join(file)).unwrap();
        }
        if let Some(PkiChange { file, .. }) = changes.get(written) {
            // The file that an interrupted write leaves behind.
            let temporary = dir.path().join(format!(".{file}.tmp"));
            std::fs::write(&temporary, "-----BEGIN PRIV").unwrap();
        }
        let (repaired, made) = open(dir.path(), 0);
        assert_eq!(made, changes[written..], "after {written} files");
        assert_eq!(repaired.ca_pem() == pki.ca_pem(), written > 0);
        assert_eq!(repaired.serving() == pki.serving(), written == changes.len());
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert!(names.iter().all(|name| {
            let name = name.as_ref().unwrap().file_name();
            !name.to_string_lossy().ends_with(".tmp")
        }));
    }
}

#[test]
fn a_file_that_was_copied_here_is_closed_to_others() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), 0));
    let path = dir.path().join("ca.pem");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    drop(open(dir.path(), 0));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_lost_authority_is_reported_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), 0));
    std::fs::remove_file(dir.path().join("ca.pem")).unwrap();
    let error = Pki::open(dir.path(), &names(), at(0)).unwrap_err();
    assert!(matches!(error, PkiError::AuthorityLost { .. }), "{error:?}");
    assert!(!dir.path().join("ca.pem").exists());
}

#[test]
fn pairs_that_do_not_fit_are_reported_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (pki, _) = open(dir.path(), 0);
    let (admin, serving) = (pki.admin(), pki.serving());
    drop(pki);
    let cases = [
        (
            admin.key_pem.clone() + &serving.cert_pem,
            "private key does not belong to the certificate",
        ),
        (admin.cert_pem.clone(), "private key is missing"),
        (admin.key_pem.clone(), "certificate is missing"),
        (String::new(), "private key is missing"),
        (serving.key_pem[..60].to_owned(), "file is not PEM"),
    ];
    for (content, expected) in cases {
        std::fs::write(dir.path().join("serving.pem"), &content).unwrap();
        let error = Pki::open(dir.path(), &names(), at(0)).unwrap_err();
        let text = chain(&error);
        assert!(text.contains("serving.pem") && text.contains(expected), "{text}");
        assert_eq!(self::text(dir.path(), "serving.pem"), content);
    }
}

#[test]
fn reading_alone_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Pki::load(dir.path(), at(0)), Err(PkiError::Missing { .. })));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let (pki, _) = open(dir.path(), 0);
    // Long due, and without the names it was made for.
    let loaded = Pki::load(dir.path(), at(300)).unwrap();
    assert_eq!(loaded.serving(), pki.serving());
    assert_eq!(loaded.admin(), pki.admin());
    assert_eq!(Pki::load(dir.path(), at(0)).unwrap().serving(), pki.serving());
}

#[test]
fn the_authority_decides_between_users_and_those_who_speak_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let (pki, _) = open(dir.path(), 0);
    let tls = tls::Tls::new(&pki).unwrap();
    let peer = |identity: &Identity, day| tls.peer(&[der(identity)], at(day));
    assert!(
        matches!(peer(&pki.admin(), 1), Ok(tls::Peer::User(user)) if user.name == "system:admin")
    );
    let proxy = tls::Peer::FrontProxy { name: "front-proxy-client".into() };
    assert_eq!(peer(&pki.front_proxy(), 1).unwrap(), proxy);
    // Naming oneself like the proxy does not make one.
    let fake = pki.issue_client("front-proxy-client", &[], LEAF_LIFETIME, at(0)).unwrap();
    assert!(matches!(peer(&fake, 1), Ok(tls::Peer::User(_))));
    assert!(matches!(peer(&pki.admin(), 400), Err(tls::PeerError::NotTrusted(_))), "expired");
    assert!(matches!(peer(&pki.serving(), 1), Err(tls::PeerError::NotTrusted(_))), "wrong purpose");
    assert!(matches!(tls.peer(&[], at(1)), Err(tls::PeerError::NoCertificate)));
    let elsewhere = tempfile::tempdir().unwrap();
    let (other, _) = open(elsewhere.path(), 0);
    assert!(matches!(peer(&other.admin(), 1), Err(tls::PeerError::NotTrusted(_))));
}
