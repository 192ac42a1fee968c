//! A notifier for the whole node: it reports changes here, not in the API, that machines may be
//! waiting for. Subscribers check their state again; the notification does not say what changed.

use std::sync::Arc;

use tokio::sync::watch;

/// Clones notify the same listeners.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChangeNotifier(Arc<watch::Sender<()>>);

impl ChangeNotifier {
    pub(crate) fn notify(&self) {
        self.0.send_replace(());
    }

    /// Receives every notification from now on.
    pub(crate) fn listen(&self) -> watch::Receiver<()> {
        self.0.subscribe()
    }
}
