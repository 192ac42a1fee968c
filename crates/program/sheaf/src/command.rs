//! The commands, one file each.

mod alarm;
mod alarm_receiver;
mod alarm_webhook;
mod audit;
mod certificate;
mod controllers;
mod dev;
mod disk_file;
mod encryption;
mod host;
mod image;
mod image_address;
mod interrupt;
mod join;
mod kube_apiserver;
mod kubeconfig;
mod link;
mod management;
mod manifests;
mod network;
mod node;
mod node_tls;
mod oidc;
mod operate;
mod partial_file;
mod program;
mod replica;
mod send;
mod server;
mod storage;
mod store;
mod table;
mod token;
mod upgrade;
mod user;
mod user_token;
mod version;
mod vm;
mod volume;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;

use crate::cli::{Cli, Command};

/// The exit code of a process that failed with this error.
pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
    if let Some(interrupted) = error.downcast_ref::<interrupt::Interrupted>() {
        return interrupted.exit_code().into();
    }
    match error.downcast_ref::<replica::NotReplica>() {
        Some(_) => replica::NotReplica::EXIT_CODE.into(),
        None => ExitCode::FAILURE,
    }
}

pub(crate) fn run(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Server(args) => server::run(&args),
        Command::Witness(args) => join::witness::run(&args),
        Command::KubeApiserver { flags } => kube_apiserver::run(flags),
        Command::Controllers(args) => controllers::run(&args),
        Command::Manifests(args) => manifests::run(&args),
        Command::Kubeconfig(args) => kubeconfig::run(&args),
        Command::Certificate(command) => certificate::run(command),
        Command::Vm(command) => vm::run(command),
        Command::Image(command) => image::run(&command),
        Command::Volume(command) => volume::run(&command),
        Command::Network(command) => network::run(&command),
        Command::Node(command) => node::run(&command),
        Command::Host(command) => host::run(&command),
        Command::NetworkWatchdog(args) => host::watchdog(&args),
        Command::Cluster(command) => node::run_cluster(&command),
        Command::Alarm(command) => alarm::run(&command),
        Command::Token(command) => token::run(command),
        Command::User(command) => user::run(command),
        Command::Operate(command) => operate::run(&command),
        Command::Upgrade(args) => upgrade::run(&args),
        Command::Store(command) => store::run(command),
        Command::Replica(command) => replica::run(command),
        Command::Storage(args) => storage::run(args),
        Command::Dev(command) => dev::run(command),
        Command::UpgradeTrial(args) => program::trial(&args),
        Command::Preflight(args) => program::preflight(&args),
        Command::Version(args) => version::run(&args),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "sheaf", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
        Command::Man { dir } => {
            std::fs::create_dir_all(&dir)
                .with_context(|| format!("cannot create {}", dir.display()))?;
            clap_mangen::generate_to(Cli::command(), &dir)
                .with_context(|| format!("cannot write man pages into {}", dir.display()))
        }
    }
}

/// Writes to standard output. A reader that has gone away (`| head`) is no error.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}
