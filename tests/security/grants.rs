//! A stolen certificate of the gateway, and grants that are for something else, at the endpoint of
//! an agent.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use auth::pki::endpoint::gateway_config;
use auth::pki::grant::{AgentGrant, GRANT_SIGNER, GrantSigner};
use auth::pki::{Pki, ServingNames, node_endpoint_name};
use auth::user::{GATEWAY, PLATFORM};
use base::clock;
use jiff::SignedDuration;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::Value;

use crate::cluster::lab::Wire;
use crate::harness::{Node, assert_has, eventually};

const PATH: &str = "/v1/report";

/// The keys of a management node, and the grants that they sign.
struct Thief {
    pki: Pki,
    address: String,
    node: String,
}

impl Thief {
    /// Reads a copy of the keys: opening them may renew certificates.
    fn new(data: &Path, address: String, node: String) -> Self {
        let copy = tempfile::tempdir().unwrap();
        for file in fs::read_dir(data.join("pki")).unwrap() {
            let file = file.unwrap();
            if file.file_type().unwrap().is_file() {
                fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
            }
        }
        let (pki, _) = Pki::open(copy.path(), &ServingNames::default(), clock::now()).unwrap();
        Self { pki, address, node }
    }

    fn signer(&self, name: &str) -> GrantSigner {
        let hour = SignedDuration::from_hours(1);
        GrantSigner::new(&self.pki.issue_client(name, &[PLATFORM], hour, clock::now()).unwrap())
            .unwrap()
    }

    fn grant(&self) -> AgentGrant {
        AgentGrant {
            node: self.node.clone(),
            method: "GET".to_owned(),
            path: PATH.to_owned(),
            user: "mallory".to_owned(),
            machine: None,
        }
    }

    fn tls(&self) -> Arc<ClientConfig> {
        let hour = SignedDuration::from_hours(1);
        let own = self.pki.issue_client(GATEWAY, &[PLATFORM], hour, clock::now()).unwrap();
        gateway_config(&self.pki.ca_pem(), &own).unwrap()
    }

    /// The answer to a request that comes with the certificate of the gateway.
    fn ask(&self, path: &str, grant: Option<&str>) -> String {
        let name = ServerName::try_from(node_endpoint_name(&self.node)).unwrap();
        let connection = ClientConnection::new(self.tls(), name).unwrap();
        let socket = TcpStream::connect((self.address.as_str(), 10250)).unwrap();
        let mut stream = StreamOwned::new(connection, socket);
        let grant = grant.map_or_else(String::new, |grant| format!("Sheaf-Grant: {grant}\r\n"));
        let text = format!("GET {path} HTTP/1.1\r\nHost: node\r\n{grant}Connection: close\r\n\r\n");
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // The end may come without a farewell of TLS.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

#[test]
fn the_certificate_of_the_gateway_alone_opens_no_agent() {
    let wire = Wire::new("shfgrant", "10.199.97");
    let mut one = Node::management(&wire.here());
    let node = "/api/v1/nodes/one";
    eventually("the node says that grants are signed", || {
        let found: Value = one.sheaf.http().get(node).ok();
        found["metadata"]["annotations"]["sheaf.io/agent-grants"] == "true"
    });
    one.sheaf.provokes("grant is refused");
    one.sheaf.provokes("request is refused");
    let thief = Thief::new(&one.sheaf.data(), wire.here(), "one".to_owned());
    assert_has(thief.ask(PATH, None), "the request has no grant of a management node");

    assert_has(thief.ask(PATH, Some("nonsense")), "the grant is not a token");
    let (signer, gateway) = (thief.signer(GRANT_SIGNER), thief.signer(GATEWAY));
    let asked = thief.grant();
    let old = SignedDuration::from_mins(2);
    let none = SignedDuration::ZERO;
    for (signer, grant, age, refusal) in [
        (&gateway, asked.clone(), none, "may not sign grants"),
        (&signer, asked.clone(), old, "the grant has expired"),
        (
            &signer,
            AgentGrant { node: "two".to_owned(), ..asked.clone() },
            none,
            "the grant is for the node two",
        ),
        (
            &signer,
            AgentGrant { path: "/v1/usage".to_owned(), ..asked.clone() },
            none,
            "the grant is for GET /v1/usage",
        ),
        (
            &signer,
            AgentGrant { method: "PUT".to_owned(), ..asked.clone() },
            none,
            "the grant is for PUT /v1/report",
        ),
    ] {
        // Each is signed just before its use: a grant is valid for a minute.
        let answer = thief.ask(PATH, Some(&signer.sign(grant, clock::now() - age)));
        assert_has(&answer, "403 Forbidden");
        assert_has(answer, refusal);
    }

    let valid = signer.sign(asked, clock::now());
    assert_has(thief.ask(PATH, Some(&valid)), "200 OK");
    assert_has(thief.ask(PATH, Some(&valid)), "the grant was used before");
    one.sheaf.terminate();
}
