//! Stolen certificates and tokens.

use std::fs;

use http::Request;
use serde_json::{Value, json};

use super::tenant;
use crate::harness::{Http, Node, Sheaf, assert_has, eventually, poll};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const REVOKED: &str = "/api/v1/namespaces/kube-system/configmaps/sheaf-revoked-certificates";
const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/default";
const TOKENS: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";
const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";

fn who(http: &Http) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    http.post(REVIEWS, &review).ok()["status"]["userInfo"]["username"].clone()
}

fn issued(sheaf: &Sheaf, user: &str) -> Http {
    let text = sheaf.run(&format!("kubeconfig --user {user} --group system:masters"));
    assert_has(&text, "ends at ");
    let path = sheaf.scratch(&format!("{user}.kubeconfig"));
    fs::write(&path, text).unwrap();
    Http::from_kubeconfig(&path)
}

/// The same certificate, at the address that the server has after a restart.
fn reopened(sheaf: &Sheaf, user: &str) -> Http {
    let path = sheaf.scratch(&format!("{user}.kubeconfig"));
    let text = fs::read_to_string(&path).unwrap();
    let lines = text.lines().map(|line| match line.split_once("server: ") {
        Some((indent, _)) => format!("{indent}server: \"https://{}\"\n", sheaf.address()),
        None => format!("{line}\n"),
    });
    fs::write(&path, lines.collect::<String>()).unwrap();
    Http::from_kubeconfig(&path)
}

/// Waits until requests with a certificate are refused, and checks that the answer says why.
fn until_refused(client: &Http) {
    eventually("the certificate is refused", || {
        // The connection that was open is closed first.
        let request = Request::get("/api/v1/namespaces");
        client.try_send(request, "").is_ok_and(|reply| reply.status == 401)
    });
    assert_has(client.get("/api/v1/namespaces").refused(401), "was revoked");
}

#[test]
fn a_revoked_certificate_is_refused_and_its_watches_end() {
    let mut sheaf = Sheaf::start();
    let (jane, bob) = (issued(&sheaf, "jane"), issued(&sheaf, "bob"));
    let mut watch = jane.watch("/api/v1/namespaces");
    watch.next();
    let mut other = bob.watch("/api/v1/namespaces");
    other.next();
    let file = sheaf.scratch("jane.kubeconfig");
    let revoke = format!("certificate revoke --reason stolen --file {}", file.display());
    assert_has(sheaf.run(&revoke), "revoked: certificate ");
    until_refused(&jane);
    // Its stream ends, without waiting for the watch's own end.
    watch.until_end();
    assert_eq!(who(&bob), "bob");
    assert_has(sheaf.run("certificate list"), "stolen");
    assert_has(sheaf.refused(&revoke), "revoked already");
    let audit = fs::read_to_string(sheaf.data().join("audit/audit.log")).unwrap();
    assert_has(&audit, "sheaf-revoked-certificates");
    // An attempt to write leaves a line with the number of the certificate.
    jane.post(MAPS, &json!({"metadata": {"name": "x"}})).refused(401);
    eventually("the audit log has the attempt", || {
        let audit = fs::read_to_string(sheaf.data().join("audit/audit.log")).unwrap();
        audit.contains("sheaf.io/revoked-certificate")
    });

    // All certificates of a user, the one of a moment ago too; later ones are good.
    sheaf.run("certificate revoke --user bob");
    until_refused(&bob);
    other.until_end();
    sheaf.end();
    sheaf.begin();
    let (jane, bob) = (reopened(&sheaf, "jane"), reopened(&sheaf, "bob"));
    jane.get("/api/v1/namespaces").refused(401);
    bob.get("/api/v1/namespaces").refused(401);
    eventually("a certificate that is issued later is good", || {
        let again = issued(&sheaf, "bob");
        again.get("/api/v1/namespaces").status == 200
    });
    sheaf.run(&format!("certificate restore --file {}", file.display()));
    eventually("the certificate is good again", || jane.get("/api/v1/namespaces").status == 200);
}

#[test]
fn copies_of_the_administrators_kubeconfig_are_revoked_and_the_own_one_is_made_anew() {
    let sheaf = Sheaf::start();
    let copy = sheaf.scratch("copy.kubeconfig");
    fs::copy(sheaf.kubeconfig(), &copy).unwrap();
    let thief = Http::from_kubeconfig(&copy);
    thief.get("/api/v1/namespaces").ok();
    sheaf.run("certificate revoke --user system:admin");
    until_refused(&thief);
    eventually("the administrator has another certificate", || {
        sheaf.http().get("/api/v1/namespaces").status == 200
    });
}

