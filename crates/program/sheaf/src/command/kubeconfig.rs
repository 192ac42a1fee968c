//! `sheaf kubeconfig`.

use anyhow::{Context as _, Result, bail};
use auth::kubeconfig::{Credential, kubeconfig};
use auth::pki::Pki;
use base::clock;

use crate::cli::KubeconfigArgs;
use crate::data_dir::Layout;

pub(super) fn run(args: &KubeconfigArgs) -> Result<()> {
    let layout = Layout::new(args.data.data_dir.as_deref())?;
    layout.require()?;
    let path = layout.admin_kubeconfig();
    if args.path {
        return super::print(&format!("{}\n", path.display()));
    }
    let admin = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let known = admin
        .lines()
        .find_map(|line| line.trim().strip_prefix("server: "))
        .map(|url| url.trim_matches('"').to_owned());
    let Some(server) = args.server.clone().or(known) else {
        bail!("{} names no server; use --server", path.display());
    };
    // Only reads what is there: nothing is renewed behind a running server's back.
    let pki = Pki::load(&layout.pki(), clock::now()).context("cannot read the certificates")?;
    let text = match &args.user {
        None => kubeconfig(
            &server,
            &pki.ca_pem(),
            "system:admin",
            Credential::Certificate(&pki.admin()),
        ),
        Some(user) => {
            let groups: Vec<&str> = args.group.iter().map(String::as_str).collect();
            let ttl = jiff::SignedDuration::from_hours(24 * i64::from(args.days));
            let identity = pki
                .issue_client(user, &groups, ttl, clock::now())
                .with_context(|| format!("cannot issue a certificate for {user}"))?;
            kubeconfig(&server, &pki.ca_pem(), user, Credential::Certificate(&identity))
        }
    };
    super::print(&text)
}
