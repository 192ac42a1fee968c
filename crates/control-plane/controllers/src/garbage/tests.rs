//! The collector's decisions, case by case.

use std::sync::Arc;

use client::{Catalog, CatalogKind, Meta, Owner};

use super::graph::{FOREGROUND, GarbageWork, Graph, ORPHAN, Uid};
use super::plan::{self, DeletionPropagation, GarbageAction, GarbageVerdict, OwnerLookup};

/// `Pod` and `Set` live in namespaces, `Node` does not.
pub(super) fn kinds() -> Catalog {
    let resource = |plural: &str, kind: &str, scope: &str| {
        serde_json::json!({"resource": plural, "scope": scope, "responseKind": {"kind": kind},
            "verbs": ["delete", "list", "watch"]})
    };
    let list = serde_json::json!({"items": [{"versions": [{"version": "v1", "resources": [
        resource("pods", "Pod", "Namespaced"), resource("sets", "Set", "Namespaced"),
        resource("nodes", "Node", "Cluster")]}]}]});
    Catalog::read(&[serde_json::from_value(list).unwrap()])
}

fn kind(name: &str) -> Arc<CatalogKind> {
    Arc::clone(kinds().find("v1", name).unwrap())
}

/// An object whose uid is its name.
fn object(namespace: &str, name: &str, owners: &[Owner]) -> Meta {
    Meta {
        name: name.into(),
        namespace: namespace.into(),
        uid: name.into(),
        resource_version: "1".into(),
        owner_references: owners.to_vec(),
        ..Meta::default()
    }
}

fn deleting(meta: Meta, finalizer: &str) -> Meta {
    Meta { deleting: true, finalizers: vec![finalizer.into()], ..meta }
}

fn owner(kind: &str, name: &str) -> Owner {
    Owner {
        api_version: "v1".into(),
        kind: kind.into(),
        name: name.into(),
        uid: name.into(),
        ..Owner::default()
    }
}

fn blocking(kind: &str, name: &str) -> Owner {
    Owner { block_owner_deletion: Some(true), ..owner(kind, name) }
}

fn uid(name: &str) -> Uid {
    name.into()
}

fn examine(name: &str) -> GarbageWork {
    GarbageWork::Examine(name.into())
}

#[test]
fn an_object_without_owners_is_no_work() {
    let mut graph = Graph::default();
    assert_eq!(graph.apply(&kind("Pod"), &object("n", "p", &[])), []);
    assert_eq!(graph.delete(&uid("p")), []);
}

#[test]
fn an_unseen_owner_is_a_reason_to_check_until_it_is_seen() {
    let mut graph = Graph::default();
    let work = graph.apply(&kind("Pod"), &object("n", "p", &[owner("Set", "s")]));
    assert_eq!(work, [examine("p")]);
    assert!(graph.needs_check(&uid("p")));
    assert_eq!(graph.apply(&kind("Set"), &object("n", "s", &[])), []);
    assert!(!graph.needs_check(&uid("p")));
}

#[test]
fn dependents_are_examined_when_their_owner_goes() {
    let mut graph = Graph::default();
    graph.apply(&kind("Set"), &object("n", "s", &[]));
    assert_eq!(graph.apply(&kind("Pod"), &object("n", "p", &[owner("Set", "s")])), []);
    assert_eq!(graph.delete(&uid("s")), [examine("p")]);
}

#[test]
fn a_relist_removes_what_it_does_not_name() {
    let mut graph = Graph::default();
    graph.listing(&kind("Set"));
    graph.apply(&kind("Set"), &object("n", "s", &[]));
    graph.apply(&kind("Set"), &object("n", "kept", &[]));
    assert_eq!(graph.listed(&kind("Set")), []);
    graph.apply(&kind("Pod"), &object("n", "p", &[owner("Set", "s")]));
    graph.listing(&kind("Set"));
    graph.apply(&kind("Set"), &object("n", "kept", &[]));
    assert_eq!(graph.listed(&kind("Set")), [examine("p")]);
    assert!(graph.is_observed(&uid("kept")) && !graph.is_observed(&uid("s")));
}

#[test]
fn owners_of_a_kind_that_is_not_served_any_more_are_not_taken_for_absent() {
    let mut graph = Graph::default();
    graph.apply(&kind("Set"), &object("n", "s", &[]));
    let pod = object("n", "p", &[owner("Set", "s")]);
    graph.apply(&kind("Pod"), &pod);
    assert_eq!(graph.dropped(&kind("Set")), [examine("p")]);
    assert_eq!(plan::unknown_owners(&graph, &pod), [owner("Set", "s")]);
}

