//! A proxy on the loopback for libraries that resolve names themselves. It only takes `CONNECT`
//! with its own password, and connects to addresses that the policy allows.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use base::{Chain, Stop, Tasks};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::policy::EgressPolicy;

const USER: &str = "sheaf";
const MAX_HEAD: usize = 8 << 10;
const MAX_CONNECTIONS: usize = 64;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts the proxy and returns its URL, with the password.
pub(super) fn start(policy: EgressPolicy, tasks: &Tasks) -> io::Result<String> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let listener = TcpListener::from_std(listener)?;
    let password = block::ids::VolumeId::random().to_string();
    let proxy = Proxy { policy, credentials: STANDARD.encode(format!("{USER}:{password}")) };
    tasks.spawn("import-proxy", proxy.run(listener, tasks.stop_signal()));
    Ok(format!("http://{USER}:{password}@{address}"))
}

#[derive(Debug, Clone)]
struct Proxy {
    policy: EgressPolicy,
    /// The value that `Proxy-Authorization: Basic` has to have.
    credentials: String,
}

/// A parsed request to the proxy.
#[derive(Debug, PartialEq, Eq)]
enum ProxyRequest {
    Connect {
        host: String,
        port: u16,
    },
    /// The status line of the refusal.
    Refuse(&'static str),
}

impl Proxy {
    async fn run(self, listener: TcpListener, mut stop: Stop) {
        let mut connections = JoinSet::new();
        loop {
            let stream = tokio::select! {
                accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => accepted,
                Some(_) = connections.join_next() => continue,
                () = stop.requested() => return,
            };
            match stream {
                Ok((stream, _)) => {
                    let proxy = self.clone();
                    connections.spawn(async move {
                        if let Err(failure) = proxy.serve(stream).await {
                            debug!(error = %Chain(&failure), "proxied connection ended");
                        }
                    });
                }
                Err(failure) => {
                    warn!(error = %Chain(&failure), "import proxy cannot accept a connection");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let head = tokio::time::timeout(HEAD_TIMEOUT, read_head(&mut stream)).await??;
        let (host, port) = match parse(&head, &self.credentials) {
            ProxyRequest::Connect { host, port } => (host, port),
            ProxyRequest::Refuse(status) => return refuse(stream, status).await,
        };
        let mut target = match self.policy.resolve(&host, port).await {
            Ok(addresses) => match dial(&addresses).await {
                Some(target) => target,
                None => return refuse(stream, "502 Bad Gateway").await,
            },
            Err(failure) => {
                warn!(host, error = %Chain(&failure), "connection of an import refused");
                return refuse(stream, "403 Forbidden").await;
            }
        };
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
        copy_bidirectional(&mut stream, &mut target).await.map(drop)
    }
}

async fn dial(addresses: &[SocketAddr]) -> Option<TcpStream> {
    for address in addresses {
        let dialed = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
        if let Ok(Ok(stream)) = dialed {
            return Some(stream);
        }
    }
    None
}

async fn refuse(mut stream: TcpStream, status: &str) -> io::Result<()> {
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// Reads up to the empty line that ends the head of a request, and nothing beyond it: a client
/// that waits for the answer sends nothing more.
async fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.push(stream.read_u8().await?);
    }
    String::from_utf8(head).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn parse(head: &str, credentials: &str) -> ProxyRequest {
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let given = lines.filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        let is_it = name.eq_ignore_ascii_case("proxy-authorization");
        value.trim().strip_prefix("Basic ").filter(|_| is_it)
    });
    if given != Some(credentials) {
        return ProxyRequest::Refuse("407 Proxy Authentication Required");
    }
    if method != "CONNECT" {
        return ProxyRequest::Refuse("403 Forbidden");
    }
    let Some((host, port)) = target.rsplit_once(':') else {
        return ProxyRequest::Refuse("400 Bad Request");
    };
    match port.parse() {
        Ok(port) => ProxyRequest::Connect { host: host.to_owned(), port },
        Err(_) => ProxyRequest::Refuse("400 Bad Request"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tunnels_with_the_password_are_opened() {
        let head = |line: &str, credentials: &str| {
            format!(
                "{line} HTTP/1.1\r\nHost: x\r\nproxy-authorization: Basic {credentials}\r\n\r\n"
            )
        };
        let connect = |host: &str, port| ProxyRequest::Connect { host: host.into(), port };
        for (head, expected) in [
            (head("CONNECT r.example:443", "abc"), connect("r.example", 443)),
            (head("CONNECT [::1]:5000", "abc"), connect("[::1]", 5000)),
            (
                head("CONNECT r.example:443", "no"),
                ProxyRequest::Refuse("407 Proxy Authentication Required"),
            ),
            (
                "CONNECT r:1 HTTP/1.1\r\n\r\n".into(),
                ProxyRequest::Refuse("407 Proxy Authentication Required"),
            ),
            (head("GET http://r.example/", "abc"), ProxyRequest::Refuse("403 Forbidden")),
            (head("CONNECT r.example", "abc"), ProxyRequest::Refuse("400 Bad Request")),
            (head("CONNECT r.example:x", "abc"), ProxyRequest::Refuse("400 Bad Request")),
        ] {
            assert_eq!(parse(&head, "abc"), expected, "{head}");
        }
    }

    #[tokio::test]
    async fn a_tunnel_to_the_node_is_refused() {
        let tasks = Tasks::default();
        let url = start(EgressPolicy::default(), &tasks).unwrap();
        let (credentials, address) = url.strip_prefix("http://").unwrap().split_once('@').unwrap();
        let credentials = STANDARD.encode(credentials);
        let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = target.local_addr().unwrap().port();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "CONNECT localhost:{port} HTTP/1.1\r\nproxy-authorization: Basic {credentials}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
}
