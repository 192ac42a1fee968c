//! The log: lines on standard error, for people or for machines.

use anyhow::{Context as _, Result};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::cli::LogFormat;

pub(crate) fn start(format: LogFormat, level: &str) -> Result<()> {
    let filter = EnvFilter::try_new(level)
        .with_context(|| format!("--log-level {level:?} is not a level or a list of them"))?;
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Json => lines.json().flatten_event(true).init(),
        LogFormat::Text => {
            let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
            lines.with_ansi(colours).with_target(false).init();
        }
    }
    Ok(())
}
