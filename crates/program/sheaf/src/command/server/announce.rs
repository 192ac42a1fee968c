//! The first user, and what a person needs to know when the server runs.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tracing::info;

use crate::cli::ServerArgs;
use crate::data_dir::Layout;

/// Creates the user `admin` at the first start. The password is returned, and written to a file
/// that only the owner of the data directory reads.
pub(super) async fn first_login(
    args: &ServerArgs,
    layout: &Layout,
    client: kube::Client,
) -> Result<Option<String>> {
    let users = steve::Users::new(client);
    let made = users.bootstrap(args.admin_password.as_deref()).await;
    let made = made.context("cannot create the user admin")?;
    if let Some(password) = &made {
        let path = layout.admin_password();
        auth::kubeconfig::write_kubeconfig(&path, &format!("{password}\n"))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(made)
}

/// Prints the information that a person needs now, to standard output.
pub(super) fn announce(
    layout: &Layout,
    url: &str,
    dashboard: Option<&str>,
    advertise: SocketAddr,
    password: Option<&str>,
) -> Result<()> {
    info!(%advertise, dashboard, "serving");
    let kubeconfig = layout.admin_kubeconfig();
    let kubeconfig = kubeconfig.display();
    let dashboard = dashboard.map_or_else(String::new, |url| format!("  dashboard   {url}\n"));
    let login = password.map_or_else(String::new, |password| {
        format!(
            "  login       admin, password {password} (must be changed: sheaf user passwd admin)\n"
        )
    });
    crate::command::print(&format!(
        "\nSheaf is running.\n\n{dashboard}  URL         {url}\n  kubeconfig  {kubeconfig}\n{login}\n\
         Try next, in another terminal:\n  \
         export KUBECONFIG={kubeconfig}\n  \
         kubectl get nodes,storageclasses\n  \
         sheaf vm create web --image FILE|URL --ssh-key ~/.ssh/id_ed25519.pub\n  \
         sheaf vm console web\n\n\
         Stop with Ctrl-C.\n\n"
    ))
}
