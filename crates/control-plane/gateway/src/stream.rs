//! Consoles, screens and ports: bytes between a client's WebSocket and a node.
//!
//! The client speaks `plain.kubevirt.io`: binary messages without meaning in their
//! boundaries, except for UDP, where a message is a datagram.

use std::time::Duration;

use base::KeyedSlot;
use bytes::{Buf as _, Bytes, BytesMut};
use client::Caller;
use futures_util::{SinkExt as _, StreamExt as _};
use http::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    UPGRADE,
};
use http::{HeaderMap, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, frame::coding::CloseCode};

use crate::answer::{self, GatewayError, GatewayResult};
use crate::route::{ObjectRoute, Stream};
use crate::{Gateway, GatewayRequest, guard, instance, node, objects};

const PROTOCOL: &str = "plain.kubevirt.io";
/// Proxies between us and the client drop what is silent for long.
const PING_EVERY: Duration = Duration::from_secs(10);
/// A client that has not answered for this long is gone.
const SILENCE: Duration = Duration::from_secs(60);
const CHUNK: usize = 32 * 1024;
const MASTERS: &str = "system:masters";

pub(crate) async fn answer(
    gateway: &Gateway,
    at: &ObjectRoute,
    stream: &Stream,
    asked: GatewayRequest,
) -> GatewayResult {
    let vmi = find(gateway, at, stream).await?;
    let (word, udp) = match stream {
        Stream::Console => ("console".to_owned(), false),
        Stream::Vnc => ("vnc".to_owned(), false),
        Stream::UsbRedirection => ("usbredir".to_owned(), false),
        Stream::PortForward { port, udp, .. } => {
            let protocol = if *udp { "udp" } else { "tcp" };
            (format!("portforward/{port}/{protocol}"), *udp)
        }
    };
    let key = asked.parts.headers.get(SEC_WEBSOCKET_KEY).ok_or_else(|| {
        GatewayError::bad_request("this is a WebSocket: the Sec-WebSocket-Key header is missing")
    })?;
    let upgrade = asked.upgrade.ok_or_else(|| {
        GatewayError::bad_request("this connection cannot become a WebSocket; use HTTP/1.1")
    })?;
    let slot = begin(gateway, asked.caller.as_ref())?;
    let path = format!("/v1/vmis/{}/{}/{word}", at.namespace, at.name);
    // Before the switch, so that errors can still be sent.
    let requester = gateway.requester().for_machine(&vmi);
    let guest = node::open(requester, instance::node_of(&vmi)?, &path).await?;
    tokio::spawn(async move {
        connect(upgrade, guest, udp).await;
        drop(slot);
    });
    Ok(switching(key, &asked.parts.headers))
}

/// Counts a stream of the caller; administrators are exempt.
fn begin(gateway: &Gateway, caller: Option<&Caller>) -> Result<Option<KeyedSlot>, GatewayError> {
    let is_exempt = |caller: &Caller| caller.groups.iter().any(|group| group == MASTERS);
    if caller.is_some_and(is_exempt) {
        return Ok(None);
    }
    let slot = gateway.streams.begin(&gateway.user);
    slot.map(Some)
        .ok_or_else(|| GatewayError::too_many_streams(&gateway.user, gateway.streams.most()))
}

async fn find(
    gateway: &Gateway,
    at: &ObjectRoute,
    stream: &Stream,
) -> Result<serde_json::Value, GatewayError> {
    if let Stream::PortForward { through_machine: true, .. } = stream {
        let machine = objects::machine(&gateway.client, at).await?;
        if machine["status"]["created"] != true {
            return Err(GatewayError::conflict("virtualmachine", &at.name, "VMI is not started"));
        }
    }
    let vmi = objects::instance(&gateway.client, at).await?;
    match stream {
        Stream::Console => guard::console(&vmi)?,
        Stream::Vnc => guard::display(&vmi)?,
        Stream::UsbRedirection => guard::usb_redirection(&vmi)?,
        Stream::PortForward { .. } => guard::port_forward(&vmi)?,
    }
    Ok(vmi)
}

fn switching(key: &HeaderValue, headers: &HeaderMap) -> answer::GatewayReply {
    let mut reply = answer::empty(StatusCode::SWITCHING_PROTOCOLS);
    let out = reply.headers_mut();
    out.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    out.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&derive_accept_key(key.as_bytes())) {
        out.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let offers = offered
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .any(|name| name.trim() == PROTOCOL);
    if offers {
        out.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    }
    reply
}

