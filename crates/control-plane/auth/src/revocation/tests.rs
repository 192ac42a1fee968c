use jiff::SignedDuration;

use super::*;
use crate::pki::{Pki, ServingNames};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn certificate(user: &str, serial: &str, issued: i64) -> ClientCertificate {
    let (user, serial) = (user.to_owned(), serial.to_owned());
    let key_pin = String::new();
    ClientCertificate { user, serial, issued: at(issued), expires: at(issued + 86400), key_pin }
}

fn entry(issued_before: Option<i64>) -> String {
    let entry = Revocation {
        issued_before: issued_before.map(at),
        revoked_at: at(0),
        until: at(1000),
        reason: "lost laptop".to_owned(),
    };
    serde_json::to_string(&entry).unwrap()
}

fn list(entries: &[(String, String)]) -> RevocationList {
    RevocationList::read(entries.iter().map(|(key, value)| (&**key, &**value)))
}

#[test]
fn an_entry_is_about_one_certificate_or_the_older_ones_of_a_user() {
    let list = list(&[
        (RevokedSubject::serial("0A:bc").unwrap().key(), entry(None)),
        (RevokedSubject::user("jane").unwrap().key(), entry(Some(100))),
    ]);
    for (user, serial, issued, revoked) in [
        ("bob", "abc", 500, true),
        ("bob", "abcd", 0, false),
        ("jane", "1", 99, true),
        ("jane", "1", 100, false),
        ("jane", "abc", 100, true),
        ("janet", "1", 0, false),
    ] {
        let certificate = certificate(user, serial, issued);
        assert_eq!(list.revokes(&certificate), revoked, "{certificate:?}");
    }
    assert_eq!(list.revoked_before(&certificate("jane", "1", 0)), Some(at(100)));
    assert_eq!(list.ended(at(999)), Vec::<String>::new());
    assert_eq!(list.ended(at(1000)), ["serial.abc", "user.6a616e65"]);
}

#[test]
fn an_entry_that_cannot_be_read_revokes() {
    let list = list(&[
        ("serial.ab".to_owned(), "nonsense".to_owned()),
        (RevokedSubject::user("jane").unwrap().key(), "{}".to_owned()),
        ("other".to_owned(), "x".to_owned()),
    ]);
    assert_eq!(list.len(), 2);
    assert!(list.revokes(&certificate("bob", "ab", 0)));
    assert!(list.revokes(&certificate("jane", "1", 1_000_000)));
    assert!(list.ended(Timestamp::MAX).is_empty(), "it is not removed unread");
}

#[test]
fn entries_are_checked_when_they_are_written() {
    let user = RevokedSubject::user("jane").unwrap().key();
    let node = format!("user.{}", hex(b"system:node:n1"));
    for (key, value, expected) in [
        ("serial.abc", entry(None), None),
        (&*user, entry(Some(0)), None),
        (&*user, entry(None), Some("no time issuedBefore")),
        ("serial.xyz", entry(None), Some("begins with neither")),
        ("serial.00abc", entry(None), Some("begins with neither")),
        ("user.jane", entry(Some(0)), Some("begins with neither")),
        ("serial.abc", "{}".to_owned(), Some("no revocation")),
        (&*node, entry(Some(0)), Some("`sheaf node remove n1`")),
    ] {
        match (check_entry(key, &value), expected) {
            (Ok(()), None) => {}
            (Err(error), Some(part)) => assert!(error.to_string().contains(part), "{error}"),
            (outcome, expected) => panic!("{key}: {outcome:?}, not {expected:?}"),
        }
    }
    for text in ["", "xyz", "ä", "0x", "-1"] {
        assert!(RevokedSubject::serial(text).is_err(), "{text:?}");
    }
    assert!(RevokedSubject::user(&"x".repeat(200)).is_err());
}

#[test]
fn a_certificate_says_when_it_was_issued() {
    let dir = tempfile::tempdir().unwrap();
    let (mut pki, _) = Pki::open(dir.path(), &ServingNames::default(), at(0)).unwrap();
    let hour = SignedDuration::from_hours(1);
    let read = |identity: &crate::pki::Identity| {
        let der = crate::pki::first_der(&identity.cert_pem).unwrap();
        ClientCertificate::of(&der).unwrap()
    };
    let jane = read(&pki.issue_client("jane", &["dev"], hour, at(7)).unwrap());
    assert_eq!((&*jane.user, jane.issued, jane.expires), ("jane", at(7), at(3607)));
    let again = read(&pki.issue_client("jane", &["dev"], hour, at(7)).unwrap());
    assert_ne!(jane.serial, again.serial);

    // The administrator's own certificate, revoked together with its copies, is made anew.
    let old = pki.admin();
    let all = list(&[(RevokedSubject::user("system:admin").unwrap().key(), entry(Some(50)))]);
    assert!(all.revokes(&read(&old)));
    let changes = pki.renew_revoked(&all, at(49)).unwrap();
    assert_eq!(changes.len(), 1);
    assert_ne!(pki.admin().key_pem, old.key_pem);
    assert!(!all.revokes(&read(&pki.admin())));
    assert_eq!(pki.renew_revoked(&all, at(49)).unwrap(), []);
}

#[test]
fn the_holder_of_a_certificate_is_warned_before_it_expires() {
    let day = 86400;
    for (life, now, expected) in [
        (365 * day, 328 * day, false),
        (365 * day, 336 * day, true),
        (365 * day, 366 * day, true),
        (3650 * day, 3600 * day, false),
        (3650 * day, 3621 * day, true),
        (3600, 3000, false),
        (3600, 3300, true),
    ] {
        let certificate = ClientCertificate { expires: at(life), ..certificate("jane", "1", 0) };
        assert_eq!(certificate.ends_soon(at(now)), expected, "{life} {now}");
    }
    let text = certificate("jane", "1", 0).warning();
    assert_eq!(text, "the client certificate of \"jane\" ends at 2027-01-16T08:00:00Z");
}
