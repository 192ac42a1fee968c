//! Conditions and steps of a namespace's deletion.

use super::*;

fn now() -> Time {
    Time("2026-01-01T00:00:00Z".parse().unwrap())
}

fn later() -> Time {
    Time("2026-01-01T00:01:00Z".parse().unwrap())
}

fn catalog() -> Catalog {
    let resource = |plural: &str, scope: &str, verbs: &[&str]| {
        serde_json::json!({"resource": plural, "scope": scope, "responseKind": {"kind": plural},
            "verbs": verbs})
    };
    let list = serde_json::json!({"items": [{"versions": [{"version": "v1", "resources": [
        resource("configmaps", "Namespaced", &["delete", "list"]),
        resource("pods", "Namespaced", &["delete", "list"]),
        resource("bindings", "Namespaced", &["create"]),
        resource("nodes", "Cluster", &["delete", "list"])]}]}]});
    Catalog::read(&[serde_json::from_value(list).unwrap()])
}

fn objects(finalizers: &[&[&str]]) -> Vec<Meta> {
    let object = |own: &&[&str]| Meta {
        finalizers: own.iter().map(|own| (*own).to_owned()).collect(),
        ..Meta::default()
    };
    finalizers.iter().map(object).collect()
}

/// `type=status reason: message` of every condition.
fn conditions_of(namespace: &Namespace) -> Vec<String> {
    let conditions = namespace.status.clone().unwrap_or_default().conditions.unwrap_or_default();
    let text = |own: NamespaceCondition| {
        let (reason, message) = (own.reason.unwrap(), own.message.unwrap());
        format!("{}={} {reason}: {message}", own.type_, own.status)
    };
    conditions.into_iter().map(text).collect()
}

#[test]
fn pods_go_before_everything_else_that_can_be_deleted() {
    let names =
        |kinds: &[Arc<CatalogKind>]| kinds.iter().map(|kind| kind.plural.to_string()).collect();
    let [first, second]: [Vec<String>; 2] = steps(&catalog()).map(|step| names(&step));
    assert_eq!((first, second), (vec!["pods".into()], vec!["configmaps".to_owned()]));
}

#[test]
fn a_clean_pass_says_that_all_went_well() {
    let mut namespace = Namespace::default();
    assert!(update_conditions(&mut namespace, &DeletionPass::default(), &now()));
    expect_test::expect![[r#"
        [
            "NamespaceDeletionDiscoveryFailure=False ResourcesDiscovered: All resources successfully discovered",
            "NamespaceDeletionGroupVersionParsingFailure=False ParsedGroupVersions: All legacy kube types successfully parsed",
            "NamespaceDeletionContentFailure=False ContentDeleted: All content successfully deleted, may be waiting on finalization",
            "NamespaceContentRemaining=False ContentRemoved: All content successfully removed",
            "NamespaceFinalizersRemaining=False ContentHasNoFinalizers: All content-preserving finalizers finished",
        ]
    "#]]
    .assert_debug_eq(&conditions_of(&namespace));
    assert!(!update_conditions(&mut namespace, &DeletionPass::default(), &later()));
}

#[test]
fn remaining_objects_are_counted_by_kind_and_by_finalizer() {
    let catalog = catalog();
    let (pods, maps) = (catalog.resource("", "pods"), catalog.resource("", "configmaps"));
    let mut pass = DeletionPass { undiscovered: vec!["b.io/v1".into()], ..DeletionPass::default() };
    left(pods.unwrap(), "n", &objects(&[&[], &["a/b"]]), &mut pass);
    left(maps.unwrap(), "n", &objects(&[&["a/b", "c/d"]]), &mut pass);
    pass.failures.push("boom".into());
    let mut namespace = Namespace::default();
    update_conditions(&mut namespace, &pass, &now());
    expect_test::expect![[r#"
        [
            "NamespaceDeletionDiscoveryFailure=True DiscoveryFailed: Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: b.io/v1: stale GroupVersion discovery: b.io/v1",
            "NamespaceDeletionGroupVersionParsingFailure=False ParsedGroupVersions: All legacy kube types successfully parsed",
            "NamespaceDeletionContentFailure=True ContentDeletionFailed: Failed to delete all resource types, 1 remaining: boom",
            "NamespaceContentRemaining=True SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances, pods. has 2 resource instances",
            "NamespaceFinalizersRemaining=True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: a/b in 2 resource instances, c/d in 1 resource instances",
        ]
    "#]]
    .assert_debug_eq(&conditions_of(&namespace));
}

#[test]
fn something_without_a_finalizer_should_have_been_gone() {
    let catalog = catalog();
    let mut pass = DeletionPass::default();
    left(catalog.resource("", "configmaps").unwrap(), "n", &objects(&[&[]]), &mut pass);
    assert_eq!(pass.failures.len(), 1);
    assert!(!pass.is_clean());
}

#[test]
fn the_time_of_a_condition_changes_with_its_status_only() {
    let mut namespace = Namespace::default();
    let failing =
        |text: &str| DeletionPass { failures: vec![text.into()], ..DeletionPass::default() };
    let since = |namespace: &Namespace| {
        let conditions = namespace.status.clone().unwrap().conditions.unwrap();
        conditions[2].last_transition_time.clone().unwrap()
    };
    update_conditions(&mut namespace, &failing("a"), &now());
    assert!(update_conditions(&mut namespace, &failing("b"), &later()));
    assert_eq!(since(&namespace), now());
    assert!(update_conditions(&mut namespace, &DeletionPass::default(), &later()));
    assert_eq!(since(&namespace), later());
}

#[test]
fn only_our_finalizer_is_taken_off() {
    let namespace: Namespace = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes", "other"]}}))
    .unwrap();
    assert!(has_finalizer(&namespace));
    let namespace = without_finalizer(namespace);
    assert!(!has_finalizer(&namespace));
    assert_eq!(namespace.spec.unwrap().finalizers.unwrap(), ["other"]);
}
