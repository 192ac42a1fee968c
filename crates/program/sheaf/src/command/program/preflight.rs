//! `sheaf preflight`: a program that is to take over a node reads what the one before has
//! written, and changes nothing but a backup of the store that it makes.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use auth::pki::{NodeCertificate, NodeFiles};
use block::store::files::Directory;
use hci::upgrade::{LEVEL, OLDEST_LEVEL};

use super::super::join::Membership;
use super::super::{management, print, version};
use crate::cli::PreflightArgs;
use crate::data_dir::Layout;

pub(in crate::command) fn run(args: &PreflightArgs) -> Result<()> {
    let layout = Layout::new(args.data.data_dir.as_deref())?;
    layout.require()?;
    check_level(args.cluster_level)?;
    Membership::load(&layout)?;
    management::record(&layout)?;
    let files = NodeFiles::open(&layout.pki()).context("cannot open the key of this node")?;
    files.identity(NodeCertificate::Client).context("cannot read the certificate of this node")?;
    if layout.database().exists() {
        copy_store(&layout)?;
    }
    let replicas = replicas(&layout.storage());
    for dir in &replicas {
        block::store::read_super(&mut Directory::read_only(dir))
            .with_context(|| format!("cannot read the replica {}", dir.display()))?;
    }
    print(&format!(
        "sheaf {} can take over {}: {} replicas, cluster level {}\n",
        version::VERSION.sheaf,
        layout.root.display(),
        replicas.len(),
        args.cluster_level
    ))
}

fn check_level(cluster: u32) -> Result<()> {
    if !(OLDEST_LEVEL..=LEVEL).contains(&cluster) {
        bail!(
            "the data of this cluster has level {cluster}, and this program reads levels \
             {OLDEST_LEVEL} to {LEVEL}: use a {} program",
            if cluster > LEVEL { "newer" } else { "less new" }
        );
    }
    Ok(())
}

/// Reads all of the store, and leaves a copy to go back to.
fn copy_store(layout: &Layout) -> Result<()> {
    let dir = layout.store_backups();
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let copy = dir.join("before-upgrade.db");
    if copy.exists() {
        std::fs::remove_file(&copy)
            .with_context(|| format!("cannot replace {}", copy.display()))?;
    }
    store::backup(&layout.database(), &copy).context("cannot read the store")
}

/// Directories of replicas on the disks below the storage directory.
fn replicas(root: &Path) -> Vec<PathBuf> {
    let below = |dir: PathBuf| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir())
    };
    let disks = below(root.to_owned()).map(|dir| dir.join("replicas"));
    disks.flat_map(below).filter(|dir| dir.join("super").exists()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_reads_the_levels_that_it_knows() {
        assert!(check_level(LEVEL).is_ok());
        let refused = check_level(LEVEL + 1).unwrap_err().to_string();
        assert!(refused.contains("use a newer program"), "{refused}");
    }

    #[test]
    fn replicas_of_all_disks_are_found() {
        let root = tempfile::tempdir().unwrap();
        for dir in ["disk/replicas/a", "disk/replicas/other", "ssd/replicas/b", "pki"] {
            std::fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        for dir in ["disk/replicas/a", "ssd/replicas/b"] {
            std::fs::write(root.path().join(dir).join("super"), "").unwrap();
        }
        assert_eq!(replicas(root.path()).len(), 2);
    }
}
