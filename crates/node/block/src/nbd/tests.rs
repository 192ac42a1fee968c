//! A client written out byte by byte; real ones are in the tests of the driver.

use bytes::{BufMut, Bytes, BytesMut};
use proptest::prelude::*;

use super::*;

const SIZE: u64 = 1 << 20;

fn export() -> Export {
    Export { name: "vol".to_owned(), size: SIZE, read_only: false }
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    bytes.put_u64(0x4948_4156_454f_5054);
    bytes.put_u32(number);
    bytes.put_u32(u32::try_from(data.len()).unwrap());
    bytes.put_slice(data);
    bytes.to_vec()
}

fn string(text: &str) -> Vec<u8> {
    let mut bytes = u32::try_from(text.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

fn go(name: &str) -> Vec<u8> {
    let mut data = string(name);
    data.extend([0, 0]);
    option(7, &data)
}

fn contexts(number: u32, queries: &[&str]) -> Vec<u8> {
    let mut data = string("vol");
    data.extend(u32::try_from(queries.len()).unwrap().to_be_bytes());
    data.extend(queries.iter().flat_map(|query| string(query)));
    option(number, &data)
}

/// Feeds one byte at a time: nothing may depend on how bytes arrive.
fn shake(parts: &[Vec<u8>]) -> (Result<HandshakeStep, HandshakeError>, Vec<u8>) {
    let mut out = BytesMut::new();
    let mut handshake = Handshake::begin(export(), &mut out);
    out.clear();
    let mut input = BytesMut::new();
    let mut last = Ok(HandshakeStep::NeedMore);
    for byte in [3_u32.to_be_bytes().to_vec()].iter().chain(parts).flatten() {
        input.put_u8(*byte);
        last = handshake.on(&mut input, &mut out);
        if !matches!(last, Ok(HandshakeStep::NeedMore)) {
            break;
        }
    }
    (last, out.to_vec())
}

#[test]
fn a_client_agrees_on_an_export() {
    let (step, _) = shake(&[option(8, &[]), contexts(10, &["base:allocation"]), go("vol")]);
    let all = Negotiated { structured: true, block_status: true, read_only: false, size: SIZE };
    assert_eq!(step, Ok(HandshakeStep::Go(all)));
    let (step, _) = shake(&[go("")]);
    let plain = Negotiated { structured: false, block_status: false, ..all };
    assert_eq!(step, Ok(HandshakeStep::Go(plain)));
}

#[test]
fn what_is_not_served_is_refused_and_the_client_may_go_on() {
    let (step, out) =
        shake(&[go("other"), option(99, &[]), contexts(10, &["base:allocation"]), go("vol")]);
    assert!(matches!(step, Ok(HandshakeStep::Go(Negotiated { block_status: false, .. }))));
    let refusals = out.windows(4).filter(|w| w[0] == 0x80 && w[1] == 0 && w[2] == 0).count();
    assert_eq!(refusals, 3, "unknown export, unknown option, context without structured replies");
}

#[test]
fn a_stranger_is_hung_up_on() {
    let mut out = BytesMut::new();
    let mut handshake = Handshake::begin(export(), &mut out);
    let mut input = BytesMut::from(&b"GET / HTTP/1.1\r\n\r\n"[..]);
    assert!(matches!(handshake.on(&mut input, &mut out), Err(HandshakeError::ClientFlags(_))));
    let (step, _) = shake(&[b"GET / HTTP/1.1\r\n\r\n".to_vec()]);
    assert!(matches!(step, Err(HandshakeError::Magic(_))));
    let (step, _) = shake(&[option(1, b"other")]);
    assert_eq!(step, Err(HandshakeError::UnknownExport("other".to_owned())));
    assert_eq!(shake(&[option(2, &[])]).0, Ok(HandshakeStep::End));
}

fn request(kind: u16, flags: u16, offset: u64, length: u32, data: &[u8]) -> BytesMut {
    let mut bytes = BytesMut::new();
    bytes.put_u32(0x2560_9513);
    bytes.put_u16(flags);
    bytes.put_u16(kind);
    bytes.put_u64(7);
    bytes.put_u64(offset);
    bytes.put_u32(length);
    bytes.put_slice(data);
    bytes
}

fn requests(read_only: bool) -> Requests {
    Requests::new(Negotiated { structured: true, block_status: true, read_only, size: SIZE })
}

fn kind_of(mut bytes: BytesMut, read_only: bool) -> RequestKind {
    let request = requests(read_only).next(&mut bytes).unwrap().unwrap();
    assert_eq!((request.cookie, bytes.len()), (7, 0));
    request.kind
}

#[test]
fn requests_are_understood_or_refused() {
    let block = vec![1_u8; 4096];
    let data = Bytes::copy_from_slice(&block);
    for (bytes, read_only, expected) in [
        (request(0, 0, 0, 512, &[]), false, RequestKind::Read { offset: 0, length: 512 }),
        (request(1, 1, 0, 4096, &block), false, RequestKind::Write { offset: 0, data, fua: true }),
        (request(1, 0, 0, 4096, &block), true, RequestKind::Bad(Errno::NotPermitted)),
        (request(1, 0, SIZE, 4096, &block), false, RequestKind::Bad(Errno::NoSpace)),
        (request(0, 0, SIZE - 1, 2, &[]), false, RequestKind::Bad(Errno::Invalid)),
        (request(0, 0, u64::MAX, 2, &[]), false, RequestKind::Bad(Errno::Invalid)),
        (request(3, 0, 0, 0, &[]), true, RequestKind::Flush),
        (
            request(4, 0, 0, 4096, &[]),
            false,
            RequestKind::Trim { offset: 0, length: 4096, fua: false },
        ),
        (request(7, 8, 0, 0, &[]), false, RequestKind::Bad(Errno::Invalid)),
        (request(9, 0, 0, 0, &[]), false, RequestKind::Bad(Errno::Invalid)),
        (request(0, 64, 0, 1, &[]), false, RequestKind::Bad(Errno::Invalid)),
        (request(2, 0, 0, 0, &[]), false, RequestKind::Disconnect),
    ] {
        assert_eq!(kind_of(bytes, read_only), expected);
    }
}

#[test]
fn a_write_waits_for_its_data_and_says_how_much_is_missing() {
    let whole = request(1, 0, 0, 4096, &[9; 4096]);
    let requests = requests(false);
    let mut part = BytesMut::from(&whole[..100]);
    assert_eq!(requests.next(&mut part), Ok(None));
    assert_eq!(Requests::missing(&part), whole.len() - 100);
    assert_eq!(Requests::missing(&whole[..10]), 18);
    let mut long = request(1, 0, 0, u32::MAX, &[]);
    assert_eq!(requests.next(&mut long), Err(RequestError::TooLong(u32::MAX)));
}

#[test]
fn data_is_sent_from_where_it_is() {
    let data = Bytes::from(vec![5_u8; 4096]);
    let negotiated =
        Negotiated { structured: true, block_status: true, read_only: false, size: SIZE };
    for (structured, head) in [(true, 28), (false, 16)] {
        let replies = Replies::new(&Negotiated { structured, ..negotiated });
        let mut out = BytesMut::new();
        let sent = replies.put(7, Reply::Data { offset: 0, data: data.clone() }, &mut out);
        assert_eq!(sent.map(|sent| sent.as_ptr()), Some(data.as_ptr()));
        assert_eq!(out.len(), head);
    }
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut out = BytesMut::new();
        let mut handshake = Handshake::begin(export(), &mut out);
        let mut input = BytesMut::from(&3_u32.to_be_bytes()[..]);
        input.extend_from_slice(&bytes);
        let _ = handshake.on(&mut input, &mut out);
        let mut input = BytesMut::from(&bytes[..]);
        while let Ok(Some(_)) = requests(false).next(&mut input) {}
    }

    #[test]
    fn garbage_in_options_never_panics(number in 0_u32..12, bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = shake(&[option(number, &bytes)]);
    }
}
