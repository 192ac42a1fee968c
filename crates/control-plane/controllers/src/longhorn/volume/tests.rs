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
    let keeper = VolumeReconciler::new(fake.client(), Watched::default());
    let name: Arc<str> = "v".into();
    for _ in 0..3 {
        keeper.volume(&name).await.unwrap();
    }
    assert_eq!(fake.names("longhorn.io/engines"), ["v-e-0"]);
    assert_eq!(fake.names("longhorn.io/volumeattachments"), ["v"]);
    let replicas = fake.names("longhorn.io/replicas");
    assert!(replicas.len() == 1 && replicas[0].starts_with("v-r-"), "{replicas:?}");
    let volume = fake.get("longhorn.io/volumes", NAMESPACE, "v").unwrap();
    assert_eq!(text(&volume, "/status/state"), "detached");
    assert!(object::has_finalizer(&volume, "longhorn.io"), "one made by hand is held as well");

    fake.delete("longhorn.io/volumes", NAMESPACE, "v", "Background");
    keeper.volume(&name).await.unwrap();
    assert!(fake.names("longhorn.io/engines").is_empty(), "no node has it");
    keeper.volume(&name).await.unwrap();
    let node = json!({"metadata": {"finalizers": []}});
    fake.merge("longhorn.io/replicas", NAMESPACE, &replicas[0], &node);
    keeper.volume(&name).await.unwrap();
    assert!(fake.names("longhorn.io/volumes").is_empty());
    assert!(fake.names("longhorn.io/volumeattachments").is_empty());
}

#[test]
fn the_offer_of_a_node_concerns_all_and_its_space_only_volumes_that_need_it() {
    let watched = Watched::default();
    watched.lock().volumes.extend(["a".into(), "b".into()]);
    watched.find_placement(&"b".into(), true);
    let node: Arc<str> = "one".into();
    let mut own = place::tests::storage_node("one");
    let mut concerned = |change: &Value| {
        for (key, value) in change.as_object().unwrap() {
            own["status"][key] = value.clone();
        }
        watched.concerned(&node, Some(place::offer(&own))).len()
    };
    assert_eq!(concerned(&json!({"conditions": []})), 2, "it is new");
    assert_eq!(concerned(&json!({"conditions": [{"type": "Ready", "status": "True"}]})), 2);
    assert_eq!(concerned(&json!({"region": "x"})), 1, "nothing that matters changed");
    // A volume is reconciled and finds no space, on the node as it was.
    watched.forget_offer(&node);
    watched.find_placement(&"a".into(), false);
    let affected = watched.concerned(&node, Some(place::offer(&own)));
    assert_eq!(affected.len(), 2, "it is checked again, whatever others noted meanwhile");
    assert_eq!(watched.concerned(&node, None).len(), 2, "it is gone");
}

#[test]
fn a_volume_is_reconciled_by_one_task_at_a_time() {
    let watched = Watched::default();
    let name: Arc<str> = "v".into();
    let turn = watched.turn(&name);
    assert!(turn.is_some() && watched.turn(&name).is_none());
    drop(turn);
    assert!(watched.turn(&name).is_some());
}
