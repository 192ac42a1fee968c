//! Connection limits: how many connections are open, per source address and without credentials,
//! and the share that is kept for clients with a certificate (nodes and administrators).
//!
//! [`Counts`] decides and is pure. A [`ConnectionSlot`] belongs to the socket, so a connection that
//! was upgraded to a stream counts until the stream ends.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Handshakes at once, per source, of connections that are kept only with a certificate.
const PROBES_PER_SOURCE: u32 = 16;

/// Clients with a certificate are known, and may have this many times the connections per source.
const CERTIFICATE_FACTOR: u32 = 4;

/// Limits on connections and watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Open connections, upgraded streams included.
    pub total: u32,
    /// The part of `total` that only clients with a certificate get.
    pub reserved: u32,
    /// Connections of one source address (of one /64 for IPv6) without a client certificate, and
    /// [`CERTIFICATE_FACTOR`] times as many with one.
    pub per_source: u32,
    /// Connections on which no request has been authenticated.
    pub anonymous: u32,
    /// A connection without a request for this long is closed.
    pub idle_timeout: Duration,
    /// Open watches of one user; members of `system:masters` are exempt.
    pub watches_per_user: u32,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            total: 8192,
            reserved: 512,
            per_source: 512,
            anonymous: 4096,
            idle_timeout: Duration::from_secs(90),
            watches_per_user: 2000,
        }
    }
}

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConnectionRefused {
    #[error("{limit} connections are open")]
    Total { limit: u32 },
    #[error("the source has {limit} connections open")]
    Source { limit: u32 },
    #[error("only clients with a certificate can connect now")]
    NoCertificate,
}

/// The pool that a connection is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionClass {
    /// No request has been authenticated.
    Anonymous,
    /// A token has been accepted.
    Identified,
    /// Limits are reached: the connection is kept only if it presents a certificate.
    Probe,
    Certificate,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct SourceCounts {
    plain: u32,
    probes: u32,
    certificates: u32,
}

#[derive(Debug, Default)]
struct Counts {
    total: u32,
    /// Without a certificate, probes excluded.
    plain: u32,
    anonymous: u32,
    sources: HashMap<IpAddr, SourceCounts>,
}

impl Counts {
    fn open(
        &mut self,
        limits: &ConnectionLimits,
        source: IpAddr,
    ) -> Result<ConnectionClass, ConnectionRefused> {
        if self.total >= limits.total {
            return Err(ConnectionRefused::Total { limit: limits.total });
        }
        let own = self.sources.get(&source).copied().unwrap_or_default();
        let has_room = own.plain < limits.per_source
            && self.plain < limits.total.saturating_sub(limits.reserved)
            && self.anonymous < limits.anonymous;
        let class = if has_room {
            ConnectionClass::Anonymous
        } else if own.probes < PROBES_PER_SOURCE {
            ConnectionClass::Probe
        } else {
            return Err(ConnectionRefused::Source { limit: limits.per_source });
        };
        self.count(source, class);
        Ok(class)
    }

    /// The class after the TLS handshake. The old one is kept on refusal.
    fn shake_hands(
        &mut self,
        limits: &ConnectionLimits,
        source: IpAddr,
        class: ConnectionClass,
        has_certificate: bool,
    ) -> Result<ConnectionClass, ConnectionRefused> {
        if !has_certificate {
            return match class {
                ConnectionClass::Probe => Err(ConnectionRefused::NoCertificate),
                class => Ok(class),
            };
        }
        let own = self.sources.get(&source).copied().unwrap_or_default();
        let limit = limits.per_source.saturating_mul(CERTIFICATE_FACTOR);
        if own.certificates >= limit {
            return Err(ConnectionRefused::Source { limit });
        }
        self.forget(source, class);
        self.count(source, ConnectionClass::Certificate);
        Ok(ConnectionClass::Certificate)
    }

