//! Putting the agent's parts together.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use base::Tasks;
use kube::Client;
use tokio::sync::watch;

use crate::config::Config;
use crate::node::{self, Virtualization};

/// Why the agent cannot work at all. What merely keeps guests from running is no such reason:
/// the Node says it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot make the directory {}", path.display())]
    Directory { path: PathBuf, source: io::Error },
}

/// Starts the agent's tasks; they end with `tasks`.
pub fn start(client: Client, config: Config, tasks: &Tasks) -> Result<(), StartError> {
    let dir = config.machines_dir();
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(&dir)
        .map_err(|source| StartError::Directory { path: dir, source })?;
    let (_found, virtualization) = watch::channel(Virtualization::Unknown);
    let node = node::run(client, config, virtualization, tasks.stop_signal());
    tasks.spawn("node", node);
    Ok(())
}
