//! The monitor of a QEMU that was started here.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Child;

const START_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Qmp {
    replies: Lines<BufReader<OwnedReadHalf>>,
    commands: OwnedWriteHalf,
}

impl Qmp {
    /// Connects to the socket of a QEMU that starts, and leaves capability negotiation.
    pub(crate) async fn open(socket: &Path, child: &mut Child) -> Result<Self> {
        let (reading, commands) = connect(socket, child).await?.into_split();
        let mut qmp = Self { replies: BufReader::new(reading).lines(), commands };
        qmp.next(|message| message.get("QMP").is_some()).await?;
        qmp.execute("qmp_capabilities").await?;
        Ok(qmp)
    }

    pub(crate) async fn execute(&mut self, command: &str) -> Result<Value> {
        self.execute_with(command, json!({})).await
    }

    pub(crate) async fn execute_with(&mut self, command: &str, args: Value) -> Result<Value> {
        self.send(command, args).await?;
        let reply = self.next(|message| message.get("event").is_none()).await?;
        ensure!(reply.get("error").is_none(), "{command}: {reply}");
        Ok(reply["return"].clone())
    }

    /// Sends a command whose reply is not waited for.
    pub(crate) async fn send(&mut self, command: &str, args: Value) -> Result<()> {
        let line = format!("{}\n", json!({"execute": command, "arguments": args}));
        self.commands.write_all(line.as_bytes()).await?;
        Ok(())
    }

    /// Waits for an event.
    pub(crate) async fn event(&mut self, name: &str) -> Result<()> {
        self.next(|message| message["event"] == name).await.map(drop)
    }

    async fn next(&mut self, is_it: impl Fn(&Value) -> bool) -> Result<Value> {
        loop {
            let next = tokio::time::timeout(START_TIMEOUT, self.replies.next_line()).await;
            let text = next.context("QEMU does not answer")??;
            let text = text.context("QEMU has closed its monitor")?;
            let message = serde_json::from_str(&text)?;
            if is_it(&message) {
                return Ok(message);
            }
        }
    }
}

/// Connects to a socket as soon as QEMU listens on it.
pub(crate) async fn connect(socket: &Path, child: &mut Child) -> Result<UnixStream> {
    let begun = Instant::now();
    loop {
        if let Ok(stream) = UnixStream::connect(socket).await {
            return Ok(stream);
        }
        ensure!(child.try_wait()?.is_none(), "QEMU ended at once");
        ensure!(begun.elapsed() < START_TIMEOUT, "{} does not appear", socket.display());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