#[test]
fn an_owner_in_another_namespace_is_reported_in_either_order() {
    let pod = object("n", "p", &[owner("Set", "s")]);
    let reports =
        |work: &[GarbageWork]| work.iter().any(|work| matches!(work, GarbageWork::Report { .. }));
    let mut graph = Graph::default();
    graph.apply(&kind("Set"), &object("other", "s", &[]));
    let work = graph.apply(&kind("Pod"), &pod);
    assert!(reports(&work) && work.contains(&examine("p")));

    let mut graph = Graph::default();
    graph.apply(&kind("Pod"), &pod);
    let work = graph.apply(&kind("Set"), &object("other", "s", &[]));
    assert!(reports(&work) && work.contains(&examine("p")));
}

#[test]
fn a_cluster_scoped_owner_may_own_in_any_namespace() {
    let mut graph = Graph::default();
    graph.apply(&kind("Node"), &object("", "node", &[]));
    assert_eq!(graph.apply(&kind("Pod"), &object("n", "p", &[owner("Node", "node")])), []);
}

#[test]
fn foreground_deletion_examines_dependents_once_and_itself() {
    let mut graph = Graph::default();
    graph.apply(&kind("Set"), &object("n", "s", &[]));
    graph.apply(&kind("Pod"), &object("n", "p", &[blocking("Set", "s")]));
    let set = deleting(object("n", "s", &[]), FOREGROUND);
    let release = GarbageWork::Release("s".into());
    assert_eq!(graph.apply(&kind("Set"), &set), [examine("p"), release.clone()]);
    assert_eq!(graph.apply(&kind("Set"), &set), [release]);
    assert_eq!(graph.delete(&uid("p")), [examine("s")]);
}

#[test]
fn an_owner_is_examined_when_it_is_no_longer_blocked() {
    for owners in [vec![], vec![owner("Set", "s")]] {
        let mut graph = Graph::default();
        graph.apply(&kind("Set"), &deleting(object("n", "s", &[]), FOREGROUND));
        graph.apply(&kind("Pod"), &object("n", "p", &[blocking("Set", "s")]));
        let work = graph.apply(&kind("Pod"), &object("n", "p", &owners));
        assert!(work.contains(&examine("s")), "{work:?}");
    }
}

#[test]
fn orphaning_is_its_own_work() {
    let mut graph = Graph::default();
    let set = deleting(object("n", "s", &[]), ORPHAN);
    assert_eq!(graph.apply(&kind("Set"), &set), [GarbageWork::Orphan("s".into())]);
}

/// A pod with owners `a` and `b`, about which the server says what is given.
fn judged(a: OwnerLookup, b: OwnerLookup) -> GarbageVerdict {
    let graph = Graph::default();
    let (first, second) = (owner("Set", "a"), owner("Set", "b"));
    let pod = object("n", "p", &[first.clone(), second.clone()]);
    plan::decide(&graph, &uid("p"), Some(&pod), &[(first, a), (second, b)])
}

#[test]
fn an_object_goes_only_if_no_owner_holds_it() {
    let keep = |name| GarbageVerdict::Act(GarbageAction::SetOwners(vec![owner("Set", name)]));
    let delete = GarbageVerdict::Act(GarbageAction::Delete(DeletionPropagation::Background));
    let cases = [
        (OwnerLookup::Present, OwnerLookup::Present, GarbageVerdict::Poll),
        (OwnerLookup::Present, OwnerLookup::Absent, keep("a")),
        (OwnerLookup::Foreground, OwnerLookup::Present, keep("b")),
        (OwnerLookup::Absent, OwnerLookup::Absent, delete.clone()),
        (OwnerLookup::Absent, OwnerLookup::Foreground, delete.clone()),
        (OwnerLookup::Foreground, OwnerLookup::Foreground, delete),
        (OwnerLookup::Impossible, OwnerLookup::Absent, GarbageVerdict::Settled),
    ];
    for (a, b, expected) in cases {
        assert_eq!(judged(a, b), expected, "{a:?} {b:?}");
    }
}

#[test]
fn existing_finalizers_say_what_becomes_of_the_dependents() {
    let cases = [
        (ORPHAN, DeletionPropagation::Orphan),
        (FOREGROUND, DeletionPropagation::Foreground),
        ("x", DeletionPropagation::Background),
    ];
    for (finalizer, policy) in cases {
        let owner = owner("Set", "a");
        let mut pod = object("n", "p", std::slice::from_ref(&owner));
        pod.finalizers = vec![finalizer.into()];
        let answers = [(owner, OwnerLookup::Absent)];
        let verdict = plan::decide(&Graph::default(), &uid("p"), Some(&pod), &answers);
        assert_eq!(verdict, GarbageVerdict::Act(GarbageAction::Delete(policy)));
    }
}

#[test]
fn an_object_replaced_by_another_of_its_name_is_gone() {
    let graph = Graph::default();
    let new = Meta { uid: "new".into(), ..object("n", "p", &[owner("Set", "a")]) };
    assert_eq!(plan::decide(&graph, &uid("p"), Some(&new), &[]), GarbageVerdict::Gone);
    assert_eq!(plan::decide(&graph, &uid("p"), None, &[]), GarbageVerdict::Gone);
}

