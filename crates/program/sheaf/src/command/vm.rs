//! `sheaf vm`: commands for machines, thin over the API.

mod console;
mod create;
mod forward;
mod list;
mod manifest;
mod migrate;
mod move_disk;
mod power;
mod terminal;
mod upload;
mod user_data;
mod why;

use anyhow::{Context as _, Result};

use super::link::ClusterClient;
use crate::cli::VmCommand;

pub(super) fn run(command: VmCommand) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let outcome = runtime.block_on(dispatch(command));
    // A read of standard input cannot be cancelled; it must not keep the process.
    runtime.shutdown_background();
    outcome
}

async fn dispatch(command: VmCommand) -> Result<()> {
    match command {
        VmCommand::List { place, all_namespaces } => {
            list::run(&ClusterClient::to(&place).await?, all_namespaces).await
        }
        VmCommand::Create(args) => create::run(&args).await,
        VmCommand::Start { machine, paused } => {
            power::run(&machine, power::Switch::Start { paused }).await
        }
        VmCommand::Stop { machine, force } => {
            power::run(&machine, power::Switch::Stop { force }).await
        }
        VmCommand::Restart { machine } => power::run(&machine, power::Switch::Restart).await,
        VmCommand::Pause { machine } => power::run(&machine, power::Switch::Pause).await,
        VmCommand::Unpause { machine } => power::run(&machine, power::Switch::Unpause).await,
        VmCommand::Migrate(args) => migrate::run(&args).await,
        VmCommand::MoveDisk(args) => move_disk::run(&args).await,
        VmCommand::Delete { machine } => power::delete(&machine).await,
        VmCommand::Console { machine } => console::run(&machine).await,
        VmCommand::Vnc { machine, listen, proxy_only } => {
            forward::vnc(&machine, listen, proxy_only).await
        }
        VmCommand::Ssh { machine, login, identity, command } => {
            forward::ssh(&machine, &login, identity.as_deref(), &command).await
        }
        VmCommand::PortForward { machine, port, listen } => {
            forward::port(&machine, port, listen).await
        }
        VmCommand::Logs { machine } => {
            let link = ClusterClient::to(&machine.place).await?;
            let text = link.text(&link.instance(&machine.name, "log")).await?;
            super::print(&text)
        }
        VmCommand::Why { machine, output } => why::run(&machine, output).await,
    }
}
