//! `sheaf`: hyper-converged infrastructure in one binary.
//!
//! This crate reads arguments, files and the environment, wires the others together and
//! handles signals. It decides nothing about objects.

mod cli;
#[allow(clippy::too_many_lines, reason = "TODO(#14): split the functions that are too long")]
mod command;
mod data_dir;
mod in_process;
mod logging;
mod memory;
mod private;
mod text_file;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let words = match cli::config_file::extend(cli::words(std::env::args_os())) {
        Ok(words) => words,
        Err(error) => {
            eprintln!("sheaf: {:#}", anyhow::Error::from(error));
            return ExitCode::from(2);
        }
    };
    let cli = cli::Cli::parse_from(words);
    private::set_umask(&cli.command);
    match command::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line, the whole chain: `cannot start: address 1.2.3.4:6443 is in use`.
            eprintln!("sheaf: {error:#}");
            command::exit_code(&error)
        }
    }
}
