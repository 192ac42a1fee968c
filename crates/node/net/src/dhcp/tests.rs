use dhcproto::v4::DhcpOptions as Wire;

use super::*;

const GUEST: Mac = Mac::new([2, 0, 0, 0, 0, 5]);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 52, 0, 5);

fn gateway() -> Ipv4Net {
    "10.52.0.1/24".parse().unwrap()
}

fn request(kind: MessageType, change: impl Fn(&mut Message)) -> Vec<u8> {
    let none = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new_with_id(42, none, none, none, none, &GUEST.octets());
    message.opts_mut().insert(DhcpOption::MessageType(kind));
    change(&mut message);
    let mut bytes = vec![];
    message.encode(&mut Encoder::new(&mut bytes)).unwrap();
    bytes
}

fn leases(options: DhcpOptions) -> Leases {
    Leases::from([(GUEST, Lease { mac: GUEST, address: ADDRESS, options })])
}

/// The kind of the answer, the address given, and where it goes.
fn check(datagram: &[u8]) -> String {
    match answer(datagram, &DhcpServer::gateway(gateway()), &leases(DhcpOptions::default())) {
        DhcpVerdict::Send(DhcpReply { message, to }) => {
            let message = Message::decode(&mut Decoder::new(&message)).unwrap();
            assert_eq!((message.xid(), message.opcode()), (42, Opcode::BootReply));
            let kind = message.opts().msg_type().unwrap();
            format!("{kind:?} {} to {to}", message.yiaddr())
        }
        DhcpVerdict::Declined { address, .. } => format!("declined {address}"),
        DhcpVerdict::Ignore => "ignored".to_owned(),
    }
}

#[test]
fn requests_are_answered_as_the_protocol_says() {
    use MessageType::{Decline, Discover, Inform, Release, Request};
    type Change = fn(&mut Message);
    let cases: [(MessageType, Change, &str); 17] = [
        (Discover, |_| {}, "Offer 10.52.0.5 to 10.52.0.5:68"),
        (
            Discover,
            |m| {
                m.set_flags(Flags::default().set_broadcast());
            },
            "Offer 10.52.0.5 to 255.255.255.255:68",
        ),
        // Selecting: the server is named, and the address.
        (
            Request,
            |m| {
                m.opts_mut().insert(DhcpOption::ServerIdentifier([10, 52, 0, 1].into()));
                m.opts_mut().insert(DhcpOption::RequestedIpAddress(ADDRESS));
            },
            "Ack 10.52.0.5 to 10.52.0.5:68",
        ),
        (
            Request,
            |m| {
                m.opts_mut().insert(DhcpOption::ServerIdentifier([10, 52, 0, 9].into()));
                m.opts_mut().insert(DhcpOption::RequestedIpAddress(ADDRESS));
            },
            "ignored",
        ),
        // Rebooting: only the address.
        (
            Request,
            |m| {
                m.opts_mut().insert(DhcpOption::RequestedIpAddress(ADDRESS));
            },
            "Ack 10.52.0.5 to 10.52.0.5:68",
        ),
        (
            Request,
            |m| {
                m.opts_mut().insert(DhcpOption::RequestedIpAddress([10, 52, 0, 6].into()));
            },
            "Nak 0.0.0.0 to 255.255.255.255:68",
        ),
        // Renewing and rebinding: from the address itself.
        (
            Request,
            |m| {
                m.set_ciaddr(ADDRESS);
            },
            "Ack 10.52.0.5 to 10.52.0.5:68",
        ),
        (
            Request,
            |m| {
                m.set_ciaddr([192, 168, 0, 9]);
            },
            "Nak 0.0.0.0 to 255.255.255.255:68",
        ),
        (Request, |_| {}, "Nak 0.0.0.0 to 255.255.255.255:68"),
        (
            Inform,
            |m| {
                m.set_ciaddr(ADDRESS);
            },
            "Ack 0.0.0.0 to 10.52.0.5:68",
        ),
        (
            Inform,
            |m| {
                m.set_ciaddr([10, 52, 0, 6]);
            },
            "ignored",
        ),
        (Decline, |_| {}, "declined 10.52.0.5"),
        (Release, |_| {}, "ignored"),
        // Not for us: relayed, an answer, another card, no Ethernet.
        (
            Discover,
            |m| {
                m.set_giaddr([10, 52, 0, 7]);
            },
            "ignored",
        ),
        (
            Discover,
            |m| {
                m.set_opcode(Opcode::BootReply);
            },
            "ignored",
        ),
        (
            Discover,
            |m| {
                m.set_chaddr(&[2, 0, 0, 0, 0, 6]);
            },
            "ignored",
        ),
        (
            Discover,
            |m| {
                m.set_chaddr(&[2, 0, 0, 0, 0, 5, 0, 0]);
            },
            "ignored",
        ),
    ];
    for (index, (kind, change, expected)) in cases.into_iter().enumerate() {
        assert_eq!(check(&request(kind, change)), expected, "case {index}");
    }
}

