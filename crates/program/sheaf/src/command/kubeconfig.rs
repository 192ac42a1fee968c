//! `sheaf kubeconfig`.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, bail};
use auth::kubeconfig::{Credential, kubeconfig};
use auth::pki::Pki;
use auth::pki::overview::record_issued;
use base::clock;

use super::server::vip;
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
    // People use the address that outlives this node.
    let vip = vip::read(&layout)?.zip(known.as_deref()).map(|(vip, url)| at(url, vip));
    let Some(server) = args.server.clone().or(vip).or(known) else {
        bail!("{} names no server; use --server", path.display());
    };
    // Only reads what is there: nothing is renewed behind a running server's back.
    let pki = Pki::load(&layout.pki(), clock::now()).context("cannot read the certificates")?;
    let text = match &args.user {
        None => {
            let (user, admin) = ("system:admin", pki.admin());
            kubeconfig(&server, &pki.ca_pem(), user, Credential::Certificate(&admin))
        }
        Some(user) => {
            let groups: Vec<&str> = args.group.iter().map(String::as_str).collect();
            let ttl = jiff::SignedDuration::from_hours(24 * i64::from(args.days));
            let identity = pki
                .issue_client(user, &groups, ttl, clock::now())
                .with_context(|| format!("cannot issue a certificate for {user}"))?;
            record_issued(&layout.pki(), &identity.cert_pem, clock::now())
                .context("cannot record the certificate")?;
            kubeconfig(&server, &pki.ca_pem(), user, Credential::Certificate(&identity))
        }
    };
    super::print(&text)
}

/// A URL with another address and the same port.
fn at(url: &str, address: Ipv4Addr) -> String {
    let port = url.parse::<http::Uri>().ok().and_then(|uri| uri.port_u16()).unwrap_or(443);
    format!("https://{address}:{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_virtual_address_has_the_port_of_the_server() {
        let address = Ipv4Addr::new(10, 0, 0, 10);
        assert_eq!(at("https://10.0.0.1:6443", address), "https://10.0.0.10:6443");
        assert_eq!(at("https://[fd00::1]:7443", address), "https://10.0.0.10:7443");
        assert_eq!(at("https://api.example", address), "https://10.0.0.10:443");
    }
}
