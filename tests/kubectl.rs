//! Every kubectl of this machine, command by command, as people use it.
//!
//! Each test runs its story with each version, in a namespace of its own on one server.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::harness::{Kubectl, Sheaf, assert_has, eventually};

/// Runs a story with each kubectl, in a namespace of its own.
fn each(since: u32, story: impl Fn(&Sheaf, &Kubectl)) {
    let sheaf = Sheaf::start();
    for kubectl in sheaf.every_kubectl().iter().filter(|kubectl| kubectl.minor() >= since) {
        let namespace = format!("with-{}", kubectl.minor());
        kubectl.run(&format!("create namespace {namespace}"));
        story(&sheaf, &kubectl.with(&format!("--namespace={namespace}")));
    }
}

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata:
  name: web
  labels: {app: web}
spec:
  selector: {app: web}
  ports:
  - {name: http, port: 80}
  - {name: https, port: 443}
";

#[test]
fn creates_reads_and_deletes() {
    each(0, |_, kubectl| {
        assert_has(kubectl.run("create configmap one --from-literal=a=b"), "configmap/one created");
        assert_has(kubectl.fails("create configmap one"), "configmaps \"one\" already exists");
        kubectl.run("create secret generic two --from-literal=password=hunter2");
        kubectl.run("create serviceaccount three");
        kubectl.run("create service clusterip four --tcp=80");
        kubectl.run("create role five --verb=get,list --resource=configmaps");
        kubectl.run("create rolebinding six --role=five --user=jane");
        kubectl.run("create quota seven --hard=configmaps=100");
        assert_eq!(kubectl.value("get configmap one", ".data.a"), "b");
        assert_eq!(kubectl.value("get secret two", ".data.password"), "aHVudGVyMg==");
        assert_has(kubectl.run("get configmap,secret -o name"), "secret/two");
        assert_has(kubectl.run("describe configmap one"), "a:");
        assert_has(kubectl.run("delete configmap one"), "deleted");
        assert_has(kubectl.fails("get configmap one"), "configmaps \"one\" not found");
        assert_has(kubectl.fails("get nonsense"), "the server doesn't have a resource type");
    });
}

#[test]
fn applies_on_the_client_side() {
    each(0, |_, kubectl| {
        assert_has(kubectl.apply(SERVICE), "service/web created");
        assert_has(kubectl.apply(SERVICE), "service/web unchanged");
        let changed = SERVICE.replace("port: 443", "port: 8443").replace("app: web}", "app: site}");
        let difference = kubectl.output("diff -f -", &changed);
        assert_eq!(difference.status.code(), Some(1), "diff says 1 when something differs");
        assert_has(String::from_utf8_lossy(&difference.stdout), "+    app: site");
        assert_has(kubectl.apply(&changed), "service/web configured");
        // Ports merge by number: the old one is gone, the other has stayed.
        assert_eq!(kubectl.value("get service web", ".spec.ports[*].port"), "80 8443");
        assert_eq!(kubectl.value("get service web", ".spec.selector.app"), "site");
        let same = kubectl.output("diff -f -", &changed);
        assert_eq!(same.status.code(), Some(0), "{}", String::from_utf8_lossy(&same.stdout));
        assert_has(kubectl.feed("apply --dry-run=server -f -", SERVICE), "(server dry run)");
        assert_eq!(kubectl.value("get service web", ".spec.selector.app"), "site");
    });
}

