//! Ctrl-C or SIGTERM while a command waits: prints which work continues in the cluster.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{SignalKind, signal};

/// The command was ended by SIGINT (Ctrl-C) or SIGTERM (`kill`, `timeout`).
#[derive(Debug, thiserror::Error)]
#[error("interrupted: {continues}")]
pub(super) struct Interrupted {
    /// The work that the cluster continues, and the command that shows or stops it.
    continues: String,
    exit_code: u8,
}

impl Interrupted {
    /// As shells report a program that the signal ended.
    pub(super) fn exit_code(&self) -> u8 {
        self.exit_code
    }
}

/// Does `work` until it ends or the command is interrupted.
pub(super) async fn or_report<T>(
    work: impl Future<Output = Result<T>>,
    continues: impl Into<String>,
) -> Result<T> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let exit_code = tokio::select! {
        outcome = work => return outcome,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.context("cannot wait for Ctrl-C")?;
            130
        }
        _ = terminate.recv() => 143,
    };
    Err(Interrupted { continues: continues.into(), exit_code }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn interrupted_by(ends: rustix::process::Signal) -> Interrupted {
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let waiting = tokio::spawn(or_report(
            async move {
                // Polled once, the signals are listened for.
                let _ = sender.send(());
                std::future::pending::<Result<()>>().await
            },
            "the import continues",
        ));
        receiver.await.unwrap();
        rustix::process::kill_process(rustix::process::getpid(), ends).unwrap();
        waiting.await.unwrap().unwrap_err().downcast().unwrap()
    }

    #[tokio::test]
    async fn an_interrupted_command_says_what_continues() {
        // One after the other: signals are for the whole process.
        for (ends, exit_code) in
            [(rustix::process::Signal::INT, 130), (rustix::process::Signal::TERM, 143)]
        {
            let interrupted = interrupted_by(ends).await;
            assert_eq!(interrupted.exit_code(), exit_code);
            assert_eq!(interrupted.to_string(), "interrupted: the import continues");
        }
    }

    /// Files that wait in a loop without a word about what goes on, and why that is right.
    const WITHOUT_REPORT: &[(&str, &str)] = &[
        ("alarm_receiver.rs", "a test message is given up by the server after seconds"),
        ("management/recover.rs", "works on this node, and can be repeated"),
        ("vm/console.rs", "nothing goes on; Ctrl-C belongs to the guest once it is connected"),
        ("vm/upload.rs", "`vm create` reports"),
        ("volume/wait.rs", "its callers in `volume/make.rs` report"),
    ];

    /// Services end with their own signals: `StopSignals`.
    const SERVICES: &[&str] =
        &["join", "kube_apiserver.rs", "management", "program", "server", "server.rs"];

    fn sources(directory: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else {
                found.push(path);
            }
        }
    }

    /// The functions of a file, by name.
    fn functions(code: &str) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = Vec::new();
        for line in code.lines() {
            let is_top = !line.starts_with(' ') && (line.contains("fn "));
            if let Some(name) = line.split("fn ").nth(1).filter(|_| is_top) {
                let end = name.find(|own: char| !own.is_alphanumeric() && own != '_');
                all.push((name[..end.unwrap_or(name.len())].to_owned(), String::new()));
            }
            if let Some((_, body)) = all.last_mut() {
                body.push_str(line);
                body.push('\n');
            }
        }
        all
    }

    /// The functions of a file that wait, and that no function with `or_report` calls.
    fn silent(code: &str) -> Vec<String> {
        let all = functions(code);
        let mut covered: Vec<&str> = Vec::new();
        loop {
            let calls = |name: &str, body: &str| body.contains(&format!("{name}("));
            let is_new = |(name, body): &&(String, String)| {
                !covered.contains(&name.as_str())
                    && (body.contains("interrupt::or_report(")
                        || all.iter().any(|(other, body)| {
                            covered.contains(&other.as_str()) && calls(name, body)
                        }))
            };
            let new: Vec<&str> = all.iter().filter(is_new).map(|(name, _)| name.as_str()).collect();
            if new.is_empty() {
                break;
            }
            covered.extend(new);
        }
        let waits = |body: &str| {
            ["tokio::time::sleep(", "watcher(", ".watch("].iter().any(|call| body.contains(call))
        };
        let silent =
            all.iter().filter(|(name, body)| waits(body) && !covered.contains(&name.as_str()));
        silent.map(|(name, _)| name.clone()).collect()
    }

    #[test]
    fn every_command_that_waits_reports_an_interruption() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/command");
        let mut files = Vec::new();
        sources(&root, &mut files);
        let mut found = std::collections::BTreeMap::new();
        for file in files {
            let name = file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&file).unwrap();
            let silent = silent(text.split("#[cfg(test)]").next().unwrap_or_default());
            if !silent.is_empty() {
                found.insert(name, silent);
            }
        }
        let is_service =
            |name: &str| SERVICES.contains(&name.split('/').next().unwrap_or_default());
        let is_listed = |name: &str| WITHOUT_REPORT.iter().any(|(own, _)| *own == name);
        let unknown: Vec<_> =
            found.iter().filter(|(name, _)| !is_listed(name) && !is_service(name)).collect();
        assert!(unknown.is_empty(), "without interrupt::or_report: {unknown:?}");
        for (name, _) in WITHOUT_REPORT {
            assert!(found.contains_key(*name), "{name} need not be in the list");
        }
    }
}
