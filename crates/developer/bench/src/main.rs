//! `make bench`: the cost of Sheaf's API server, its machines and its volumes, measured on a
//! release build.
//!
//! Everything is on as in production: TLS, RBAC, fsync. Each figure is printed with the
//! limit it is held to; on a shared machine the absolute times wobble, so the CPU time per
//! request and the ratio to a bare etcd measured in the same run say more.

mod client;
mod cluster;
mod figures;
mod machine;
mod peer;
mod process;
mod qmp;
mod scenario;
mod session;
mod storage;
mod survive;
mod volume;
mod watch;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Parser;

use crate::figures::Figures;

/// Measure a release build of Sheaf: its API server, its machines and its volumes.
#[derive(Debug, Parser)]
struct Args {
    /// The binary to measure; by default the one beside this program.
    #[arg(long, value_name = "FILE")]
    sheaf: Option<PathBuf>,
    /// Objects for the large scenarios.
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// Objects for the restart.
    #[arg(long, default_value_t = 50_000)]
    restart_objects: usize,
    /// Watchers that follow one collection.
    #[arg(long, default_value_t = 1_000)]
    watchers: usize,
    /// Leave out the peer (a bare etcd).
    #[arg(long)]
    no_peer: bool,
    /// Measure on etcd instead of the embedded store.
    #[arg(long)]
    etcd: bool,
    /// Measure this only.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Machines that run at once.
    #[arg(long, default_value_t = 50)]
    machines: usize,
    /// How long each load on a volume runs.
    #[arg(long, default_value_t = 2)]
    seconds: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The API server.
    Api,
    /// Replicated volumes.
    Volumes,
    /// Virtual machines.
    Machines,
    /// Volumes and images as people use them.
    Storage,
    /// The effect of one user's flood on another user.
    Fairness,
    /// Harvester's REST API beside the Kubernetes API.
    Rest,
    /// Several nodes: joining, replicas over TLS, three voters, many nodes. Only when asked for.
    Cluster,
    /// Live migration beside bare QEMU, and failover of killed nodes. Only when asked for.
    Survive,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let sheaf = match &args.sheaf {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("sheaf"),
    };
    anyhow::ensure!(
        sheaf.exists(),
        "{} is missing: cargo build --release -p sheaf",
        sheaf.display()
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut figures = Figures::default();
    let measured = |part| args.only.is_none_or(|only| only == part);
    if measured(Part::Volumes) {
        volume::run(&sheaf, args.seconds, &mut figures)?;
    }
    if measured(Part::Machines) {
        runtime
            .block_on(machine::run(&sheaf, args.machines, &mut figures))
            .context("cannot measure machines")?;
    }
    if measured(Part::Storage) {
        let storage = storage::run(&sheaf, &mut figures);
        runtime.block_on(storage).context("cannot measure volumes and images")?;
    }
    if measured(Part::Api) || measured(Part::Fairness) || measured(Part::Rest) {
        runtime.block_on(async {
            if !args.no_peer && measured(Part::Api) {
                Box::pin(peer::measure(&mut figures)).await.context("cannot measure etcd")?;
            }
            scenario::run(&args, &sheaf, &mut figures).await
        })?;
    }
    // Needs root for its network namespaces, and minutes.
    if args.only == Some(Part::Cluster) {
        let cluster = cluster::run(&sheaf, args.seconds, &mut figures);
        runtime.block_on(cluster).context("cannot measure a cluster")?;
    }
    if args.only == Some(Part::Survive) {
        let survive = survive::run(&sheaf, &mut figures);
        runtime.block_on(survive).context("cannot measure migration and failover")?;
    }
    figures.print();
    Ok(())
}
