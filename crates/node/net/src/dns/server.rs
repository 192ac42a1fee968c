//! The name server at the gateway's address: answers for guests' names, passes other questions on.
//!
//! Nothing is cached and nothing is invented. A guest can keep only so many questions open at a
//! time, so that one that floods does not take the service from the others.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Stop, Tasks};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::{DnsNames, DnsVerdict, Transport, answer, failure, with_alias};
use crate::network::Network;
use crate::resolv::Upstreams;

const PORT: u16 = 53;
/// Questions and connections that are open at once: of all guests, and of one.
const MOST: usize = 512;
const MOST_OF_ONE: usize = 64;
/// How long one server may take. Resolvers of guests give up after five seconds.
const UPSTREAM_TIMEOUT: Duration = Duration::from_millis(2000);
/// How long a guest may keep a connection without asking.
const IDLE: Duration = Duration::from_secs(10);
const LARGEST: usize = 65_535;

/// A handle to the running server: changes to the names hold from the next question on.
#[derive(Debug, Clone)]
pub struct Dns {
    names: Arc<watch::Sender<DnsNames>>,
}

/// Why there is no name server.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    #[error("cannot listen for DNS at {address}; does another server hold the port?")]
    Listen { address: SocketAddr, source: io::Error },
}

impl Dns {
    /// Listens at the gateway of `network`, until the tasks are stopped.
    pub async fn start(
        network: &Network,
        upstreams: Upstreams,
        tasks: &Tasks,
    ) -> Result<Self, DnsError> {
        let own = network.bridge().gateway.addr();
        let address = SocketAddr::new(own.into(), PORT);
        let failed = |source| DnsError::Listen { address, source };
        let udp = UdpSocket::bind(address).await.map_err(failed)?;
        let tcp = TcpListener::bind(address).await.map_err(failed)?;
        let (names, seen) = watch::channel(DnsNames::default());
        let shared = Arc::new(DnsShared { names: seen, upstreams, own });
        let server = Server { udp: Arc::new(udp), shared, open: HashMap::new() };
        tasks.spawn("dns", server.run(tcp, tasks.stop_signal()));
        Ok(Self { names: Arc::new(names) })
    }

    /// Forgets all names and takes these.
    pub fn replace(&self, names: DnsNames) {
        self.names.send_replace(names);
    }

    /// Changes the names in place.
    pub fn modify<T>(&self, change: impl FnOnce(&mut DnsNames) -> T) -> T {
        let mut change = Some(change);
        let mut outcome = None;
        self.names.send_modify(|names| outcome = change.take().map(|change| change(names)));
        outcome.expect("the change is called once")
    }
}

#[derive(Debug)]
struct DnsShared {
    names: watch::Receiver<DnsNames>,
    upstreams: Upstreams,
    own: Ipv4Addr,
}

struct Server {
    udp: Arc<UdpSocket>,
    shared: Arc<DnsShared>,
    /// How much each guest has open.
    open: HashMap<IpAddr, usize>,
}

impl Server {
    async fn run(mut self, tcp: TcpListener, mut stop: Stop) {
        let mut datagram = vec![0; LARGEST];
        // Ends with this task and takes with it whatever it still holds.
        let mut work = JoinSet::new();
        loop {
            tokio::select! {
                received = self.udp.recv_from(&mut datagram) => match received {
                    Ok((length, from)) if self.may_begin(from.ip()) => {
                        let (udp, shared) = (self.udp.clone(), self.shared.clone());
                        let question = datagram[..length].to_vec();
                        work.spawn(async move { serve_udp(&udp, &shared, question, from).await });
                    }
                    Ok(_) => {}
                    // A guest's refusal of an earlier answer is reported here, too.
                    Err(error) => debug!(error = %Chain(&error), "cannot receive DNS questions"),
                },
                accepted = tcp.accept() => match accepted {
                    Ok((stream, from)) if self.may_begin(from.ip()) => {
                        let shared = self.shared.clone();
                        work.spawn(async move { serve_tcp(stream, &shared, from).await });
                    }
                    Ok(_) => {}
                    Err(error) => {
                        warn!(error = %Chain(&error), "cannot accept DNS connections");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(ended) = work.join_next(), if !work.is_empty() => match ended {
                    Ok(from) => self.ended(from),
                    // The client of the ended task is unknown: all counts start anew, which is
                    // fair to all.
                    Err(_) => self.open.clear(),
                },
                () = stop.requested() => return,
            }
        }
    }

    fn may_begin(&mut self, from: IpAddr) -> bool {
        let total: usize = self.open.values().sum();
        let own = self.open.entry(from).or_default();
        if total >= MOST || *own >= MOST_OF_ONE {
            return false;
        }
        *own += 1;
        true
    }

    fn ended(&mut self, from: IpAddr) {
        if let Some(count) = self.open.get_mut(&from) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.open.remove(&from);
            }
        }
    }
}

