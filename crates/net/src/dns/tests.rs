use super::*;

fn names() -> Names {
    let mut names = Names::default();
    names.own_zone("svc.example").unwrap();
    names.own_network("10.52.0.0/24".parse().unwrap());
    names.insert("Web.prod.svc.example", [10, 52, 0, 5].into()).unwrap();
    names.insert("web", [10, 52, 0, 5].into()).unwrap();
    names.insert("pool.prod.svc.example", [10, 52, 0, 6].into()).unwrap();
    names.insert("pool.prod.svc.example", [10, 52, 0, 7].into()).unwrap();
    names
}

fn ask(name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::query();
    message.metadata.id = 7;
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message.to_vec().unwrap()
}

fn check(names: &Names, name: &str, kind: RecordType) -> String {
    match answer(&ask(name, kind), names) {
        Verdict::Answer(bytes) => {
            let message = Message::from_vec(&bytes).unwrap();
            assert_eq!(message.metadata.id, 7);
            assert_eq!(message.queries.len(), 1);
            let records: Vec<_> =
                message.answers.iter().map(|record| record.data.to_string()).collect();
            format!("{} {}", u16::from(message.metadata.response_code), records.join(" "))
        }
        Verdict::PassOn => "pass on".to_owned(),
        Verdict::Ignore => "ignore".to_owned(),
    }
}

#[test]
fn questions_are_answered_from_the_known_names() {
    let mut names = names();
    for (name, kind, expected) in [
        ("web.prod.svc.example.", RecordType::A, "0 10.52.0.5"),
        ("WEB.PROD.svc.Example.", RecordType::A, "0 10.52.0.5"),
        ("web.", RecordType::A, "0 10.52.0.5"),
        ("pool.prod.svc.example.", RecordType::A, "0 10.52.0.6 10.52.0.7"),
        // The name exists, but not with such an address.
        ("web.", RecordType::AAAA, "0 "),
        ("none.prod.svc.example.", RecordType::A, "3 "),
        ("svc.example.", RecordType::A, "3 "),
        ("notsvc.example.", RecordType::A, "pass on"),
        ("example.org.", RecordType::A, "pass on"),
        ("5.0.52.10.in-addr.arpa.", RecordType::PTR, "0 Web.prod.svc.example."),
        ("9.0.52.10.in-addr.arpa.", RecordType::PTR, "3 "),
        ("8.8.8.8.in-addr.arpa.", RecordType::PTR, "pass on"),
    ] {
        assert_eq!(check(&names, name, kind), expected, "{name} {kind}");
    }
    names.remove([10, 52, 0, 6].into());
    assert_eq!(check(&names, "pool.prod.svc.example.", RecordType::A), "0 10.52.0.7");
    names.remove([10, 52, 0, 7].into());
    assert_eq!(check(&names, "pool.prod.svc.example.", RecordType::A), "3 ");
}

#[test]
fn names_that_are_none_are_refused() {
    for bad in ["", ".", "a..b", &"x".repeat(64), "bücher.example"] {
        assert!(Names::default().insert(bad, [10, 0, 0, 1].into()).is_err(), "{bad:?}");
    }
}

#[test]
fn garbage_is_survived_and_answers_are_not_answered() {
    let names = names();
    let good = ask("web.prod.svc.example.", RecordType::A);
    let mut response = good.clone();
    response[2] |= 0x80;
    assert_eq!(answer(&response, &names), Verdict::Ignore);
    assert_eq!(answer(b"", &names), Verdict::Ignore);
    for at in 0..good.len() {
        for value in [0, 1, 0x3f, 0xc0, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = value;
            let _ = answer(&bytes, &names);
            let _ = failure(&bytes[..at]);
        }
    }
}
