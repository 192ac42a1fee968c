//! A second address of the node endpoint: that of this node on the network for migrations. It comes
//! and goes while the endpoint serves.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base::Chain;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::own_addresses::OwnAddresses;

/// Between two attempts to listen on an address, which an interface may get a moment later.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Listens wherever this node is to be reached for migrations.
#[derive(Debug)]
pub(crate) struct FurtherListener {
    addresses: watch::Receiver<OwnAddresses>,
    port: u16,
    bound: Option<(IpAddr, TcpListener)>,
    /// The address about which a failure was logged.
    failed: Option<IpAddr>,
}

impl FurtherListener {
    pub(crate) fn new(addresses: watch::Receiver<OwnAddresses>, port: u16) -> Self {
        Self { addresses, port, bound: None, failed: None }
    }

    /// The next connection. Nothing is lost when the future is dropped before it is ready.
    pub(super) async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let wanted = self.addresses.borrow_and_update().migration;
            if self.bound.as_ref().map(|(address, _)| *address) != wanted {
                self.bound = None;
            }
            if let (Some(address), None) = (wanted, &self.bound) {
                self.bind(address).await;
            }
            let next = async {
                match (&self.bound, wanted) {
                    (Some((_, listener)), _) => Some(listener.accept().await),
                    (None, Some(_)) => {
                        tokio::time::sleep(RETRY_DELAY).await;
                        None
                    }
                    (None, None) => std::future::pending().await,
                }
            };
            // Without a sender the address stays what it is.
            let changed = async {
                if self.addresses.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                accepted = next => {
                    if let Some(accepted) = accepted {
                        return accepted;
                    }
                }
                () = changed => {}
            }
        }
    }

    async fn bind(&mut self, address: IpAddr) {
        match TcpListener::bind((address, self.port)).await {
            Ok(listener) => {
                info!(%address, "node endpoint serves migrations");
                self.failed = None;
                self.bound = Some((address, listener));
            }
            Err(failure) if self.failed != Some(address) => {
                warn!(%address, error = %Chain(&failure), "node endpoint cannot listen yet");
                self.failed = Some(address);
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_come_in_at_the_address_of_the_moment() {
        let port = std::net::TcpListener::bind("127.0.0.3:0").unwrap().local_addr().unwrap().port();
        let (sender, addresses) = watch::channel(OwnAddresses::default());
        let mut listener = FurtherListener::new(addresses, port);
        for octet in [3, 4] {
            let address = IpAddr::from([127, 0, 0, octet]);
            sender.send_replace(OwnAddresses { storage: None, migration: Some(address) });
            let connect = async {
                loop {
                    if let Ok(stream) = TcpStream::connect((address, port)).await {
                        return stream;
                    }
                    tokio::task::yield_now().await;
                }
            };
            let (accepted, connected) = tokio::join!(listener.accept(), connect);
            let (_, from) = accepted.unwrap();
            assert_eq!(connected.local_addr().unwrap(), from);
        }
        let closed = TcpStream::connect(("127.0.0.3", port)).await;
        assert!(closed.is_err(), "the first address is given up");
    }
}
