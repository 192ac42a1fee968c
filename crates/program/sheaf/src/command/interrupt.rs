//! Ctrl-C while a command waits: prints which work continues in the cluster.

use anyhow::{Context as _, Result};

/// As shells report a program that SIGINT ended.
pub(super) const EXIT_CODE: u8 = 130;

/// The user pressed Ctrl-C.
#[derive(Debug, thiserror::Error)]
#[error("interrupted: {continues}")]
pub(super) struct Interrupted {
    /// The work that the cluster continues, and the command that shows or stops it.
    continues: String,
}

/// Does `work` until it ends or the user presses Ctrl-C.
pub(super) async fn or_report<T>(
    work: impl Future<Output = Result<T>>,
    continues: impl Into<String>,
) -> Result<T> {
    tokio::select! {
        outcome = work => outcome,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.context("cannot wait for Ctrl-C")?;
            Err(Interrupted { continues: continues.into() }.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_interrupted_command_says_what_continues() {
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let waiting = tokio::spawn(or_report(
            async move {
                // Polled once, the signal is listened for.
                let _ = sender.send(());
                std::future::pending::<Result<()>>().await
            },
            "the import continues",
        ));
        receiver.await.unwrap();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT)
            .unwrap();
        let error = waiting.await.unwrap().unwrap_err();
        assert!(error.is::<Interrupted>());
        assert_eq!(error.to_string(), "interrupted: the import continues");
    }
}
