//! The listener for browsers.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use apiserver::Api;
use auth::pki::tls::Tls;
use base::Tasks;
use tokio::net::TcpListener;
use tracing::warn;

use super::listen::{listen, listen_within};
use super::names;
use crate::cli::{DashboardListen, ServerArgs, default_dashboard_address};

/// How long to wait for a default port.
const UNCHOSEN_PORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Opens the port, if there is to be one. A default port may be taken by another process:
/// the rest of the server does without.
pub(super) async fn open(args: &ServerArgs) -> Result<Option<TcpListener>> {
    match args.dashboard_listen {
        Some(DashboardListen::Off) => Ok(None),
        Some(DashboardListen::Address(address)) => {
            let opened = listen(address).await;
            opened.map(Some).context("the dashboard cannot be served (--dashboard-listen)")
        }
        None => {
            let address = default_dashboard_address(args.listen);
            let opened = listen_within(address, UNCHOSEN_PORT_TIMEOUT).await;
            if let Err(error) = &opened {
                warn!(%address, error = format!("{error:#}"), "dashboard not served");
            }
            Ok(opened.ok())
        }
    }
}

/// Serves browsers, and returns the URL to show to their users.
pub(super) fn serve(
    listener: TcpListener,
    args: &ServerArgs,
    api: Api,
    tls: Tls,
    tasks: &Tasks,
) -> Result<String> {
    let listening: SocketAddr =
        listener.local_addr().context("cannot read the port of the dashboard")?;
    let url = names::url(names::advertised(listening, args.advertise_address));
    let serving = apiserver::serve_browsers(api, listener, tls, tasks.clone(), ui::ROOT);
    tasks.spawn("dashboard", serving);
    Ok(url)
}