#[test]
fn applies_on_the_server_side_with_three_managers() {
    each(0, |_, kubectl| {
        let apply = |manager: &str, more: &str| {
            format!("apply --server-side --field-manager={manager} {more} -f -")
        };
        let with = |data: &str| {
            format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: shared}}, data: {data}}}")
        };
        kubectl.feed(&apply("red", ""), &with("{a: red, b: red}"));
        kubectl.feed(&apply("green", ""), &with("{c: green}"));
        let conflict = kubectl.fails_with(&apply("blue", ""), &with("{a: blue, c: blue}"));
        assert_has(&conflict, "conflict");
        assert_has(&conflict, ".data.a");
        assert_has(&conflict, "conflicts with \"green\"");
        // The same value is no conflict: both own it then.
        kubectl.feed(&apply("blue", ""), &with("{a: red}"));
        kubectl.feed(&apply("blue", "--force-conflicts"), &with("{a: blue, c: blue}"));
        assert_eq!(
            kubectl.value("get configmap shared", ".data"),
            r#"{"a":"blue","b":"red","c":"blue"}"#
        );
        // A manager that no longer applies a field that no other manager owns removes it.
        kubectl.feed(&apply("red", ""), &with("{}"));
        assert_eq!(kubectl.value("get configmap shared", ".data"), r#"{"a":"blue","c":"blue"}"#);
        // Older ones always show them.
        if kubectl.minor() >= 21 {
            let managers = kubectl.run(
                "get configmap shared --show-managed-fields -o jsonpath={.metadata.managedFields[*].manager}",
            );
            assert_has(&managers, "blue");
            assert!(kubectl.run("get configmap shared -o yaml").find("managedFields").is_none());
        }
    });
}

#[test]
fn moves_from_client_side_to_server_side_apply() {
    each(26, |_, kubectl| {
        kubectl.apply(SERVICE);
        assert_has(kubectl.feed("apply --server-side -f -", SERVICE), "serverside-applied");
        let without = SERVICE.replace("  - {name: https, port: 443}\n", "");
        kubectl.feed("apply --server-side -f -", &without);
        assert_eq!(kubectl.value("get service web", ".spec.ports[*].port"), "80");
    });
}

#[test]
fn edits_with_an_editor() {
    each(0, |sheaf, kubectl| {
        kubectl.run("create configmap note --from-literal=text=old");
        let editor = sheaf.scratch("editor");
        fs::write(&editor, "#!/bin/sh\nsed -i 's/text: old/text: new/' \"$1\"\n").unwrap();
        fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).unwrap();
        let edited =
            kubectl.command("edit configmap note").env("EDITOR", &editor).output().unwrap();
        assert_has(String::from_utf8_lossy(&edited.stdout), "configmap/note edited");
        assert_eq!(kubectl.value("get configmap note", ".data.text"), "new");
    });
}

