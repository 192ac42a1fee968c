use super::*;
use crate::token::key::KeyRing;

const DAY: i64 = 86400;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn key(created: i64, used: i64) -> PublishedKey {
    PublishedKey { public_key: String::new(), created: at(created), used: at(used) }
}

fn published(keys: &[(&str, i64, i64)]) -> PublishedKeys {
    let keys = keys.iter().map(|(id, created, used)| ((*id).to_owned(), key(*created, *used)));
    PublishedKeys(keys.collect())
}

#[test]
fn a_key_is_published_before_it_signs_and_verifies_long_after() {
    use RotationStep::{Drop, ForgetNext, Make, PublishNext, PublishOwn, Switch, Touch, Wait};
    let lifetime = KeyLifetime::new(SignedDuration::from_hours(24 * 90));
    let never = KeyLifetime::new(SignedDuration::ZERO);
    let old = 400 * DAY;
    for (name, lifetime, next, keys, now, expected) in [
        ("unknown", lifetime, None, &[][..], 0, PublishOwn),
        ("another server's", lifetime, None, &[("b", 0, 0)], 0, PublishOwn),
        ("fresh", lifetime, None, &[("a", 0, 0)], 1, Wait(at(DAY))),
        ("a day later", lifetime, None, &[("a", 0, 0)], DAY, Touch),
        ("used today", lifetime, None, &[("a", 0, 90 * DAY - 5)], 90 * DAY - 1, Wait(at(90 * DAY))),
        ("old", lifetime, None, &[("a", 0, 90 * DAY)], 90 * DAY, Make),
        ("never", never, None, &[("a", 0, 900 * DAY)], 900 * DAY, Wait(at(901 * DAY))),
        ("made", lifetime, Some("n"), &[("a", 0, 90 * DAY)], 90 * DAY, PublishNext),
        ("too new", lifetime, Some("n"), &[("a", 0, 0), ("n", 10, 10)], 20, Wait(at(3610))),
        ("published", lifetime, Some("n"), &[("a", 0, 0), ("n", 10, 10)], 3610, Switch),
        ("killed", lifetime, Some("a"), &[("a", 0, 0)], 20, ForgetNext),
        (
            "verifies",
            lifetime,
            None,
            &[("a", old - 9, old - 9), ("b", 0, 36 * DAY)],
            old,
            Wait(at(old - 9 + DAY)),
        ),
        (
            "has ended",
            lifetime,
            None,
            &[("a", old, old), ("b", 0, 0), ("c", 0, 0), ("d", 0, 100 * DAY)],
            old,
            Drop(vec!["b".to_owned()]),
        ),
        (
            "next is kept",
            lifetime,
            Some("n"),
            &[("a", old, old), ("n", old, 0)],
            old,
            Wait(at(old + 3600)),
        ),
    ] {
        let published = published(keys);
        let view = RotationView { lifetime, signing: "a", next, published: &published };
        let stored = BTreeSet::from(["c".to_owned()]);
        assert_eq!(next_step(&view, &stored, at(now)), expected, "{name}");
    }
}

#[test]
fn only_keys_under_their_own_id_are_read() {
    let (one, two) = (KeyRing::generate().unwrap(), KeyRing::generate().unwrap());
    let (one, two) = (&one.verifying()[0], &two.verifying()[0]);
    let text = |key: &VerifyingKey| serde_json::to_string(&PublishedKey::new(key, at(0))).unwrap();
    let (first, second) = (text(one), text(two));
    let data = [(one.id(), &*first), ("other", &*second), ("x", "{}"), (two.id(), &*first)];
    let read = PublishedKeys::read(data);
    assert_eq!(read.keys(), std::slice::from_ref(one));
    assert_eq!(read.get(one.id()).unwrap().created, at(0));
}

#[test]
fn tokens_of_every_server_are_verified_by_every_server_at_every_moment() {
    // Two servers that began with the same key, on a clock of six hours; each is killed at any step.
    let lifetime = KeyLifetime::new(SignedDuration::from_hours(24 * 90));
    let mut published = PublishedKeys::default();
    let mut servers = [("k".to_owned(), None::<String>), ("k".to_owned(), None)];
    // Tokens as pairs of key and end.
    let mut tokens: Vec<(String, i64)> = Vec::new();
    let mut made = 0;
    for tick in 0..4 * 800_i64 {
        let now = tick * 6 * 3600;
        for (number, (signing, next)) in (1_i64..).zip(servers.iter_mut()) {
            // A server that is down for a while misses steps.
            if (tick / (80 * number)) % 7 == 3 {
                continue;
            }
            let seen = published.clone();
            let view = RotationView { lifetime, signing, next: next.as_deref(), published: &seen };
            match next_step(&view, &BTreeSet::new(), at(now)) {
                RotationStep::PublishOwn => {
                    published.0.insert(signing.clone(), key(now, now));
                }
                RotationStep::PublishNext => {
                    published.0.insert(next.clone().unwrap(), key(now, now));
                }
                RotationStep::Touch => {
                    published.0.get_mut(&*signing).unwrap().used = at(now);
                }
                RotationStep::Make => {
                    made += 1;
                    *next = Some(format!("{number}-{made}"));
                }
                // Killed before the file of the next key was removed.
                RotationStep::Switch => signing.clone_from(next.as_ref().unwrap()),
                RotationStep::ForgetNext => *next = None,
                RotationStep::Drop(ids) => published.0.retain(|id, _| !ids.contains(id)),
                RotationStep::Wait(until) => assert!(until > at(now)),
            }
            if published.get(signing).is_some() {
                tokens.push((signing.clone(), now + 365 * DAY));
            }
        }
        tokens.retain(|(_, end)| now < *end);
        if tick % 4 == 0 {
            for (id, end) in &tokens {
                assert!(published.get(id).is_some(), "{id} until {end} at {now}");
            }
        }
    }
    assert!(made > 10, "{made}");
    assert!(published.0.len() < 16, "{}", published.0.len());
}