#[test]
fn the_answer_carries_what_was_promised() {
    let options = DhcpOptions {
        dns: vec![[9, 9, 9, 9].into()],
        mtu: Some(1400),
        hostname: Some("web".into()),
        bootfile: Some("boot.efi".into()),
        private: vec![PrivateOption { code: 224, value: "x".into() }],
        ..DhcpOptions::default()
    };
    let id = || DhcpOption::ClientIdentifier(vec![1, 2, 3]);
    let discover = request(MessageType::Discover, |message| {
        message.opts_mut().insert(id());
    });
    let DhcpVerdict::Send(sent) =
        answer(&discover, &DhcpServer::gateway(gateway()), &leases(options))
    else {
        panic!("no answer")
    };
    assert!(sent.message.len() >= SMALLEST_ANSWER);
    let message = Message::decode(&mut Decoder::new(&sent.message)).unwrap();
    let has = |options: &Wire, option: DhcpOption| {
        assert_eq!(options.get(OptionCode::from(&option)), Some(&option));
    };
    has(message.opts(), id());
    has(message.opts(), DhcpOption::SubnetMask([255, 255, 255, 0].into()));
    has(message.opts(), DhcpOption::Router(vec![[10, 52, 0, 1].into()]));
    has(message.opts(), DhcpOption::DomainNameServer(vec![[9, 9, 9, 9].into()]));
    has(message.opts(), DhcpOption::InterfaceMtu(1400));
    has(message.opts(), DhcpOption::Hostname("web".into()));
    has(message.opts(), DhcpOption::BootfileName(b"boot.efi".to_vec()));
    has(message.opts(), DhcpOption::AddressLeaseTime(LEASE_SECONDS));
    let private = UnknownOption::new(OptionCode::from(224), b"x".to_vec());
    has(message.opts(), DhcpOption::Unknown(private));
    assert_eq!(message.fname_str().unwrap().unwrap().trim_end_matches('\0'), "boot.efi");
}

#[test]
fn options_that_cannot_be_sent_are_refused_with_the_reason() {
    let private = |code, value: &str| PrivateOption { code, value: value.into() };
    let with = |private| DhcpOptions { private, ..DhcpOptions::default() };
    let long = "x".repeat(256);
    for (options, reason) in [
        (with(vec![private(223, "x")]), "private option 223 must be between 224 and 254"),
        (with(vec![private(255, "x")]), "private option 255 must be between 224 and 254"),
        (with(vec![private(240, "x"), private(240, "y")]), "private option 240 is given twice"),
        (with(vec![private(240, "")]), "the value of a private option must have 1 to 255 bytes"),
        (with(vec![private(240, &long)]), "the value of a private option must have 1 to 255 bytes"),
        (
            DhcpOptions { bootfile: Some("x".repeat(128)), ..DhcpOptions::default() },
            "boot file name must have 1 to 127 bytes",
        ),
        (
            DhcpOptions { search: vec!["a..b".into()], ..DhcpOptions::default() },
            "search domain \"a..b\" is not a domain name",
        ),
    ] {
        assert_eq!(options.check().unwrap_err().to_string(), reason);
    }
    assert_eq!(with(vec![private(224, "x"), private(254, "y")]).check(), Ok(()));
}

/// Input that a hostile guest may send; the seed is fixed, so a failure repeats.
#[test]
fn garbage_is_survived() {
    let leases = leases(DhcpOptions::default());
    let good = request(MessageType::Discover, |message| {
        message.opts_mut().insert(DhcpOption::ClientIdentifier(vec![1, 2, 3]));
        message.opts_mut().insert(DhcpOption::RequestedIpAddress(ADDRESS));
    });
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % below
    };
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..random(6) {
            let at = random(bytes.len());
            bytes[at] = u8::try_from(random(256)).unwrap();
        }
        bytes.truncate(random(bytes.len() + 1));
        let _ = answer(&bytes, &DhcpServer::gateway(gateway()), &leases);
    }
    for length in 0..=255 {
        let mut bytes = good.clone();
        bytes[2] = length;
        let _ = answer(&bytes, &DhcpServer::gateway(gateway()), &leases);
    }
}
