use super::*;

fn names() -> DnsNames {
    let mut names = DnsNames::default();
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

fn check(names: &DnsNames, name: &str, kind: RecordType) -> String {
    match answer(&ask(name, kind), names, Transport::Udp) {
        DnsVerdict::Answer(bytes) => {
            let message = Message::from_vec(&bytes).unwrap();
            assert_eq!(message.metadata.id, 7);
            assert_eq!(message.queries.len(), 1);
            let records: Vec<_> =
                message.answers.iter().map(|record| record.data.to_string()).collect();
            format!("{} {}", u16::from(message.metadata.response_code), records.join(" "))
        }
        DnsVerdict::PassOn => "pass on".to_owned(),
        DnsVerdict::Alias { target, .. } => format!("alias of {target}"),
        DnsVerdict::Ignore => "ignore".to_owned(),
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
        assert!(DnsNames::default().insert(bad, [10, 0, 0, 1].into()).is_err(), "{bad:?}");
    }
}

#[test]
fn garbage_is_survived_and_answers_are_not_answered() {
    let names = names();
    let good = ask("web.prod.svc.example.", RecordType::A);
    let mut response = good.clone();
    response[2] |= 0x80;
    assert_eq!(answer(&response, &names, Transport::Udp), DnsVerdict::Ignore);
    assert_eq!(answer(b"", &names, Transport::Udp), DnsVerdict::Ignore);
    for at in 0..good.len() {
        for value in [0, 1, 0x3f, 0xc0, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = value;
            let _ = answer(&bytes, &names, Transport::Udp);
            let _ = failure(&bytes[..at]);
        }
    }
}

fn services() -> ServiceRecords {
    let mut records = ServiceRecords::default();
    records.insert_address("api.prod.svc.example", [10, 43, 0, 9].into()).unwrap();
    records.insert_pointer([10, 43, 0, 9].into(), "api.prod.svc.example").unwrap();
    records.insert_port("_https._tcp.api.prod.svc.example", 443, "api.prod.svc.example").unwrap();
    for last in [6, 7] {
        let (name, own) = ("db.prod.svc.example", format!("db-{last}.db.prod.svc.example"));
        for name in [name, &own] {
            records.insert_address(name, [10, 52, 0, last].into()).unwrap();
        }
        records.insert_port("_sql._tcp.db.prod.svc.example", 5432, &own).unwrap();
    }
    records.insert_alias("ext.prod.svc.example", "db.example.org").unwrap();
    records
}

#[test]
fn services_have_addresses_ports_and_aliases() {
    let mut names = names();
    names.replace_records(services());
    for (name, kind, expected) in [
        ("api.prod.svc.example.", RecordType::A, "0 10.43.0.9"),
        ("API.prod.svc.example.", RecordType::AAAA, "0 "),
        ("9.0.43.10.in-addr.arpa.", RecordType::PTR, "0 api.prod.svc.example."),
        ("_https._tcp.api.prod.svc.example.", RecordType::SRV, "0 0 100 443 api.prod.svc.example."),
        ("_https._tcp.api.prod.svc.example.", RecordType::A, "0 "),
        ("_http._tcp.api.prod.svc.example.", RecordType::SRV, "3 "),
        ("db.prod.svc.example.", RecordType::A, "0 10.52.0.6 10.52.0.7"),
        ("db-7.db.prod.svc.example.", RecordType::A, "0 10.52.0.7"),
        (
            "_sql._tcp.db.prod.svc.example.",
            RecordType::SRV,
            "0 0 50 5432 db-6.db.prod.svc.example. 0 50 5432 db-7.db.prod.svc.example.",
        ),
        ("ext.prod.svc.example.", RecordType::A, "alias of db.example.org."),
        ("web.prod.svc.example.", RecordType::A, "0 10.52.0.5"),
    ] {
        assert_eq!(check(&names, name, kind), expected, "{name} {kind}");
    }
    names.replace_records(ServiceRecords::default());
    assert_eq!(check(&names, "api.prod.svc.example.", RecordType::A), "3 ");
    assert_eq!(check(&names, "web.prod.svc.example.", RecordType::A), "0 10.52.0.5");
}

#[test]
fn ports_come_with_the_addresses_of_their_targets() {
    let mut names = names();
    names.replace_records(services());
    let question = ask("_sql._tcp.db.prod.svc.example.", RecordType::SRV);
    let DnsVerdict::Answer(bytes) = answer(&question, &names, Transport::Udp) else { panic!() };
    let glue = Message::from_vec(&bytes).unwrap().additionals;
    let glue: Vec<_> = glue.iter().map(|each| format!("{} {}", each.name, each.data)).collect();
    assert_eq!(
        glue,
        ["db-6.db.prod.svc.example. 10.52.0.6", "db-7.db.prod.svc.example. 10.52.0.7"]
    );
}

#[test]
fn an_alias_is_answered_with_what_is_behind_it() {
    let mut names = names();
    names.replace_records(services());
    let original = ask("ext.prod.svc.example.", RecordType::A);
    let verdict = answer(&original, &names, Transport::Udp);
    let DnsVerdict::Alias { target, question } = verdict else { panic!("{verdict:?}") };
    let asked = Message::from_vec(&question).unwrap();
    assert_eq!(asked.queries[0].name().to_string(), "db.example.org.");
    let mut answered = response_to(&asked, ResponseCode::NoError);
    let address = RData::A(A([192, 0, 2, 9].into()));
    answered.add_answers([Record::from_rdata(target.clone(), 60, address)]);
    let whole = with_alias(&original, &target, &answered.to_vec().unwrap()).unwrap();
    let whole = Message::from_vec(&whole).unwrap();
    assert_eq!(whole.queries[0].name().to_string(), "ext.prod.svc.example.");
    let data: Vec<_> = whole.answers.iter().map(|each| each.data.to_string()).collect();
    assert_eq!(data, ["db.example.org.", "192.0.2.9"]);
}

#[test]
fn an_answer_too_large_for_a_datagram_is_marked_truncated() {
    let mut names = names();
    let mut records = ServiceRecords::default();
    for last in 0..100 {
        records.insert_address("big.prod.svc.example", [10, 52, 0, last].into()).unwrap();
    }
    names.replace_records(records);
    let question = ask("big.prod.svc.example.", RecordType::A);
    let read = |transport| match answer(&question, &names, transport) {
        DnsVerdict::Answer(bytes) => (bytes.len(), Message::from_vec(&bytes).unwrap()),
        other => panic!("{other:?}"),
    };
    let (length, message) = read(Transport::Udp);
    assert!(length <= 512 && message.metadata.truncation && message.answers.is_empty());
    let (_, message) = read(Transport::Tcp);
    assert!(!message.metadata.truncation);
    assert_eq!(message.answers.len(), 100);
}