#[test]
fn patches_in_every_way() {
    each(0, |_, kubectl| {
        kubectl.apply(SERVICE);
        kubectl.run(r#"patch service web --type=json -p '[{"op":"replace","path":"/spec/ports/0/port","value":81}]'"#);
        assert_eq!(kubectl.value("get service web", ".spec.ports[*].port"), "81 443");
        let failed = kubectl.fails(r#"patch service web --type=json -p '[{"op":"test","path":"/spec/type","value":"NodePort"}]'"#);
        // Older ones leave out why.
        if kubectl.minor() >= 27 {
            assert_has(failed, "testing value /spec/type failed: test failed");
        }
        kubectl.run(r#"patch service web --type=merge -p '{"metadata":{"labels":{"app":null,"tier":"front"}}}'"#);
        assert_eq!(kubectl.value("get service web", ".metadata.labels"), r#"{"tier":"front"}"#);
        kubectl.run(r#"patch service web -p '{"spec":{"ports":[{"port":443,"$patch":"delete"},{"port":8080,"name":"more"}]}}'"#);
        assert_eq!(kubectl.value("get service web", ".spec.ports[*].port"), "8080 81");
        let refused =
            kubectl.fails(r#"patch service web --type=merge -p '{"spec":{"type":"Nonsense"}}'"#);
        assert_has(refused, "spec.type: Unsupported value: \"Nonsense\"");
    });
}

#[test]
fn labels_and_annotates() {
    each(0, |_, kubectl| {
        kubectl.run("create configmap marked");
        kubectl.run("create configmap plain");
        kubectl.run("label configmap marked colour=red size=large");
        assert_has(
            kubectl.fails("label configmap marked colour=blue"),
            "'colour' already has a value",
        );
        kubectl.run("label configmap marked colour=blue --overwrite");
        kubectl.run("annotate configmap marked note='two words'");
        assert_eq!(kubectl.run("get configmap -l colour=blue -o name").trim(), "configmap/marked");
        assert_eq!(
            kubectl.run("get configmap -l 'colour in (red,blue),size' -o name").trim(),
            "configmap/marked"
        );
        assert_has(kubectl.run("get configmap -l '!colour' -o name"), "configmap/plain");
        assert_has(kubectl.run("get configmap -L colour"), "blue");
        assert_has(kubectl.fails("label configmap marked bad=-wrong-"), "a valid label must be");
        kubectl.run("label configmap marked colour-");
        assert_eq!(
            kubectl.value("get configmap marked", ".metadata.labels"),
            r#"{"size":"large"}"#
        );
        assert_eq!(
            kubectl.value("get configmap marked", ".metadata.annotations.note"),
            "two words"
        );
    });
}

#[test]
fn shows_tables() {
    each(0, |_, kubectl| {
        kubectl.apply(SERVICE);
        let table = kubectl.run("get service web");
        assert_has(&table, "NAME   TYPE        CLUSTER-IP");
        assert_has(&table, "80/TCP,443/TCP");
        assert!(!table.contains("SELECTOR"));
        assert_has(kubectl.run("get service web -o wide"), "app=web");
        assert_has(kubectl.run("get services -A"), "NAMESPACE");
        assert_has(kubectl.run("get services --show-labels"), "app=web");
        assert_eq!(kubectl.run("get services --no-headers").lines().count(), 1);
        assert_has(kubectl.run("get service web --sort-by=.metadata.name"), "web");
        assert_has(
            kubectl.run("get services -o custom-columns=N:.metadata.name,IP:.spec.clusterIP"),
            "10.53.",
        );
        assert_has(kubectl.run("get all"), "service/web");
    });
}

#[test]
fn reads_in_chunks() {
    each(0, |_, kubectl| {
        let map = |number: usize| {
            format!(
                "---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: n{number}, labels: {{many: '1'}}}}}}\n"
            )
        };
        kubectl.feed("create -f -", &(0..7).map(map).collect::<String>());
        let names = kubectl.run("get configmap -l many=1 --chunk-size=3 -o name");
        let whole = kubectl.run("get configmap -l many=1 --chunk-size=0 -o name");
        assert_eq!(names, whole);
        assert_eq!(names.lines().count(), 7);
    });
}

#[test]
fn watches_until_it_is_stopped() {
    each(0, |_, kubectl| {
        kubectl.run("create configmap first --from-literal=a=b");
        let watching = kubectl.follow("get configmap --watch");
        watching.until("first");
        kubectl.run("create configmap second");
        watching.until("second");
        let only =
            kubectl.follow("get configmap second --watch-only --output-watch-events -o name");
        // There is no line that shows when a watch-only has begun: change until it is seen.
        let mut turn = 0;
        eventually("the change is seen", || {
            turn += 1;
            kubectl.run(&format!("label configmap second turn={turn} --overwrite"));
            only.seen("configmap/second")
        });
    });
}

#[test]
fn waits_for_conditions_and_deletion() {
    each(0, |_, kubectl| {
        // Older ones fail if it is gone before they read it.
        if kubectl.minor() >= 23 {
            kubectl.run("create configmap gone");
            let wait = kubectl.follow("wait configmap/gone --for=delete --timeout=300s");
            kubectl.run("delete configmap gone --wait=false");
            wait.finish();
        }
        kubectl.run("create configmap ready --from-literal=phase=no");
        if kubectl.minor() >= 23 {
            let wait = kubectl
                .follow("wait configmap/ready --for=jsonpath={.data.phase}=yes --timeout=300s");
            kubectl.run(r#"patch configmap ready --type=merge -p '{"data":{"phase":"yes"}}'"#);
            wait.finish();
        }
        assert_has(
            kubectl.fails("wait configmap/ready --for=delete --timeout=1s"),
            "timed out waiting for the condition",
        );
    });
}

#[test]
fn deletion_waits_for_finalizers() {
    each(0, |_, kubectl| {
        kubectl.apply(
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [example.com/hold]}}",
        );
        let deleting = kubectl.follow("delete configmap held");
        eventually("it is being deleted", || {
            !kubectl.value("get configmap held", ".metadata.deletionTimestamp").is_empty()
        });
        let refused = kubectl.fails(
            r#"patch configmap held --type=merge -p '{"metadata":{"finalizers":["example.com/hold","example.com/more"]}}'"#,
        );
        assert_has(refused, "no new finalizers can be added if the object is being deleted");
        kubectl.run(r#"patch configmap held --type=merge -p '{"metadata":{"finalizers":null}}'"#);
        assert_has(kubectl.fails("get configmap held"), "NotFound");
        deleting.finish();
    });
}

#[test]
fn replaces_and_deletes_by_selector() {
    each(0, |_, kubectl| {
        let manifest = "{apiVersion: v1, kind: ConfigMap, metadata: {name: r, labels: {x: z}}, data: {a: '1'}}";
        kubectl.feed("create -f -", manifest);
        assert_has(kubectl.feed("replace -f -", &manifest.replace("'1'", "'2'")), "replaced");
        assert_eq!(kubectl.value("get configmap r", ".data.a"), "2");
        kubectl.feed("replace --force -f -", manifest);
        assert_eq!(kubectl.value("get configmap r", ".data.a"), "1");
        assert_has(kubectl.run("delete configmap -l x=z"), "\"r\" deleted");
        kubectl.feed("create -f -", manifest);
        assert_has(kubectl.run("delete configmap r --dry-run=server"), "(server dry run)");
        kubectl.run("delete configmap --all");
        eventually("the root certificate is there again", || {
            kubectl.run("get configmap -o name").contains("kube-root-ca.crt")
        });
    });
}

#[test]
fn auth_commands_report_the_user_and_their_rights() {
    each(0, |_, kubectl| {
        assert_eq!(kubectl.run("auth can-i create configmaps").trim(), "yes");
        assert_has(kubectl.run("auth can-i --list"), "*.*");
        let jane = kubectl.with("--as=jane");
        let denied = jane.output("auth can-i delete secrets", "");
        assert_has(String::from_utf8_lossy(&denied.stdout), "no");
        kubectl.run("create role reader --verb=get,list --resource=configmaps");
        kubectl.run("create rolebinding jane --role=reader --user=jane");
        assert_eq!(jane.run("auth can-i list configmaps").trim(), "yes");
        jane.run("get configmaps");
        assert_has(
            jane.fails("get secrets"),
            "secrets is forbidden: User \"jane\" cannot list resource \"secrets\" in API group \"\" in the namespace",
        );
        // 1.27 asks for versions of the review that upstream has dropped.
        if kubectl.minor() >= 28 {
            assert_has(kubectl.run("auth whoami -o json"), "system:masters");
        }
        let namespace = format!("with-{}", kubectl.minor());
        kubectl.feed(
            "auth reconcile -f -",
            &format!(
                "{{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, \
                 metadata: {{name: more, namespace: {namespace}}}, \
                 rules: [{{apiGroups: [''], resources: [pods], verbs: [get]}}]}}"
            ),
        );
    });
}

#[test]
fn makes_tokens() {
    each(24, |sheaf, kubectl| {
        kubectl.run("create serviceaccount robot");
        let token = kubectl.run("create token robot --duration=1h");
        let me = sheaf.bearer(token.trim()).post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            &serde_json::json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}),
        );
        let name = me.ok()["status"]["userInfo"]["username"].as_str().unwrap().to_owned();
        assert_eq!(name, format!("system:serviceaccount:with-{}:robot", kubectl.minor()));
    });
}

#[test]
fn lists_what_there_is() {
    each(0, |sheaf, kubectl| {
        let resources = kubectl.run("api-resources");
        for line in ["configmaps", "deployments", "customresourcedefinitions", "leases", "crd,crds"]
        {
            assert_has(&resources, line);
        }
        assert_has(kubectl.run("api-resources --api-group=apps -o name"), "deployments.apps");
        assert_has(kubectl.run("api-resources --namespaced=false --verbs=watch"), "nodes");
        assert_has(kubectl.run("api-versions"), "apps/v1");
        assert_has(kubectl.run("version -o yaml"), "serverVersion");
        assert_has(kubectl.run("cluster-info"), &sheaf.address());
        assert_has(kubectl.run("get --raw /readyz?verbose"), "readyz check passed");
        assert_has(kubectl.run("config view --minify"), &sheaf.address());
    });
}

#[test]
fn explains() {
    each(0, |_, kubectl| {
        let text = kubectl.run("explain service.spec.ports");
        assert_has(&text, "targetPort");
        assert_has(&text, "The list of ports that are exposed by this service");
        assert_has(kubectl.run("explain configmaps --recursive"), "binaryData");
        assert_has(kubectl.fails("explain service.spec.nonsense"), "nonsense");
    });
}

#[test]
fn proxies() {
    each(0, |_, kubectl| {
        let proxy = kubectl.follow("proxy --port=0");
        let line = proxy.until("Starting to serve on");
        let address = line.rsplit(' ').next().unwrap().trim().to_owned();
        let answer = plain_get(&address, "/api/v1/namespaces/default");
        assert_has(&answer, "\"kind\":\"Namespace\"");
    });
}

/// One request without TLS, as a browser sends to the proxy.
fn plain_get(address: &str, path: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn shows_events() {
    each(0, |_, kubectl| {
        let namespace = format!("with-{}", kubectl.minor());
        kubectl.run("create configmap subject");
        let uid = kubectl.value("get configmap subject", ".metadata.uid");
        kubectl.feed(
            "create -f -",
            &format!(
                "{{apiVersion: v1, kind: Event, metadata: {{name: subject.1, namespace: {namespace}}}, \
                 involvedObject: {{apiVersion: v1, kind: ConfigMap, name: subject, namespace: {namespace}, uid: {uid}}}, \
                 reason: Tested, message: it works, type: Normal, source: {{component: test}}, count: 1, \
                 firstTimestamp: '2026-01-01T00:00:00Z', lastTimestamp: '2026-01-01T00:00:00Z'}}"
            ),
        );
        assert_has(kubectl.run("get events"), "Tested");
        assert_has(
            kubectl.run("get events.events.k8s.io -o jsonpath={.items[*].note}"),
            "it works",
        );
        if kubectl.minor() >= 26 {
            assert_has(kubectl.run("events --for=configmap/subject"), "it works");
        }
        assert_has(kubectl.run("describe configmap subject"), "it works");
        assert_has(
            kubectl.run("get events --field-selector involvedObject.name=subject,reason=Tested"),
            "it works",
        );
        assert_has(
            kubectl.fails("get events --field-selector nonsense=1"),
            "field label not supported",
        );
    });
}

#[test]
fn validates_before_it_writes() {
    each(27, |_, kubectl| {
        let unknown = "{apiVersion: v1, kind: ConfigMap, metadata: {name: odd}, dta: {a: b}}";
        assert_has(kubectl.fails_with("create -f -", unknown), "unknown field \"dta\"");
        assert_has(kubectl.feed("create --validate=ignore -f -", unknown), "created");
        let wrong = "{apiVersion: v1, kind: Service, metadata: {name: odd}, spec: {ports: [{port: 99999}]}}";
        assert_has(
            kubectl.fails_with("create -f -", wrong),
            "spec.ports[0].port: Invalid value: 99999: must be between 1 and 65535, inclusive",
        );
    });
}

#[test]
fn scales_and_rolls_what_nothing_runs() {
    each(0, |_, kubectl| {
        kubectl.run("create deployment web --image=nginx");
        kubectl.run("scale deployment web --replicas=3");
        assert_eq!(kubectl.value("get deployment web", ".spec.replicas"), "3");
        kubectl.run("set image deployment/web nginx=nginx:2");
        assert_has(kubectl.run("get deployment web -o wide"), "nginx:2");
        kubectl.run("rollout restart deployment web");
        assert_has(
            kubectl.fails("scale deployment web --current-replicas=9 --replicas=1"),
            "Expected replicas to be 9, was 3",
        );
        assert_has(kubectl.run("get deployment"), "0/3");
    });
}
