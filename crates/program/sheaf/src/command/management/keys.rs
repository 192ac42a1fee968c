//! The keys that management nodes share, on their way to a new one. Only a node whose Node has the
//! role of a management node gets them, and only the control plane gives that role.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use auth::pki::{EtcdFiles, read_shared, store_shared};
use base::clock;
use http::Request;
use kube::Client;
use serde::{Deserialize, Serialize};

use crate::cli::{ServerArgs, VipArg};
use crate::command::server::vip;
use crate::data_dir::Layout;

pub(in crate::command) const KEYS_PATH: &str = "/sheaf/v1/management-keys";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::command) struct ManagementKeys {
    /// Files of the directory `pki`, by name.
    files: BTreeMap<String, String>,
    /// The keys that secrets are encrypted with; empty if they are not.
    encryption_keys: String,
    /// A server with another range would give addresses out twice.
    service_range: String,
    /// The virtual address of the API, if there is one.
    #[serde(default)]
    vip: Option<Ipv4Addr>,
}

impl fmt::Debug for ManagementKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ManagementKeys").finish_non_exhaustive()
    }
}

impl ManagementKeys {
    /// Those of this server.
    pub(in crate::command) fn read(
        pki: &Path,
        encryption_keys: &Path,
        service_range: &str,
        vip: Option<Ipv4Addr>,
    ) -> Result<Self> {
        EtcdFiles::ensure_ca(pki, clock::now()).context("cannot set up the CA of etcd")?;
        let files = read_shared(pki).context("cannot read the keys of the cluster")?;
        let encryption_keys = match std::fs::read_to_string(encryption_keys) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.with_context(|| format!("cannot read {}", encryption_keys.display()))?,
        };
        Ok(Self { files, encryption_keys, service_range: service_range.to_owned(), vip })
    }

    /// Asks a server for them, as this node.
    pub(super) async fn fetch(client: &Client) -> Result<Self> {
        let request = Request::post(KEYS_PATH).body(Vec::new());
        let keys = client.request(request.context("cannot build a request")?).await;
        keys.context("the cluster does not hand its keys to this node")
    }

    /// Takes them over. Can be repeated.
    pub(super) fn store(&self, layout: &Layout, pin: &str, args: &ServerArgs) -> Result<()> {
        if self.service_range != args.service_cluster_ip_range {
            bail!(
                "the cluster has --service-cluster-ip-range {}: start this node with the same",
                self.service_range
            );
        }
        store_shared(&layout.pki(), pin, &self.files).context("cannot take the keys over")?;
        if let (Some(address), None) = (self.vip, args.vip) {
            vip::note(layout, VipArg::Address(address))?;
        }
        if self.encryption_keys.is_empty() {
            return Ok(());
        }
        let path = layout.encryption_keys();
        auth::kubeconfig::write_kubeconfig(&path, &self.encryption_keys)
            .with_context(|| format!("cannot write {}", path.display()))
    }
}
