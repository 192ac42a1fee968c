//! `sheaf vm console`: the serial console on this terminal.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::{SinkExt as _, StreamExt as _};
use http::Request;
use http::header::{
    CONNECTION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http_body_util::BodyExt as _;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::terminal::Raw;
use crate::cli::MachineArg;
use crate::command::link::ClusterClient;

/// Ctrl-], as telnet and virtctl have it.
const LEAVE: u8 = 0x1d;
/// How long to wait for a machine that is not running yet.
const START_TIMEOUT: Duration = Duration::from_secs(300);

pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Why a stream could not be had.
pub(super) struct Refused {
    pub(super) code: u16,
    pub(super) message: String,
}

pub(super) async fn run(machine: &MachineArg) -> Result<()> {
    let link = ClusterClient::to(&machine.place).await?;
    let path = link.instance(&machine.name, "console");
    let socket = wait(&link, &path, &machine.name).await?;
    eprintln!("Connected to the console of {}. Press Ctrl-] to disconnect.", machine.name);
    let raw = Raw::enter();
    let end = talk(socket).await;
    drop(raw);
    match end {
        ConsoleEnd::Left => {
            eprintln!("\nDisconnected from {}; the machine keeps running.", machine.name)
        }
        ConsoleEnd::Closed => eprintln!("\nThe machine closed the console."),
    }
    Ok(())
}

/// A machine that will run soon will have a console soon.
async fn wait(link: &ClusterClient, path: &str, name: &str) -> Result<Socket> {
    let deadline = tokio::time::Instant::now() + START_TIMEOUT;
    let mut is_reported = false;
    loop {
        match open(link, path).await? {
            Ok(socket) => return Ok(socket),
            Err(refused) if refused.code == 400 && tokio::time::Instant::now() < deadline => {
                if !is_reported {
                    eprintln!("{name} is not running yet; waiting (Ctrl-C to cancel)");
                    is_reported = true;
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            Err(refused) => anyhow::bail!("{}", refused.message),
        }
    }
}

/// Asks for a stream; the inner result is the server's refusal.
pub(super) async fn open(link: &ClusterClient, path: &str) -> Result<Result<Socket, Refused>> {
    let request = Request::get(path)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(
            SEC_WEBSOCKET_KEY,
            tokio_tungstenite::tungstenite::handshake::client::generate_key(),
        )
        .header(SEC_WEBSOCKET_PROTOCOL, "plain.kubevirt.io")
        .body(Body::empty())
        .context("cannot build a request")?;
    let answer = link.client.send(request).await.map_err(|error| link.describe(error))?;
    let code = answer.status().as_u16();
    if code == 101 {
        let upgraded = hyper::upgrade::on(answer).await.context("the connection was lost")?;
        let io = TokioIo::new(upgraded);
        return Ok(Ok(WebSocketStream::from_raw_socket(io, Role::Client, None).await));
    }
    let body = answer.into_body().collect().await.context("the connection was lost")?.to_bytes();
    let status: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let message = status["message"].as_str().unwrap_or("the server refused the request").to_owned();
    Ok(Err(Refused { code, message }))
}

enum ConsoleEnd {
    Left,
    Closed,
}

async fn talk(mut socket: Socket) -> ConsoleEnd {
    let mut keys = keys();
    let mut screen = tokio::io::stdout();
    let mut typing = true;
    loop {
        tokio::select! {
            typed = keys.recv(), if typing => match typed {
                Some(bytes) => {
                    let end = bytes.iter().position(|byte| *byte == LEAVE);
                    let sent = bytes[..end.unwrap_or(bytes.len())].to_vec();
                    let failed = !sent.is_empty()
                        && socket.send(Message::Binary(sent.into())).await.is_err();
                    if end.is_some() {
                        let _ = socket.close(None).await;
                        return ConsoleEnd::Left;
                    }
                    if failed {
                        return ConsoleEnd::Closed;
                    }
                }
                // Input that ends (a pipe) leaves the output to be read.
                None => typing = false,
            },
            message = socket.next() => match message {
                Some(Ok(Message::Binary(bytes))) => {
                    if screen.write_all(&bytes).await.is_err() || screen.flush().await.is_err() {
                        return ConsoleEnd::Left;
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return ConsoleEnd::Closed,
                Some(Ok(_)) => {}
            },
        }
    }
}

/// Keyboard input, as it is typed.
fn keys() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        let mut input = tokio::io::stdin();
        let mut buffer = [0; 1024];
        while let Ok(count) = input.read(&mut buffer).await {
            if count == 0 || sender.send(buffer[..count].to_vec()).await.is_err() {
                return;
            }
        }
    });
    receiver
}