#[test]
fn an_observed_owner_needs_no_question_and_a_wrong_name_does() {
    let mut graph = Graph::default();
    graph.apply(&kind("Set"), &object("n", "s", &[]));
    let right = object("n", "p", &[owner("Set", "s")]);
    assert_eq!(plan::unknown_owners(&graph, &right), []);
    let wrong = Owner { name: "t".into(), ..owner("Set", "s") };
    let named = object("n", "p", std::slice::from_ref(&wrong));
    assert_eq!(plan::unknown_owners(&graph, &named), [wrong]);
    let elsewhere = object("m", "p", &[owner("Set", "s")]);
    assert_eq!(plan::unknown_owners(&graph, &elsewhere).len(), 1);
}

#[test]
fn an_owner_that_was_seen_to_go_is_not_asked_for() {
    let mut graph = Graph::default();
    graph.apply(&kind("Set"), &object("n", "s", &[]));
    let pod = object("n", "p", &[owner("Set", "s")]);
    graph.apply(&kind("Pod"), &pod);
    graph.delete(&uid("s"));
    assert_eq!(plan::unknown_owners(&graph, &pod), []);
    let verdict = plan::decide(&graph, &uid("p"), Some(&pod), &[]);
    assert_eq!(
        verdict,
        GarbageVerdict::Act(GarbageAction::Delete(DeletionPropagation::Background))
    );
}

#[test]
fn a_waiting_owner_is_released_when_nothing_blocks_it() {
    let mut graph = Graph::default();
    let set = deleting(object("n", "s", &[]), FOREGROUND);
    graph.apply(&kind("Set"), &set);
    graph.apply(&kind("Pod"), &object("n", "free", &[owner("Set", "s")]));
    let released = GarbageVerdict::Act(GarbageAction::SetFinalizers(vec![]));
    assert_eq!(plan::decide(&graph, &uid("s"), Some(&set), &[]), released);
    graph.apply(&kind("Pod"), &object("n", "p", &[blocking("Set", "s")]));
    let waits = GarbageVerdict::Examine(vec![uid("p")]);
    assert_eq!(plan::decide(&graph, &uid("s"), Some(&set), &[]), waits);
}

#[test]
fn a_dependent_with_dependents_follows_its_waiting_owner_in_the_foreground() {
    let mut graph = Graph::default();
    graph.apply(&kind("Set"), &deleting(object("n", "s", &[]), FOREGROUND));
    let middle = object("n", "m", &[blocking("Set", "s")]);
    graph.apply(&kind("Set"), &middle);
    graph.apply(&kind("Pod"), &object("n", "p", &[blocking("Set", "m")]));
    let verdict = plan::decide(&graph, &uid("m"), Some(&middle), &[]);
    assert_eq!(
        verdict,
        GarbageVerdict::Act(GarbageAction::Delete(DeletionPropagation::Foreground))
    );
}

#[test]
fn a_circle_of_waiting_objects_is_cut() {
    let mut graph = Graph::default();
    let first = deleting(object("n", "a", &[blocking("Set", "b")]), FOREGROUND);
    let second = object("n", "b", &[blocking("Set", "a")]);
    graph.apply(&kind("Set"), &first);
    graph.apply(&kind("Set"), &second);
    let cut = Owner { block_owner_deletion: Some(false), ..owner("Set", "a") };
    let verdict = plan::decide(&graph, &uid("b"), Some(&second), &[]);
    assert_eq!(verdict, GarbageVerdict::Act(GarbageAction::SetOwners(vec![cut.clone()])));
    let second = object("n", "b", &[cut]);
    graph.apply(&kind("Set"), &second);
    let verdict = plan::decide(&graph, &uid("b"), Some(&second), &[]);
    assert_eq!(
        verdict,
        GarbageVerdict::Act(GarbageAction::Delete(DeletionPropagation::Foreground))
    );
}

#[test]
fn orphaning_takes_one_owner_out_and_keeps_the_others() {
    let pod = object("n", "p", &[owner("Set", "a"), owner("Set", "b")]);
    let kept = Some(GarbageAction::SetOwners(vec![owner("Set", "b")]));
    assert_eq!(plan::without_owner(&pod, &uid("a")), kept);
    assert_eq!(plan::without_owner(&pod, &uid("c")), None);
}

#[test]
fn owners_are_searched_where_they_can_be() {
    assert_eq!(plan::owner_namespace(true, "n"), Ok("n"));
    assert_eq!(plan::owner_namespace(false, "n"), Ok(""));
    assert_eq!(plan::owner_namespace(true, ""), Err(OwnerLookup::Impossible));
}

#[test]
fn the_event_says_what_kubernetes_says() {
    let mut graph = Graph::default();
    graph.apply(&kind("Pod"), &object("n", "p", &[]));
    let place = graph.place(&uid("p")).unwrap();
    assert_eq!(
        plan::misplaced_owner(&place, &owner("Set", "s")),
        r#"ownerRef [v1/Set, namespace: n, name: s, uid: s] does not exist in namespace "n""#
    );
}
