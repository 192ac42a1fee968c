//! The bytes of the monitor protocol: one JSON document per line, of bounded length.
//!
//! Knows the three shapes that QEMU sends and keeps everything else about them raw.

use std::io;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::types::Event;

/// The largest answer we know of (`query-qmp-schema`) is a twentieth of this.
pub const LONGEST_LINE: usize = 4 << 20;

/// The capability to be sent commands that QEMU does not queue.
pub const OUT_OF_BAND: &str = "oob";

/// How QEMU treats a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Band {
    /// One after another, in the main loop.
    Normal,
    /// At once, whatever the main loop waits for.
    Out,
}

/// Why a connection can no longer be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WireError {
    #[error("the other end closed the connection")]
    End,
    #[error("cannot read")]
    Read(#[source] Arc<io::Error>),
    #[error("a line of more than {LONGEST_LINE} bytes")]
    TooLong,
    #[error("invalid QMP message")]
    Malformed(#[source] Arc<serde_json::Error>),
}

#[derive(Debug)]
pub enum QmpMessage {
    /// Whether commands can be sent past those that QEMU is busy with.
    Greeting {
        out_of_band: bool,
    },
    Event(Event),
    /// QEMU leaves the id out if it could not read the command.
    Reply {
        id: Option<u64>,
        reply: Result<Value, (String, String)>,
    },
}

/// The possible keys of a line; the keys that are present determine its type.
#[derive(Deserialize)]
struct Raw {
    #[serde(rename = "QMP")]
    greeting: Option<QmpGreeting>,
    event: Option<String>,
    #[serde(default)]
    data: Value,
    timestamp: Option<QmpTimestamp>,
    #[serde(rename = "return")]
    value: Option<Value>,
    error: Option<QmpFailure>,
    id: Option<Value>,
}

#[derive(Deserialize)]
struct QmpGreeting {
    #[serde(default)]
    capabilities: Vec<String>,
}

#[derive(Deserialize)]
struct QmpTimestamp {
    #[serde(default)]
    seconds: i64,
    #[serde(default)]
    microseconds: i64,
}

#[derive(Deserialize)]
struct QmpFailure {
    #[serde(default)]
    class: String,
    #[serde(default)]
    desc: String,
}

/// A command as it goes over the wire, without the end of the line.
pub fn command(name: &str, arguments: Value, id: u64, band: Band) -> Vec<u8> {
    let has_arguments = arguments.as_object().is_some_and(|map| !map.is_empty());
    let verb = match band {
        Band::Normal => "execute",
        Band::Out => "exec-oob",
    };
    let mut command = json!({ verb: name, "id": id });
    if has_arguments {
        command["arguments"] = arguments;
    }
    command.to_string().into_bytes()
}

/// Reads one line.
pub fn parse(line: &[u8]) -> Result<QmpMessage, WireError> {
    let malformed = |source| WireError::Malformed(Arc::new(source));
    let raw: Raw = serde_json::from_slice(line).map_err(malformed)?;
    if let Some(greeting) = raw.greeting {
        let out_of_band = greeting.capabilities.iter().any(|name| name == OUT_OF_BAND);
        return Ok(QmpMessage::Greeting { out_of_band });
    }
    if let Some(name) = raw.event {
        let stamp = raw.timestamp.unwrap_or(QmpTimestamp { seconds: 0, microseconds: 0 });
        let micros = stamp.seconds.saturating_mul(1_000_000).saturating_add(stamp.microseconds);
        return Ok(QmpMessage::Event(Event { name, data: raw.data, micros }));
    }
    let id = raw.id.as_ref().and_then(Value::as_u64);
    match (raw.value, raw.error) {
        (_, Some(failure)) => {
            Ok(QmpMessage::Reply { id, reply: Err((failure.class, failure.desc)) })
        }
        (Some(value), None) => Ok(QmpMessage::Reply { id, reply: Ok(value) }),
        (None, None) => {
            let missing = <serde_json::Error as serde::de::Error>::missing_field("return");
            Err(malformed(missing))
        }
    }
}

/// Cuts a stream into messages.
#[derive(Debug)]
pub struct Lines<R> {
    stream: R,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no end of a line.
    seen: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub fn new(stream: R) -> Self {
        Self { stream, buffer: BytesMut::new(), seen: 0 }
    }

    /// The next message. Cancel-safe: bytes that were read stay in the buffer.
    pub async fn next(&mut self) -> Result<QmpMessage, WireError> {
        loop {
            if let Some(end) = self.buffer[self.seen..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.seen + end);
                self.buffer.advance(1);
                self.seen = 0;
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return parse(&line);
            }
            self.seen = self.buffer.len();
            if self.seen > LONGEST_LINE {
                return Err(WireError::TooLong);
            }
            self.buffer.reserve(4096);
            let read = self.stream.read_buf(&mut self.buffer).await;
            match read {
                Ok(0) => return Err(WireError::End),
                Ok(_) => {}
                Err(error) => return Err(WireError::Read(Arc::new(error))),
            }
        }
    }
}
