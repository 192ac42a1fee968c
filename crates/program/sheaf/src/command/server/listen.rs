//! The sockets of the server, which are open before there is anything to answer with.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use apiserver::Cidr;
use auth::pki::ServingNames;
use tokio::net::TcpListener;
use tracing::info;

use super::vip::ClusterVip;
use super::{dashboard, names};
use crate::cli::ServerArgs;
use crate::data_dir::Layout;

/// How long to wait for a port that another process has: a server that was killed keeps it
/// until the kernel has torn the process down.
const PORT_TIMEOUT: Duration = Duration::from_secs(5);
const PORT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The listeners of the server, and the address that others use.
pub(super) struct Sockets {
    pub(super) api: TcpListener,
    pub(super) browsers: Option<TcpListener>,
    pub(super) vip: Option<ClusterVip>,
    pub(super) listening: SocketAddr,
    pub(super) advertise: SocketAddr,
}

impl Sockets {
    /// Opens the sockets, and returns the names that a certificate for them needs.
    pub(super) async fn open(
        args: &ServerArgs,
        layout: &Layout,
        service_range: Cidr,
    ) -> Result<(Self, ServingNames)> {
        let api = listen(args.listen).await?;
        let browsers = dashboard::open(args).await?;
        let listening = api.local_addr().context("cannot read the address of the listener")?;
        let advertise = names::advertised(listening, args.advertise_address);
        let vip = ClusterVip::open(args, layout, &api, browsers.as_ref())?;
        let mut names = names::serving(args, advertise, service_range.first());
        names.addresses.extend(vip.as_ref().map(|vip| IpAddr::V4(vip.address)));
        Ok((Self { api, browsers, vip, listening, advertise }, names))
    }
}

/// Listens on an address; waits a few seconds for one that is in use.
pub(in crate::command) async fn listen(address: SocketAddr) -> Result<TcpListener> {
    listen_within(address, PORT_TIMEOUT).await
}

pub(super) async fn listen_within(address: SocketAddr, timeout: Duration) -> Result<TcpListener> {
    let deadline = tokio::time::Instant::now() + timeout;
    let mut logged = false;
    loop {
        match TcpListener::bind(address).await {
            Err(failure)
                if failure.kind() == std::io::ErrorKind::AddrInUse
                    && tokio::time::Instant::now() < deadline =>
            {
                if !logged {
                    logged = true;
                    info!(%address, "waiting for another process to release the port");
                }
                // The kernel sends no event when a port becomes free.
                tokio::time::sleep(PORT_RETRY_DELAY).await;
            }
            Err(failure) if failure.kind() == std::io::ErrorKind::AddrInUse => {
                return Err(failure).with_context(|| {
                    format!(
                        "cannot listen on {address}: another process has this port; stop it, or \
                         choose another port"
                    )
                });
            }
            outcome => return outcome.with_context(|| format!("cannot listen on {address}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_waited_for() {
        let old = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = old.local_addr().unwrap();
        let refused = listen_within(address, Duration::ZERO).await.unwrap_err();
        assert!(format!("{refused:#}").contains("another process has this port"), "{refused:#}");
        let waiting = tokio::spawn(listen_within(address, Duration::from_secs(60)));
        tokio::task::yield_now().await;
        drop(old);
        assert_eq!(waiting.await.unwrap().unwrap().local_addr().unwrap(), address);
    }
}