async fn serve_udp(
    udp: &UdpSocket,
    shared: &DnsShared,
    question: Vec<u8>,
    from: SocketAddr,
) -> IpAddr {
    let response = respond(shared, &question, Transport::Udp, ask_udp).await;
    if let Some(response) = response
        && let Err(error) = udp.send_to(&response, from).await
    {
        debug!(to = %from, error = %Chain(&error), "cannot send a DNS answer");
    }
    from.ip()
}

async fn serve_tcp(mut stream: TcpStream, shared: &DnsShared, from: SocketAddr) -> IpAddr {
    while let Ok(Ok(question)) = timeout(IDLE, read_framed(&mut stream)).await {
        let response = respond(shared, &question, Transport::Tcp, ask_tcp).await;
        let Some(response) = response else { break };
        if !matches!(timeout(IDLE, write_framed(&mut stream, &response)).await, Ok(Ok(()))) {
            break;
        }
    }
    from.ip()
}

/// Answers one question; nothing for what is none.
async fn respond<Asking>(
    shared: &DnsShared,
    question: &[u8],
    transport: Transport,
    ask: impl Fn(SocketAddr, Vec<u8>) -> Asking,
) -> Option<Vec<u8>>
where
    Asking: Future<Output = io::Result<Vec<u8>>>,
{
    let look_up = |question: &[u8]| answer(question, &shared.names.borrow(), transport);
    let (target, other) = match look_up(question) {
        DnsVerdict::Answer(response) => return Some(response),
        DnsVerdict::Ignore => return None,
        DnsVerdict::PassOn => return pass_on(shared, question, ask).await,
        DnsVerdict::Alias { target, question } => (target, question),
    };
    let answered = match look_up(&other) {
        DnsVerdict::Answer(response) => Some(response),
        DnsVerdict::PassOn => pass_on(shared, &other, ask).await,
        // An alias of an alias may lead back to the first.
        DnsVerdict::Alias { .. } | DnsVerdict::Ignore => failure(&other),
    };
    with_alias(question, &target, &answered?)
}

/// Asks one server after the other; when none answers, says so instead of staying silent.
async fn pass_on<Asking>(
    shared: &DnsShared,
    question: &[u8],
    ask: impl Fn(SocketAddr, Vec<u8>) -> Asking,
) -> Option<Vec<u8>>
where
    Asking: Future<Output = io::Result<Vec<u8>>>,
{
    let servers = match shared.upstreams.servers(shared.own.into()) {
        Ok(servers) => servers,
        Err(error) => {
            warn!(error = %Chain(&error), "cannot determine upstream DNS servers");
            vec![]
        }
    };
    for server in servers {
        match timeout(UPSTREAM_TIMEOUT, ask(server, question.to_vec())).await {
            Ok(Ok(response)) => return Some(response),
            Ok(Err(error)) => debug!(%server, error = %Chain(&error), "cannot ask a name server"),
            Err(_) => debug!(%server, "a name server is silent"),
        }
    }
    failure(question)
}

/// A socket of its own for each question: its random port is what a forger would have to guess.
async fn ask_udp(server: SocketAddr, question: Vec<u8>) -> io::Result<Vec<u8>> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(&question).await?;
    let mut response = vec![0; LARGEST];
    loop {
        let length = socket.recv(&mut response).await?;
        if is_response(&response[..length], &question) {
            response.truncate(length);
            return Ok(response);
        }
    }
}

async fn ask_tcp(server: SocketAddr, question: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    write_framed(&mut stream, &question).await?;
    read_framed(&mut stream).await
}

/// The same identifier, and marked as a response.
fn is_response(response: &[u8], question: &[u8]) -> bool {
    response.len() >= 12 && response[..2] == question[..2] && response[2] & 0x80 != 0
}

async fn read_framed(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut message = vec![0; usize::from(length)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

async fn write_framed(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend_from_slice(message);
    stream.write_all(&framed).await
}
