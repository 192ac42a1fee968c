//! The log: lines on standard error, for people or for machines.

use std::sync::{Arc, LazyLock};

use anyhow::{Context as _, Result, bail};
use base::RecentLog;
use tracing::level_filters::LevelFilter;
use tracing::warn;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::MakeWriterExt as _;

use crate::cli::LogFormat;

/// Libraries that log what they return as an error; the caller logs or reports the failure that counts.
const REPEATING: [&str; 2] =
    ["kube_client::client::builder", "rustls_platform_verifier::verification"];

/// Recent log lines of this process.
static RECENT: LazyLock<RecentLog> = LazyLock::new(RecentLog::default);

/// The last lines of the log of this process.
pub(crate) fn recent() -> RecentLog {
    RECENT.clone()
}

/// Writes lines to the recent ones.
struct RecentLogWriter;

impl<'a> MakeWriter<'a> for RecentLogWriter {
    type Writer = RecentLog;

    fn make_writer(&'a self) -> RecentLog {
        recent()
    }
}

/// Changes what is logged while the process runs; clones are the same.
#[derive(Clone)]
pub(crate) struct LogLevel {
    /// The level of the command line.
    given: String,
    reload: Arc<dyn Fn(EnvFilter) + Send + Sync>,
}

impl LogLevel {
    /// Logs at this level, or at that of the command line.
    pub(crate) fn set(&self, level: Option<&str>) {
        let level = level.map_or_else(|| self.given.clone(), filter_of);
        match EnvFilter::try_new(with_defaults(&level)) {
            Ok(filter) => (self.reload)(filter),
            Err(_) => warn!(level, "unknown log level"),
        }
    }
}

/// A level of Harvester as a filter of ours.
fn filter_of(level: &str) -> String {
    match level.to_lowercase().as_str() {
        "panic" | "fatal" | "error" => "error",
        "warning" | "warn" => "warn",
        "debug" => "debug",
        "trace" => "trace",
        _ => "info",
    }
    .to_owned()
}

/// The level without the errors that libraries repeat, unless it asks for them.
fn with_defaults(level: &str) -> String {
    let quiet = REPEATING.iter().filter(|target| !level.contains(**target));
    quiet.fold(level.to_owned(), |level, target| format!("{level},{target}=off"))
}

/// A word that is no level. A filter would take it for the name of a module, and log nothing else.
fn unknown_level(level: &str) -> Option<&str> {
    let mut words = level.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.find(|word| !word.contains(['=', '[']) && word.parse::<LevelFilter>().is_err())
}

pub(crate) fn start(format: LogFormat, level: &str) -> Result<LogLevel> {
    if level.trim().is_empty() {
        bail!("--log-level is empty; expected error, warn, info, debug or trace, or off");
    }
    if let Some(word) = unknown_level(level) {
        bail!(
            "--log-level {level:?}: {word} is not a level; expected error, warn, info, debug or \
             trace, or per module as in info,store=debug"
        );
    }
    let filter = EnvFilter::try_new(with_defaults(level))
        .with_context(|| format!("--log-level {level:?} is not a level or a list of them"))?;
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr.and(RecentLogWriter));
    let given = level.to_owned();
    // Replacing a filter fails only when the log has ended.
    Ok(match format {
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_filter_reloading();
            let handle = lines.reload_handle();
            lines.init();
            LogLevel { given, reload: Arc::new(move |filter| drop(handle.reload(filter))) }
        }
        LogFormat::Text => {
            let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
            let lines = lines.with_ansi(colours).with_target(false).with_filter_reloading();
            let handle = lines.reload_handle();
            lines.init();
            LogLevel { given, reload: Arc::new(move |filter| drop(handle.reload(filter))) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_harvester_are_understood_in_any_case() {
        for (level, filter) in [
            ("Debug", "debug"),
            ("WARNING", "warn"),
            ("fatal", "error"),
            ("info", "info"),
            ("x", "info"),
        ] {
            assert_eq!(filter_of(level), filter, "{level}");
        }
    }

    #[test]
    fn a_word_that_is_no_level_is_found() {
        for level in ["info", "WARN", "off", "info,store=debug", "store=trace", "warn,[span]=info"]
        {
            assert_eq!(unknown_level(level), None, "{level}");
        }
        for (level, word) in [("banana", "banana"), ("info,store", "store"), ("warning", "warning")]
        {
            assert_eq!(unknown_level(level), Some(word));
        }
    }

    #[test]
    fn errors_that_libraries_repeat_are_logged_only_on_request() {
        let verifier = "rustls_platform_verifier::verification=off";
        let quiet = with_defaults("info");
        assert_eq!(quiet, format!("info,kube_client::client::builder=off,{verifier}"));
        assert!(EnvFilter::try_new(quiet).is_ok());
        let asked = "warn,kube_client::client::builder=debug";
        assert_eq!(with_defaults(asked), format!("{asked},{verifier}"));
        assert!(EnvFilter::try_new(with_defaults("banana=x")).is_err());
    }
}