    fn count(&mut self, source: IpAddr, class: ConnectionClass) {
        let own = self.sources.entry(source).or_default();
        self.total += 1;
        match class {
            ConnectionClass::Probe => own.probes += 1,
            ConnectionClass::Certificate => own.certificates += 1,
            ConnectionClass::Anonymous | ConnectionClass::Identified => {
                own.plain += 1;
                self.plain += 1;
                self.anonymous += u32::from(class == ConnectionClass::Anonymous);
            }
        }
    }

    fn forget(&mut self, source: IpAddr, class: ConnectionClass) {
        let Some(own) = self.sources.get_mut(&source) else { return };
        self.total -= 1;
        match class {
            ConnectionClass::Probe => own.probes -= 1,
            ConnectionClass::Certificate => own.certificates -= 1,
            ConnectionClass::Anonymous | ConnectionClass::Identified => {
                own.plain -= 1;
                self.plain -= 1;
                self.anonymous -= u32::from(class == ConnectionClass::Anonymous);
            }
        }
        if *own == SourceCounts::default() {
            self.sources.remove(&source);
        }
    }
}

/// All open connections of a server.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    limits: ConnectionLimits,
    counts: Mutex<Counts>,
    refused: AtomicU64,
}

impl ConnectionTable {
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        Self { limits, counts: Mutex::default(), refused: AtomicU64::new(0) }
    }

    /// Counts a connection that was accepted.
    pub(crate) fn open(
        self: &Arc<Self>,
        source: IpAddr,
    ) -> Result<ConnectionSlot, ConnectionRefused> {
        let source = source_key(source);
        let opened = self.counts.lock().open(&self.limits, source);
        let class = opened.inspect_err(|_| self.note_refusal())?;
        Ok(ConnectionSlot { table: Arc::clone(self), source, class: Mutex::new(class) })
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        self.limits.idle_timeout
    }

    /// Connections that are open, and those that were refused since the start.
    pub(crate) fn figures(&self) -> (u32, u64) {
        (self.counts.lock().total, self.refused.load(Ordering::Relaxed))
    }

    fn note_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// The network that a source address is counted as.
fn source_key(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

/// One open connection; dropping it makes room.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    table: Arc<ConnectionTable>,
    source: IpAddr,
    class: Mutex<ConnectionClass>,
}

impl ConnectionSlot {
    /// Whether the connection is kept only if it presents a certificate.
    pub(crate) fn is_probe(&self) -> bool {
        *self.class.lock() == ConnectionClass::Probe
    }

    /// The TLS handshake is complete.
    pub(crate) fn shake_hands(&self, has_certificate: bool) -> Result<(), ConnectionRefused> {
        let mut class = self.class.lock();
        let mut counts = self.table.counts.lock();
        let next = counts.shake_hands(&self.table.limits, self.source, *class, has_certificate);
        *class = next.inspect_err(|_| self.table.note_refusal())?;
        Ok(())
    }

    /// A request with credentials has been accepted.
    pub(crate) fn identify(&self) {
        let mut class = self.class.lock();
        if *class == ConnectionClass::Anonymous {
            *class = ConnectionClass::Identified;
            self.table.counts.lock().anonymous -= 1;
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.table.counts.lock().forget(self.source, *self.class.get_mut());
    }
}

/// A socket with its slot: the connection counts as long as the socket exists, for instance as an
/// upgraded stream. It breaks off when the certificate of its client is revoked.
pub(crate) struct CountedStream<S> {
    stream: S,
    _slot: Arc<ConnectionSlot>,
    /// Nothing once it has resolved.
    revoked: Option<BoxFuture<'static, ()>>,
    broken: bool,
}

impl<S> CountedStream<S> {
    /// `revoked` resolves when the connection is to end, if it ever is.
    pub(crate) fn new(
        stream: S,
        slot: Arc<ConnectionSlot>,
        revoked: Option<BoxFuture<'static, ()>>,
    ) -> Self {
        Self { stream, _slot: slot, revoked, broken: false }
    }

    fn check(&self) -> io::Result<()> {
        match self.broken {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A connection is always being read from: this wakes those of watches and streams too.
        if let Some(revoked) = &mut self.revoked
            && revoked.as_mut().poll(context).is_ready()
        {
            (self.revoked, self.broken) = (None, true);
        }
        self.check()?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests;