#[test]
fn only_those_who_approve_certificates_revoke_them() {
    let sheaf = Sheaf::start();
    let (admin, mallory) = (sheaf.http(), tenant(&sheaf));
    sheaf.run("certificate revoke --serial abc123");
    let kubectl = sheaf.kubectl();
    kubectl.run("create rolebinding edit -n kube-system --clusterrole=edit --user=mallory");
    let nothing = json!({"data": {"serial.abc123": null}});
    eventually("the role is bound", || {
        mallory.get(&format!("{MAPS}/kube-root-ca.crt")).status == 200
    });
    let refusal = "not permitted to approve requests with signerName";
    assert_has(mallory.merge(REVOKED, &nothing).refused(403), refusal);
    assert_has(mallory.delete(REVOKED).refused(403), refusal);
    // A typing error does not go unnoticed, and the keys of tokens are written by servers only.
    for (key, part) in [("serial.xyz", "neither serial. nor user."), ("user.6a", "no revocation")] {
        assert_has(admin.merge(REVOKED, &json!({"data": {key: "{}"}})).refused(422), part);
    }
    assert_has(sheaf.refused("certificate revoke --user system:node:one"), "sheaf node remove one");
    let keys = format!("{MAPS}/sheaf-token-keys");
    for user in [&admin, &mallory] {
        let forged = user.merge(&keys, &json!({"data": {"forged": "x"}}));
        assert_has(forged.refused(403), "only API servers write the keys of tokens");
    }
}

fn token_request(bound: Value, seconds: i64) -> Value {
    json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds, "boundObjectRef": bound},
    })
}

#[test]
fn a_copied_seed_disk_is_worthless_once_its_machine_is_gone() {
    let node = Node::start();
    let (sheaf, kubectl) = (&node.sheaf, node.kubectl());
    kubectl.apply(&format!(
        "
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: a}}
spec:
  terminationGracePeriodSeconds: 0
  domain:
    memory: {{guest: 16Mi}}
    devices:
      disks:
      - {{name: root, disk: {{bus: virtio}}}}
      - {{name: account, disk: {{bus: virtio}}}}
  volumes:
  - name: root
    hostDisk: {{path: {}, type: Disk}}
  - {{name: account, serviceAccount: {{serviceAccountName: default}}}}
",
        node.disk("a.img").display()
    ));
    let vmi = node.until(&format!("{VMIS}/a"), "/status/phase", "Running");
    let mut disks = node.folders().into_iter().map(|folder| folder.join("seed-account.iso"));
    let stolen = fs::read(disks.find(|disk| disk.exists()).unwrap()).unwrap();
    let text = String::from_utf8_lossy(&stolen);
    let start = text.match_indices("eyJ").map(|(at, _)| at);
    let words = start.map(|at| text[at..].split(|c: char| c.is_whitespace() || c == '\0').next());
    let token = words.flatten().find(|word| word.split('.').count() == 3).unwrap().to_owned();
    let thief = sheaf.bearer(&token);
    assert_eq!(who(&thief), "system:serviceaccount:default:default");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token}});
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let admin = sheaf.http();
    assert_eq!(admin.post(reviews, &review).ok()["status"]["authenticated"], true);

    // A node gets no other tokens: not longer, not unbound, not of other accounts.
    let agent = admin.with("impersonate-user", "system:node:one");
    let agent = agent.with("impersonate-group", "system:nodes");
    let agent = agent.with("impersonate-group", "system:authenticated");
    let uid = vmi["metadata"]["uid"].as_str().unwrap();
    let bound = |uid: &str| {
        json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "a",
            "uid": uid})
    };
    agent.post(TOKENS, &token_request(bound(uid), 86400)).ok();
    for (request, code, part) in [
        (token_request(Value::Null, 600), 403, "not bound to a machine"),
        (token_request(bound(uid), 86401), 403, "lifetime of more than 86400 seconds"),
        (token_request(bound("other"), 600), 409, "does not match the UID in record"),
    ] {
        assert_has(agent.post(TOKENS, &request).refused(code), part);
    }
    assert_eq!(admin.get(ACCOUNT).status, 200);

    kubectl.run("delete vmi a");
    node.until_empty();
    eventually("the machine is gone", || admin.get(&format!("{VMIS}/a")).status == 404);
    assert_eq!(thief.get("/api").status, 401);
    let answer = admin.post(reviews, &review).ok();
    assert_has(answer["status"]["error"].as_str().unwrap(), "machine \"a\" has been deleted");
}

#[test]
fn token_keys_change_by_themselves_and_old_tokens_stay_good() {
    let mut sheaf = Sheaf::with(&["--token-key-lifetime=6s"]);
    let token = |sheaf: &Sheaf| {
        let request = token_request(Value::Null, 3600);
        let made = sheaf.http().post(TOKENS, &request).ok();
        made["status"]["token"].as_str().unwrap().to_owned()
    };
    let first = poll("the service account is there", || match sheaf.http().get(ACCOUNT).status {
        200 => Ok(token(&sheaf)),
        other => Err(other.to_string()),
    });
    let key = |token: &str| token.split('.').next().unwrap().to_owned();
    let mut tokens = vec![first];
    // Killed at any moment, it continues where it was.
    for _ in 0..3 {
        eventually("another key signs", || {
            let last = token(&sheaf);
            let is_other = key(&last) != key(tokens.last().unwrap());
            tokens.extend(is_other.then_some(last));
            is_other
        });
        sheaf.kill();
        sheaf.begin();
        for token in &tokens {
            assert_eq!(who(&sheaf.bearer(token)), "system:serviceaccount:default:default");
        }
    }
    let long = sheaf.http().post(TOKENS, &token_request(Value::Null, 400 * 86400));
    assert_has(long.warnings().join("\n"), "shortened to 31536000 seconds");
    assert_has(sheaf.run("certificate list"), "TOKEN KEY");
}
