//! Flags for encryption at rest.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct EncryptionArgs {
    /// Encrypt secrets at rest, with a key that is generated at the first start; the default with
    /// the embedded store.
    ///
    /// Several servers on one etcd need the same key, so there it has to be asked for. Keep a copy
    /// of the key apart from backups: without it, secrets cannot be read.
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", conflicts_with = "encryption_provider_config"
    )]
    encrypt_secrets: Option<bool>,
    /// File with the keys; the default is encryption.keys in the data directory.
    #[arg(long, value_name = "FILE", conflicts_with = "encryption_provider_config")]
    pub(crate) encryption_key_file: Option<PathBuf>,
    /// EncryptionConfiguration (apiserver.config.k8s.io/v1) for encryption at rest.
    #[arg(long, value_name = "FILE")]
    pub(crate) encryption_provider_config: Option<PathBuf>,
}

/// Where objects are stored, as far as encryption depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EncryptedStore {
    Embedded,
    Etcd,
}

impl EncryptionArgs {
    /// Whether secrets are encrypted with a key of our own.
    pub(crate) fn encrypts_secrets(&self, store: EncryptedStore) -> bool {
        let default = store == EncryptedStore::Embedded;
        self.encryption_provider_config.is_none() && self.encrypt_secrets.unwrap_or(default)
    }
}
