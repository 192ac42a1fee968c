//! The member API of etcd.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etcd_client::{
    Certificate, Client, ConnectOptions, Identity, Member, MemberAddOptions, TlsOptions,
};

use crate::plan::{MemberInfo, MemberStatus};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Changes of the members wait for a majority.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(7);

/// Certificates between members and their clients, PEM files.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Why a request to the members failed.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    #[error("cannot read {}", path.display())]
    Tls { path: PathBuf, source: io::Error },
    #[error("etcd did not answer in time")]
    Timeout,
    #[error("a request to etcd failed")]
    Failed { source: etcd_client::Error },
}

/// A connection to some members.
pub struct Members {
    client: Client,
}

impl std::fmt::Debug for Members {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Members").finish_non_exhaustive()
    }
}

impl Members {
    /// A connection to the members at these client URLs.
    pub async fn connect(urls: &[String], tls: &TlsFiles) -> Result<Self, MemberError> {
        let identity = Identity::from_pem(pem(&tls.certificate)?, pem(&tls.key)?);
        let ca = Certificate::from_pem(pem(&tls.ca)?);
        let options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_tls(TlsOptions::new().ca_certificate(ca).identity(identity));
        let client = within(Client::connect(urls, Some(options))).await?;
        Ok(Self { client })
    }

    pub async fn list(&self) -> Result<Vec<MemberInfo>, MemberError> {
        let mut client = self.client.clone();
        let answer = within(client.member_list()).await?;
        Ok(answer.members().iter().map(info).collect())
    }

    pub async fn add_learner(&self, peer_url: &str) -> Result<(), MemberError> {
        let mut client = self.client.clone();
        let options = MemberAddOptions::new().with_is_learner();
        within(client.member_add([peer_url], Some(options))).await.map(drop)
    }

    pub async fn promote(&self, id: u64) -> Result<(), MemberError> {
        let mut client = self.client.clone();
        within(client.member_promote(id)).await.map(drop)
    }

    pub async fn remove(&self, id: u64) -> Result<(), MemberError> {
        let mut client = self.client.clone();
        within(client.member_remove(id)).await.map(drop)
    }

    /// The state of the member that answers: connect to one only.
    pub async fn status(&self) -> Result<MemberStatus, MemberError> {
        let mut client = self.client.clone();
        let answer = within(client.status()).await?;
        Ok(MemberStatus {
            id: answer.header().map_or(0, etcd_client::ResponseHeader::member_id),
            leader: answer.leader(),
            db_size: answer.db_size(),
            version: answer.version().to_owned(),
            revision: answer.header().map_or(0, etcd_client::ResponseHeader::revision),
            raft_index: answer.raft_index(),
        })
    }

    /// Whether a majority agrees: a read that every write before it is visible to.
    pub async fn has_quorum(&self) -> Result<(), MemberError> {
        let mut client = self.client.clone();
        within(client.get("quorum", None)).await.map(drop)
    }
}

/// Bounds a request. It gets a box of its own: the futures of etcd's client are large, and those of
/// all callers would grow with them.
fn within<T>(
    request: impl Future<Output = Result<T, etcd_client::Error>> + Send,
) -> impl Future<Output = Result<T, MemberError>> + Send {
    let request = Box::pin(request);
    async move {
        match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
            Ok(answer) => answer.map_err(|source| MemberError::Failed { source }),
            Err(_) => Err(MemberError::Timeout),
        }
    }
}

fn pem(path: &Path) -> Result<Vec<u8>, MemberError> {
    std::fs::read(path).map_err(|source| MemberError::Tls { path: path.to_owned(), source })
}

fn info(member: &Member) -> MemberInfo {
    MemberInfo {
        id: member.id(),
        name: member.name().to_owned(),
        peer_urls: member.peer_urls().to_vec(),
        client_urls: member.client_urls().to_vec(),
        is_learner: member.is_learner(),
    }
}
