//! A websocket as virtctl opens one: the subprotocol of KubeVirt, bytes in binary messages.

use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::http::block_on;
use super::server::Sheaf;
use super::tls::tls;

/// Nothing takes longer, but a guest that boots.
const BOUND: Duration = Duration::from_secs(600);
const PROTOCOL: &str = "plain.kubevirt.io";
/// Bytes from a client are masked; with zeros they stay as they are.
const MASK: [u8; 4] = [0; 4];

const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

pub(crate) struct Socket {
    stream: TlsStream<TcpStream>,
}

impl Socket {
    /// Opens the stream at `path`; the complaint is the server's whole answer.
    pub(crate) fn open(sheaf: &Sheaf, path: &str) -> Result<Self, String> {
        Self::open_with(sheaf, path, "")
    }

    /// The same as another user.
    pub(crate) fn open_as(sheaf: &Sheaf, path: &str, user: &str) -> Result<Self, String> {
        Self::open_with(sheaf, path, &format!("Impersonate-User: {user}\r\n"))
    }

    fn open_with(sheaf: &Sheaf, path: &str, headers: &str) -> Result<Self, String> {
        let connector = tls(sheaf, &[b"http/1.1"]);
        let address = sheaf.address();
        bounded(async move {
            let tcp = TcpStream::connect(&address).await.unwrap();
            let name = ServerName::try_from("127.0.0.1").unwrap();
            let mut stream = connector.connect(name, tcp).await.unwrap();
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\n\
                 Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                 Sec-WebSocket-Protocol: {PROTOCOL}\r\n{headers}\r\n"
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => break,
                }
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            if !head.starts_with("HTTP/1.1 101") {
                let mut body = vec![0; 4096];
                let length = stream.read(&mut body).await.unwrap_or(0);
                return Err(head + &String::from_utf8_lossy(&body[..length]));
            }
            assert!(head.to_ascii_lowercase().contains(PROTOCOL), "{head}");
            Ok(Self { stream })
        })
    }

    /// Sends one message.
    pub(crate) fn send(&mut self, message: &[u8]) {
        bounded(self.write(BINARY, message));
    }

    async fn write(&mut self, kind: u8, message: &[u8]) {
        let mut frame = vec![0x80 | kind];
        match u8::try_from(message.len()) {
            Ok(length) if length < 126 => frame.push(0x80 | length),
            _ => {
                frame.push(0x80 | 126);
                frame.extend(u16::try_from(message.len()).unwrap().to_be_bytes());
            }
        }
        frame.extend(MASK);
        frame.extend(message);
        self.stream.write_all(&frame).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The next message; nothing once the server has closed.
    pub(crate) fn receive(&mut self) -> Option<Vec<u8>> {
        bounded(async {
            loop {
                let (kind, message) = self.read().await?;
                match kind {
                    BINARY => return Some(message),
                    CLOSE => return None,
                    PING => self.write(PONG, &message).await,
                    _ => {}
                }
            }
        })
    }

    /// Receives until what came contains `part`.
    #[track_caller]
    pub(crate) fn until(&mut self, part: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        while !all.windows(part.len()).any(|window| window == part) {
            let message = self.receive();
            let so_far = String::from_utf8_lossy(&all).into_owned();
            all.extend(message.unwrap_or_else(|| panic!("the stream ended after {so_far:?}")));
        }
        all
    }

    async fn read(&mut self) -> Option<(u8, Vec<u8>)> {
        let kind = self.stream.read_u8().await.ok()? & 0x0f;
        let length = match self.stream.read_u8().await.ok()? & 0x7f {
            126 => u64::from(self.stream.read_u16().await.ok()?),
            127 => self.stream.read_u64().await.ok()?,
            length => length.into(),
        };
        let mut message = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut message).await.ok()?;
        Some((kind, message))
    }
}

fn bounded<F: Future>(work: F) -> F::Output {
    block_on(async { tokio::time::timeout(BOUND, work).await.expect("it answers in time") })
}
