use super::*;

fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

/// Addresses .3, .4, .6 and .7: .5 is excluded, .1 is the router and .2 the server.
fn layout() -> PoolLayout {
    PoolLayout {
        subnet: "10.0.0.0/28".parse().unwrap(),
        server: ip(2),
        router: Some(ip(1)),
        first: ip(1),
        last: ip(7),
        excluded: BTreeSet::from([ip(5)]),
    }
}

fn request(mac: &str, wanted: u8, previous: u8) -> AddressRequest {
    let some = |last: u8| (last != 0).then(|| ip(last));
    AddressRequest { mac: mac.to_owned(), wanted: some(wanted), previous: some(previous) }
}

fn record(entries: &[(u8, &str)]) -> Allocated {
    entries.iter().map(|(last, mac)| (ip(*last), (*mac).to_owned())).collect()
}

/// MAC address, wanted and previous address.
type Request = (&'static str, u8, u8);
/// The address of a request, and its error.
type Expected = (u8, &'static str);
/// Name, record, requests and results.
type Case = (&'static str, &'static [(u8, &'static str)], &'static [Request], &'static [Expected]);

#[test]
fn addresses_are_kept_reserved_released_and_reused() {
    const TAKEN: &str = "designated ip 10.0.0.3 is already allocated";
    let cases: &[Case] = &[
        (
            "lowest first",
            &[],
            &[("a", 0, 0), ("b", 0, 0), ("c", 0, 0)],
            &[(3, ""), (4, ""), (6, "")],
        ),
        ("kept", &[(6, "a")], &[("b", 0, 0), ("a", 0, 0)], &[(3, ""), (6, "")]),
        ("released and reused", &[(3, "x")], &[("a", 0, 0)], &[(3, "")]),
        ("wanted before any", &[], &[("a", 0, 0), ("b", 3, 0)], &[(4, ""), (3, "")]),
        ("moves to what is wanted", &[(4, "a")], &[("a", 7, 0)], &[(7, "")]),
        ("held by another", &[(3, "a")], &[("b", 3, 0), ("a", 0, 0)], &[(0, TAKEN), (3, "")]),
        (
            "held by another, keeps its own",
            &[(3, "a"), (4, "b")],
            &[("b", 3, 0), ("a", 0, 0)],
            &[(4, TAKEN), (3, "")],
        ),
        ("wanted twice", &[], &[("a", 3, 0), ("b", 3, 0)], &[(3, ""), (0, TAKEN)]),
        ("had before", &[], &[("a", 0, 7), ("b", 0, 7)], &[(7, ""), (3, "")]),
        ("had a marked one before", &[], &[("a", 0, 5)], &[(3, "")]),
        (
            "a marked one in the record",
            &[(5, "a"), (2, "b")],
            &[("a", 0, 0), ("b", 0, 0)],
            &[(3, ""), (4, "")],
        ),
        (
            "twice in the record",
            &[(3, "a"), (4, "a")],
            &[("a", 0, 0), ("b", 0, 0)],
            &[(3, ""), (4, "")],
        ),
        (
            "two interfaces",
            &[],
            &[("a", 0, 0), ("a", 0, 0)],
            &[(3, ""), (0, "another interface on the network has the mac address a")],
        ),
        (
            "exhausted",
            &[(3, "a"), (4, "b"), (6, "c"), (7, "d")],
            &[("a", 0, 0), ("b", 0, 0), ("c", 0, 0), ("e", 0, 0), ("d", 0, 0)],
            &[
                (3, ""),
                (4, ""),
                (6, ""),
                (0, "no more ip addresses left in network n/lan ipam"),
                (7, ""),
            ],
        ),
        ("excluded", &[], &[("a", 5, 0)], &[(0, "designated ip 10.0.0.5 is excluded")]),
        (
            "the server",
            &[],
            &[("a", 2, 0)],
            &[(0, "designated ip 10.0.0.2 is that of the DHCP server or the router")],
        ),
        (
            "out of range",
            &[],
            &[("a", 9, 0)],
            &[(0, "designated ip 10.0.0.9 is not in the pool's range 10.0.0.1-10.0.0.7")],
        ),
        (
            "elsewhere",
            &[],
            &[("a", 77, 0)],
            &[(0, "designated ip 10.0.0.77 is not in subnet 10.0.0.0/28")],
        ),
    ];
    for (name, current, requests, expected) in cases {
        let requests: Vec<_> = requests.iter().map(|own| request(own.0, own.1, own.2)).collect();
        let found = allocate("n/lan", &layout(), &record(current), &requests);
        let outcomes: Vec<(u8, String)> = found
            .outcomes
            .iter()
            .map(|own| {
                let last = own.address.map_or(0, |address| address.octets()[3]);
                (last, own.error.as_ref().map(ToString::to_string).unwrap_or_default())
            })
            .collect();
        let expected: Vec<_> =
            expected.iter().map(|(last, error)| (*last, (*error).to_owned())).collect();
        assert_eq!(outcomes, expected, "{name}");
        let again = allocate("n/lan", &layout(), &found.allocated, &requests);
        assert_eq!(again.allocated, found.allocated, "{name}: a second time changes nothing");
    }
}

/// Numbers that are the same for a seed, everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Requests are added and removed: no address is assigned twice, no machine loses an address
/// without reason, marked addresses are never assigned, and no request is refused while an address
/// is free.
#[test]
fn no_two_machines_ever_have_one_address() {
    for seed in 1..=200_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let layout = layout();
        let mut allocated = Allocated::new();
        let mut requests: Vec<AddressRequest> = Vec::new();
        for step in 0..100 {
            match random.below(4) {
                0 if !requests.is_empty() => {
                    let index = random.below(requests.len() as u64);
                    requests.remove(usize::try_from(index).unwrap());
                }
                1 if !requests.is_empty() => {
                    let index = usize::try_from(random.below(requests.len() as u64)).unwrap();
                    let wanted = u8::try_from(random.below(10)).unwrap();
                    requests[index].wanted = (wanted != 0).then(|| ip(wanted));
                }
                _ => {
                    let mac = random.below(8).to_string();
                    let wanted = u8::try_from(random.below(16)).unwrap();
                    let previous = u8::try_from(random.below(10)).unwrap();
                    requests.push(request(&mac, if wanted < 8 { wanted } else { 0 }, previous));
                }
            }
            let found = allocate("n/lan", &layout, &allocated, &requests);
            let at = format!("seed {seed}, step {step}: {requests:?} {allocated:?} {found:?}");
            judge(&layout, &allocated, &requests, &found, &at);
            allocated = found.allocated;
        }
    }
}

fn judge(
    layout: &PoolLayout,
    before: &Allocated,
    requests: &[AddressRequest],
    found: &Allocation,
    at: &str,
) {
    let given: Vec<Ipv4Addr> = found.outcomes.iter().filter_map(|own| own.address).collect();
    let distinct: BTreeSet<Ipv4Addr> = given.iter().copied().collect();
    assert_eq!(given.len(), distinct.len(), "{at}");
    assert_eq!(found.allocated.keys().copied().collect::<BTreeSet<_>>(), distinct, "{at}");
    let is_full = found.allocated.len() as u64 == layout.capacity();
    for (request, outcome) in requests.iter().zip(&found.outcomes) {
        match (outcome.address, &outcome.error) {
            (Some(address), error) => {
                assert!(layout.is_assignable(address), "{at}");
                assert_eq!(found.allocated[&address], request.mac, "{at}");
                let fits = request.wanted.is_none_or(|wanted| wanted == address);
                assert_eq!(fits, error.is_none(), "{at}");
                let held = before.iter().find(|own| own.1 == &request.mac).map(|own| *own.0);
                if request.wanted.is_none() && held.is_some() {
                    assert_eq!(Some(address), held, "{at}");
                }
            }
            (None, Some(AllocationError::Exhausted(_))) => assert!(is_full, "{at}"),
            (None, error) => assert!(error.is_some(), "{at}"),
        }
    }
}