async fn connect(upgrade: OnUpgrade, guest: TokioIo<Upgraded>, udp: bool) {
    let Ok(upgraded) = upgrade.await else { return };
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
    let (from_guest, to_guest) = tokio::io::split(guest);
    let mut pipe = Pipe {
        socket,
        to_guest,
        from_guest: Guest { half: from_guest, rest: BytesMut::new(), udp },
        last_received: Instant::now(),
    };
    let code = pipe.run().await;
    let frame = CloseFrame { code, reason: "".into() };
    let _ = tokio::time::timeout(Duration::from_secs(2), pipe.socket.close(Some(frame))).await;
}

struct Pipe {
    socket: WebSocketStream<TokioIo<Upgraded>>,
    to_guest: WriteHalf<TokioIo<Upgraded>>,
    from_guest: Guest,
    last_received: Instant,
}

impl Pipe {
    /// Moves bytes until one side ends; says how.
    async fn run(&mut self) -> CloseCode {
        let mut pings = tokio::time::interval(PING_EVERY);
        loop {
            let carried_on = tokio::select! {
                message = self.socket.next() => match message {
                    Some(Ok(message)) => self.close_guest(message).await,
                    _ => Err(CloseCode::Normal),
                },
                chunk = self.from_guest.next() => match chunk {
                    Ok(Some(bytes)) => self.close_client(Message::Binary(bytes)).await,
                    Ok(None) => Err(CloseCode::Normal),
                    Err(_) => Err(CloseCode::Error),
                },
                _ = pings.tick() => {
                    if self.last_received.elapsed() > SILENCE {
                        return CloseCode::Away;
                    }
                    self.close_client(Message::Ping(Bytes::new())).await
                }
            };
            if let Err(code) = carried_on {
                return code;
            }
        }
    }

    async fn close_client(&mut self, message: Message) -> Result<(), CloseCode> {
        self.socket.send(message).await.map_err(|_| CloseCode::Normal)
    }

    async fn close_guest(&mut self, message: Message) -> Result<(), CloseCode> {
        self.last_received = Instant::now();
        let bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
            Message::Close(_) => return Err(CloseCode::Normal),
            _ => return Ok(()),
        };
        let failed = |_| CloseCode::Error;
        if self.from_guest.udp {
            // A datagram that no network carries is lost, as it would be there.
            let Ok(length) = u16::try_from(bytes.len()) else { return Ok(()) };
            self.to_guest.write_all(&length.to_be_bytes()).await.map_err(failed)?;
        }
        self.to_guest.write_all(&bytes).await.map_err(failed)?;
        self.to_guest.flush().await.map_err(failed)
    }
}

/// Data from the guest: chunks, or datagrams with their length in front.
struct Guest {
    half: ReadHalf<TokioIo<Upgraded>>,
    rest: BytesMut,
    udp: bool,
}

impl Guest {
    /// Cancel-safe: received bytes stay in `rest`.
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        loop {
            if let Some(message) = cut(&mut self.rest, self.udp) {
                return Ok(Some(message));
            }
            self.rest.reserve(CHUNK);
            if self.half.read_buf(&mut self.rest).await? == 0 {
                return Ok(None);
            }
        }
    }
}

/// The next message in `rest`, if a whole one is there.
fn cut(rest: &mut BytesMut, udp: bool) -> Option<Bytes> {
    if !udp {
        return (!rest.is_empty()).then(|| rest.split().freeze());
    }
    let length = usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?]));
    if rest.len() < 2 + length {
        return None;
    }
    rest.advance(2);
    Some(rest.split_to(length).freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_cut_at_their_lengths_and_bytes_wherever_they_end() {
        let mut rest = BytesMut::from(&b"\0\x03abc\0\0\0\x02x"[..]);
        assert_eq!(cut(&mut rest, true).as_deref(), Some(&b"abc"[..]));
        assert_eq!(cut(&mut rest, true).as_deref(), Some(&b""[..]));
        assert_eq!(cut(&mut rest, true), None);
        rest.extend_from_slice(b"y");
        assert_eq!(cut(&mut rest, true).as_deref(), Some(&b"xy"[..]));
        let mut stream = BytesMut::from(&b"abc"[..]);
        assert_eq!(cut(&mut stream, false).as_deref(), Some(&b"abc"[..]));
        assert_eq!(cut(&mut stream, false), None);
    }
}
