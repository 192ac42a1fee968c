//! Streams: the targets of upgraded connections.

use std::io;

use base::Chain;
use bytes::BytesMut;
use http::StatusCode;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use qemu::console::{Console, Listener};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket, UnixStream};
use tracing::debug;

use super::response::EndpointError;
use super::route;
use crate::machine::{DialError, LiveMachine, OpenPort, UsbSlot, dial};

/// The largest datagram, and so the largest that two bytes can announce.
const DATAGRAM: usize = u16::MAX as usize;

/// The guest's end of a stream.
pub(super) enum StreamEnd {
    Console(Console, Listener),
    Unix(UnixStream),
    Usb(UnixStream, UsbSlot),
    Tcp(TcpStream),
    Udp(UdpSocket, Option<OpenPort>),
}

/// A stream that begins as soon as the answer is out.
pub(super) struct PendingStream {
    pub(super) upgraded: OnUpgrade,
    pub(super) end: StreamEnd,
}

/// Opens the guest's end, so that a failure can still be reported.
pub(super) async fn open(
    live: &LiveMachine,
    what: route::Stream,
) -> Result<StreamEnd, EndpointError> {
    match what {
        route::Stream::Console => match live.console.listen() {
            Ok(listener) => Ok(StreamEnd::Console(live.console.clone(), listener)),
            Err(failure) => Err(EndpointError::internal(&failure)),
        },
        route::Stream::Vnc => match live.running.vnc().await {
            Ok(stream) => Ok(StreamEnd::Unix(stream)),
            Err(failure) => Err(EndpointError::internal(&failure)),
        },
        route::Stream::Usb => {
            let Some(slot) = live.usb_slots.take() else {
                let why = "all USB devices of the machine that clients can use are in use";
                return Err(EndpointError::new(StatusCode::CONFLICT, why.to_owned()));
            };
            match live.running.usb_redirection(slot.number).await {
                Ok(stream) => Ok(StreamEnd::Usb(stream, slot)),
                Err(failure) => Err(EndpointError::internal(&failure)),
            }
        }
        route::Stream::Tcp(port) => {
            dial::tcp(live, port).await.map(StreamEnd::Tcp).map_err(undialed)
        }
        route::Stream::Udp(port) => {
            let (socket, opening) = dial::udp(live, port).await.map_err(undialed)?;
            Ok(StreamEnd::Udp(socket, opening))
        }
    }
}

fn undialed(failure: DialError) -> EndpointError {
    match failure {
        DialError::NoInterface => EndpointError::new(StatusCode::BAD_REQUEST, failure.to_string()),
        failure => EndpointError::internal(&failure),
    }
}

impl PendingStream {
    pub(super) async fn run(self) {
        let upgraded = match self.upgraded.await {
            Ok(upgraded) => TokioIo::new(upgraded),
            Err(failure) => {
                debug!(error = %Chain(&failure), "stream did not begin");
                return;
            }
        };
        let ended = match self.end {
            StreamEnd::Console(console, listener) => converse(upgraded, &console, listener).await,
            StreamEnd::Unix(stream) => join(upgraded, stream).await,
            StreamEnd::Usb(stream, slot) => {
                let ended = join(upgraded, stream).await;
                drop(slot);
                ended
            }
            StreamEnd::Tcp(stream) => join(upgraded, stream).await,
            StreamEnd::Udp(socket, opening) => {
                let ended = datagrams(upgraded, &socket).await;
                if let Some(opening) = opening {
                    opening.close().await;
                }
                ended
            }
        };
        if let Err(failure) = ended {
            debug!(error = %Chain(&failure), "stream ended");
        }
    }
}

async fn join(
    mut one: impl AsyncRead + AsyncWrite + Unpin,
    mut other: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<()> {
    tokio::io::copy_bidirectional(&mut one, &mut other).await.map(|_| ())
}

/// Copies the guest's output to the stream and the typed input to the guest.
async fn converse(
    stream: impl AsyncRead + AsyncWrite,
    console: &Console,
    mut listener: Listener,
) -> io::Result<()> {
    let (mut read, mut write) = tokio::io::split(stream);
    let outwards = async {
        loop {
            let Ok(piece) = listener.next().await else { return Ok(()) };
            write.write_all(&piece).await?;
            write.flush().await?;
        }
    };
    let inwards = async {
        let mut typed = BytesMut::with_capacity(1024);
        loop {
            typed.reserve(1024);
            if read.read_buf(&mut typed).await? == 0 {
                return Ok(());
            }
            if console.write(typed.split().freeze()).await.is_err() {
                return Ok(());
            }
        }
    };
    tokio::select! {
        ended = outwards => ended,
        ended = inwards => ended,
    }
}

/// Frames to datagrams and back, until either side ends.
async fn datagrams(stream: impl AsyncRead + AsyncWrite, socket: &UdpSocket) -> io::Result<()> {
    let (mut read, mut write) = tokio::io::split(stream);
    let outwards = async {
        let mut datagram = vec![0; DATAGRAM];
        loop {
            let length = usize::from(read.read_u16().await?);
            read.read_exact(&mut datagram[..length]).await?;
            // A port without a listener is reported on a later send; the guest may come up.
            let _ = socket.send(&datagram[..length]).await;
        }
    };
    let inwards = async {
        let mut datagram = vec![0; DATAGRAM];
        loop {
            let length = match socket.recv(&mut datagram).await {
                Ok(length) => length,
                Err(failure) if failure.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(failure) => return Err(failure),
            };
            write.write_u16(u16::try_from(length).unwrap_or(u16::MAX)).await?;
            write.write_all(&datagram[..length]).await?;
            write.flush().await?;
        }
    };
    let ended: io::Result<()> = tokio::select! {
        ended = outwards => ended,
        ended = inwards => ended,
    };
    match ended {
        Err(failure) if failure.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn datagrams_keep_their_bounds_both_ways() {
        let echo = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(echo.local_addr().unwrap()).await.unwrap();
        let (mut ours, theirs) = tokio::io::duplex(1024);
        let session = async { datagrams(theirs, &socket).await.unwrap() };
        let test = async {
            ours.write_all(b"\x00\x02hi\x00\x03you").await.unwrap();
            let mut buffer = [0; 16];
            for _ in 0..2 {
                let (length, from) = echo.recv_from(&mut buffer).await.unwrap();
                echo.send_to(&buffer[..length], from).await.unwrap();
            }
            let mut answer = [0; 9];
            ours.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"\x00\x02hi\x00\x03you");
            drop(ours);
        };
        tokio::join!(session, test);
    }
}
