//! The servers for names that are not ours: those in the host's `resolv.conf`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// glibc's own limit is three; more would only make failures slower.
const MOST: usize = 3;

/// Where questions are passed on to.
#[derive(Debug)]
pub enum Upstreams {
    Fixed(Vec<SocketAddr>),
    /// A file that is read again when it has changed, because DHCP on the host rewrites it.
    File(ResolvConf),
}

/// Why the list of servers cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
}

/// A `resolv.conf` and what it said when it was last read.
#[derive(Debug)]
pub struct ResolvConf {
    path: PathBuf,
    read: Mutex<(Option<SystemTime>, Vec<SocketAddr>)>,
}

impl Upstreams {
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::File(ResolvConf { path: path.into(), read: Mutex::default() })
    }

    /// The servers to ask, in order. Those at `ours` are left out, since they would ask us.
    pub(crate) fn servers(&self, ours: IpAddr) -> Result<Vec<SocketAddr>, UpstreamError> {
        let mut servers = match self {
            Self::Fixed(servers) => servers.clone(),
            Self::File(file) => file.servers()?,
        };
        servers.retain(|server| server.ip() != ours);
        Ok(servers)
    }
}

impl ResolvConf {
    fn servers(&self) -> Result<Vec<SocketAddr>, UpstreamError> {
        let failed = |source| UpstreamError::Read { path: self.path.clone(), source };
        let changed = modified(&self.path).map_err(failed)?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.0 != Some(changed) {
            let text = std::fs::read_to_string(&self.path).map_err(failed)?;
            *read = (Some(changed), parse(&text));
        }
        Ok(read.1.clone())
    }
}

fn modified(path: &Path) -> io::Result<SystemTime> {
    std::fs::metadata(path)?.modified()
}

fn parse(text: &str) -> Vec<SocketAddr> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next())?
    });
    let addresses = servers.filter_map(|server| {
        // A link-local address needs its interface.
        let Some((address, scope)) = server.split_once('%') else {
            return Some(SocketAddr::new(server.parse().ok()?, 53));
        };
        let index = scope.parse().ok().or_else(|| interface_index(scope))?;
        Some(std::net::SocketAddrV6::new(address.parse().ok()?, 53, 0, index).into())
    });
    addresses.take(MOST).collect()
}

fn interface_index(name: &str) -> Option<u32> {
    let socket =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None);
    rustix::net::netdevice::name_to_index(socket.ok()?, name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_found_among_the_rest() {
        let text = "# nameserver 9.9.9.9\nsearch a.example\n nameserver  10.0.0.53 \n\
                    nameserver fe80::1%7\nnameserver nonsense\nnameserver\noptions ndots:5\n\
                    nameserver 2001:db8::53\nnameserver 10.0.0.54\n";
        let found: Vec<_> = parse(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.53:53", "[fe80::1%7]:53", "[2001:db8::53]:53"]);
    }

    #[test]
    fn we_do_not_ask_ourselves() {
        let ours: IpAddr = [10, 52, 0, 1].into();
        let other = SocketAddr::from(([10, 0, 0, 53], 53));
        let all = Upstreams::Fixed(vec![SocketAddr::new(ours, 53), other]);
        assert_eq!(all.servers(ours).unwrap(), [other]);
    }
}
