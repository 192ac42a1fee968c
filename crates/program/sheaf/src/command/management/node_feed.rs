//! The nodes with a label, one node or all, as they change.

use std::collections::BTreeMap;
use std::pin::Pin;

use base::Chain;
use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tracing::debug;

type NodeEvents = Pin<Box<dyn Stream<Item = Result<Event<Node>, watcher::Error>> + Send>>;

pub(in crate::command) struct NodeFeed {
    events: NodeEvents,
    nodes: BTreeMap<String, Node>,
    /// A list that is being read.
    fresh: Option<BTreeMap<String, Node>>,
}

impl NodeFeed {
    pub(in crate::command) fn new(client: Client, label: &str) -> Self {
        Self::of(client, watcher::Config::default().labels(label))
    }

    pub(in crate::command) fn all(client: Client) -> Self {
        Self::of(client, watcher::Config::default())
    }

    /// One node.
    pub(in crate::command) fn named(client: Client, node: &str) -> Self {
        Self::of(client, watcher::Config::default().fields(&format!("metadata.name={node}")))
    }

    fn of(client: Client, config: watcher::Config) -> Self {
        let events = kube::runtime::watcher(Api::all(client), config).default_backoff();
        Self { events: Box::pin(events), nodes: BTreeMap::new(), fresh: None }
    }

    /// All nodes, after the next change; the first time as soon as they are known.
    pub(in crate::command) async fn changed(&mut self) -> Vec<Node> {
        loop {
            match self.events.next().await {
                Some(Ok(event)) => {
                    if self.apply(event) {
                        return self.nodes.values().cloned().collect();
                    }
                }
                Some(Err(failure)) => debug!(error = %Chain(&failure), "cannot watch nodes"),
                None => std::future::pending().await,
            }
        }
    }

    /// Whether the nodes are complete after this event.
    fn apply(&mut self, event: Event<Node>) -> bool {
        let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
        match event {
            Event::Init => self.fresh = Some(BTreeMap::new()),
            Event::InitApply(node) => {
                self.fresh.get_or_insert_default().insert(name(&node), node);
            }
            Event::InitDone => self.nodes = self.fresh.take().unwrap_or_default(),
            Event::Apply(node) => drop(self.nodes.insert(name(&node), node)),
            Event::Delete(node) => drop(self.nodes.remove(&name(&node))),
        }
        self.fresh.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_complete_when_a_list_has_ended() {
        let node = |name: &str| {
            let mut node = Node::default();
            node.metadata.name = Some(name.to_owned());
            node
        };
        let mut feed = NodeFeed {
            events: Box::pin(futures_util::stream::pending()),
            nodes: BTreeMap::new(),
            fresh: None,
        };
        assert!(!feed.apply(Event::Init) && !feed.apply(Event::InitApply(node("a"))));
        assert!(feed.apply(Event::InitDone) && feed.apply(Event::Apply(node("b"))));
        assert!(feed.apply(Event::Delete(node("a"))));
        assert_eq!(feed.nodes.keys().collect::<Vec<_>>(), ["b"]);
        // Those that are not in the next list are gone.
        assert!(!feed.apply(Event::Init) && feed.apply(Event::InitDone));
        assert!(feed.nodes.is_empty());
    }
}
