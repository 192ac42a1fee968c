//! The content of support bundles, and the end of the time for them.

use super::*;
use crate::type_name::{find, tests::catalog};

#[test]
fn objects_go_into_files_by_namespace_and_kind() {
    let catalog = catalog();
    let object = |namespace: &str| json!({"metadata": {"namespace": namespace, "name": "a"}});
    let list = json!({"kind": "SecretList", "apiVersion": "v1", "items": [
        object("harvester-system"), object("default"), object("mine"),
    ]});
    let chosen = namespaces(
        &json!({"spec": {"extraCollectionNamespaces": ["mine"]}}),
        &json!({"value": "other, "}),
    );
    assert!(chosen.iter().any(|name| name == "other"));
    let kind = find(&catalog, "secrets").unwrap();
    let found = files(kind, list, &chosen);
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    let expected = [
        placeholder::MACHINE_PLANS,
        "yamls/namespaced/harvester-system/v1/secrets.yaml",
        "yamls/namespaced/mine/v1/secrets.yaml",
    ];
    assert_eq!(names, expected);
    let nodes = json!({"kind": "NodeList", "apiVersion": "v1", "items": [{"metadata": {}}]});
    let kind = find(&catalog, "nodes").unwrap();
    assert!(files(kind, nodes, &chosen).contains_key("yamls/cluster/v1/nodes.yaml"));
}

#[test]
fn a_limit_is_that_of_the_bundle_or_of_the_setting() {
    let minute = Duration::from_secs(60);
    for (own, setting, expected) in [
        (json!(2), "50", Some(2 * minute)),
        (Value::Null, "50", Some(50 * minute)),
        (json!(0), "50", None),
        (Value::Null, "0", None),
        (Value::Null, "", None),
    ] {
        assert_eq!(minutes(&own, setting), expected, "{own} {setting}");
    }
}

/// An archive of a cluster that never answers.
fn archive(deadline: Option<Instant>) -> Archive {
    let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<http_body_util::Full<Bytes>>, Infallible>>()
    });
    Archive {
        steve: Steve::new(client::in_process(silent, |_| {}), "CA"),
        caller: Caller {
            name: "jane".into(),
            groups: vec!["system:authenticated".into()],
            ..Caller::default()
        },
        zip: ZipWriter::default(),
        namespaces: Vec::new(),
        steps: VecDeque::new(),
        may_read_nodes: true,
        deadline,
        node_limit: None,
        problems: Vec::new(),
        root: "b".into(),
        path: "/b".into(),
    }
}

#[tokio::test]
async fn parts_after_the_deadline_are_noted_as_missing() {
    let deadline = Instant::now() + Duration::from_millis(20);
    let mut archive = archive(Some(deadline));
    let catalog = catalog();
    for name in ["nodes", "secrets"] {
        let kind = find(&catalog, name).unwrap().clone();
        assert!(archive.next(Some(BundleStep::Objects(kind))).await.is_empty());
    }
    let missing = "not collected: the time for the bundle is over (setting support-bundle-timeout)";
    let expected = ["/api/v1/nodes", "/api/v1/secrets"].map(|path| format!("{path}: {missing}"));
    assert_eq!(archive.problems, expected);
    assert!(!archive.next(Some(BundleStep::Problems)).await.is_empty(), "the archive is finished");
}

/// Reports of one node that is cut off.
struct CutOff;

impl NodeReports for CutOff {
    fn collect(
        &self,
        limit: Option<Duration>,
    ) -> BoxFuture<'_, Result<Vec<NodeReport>, client::Fault>> {
        Box::pin(async move {
            let error = format!("cut off after {} s", limit.unwrap_or_default().as_secs());
            let files = vec![(NODE_ERROR.to_owned(), error.into_bytes())];
            Ok(vec![NodeReport { node: "one".into(), files }])
        })
    }
}

#[tokio::test]
async fn a_node_that_was_cut_off_is_noted() {
    let mut archive = archive(None);
    archive.steve = archive.steve.with_reports(Arc::new(CutOff));
    archive.node_limit = Some(Duration::from_secs(60));
    assert!(!archive.next(Some(BundleStep::Nodes)).await.is_empty());
    assert_eq!(archive.problems, ["nodes/one: cut off after 60 s"]);
}

#[tokio::test]
async fn the_hardware_of_a_node_is_in_an_archive_as_well() {
    let mut archive = archive(None);
    let files = vec![(NODE_HARDWARE.to_owned(), b"lsusb".to_vec())];
    let bytes = archive.node(&NodeReport { node: "one".into(), files });
    assert!(archive.problems.is_empty() && !bytes.is_empty());
    let (name, content) = support_config("one", b"lsusb");
    assert_eq!(name, "scc_supportconfig_one.txz");
    assert!(content.windows(5).any(|part| part == b"lsusb"));
}
