use super::*;

const LIMITS: ConnectionLimits = ConnectionLimits {
    total: 10,
    reserved: 4,
    per_source: 3,
    anonymous: 5,
    idle_timeout: Duration::from_secs(1),
    watches_per_user: 1,
};

fn table() -> Arc<ConnectionTable> {
    Arc::new(ConnectionTable::new(LIMITS))
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Opens a connection and completes its handshake.
fn connect(
    table: &Arc<ConnectionTable>,
    source: &str,
    has_certificate: bool,
) -> Result<ConnectionSlot, ConnectionRefused> {
    let slot = table.open(address(source))?;
    slot.shake_hands(has_certificate)?;
    Ok(slot)
}

#[test]
fn one_source_does_not_take_the_connections_of_others() {
    let table = table();
    let held: Vec<_> = (0..3).map(|_| connect(&table, "192.0.2.1", false).unwrap()).collect();
    let refused = connect(&table, "192.0.2.1", false).unwrap_err();
    assert_eq!(refused, ConnectionRefused::NoCertificate);
    assert!(connect(&table, "192.0.2.2", false).is_ok());
    let administrator = connect(&table, "192.0.2.1", true).unwrap();
    drop(held);
    assert!(connect(&table, "192.0.2.1", false).is_ok());
    drop(administrator);
    assert_eq!(table.counts.lock().total, 0);
    assert!(table.counts.lock().sources.is_empty());
    assert_eq!(table.figures(), (0, 1));
}

#[test]
fn certificates_of_one_source_are_limited() {
    let table = Arc::new(ConnectionTable::new(ConnectionLimits { total: 100, ..LIMITS }));
    let _held: Vec<_> = (0..12).map(|_| connect(&table, "192.0.2.1", true).unwrap()).collect();
    let refused = connect(&table, "192.0.2.1", true).unwrap_err();
    assert_eq!(refused, ConnectionRefused::Source { limit: 12 });
    assert_eq!(table.counts.lock().total, 12, "a refused connection is not counted");
}

#[test]
fn connections_without_credentials_leave_room() {
    let table = table();
    let sources = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];
    let open = |at: usize| connect(&table, sources[at % 3], false);
    let held: Vec<_> = (0..5).map(|at| open(at).unwrap()).collect();
    assert_eq!(open(5).unwrap_err(), ConnectionRefused::NoCertificate);
    held[0].identify();
    held[0].identify();
    let _sixth = open(5).unwrap();
    assert_eq!(open(6).unwrap_err(), ConnectionRefused::NoCertificate);
    // All that is not reserved is in use now, and the rest is for certificates.
    held[1].identify();
    assert_eq!(connect(&table, "192.0.2.9", false).unwrap_err(), ConnectionRefused::NoCertificate);
    let _nodes: Vec<_> =
        (0..4).map(|at| connect(&table, &format!("192.0.2.{}", 20 + at), true).unwrap()).collect();
    let refused = connect(&table, "192.0.2.30", true).unwrap_err();
    assert_eq!(refused, ConnectionRefused::Total { limit: 10 });
}

#[test]
fn handshakes_of_one_source_do_not_take_the_reserve() {
    let limits = ConnectionLimits { total: 100, reserved: 100, ..LIMITS };
    let table = Arc::new(ConnectionTable::new(limits));
    let _pending: Vec<_> =
        (0..PROBES_PER_SOURCE).map(|_| table.open(address("192.0.2.1")).unwrap()).collect();
    assert!(table.open(address("192.0.2.1")).is_err());
    assert!(connect(&table, "192.0.2.2", true).is_ok());
}

#[test]
fn a_source_is_an_address_or_a_network_of_ipv6() {
    for (left, right, same) in [
        ("192.0.2.1", "192.0.2.2", false),
        ("192.0.2.1", "::ffff:192.0.2.1", true),
        ("2001:db8::1", "2001:db8::ffff:1", true),
        ("2001:db8:0:1::1", "2001:db8::1", false),
    ] {
        assert_eq!(source_key(address(left)) == source_key(address(right)), same, "{left} {right}");
    }
}
