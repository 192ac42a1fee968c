use serde_json::json;

use super::*;
use crate::fake::Fake;
use crate::object::text;

#[tokio::test]
async fn a_volume_gets_its_parts_and_leaves_none_behind() {
    let fake = Fake::new();
    fake.create("/namespaces", "", json!({"metadata": {"name": NAMESPACE}}));
    fake.create("longhorn.io/nodes", NAMESPACE, place::tests::storage_node("one"));
    let spec = json!({"size": "1073741824", "numberOfReplicas": 3});
    fake.create("longhorn.io/volumes", NAMESPACE, json!({"metadata": {"name": "v"}, "spec": spec}));
    let keeper = Keeper::new(fake.client(), Watched::default());
    let name: Arc<str> = "v".into();
    for _ in 0..3 {
        keeper.reconcile(&name).await.unwrap();
    }
    assert_eq!(fake.names("longhorn.io/engines"), ["v-e-0"]);
    assert_eq!(fake.names("longhorn.io/volumeattachments"), ["v"]);
    let replicas = fake.names("longhorn.io/replicas");
    assert!(replicas.len() == 1 && replicas[0].starts_with("v-r-"), "{replicas:?}");
    let volume = fake.get("longhorn.io/volumes", NAMESPACE, "v").unwrap();
    assert_eq!(text(&volume, "/status/state"), "detached");
    assert!(object::has_finalizer(&volume, "longhorn.io"), "one made by hand is held as well");

    fake.delete("longhorn.io/volumes", NAMESPACE, "v", "Background");
    keeper.reconcile(&name).await.unwrap();
    assert!(fake.names("longhorn.io/engines").is_empty(), "no node has it");
    keeper.reconcile(&name).await.unwrap();
    let node = json!({"metadata": {"finalizers": []}});
    fake.merge("longhorn.io/replicas", NAMESPACE, &replicas[0], &node);
    keeper.reconcile(&name).await.unwrap();
    assert!(fake.names("longhorn.io/volumes").is_empty());
    assert!(fake.names("longhorn.io/volumeattachments").is_empty());
}

#[test]
fn a_node_that_comes_concerns_all_and_its_room_only_those_that_look_for_it() {
    let watched = Watched::default();
    watched.lock().volumes.extend(["a".into(), "b".into()]);
    watched.look_for_room(&"b".into(), true);
    let node: Arc<str> = "one".into();
    assert_eq!(watched.node(&node, State::Live).len(), 2);
    assert_eq!(watched.node(&node, State::Live), ["b".into()]);
    assert_eq!(watched.node(&node, State::Gone).len(), 2);
    watched.look_for_room(&"b".into(), false);
    watched.lock().nodes.insert(node.clone());
    assert!(watched.node(&node, State::Live).is_empty());
}
