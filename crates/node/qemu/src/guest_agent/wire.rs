//! The bytes on the channel: JSON lines, and the mark that separates now from before.

use std::io;

use bytes::{Buf, BytesMut};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Never part of JSON text; the agent resets its parser when it sees it.
const MARK: u8 = 0xff;
/// The longest answer is the output of a command, which agents cut at 16 MiB before encoding.
const LONGEST_LINE: usize = 32 << 20;

#[derive(Debug)]
pub(super) struct Channel<S> {
    stream: S,
    buffer: BytesMut,
    next: u32,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Channel<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, buffer: BytesMut::new(), next: 1 }
    }

    /// Asks one question, after making sure that the answer will be to it.
    pub(super) async fn exchange(&mut self, command: &str, arguments: &Value) -> io::Result<Value> {
        self.synchronise().await?;
        self.send(&[], command, arguments).await?;
        self.line().await.and_then(|line| Ok(serde_json::from_slice(&line)?))
    }

    async fn synchronise(&mut self) -> io::Result<()> {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.send(&[MARK], "guest-sync-delimited", &json!({ "id": id })).await?;
        loop {
            let line = self.line().await?;
            // Bytes before the mark are left over from earlier, whole or torn.
            let Some(mark) = line.iter().rposition(|byte| *byte == MARK) else { continue };
            let reply = serde_json::from_slice::<Value>(&line[mark + 1..]);
            if reply.is_ok_and(|reply| reply["return"] == json!(id)) {
                return Ok(());
            }
        }
    }

    async fn send(&mut self, before: &[u8], command: &str, arguments: &Value) -> io::Result<()> {
        let mut message = json!({ "execute": command });
        if arguments.as_object().is_some_and(|map| !map.is_empty()) {
            message["arguments"] = arguments.clone();
        }
        let mut bytes = before.to_vec();
        bytes.extend_from_slice(message.to_string().as_bytes());
        bytes.push(b'\n');
        self.stream.write_all(&bytes).await
    }

    async fn line(&mut self) -> io::Result<BytesMut> {
        let mut seen = 0;
        loop {
            if let Some(end) = self.buffer[seen..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(seen + end);
                self.buffer.advance(1);
                return Ok(line);
            }
            seen = self.buffer.len();
            if seen > LONGEST_LINE {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "an endless line"));
            }
            self.buffer.reserve(4096);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}
