//! Hands the one feed of the cluster on: whole updates to the collector, which keeps the
//! graph, and touches to all other controllers, which keep no objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::Stop;
use client::{CatalogKind, FeedChange, Update};
use tokio::sync::mpsc;

use crate::reconcile::ObjectChange;

pub(crate) struct ChangeHub {
    pub(crate) updates: mpsc::Receiver<Update>,
    /// Where there is one: some clusters collect by themselves.
    pub(crate) collector: Option<mpsc::Sender<Update>>,
    pub(crate) outlets: Vec<ChangeOutlet>,
}

/// Where touches go, and which.
pub(crate) struct ChangeOutlet {
    pub(crate) touches: mpsc::Sender<ObjectChange>,
    pub(crate) wants: fn(&ObjectChange) -> bool,
}

pub(crate) fn everything(_: &ObjectChange) -> bool {
    true
}

impl ChangeHub {
    pub(crate) async fn run(mut self, mut stop: Stop) {
        let mut listed = BTreeSet::new();
        loop {
            let update = tokio::select! {
                update = self.updates.recv() => update,
                () = stop.requested() => return,
            };
            let Some(update) = update else { return };
            if let Some(touch) = touch_of(&update, &mut listed) {
                for outlet in self.outlets.iter().filter(|outlet| (outlet.wants)(&touch)) {
                    // One that has ended needs no touches; the others go on.
                    let _ = outlet.touches.send(touch.clone()).await;
                }
            }
            if let Some(collector) = &self.collector
                && collector.send(update).await.is_err()
            {
                return;
            }
        }
    }
}

/// The first list of a kind reports nothing that was missed before.
fn touch_of(update: &Update, listed: &mut BTreeSet<Arc<CatalogKind>>) -> Option<ObjectChange> {
    match update.change {
        FeedChange::Listed if listed.insert(Arc::clone(&update.kind)) => return None,
        FeedChange::Dropped => {
            listed.remove(&update.kind);
        }
        _ => {}
    }
    ObjectChange::of(update)
}

#[cfg(test)]
mod tests {
    use client::{Catalog, Meta};

    use super::*;

    fn update(change: FeedChange) -> Update {
        let list = serde_json::json!({"items": [{"versions": [{"version": "v1", "resources": [
            {"resource": "pods", "scope": "Namespaced", "responseKind": {"kind": "Pod"},
             "verbs": []}]}]}]});
        let catalog = Catalog::read(&[serde_json::from_value(list).unwrap()]);
        Update { kind: Arc::clone(catalog.resource("", "pods").unwrap()), change }
    }

    #[test]
    fn only_a_second_list_may_have_missed_something() {
        let mut listed = BTreeSet::new();
        let mut missed = |change| {
            matches!(touch_of(&update(change), &mut listed), Some(ObjectChange::Missed(_)))
        };
        assert!(!missed(FeedChange::Listing) && !missed(FeedChange::Listed));
        assert!(!missed(FeedChange::Applied(Meta::default())));
        assert!(!missed(FeedChange::Listing) && missed(FeedChange::Listed));
        assert!(missed(FeedChange::Dropped) && !missed(FeedChange::Listed));
    }
}
