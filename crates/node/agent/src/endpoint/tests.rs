use super::connections::HEADER_TIMEOUT;
use super::*;

/// Whether the endpoint closes a connection that sends `head` and nothing more.
async fn is_closed(peer: &EndpointPeer, head: &[u8]) -> bool {
    let (mut wire, served) = tokio::io::duplex(1024);
    let service = service_fn(async |_: Request<Incoming>| Ok::<_, Infallible>(response::done()));
    let served = http(peer).serve_connection(TokioIo::new(served), service);
    tokio::io::AsyncWriteExt::write_all(&mut wire, head).await.unwrap();
    // The clock is paused while there is work, and advances to the next timer then.
    tokio::time::timeout(HEADER_TIMEOUT * 10, served).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_server_that_sends_no_request_keeps_no_connection() {
    let node = EndpointPeer::Node("n2".into());
    let request = b"GET /v1/usage HTTP/1.1\r\nhost: node\r\n\r\n";
    for (peer, head, expected) in [
        (&EndpointPeer::Gateway, &b""[..], true),
        (&EndpointPeer::Gateway, b"GET /v1/usage HTTP/1.1\r\nhost: ", true),
        (&EndpointPeer::Gateway, request, true),
        // Its machine may take hours to move.
        (&node, request, false),
    ] {
        assert_eq!(is_closed(peer, head).await, expected, "{peer:?} {head:?}");
    }
}
