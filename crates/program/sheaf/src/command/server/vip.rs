//! The virtual address of the API: where it is noted, the listeners on it, and the task that has it
//! while this node holds its lease (`agent::ClusterAddress`).
//!
//! `vip` in the data directory has the address, so that management nodes that join later have it
//! without a flag, and commands on this machine know it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use agent::ClusterAddress;
use anyhow::{Context as _, Result};
use apiserver::Api;
use auth::pki::tls::Tls;
use base::Tasks;
use tokio::net::{TcpListener, TcpSocket};
use tracing::info;

use super::identities;
use crate::cli::{ServerArgs, VipArg};
use crate::data_dir::Layout;
use crate::in_process;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// The address and what listens there, before it is on any interface.
pub(super) struct ClusterVip {
    pub(super) address: Ipv4Addr,
    api: Option<TcpListener>,
    browsers: Option<TcpListener>,
}

impl ClusterVip {
    /// Nothing if the cluster has no such address.
    pub(super) fn open(
        args: &ServerArgs,
        layout: &Layout,
        api: &TcpListener,
        browsers: Option<&TcpListener>,
    ) -> Result<Option<Self>> {
        if let Some(given) = args.vip {
            note(layout, given)?;
        }
        let Some(address) = read(layout)? else { return Ok(None) };
        let beside = |listener: Option<&TcpListener>| match listener.map(TcpListener::local_addr) {
            None => Ok(None),
            Some(own) => beside(address, own.context("cannot read the address of the listener")?),
        };
        Ok(Some(Self { address, api: beside(Some(api))?, browsers: beside(browsers)? }))
    }

    /// Serves at the address, and competes for its lease. `node` is the name of this node.
    pub(super) fn start(self, node: String, api: &Api, tls: &Tls, tasks: &Tasks) {
        let Self { address, api: listener, browsers } = self;
        if let Some(listener) = listener {
            let serving = apiserver::serve(api.clone(), listener, tls.clone(), tasks.clone());
            tasks.spawn("server at the virtual address", serving);
        }
        if let Some(listener) = browsers {
            let (api, tls) = (api.clone(), tls.clone());
            let serving = apiserver::serve_browsers(api, listener, tls, tasks.clone(), ui::ROOT);
            tasks.spawn("dashboard at the virtual address", serving);
        }
        info!(%address, "running for the virtual address of the cluster");
        let client = in_process::client(api.clone(), identities::controllers());
        let wanted = ClusterAddress { address, node };
        tasks.spawn("virtual address", wanted.run(client, tasks.clone()));
    }
}

/// A listener at the address beside one at `own`; none if that receives the connections anyway.
fn beside(address: Ipv4Addr, own: SocketAddr) -> Result<Option<TcpListener>> {
    if own.ip().is_unspecified() || own.ip() == IpAddr::V4(address) {
        return Ok(None);
    }
    let at = SocketAddr::new(address.into(), own.port());
    let open = || -> std::io::Result<TcpListener> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        // The address comes and goes.
        rustix::net::sockopt::set_ip_freebind(&socket, true)?;
        socket.bind(at)?;
        socket.listen(BACKLOG)
    };
    open().map(Some).with_context(|| format!("cannot listen on {at} (--vip)"))
}

/// The virtual address of the cluster that this data directory belongs to.
pub(in crate::command) fn read(layout: &Layout) -> Result<Option<Ipv4Addr>> {
    let path = layout.vip();
    match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        text => {
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            let address = text.trim().parse();
            address.map(Some).with_context(|| format!("{} has no IPv4 address", path.display()))
        }
    }
}

/// Notes the address for this and later starts, or that there is none.
pub(in crate::command) fn note(layout: &Layout, given: VipArg) -> Result<()> {
    let path = layout.vip();
    let outcome = match given {
        VipArg::Address(address) => std::fs::write(&path, format!("{address}\n")),
        VipArg::Off => match std::fs::remove_file(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        },
    };
    outcome.with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_noted_and_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(Some(dir.path())).unwrap();
        assert_eq!(read(&layout).unwrap(), None);
        let address = Ipv4Addr::new(10, 0, 0, 10);
        note(&layout, VipArg::Address(address)).unwrap();
        assert_eq!(read(&layout).unwrap(), Some(address));
        for _ in 0..2 {
            note(&layout, VipArg::Off).unwrap();
            assert_eq!(read(&layout).unwrap(), None);
        }
        std::fs::write(layout.vip(), "here").unwrap();
        assert!(read(&layout).is_err());
    }

    #[tokio::test]
    async fn a_listener_waits_for_an_address_that_is_not_here_yet() {
        let address = Ipv4Addr::new(192, 0, 2, 77);
        let own: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let open = beside(address, own).unwrap().unwrap();
        assert_eq!(open.local_addr().unwrap().ip(), IpAddr::V4(address));
        for own in ["0.0.0.0:6443", "192.0.2.77:6443", "[::]:6443"] {
            assert!(beside(address, own.parse().unwrap()).unwrap().is_none(), "{own}");
        }
    }
}
