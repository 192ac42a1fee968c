//! The checks of a new program during an upgrade: `sheaf preflight` and its trial as a server.

use std::ffi::OsString;

use clap::Args;

use super::DataDir;

#[derive(Debug, Args)]
pub(crate) struct TrialArgs {
    #[command(flatten)]
    pub(crate) data: DataDir,
    /// Arguments of the server.
    #[arg(last = true)]
    pub(crate) words: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct PreflightArgs {
    #[command(flatten)]
    pub(crate) data: DataDir,
    /// Level of the cluster's data, which the program must be able to read.
    #[arg(long, value_name = "LEVEL", default_value_t = hci::upgrade::LEVEL)]
    pub(crate) cluster_level: u32,
}
