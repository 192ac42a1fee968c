//! An OpenID Connect provider: documents and tokens over TLS, and a key to sign with.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PublicKeyData as _,
    SigningKey as _,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The client that logs in here, and its secret.
pub(crate) const CLIENT: &str = "sheaf";
pub(crate) const CLIENT_SECRET: &str = "s3cret of the client";

pub(crate) struct OidcIssuer {
    pub(crate) url: String,
    pub(crate) ca: String,
    pub(crate) key: Arc<Mutex<KeyPair>>,
    /// The challenge and the claims of each code that was not used yet.
    codes: Arc<Mutex<HashMap<String, (String, Value)>>>,
}

impl OidcIssuer {
    pub(crate) fn start() -> Self {
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "issuer of a test");
        let ca = authority.self_signed(&authority_key).unwrap().pem();
        let config = Arc::new(serving(&Issuer::new(authority, authority_key)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let own = Self { url, ca, key: new_key(), codes: Arc::default() };
        let (url, key, codes) = (own.url.clone(), own.key.clone(), own.codes.clone());
        let served = Self { url, ca: String::new(), key, codes };
        thread::spawn(move || {
            for stream in listener.incoming() {
                served.serve(&config, stream.unwrap());
            }
        });
        own
    }

    /// Another one that claims to be the same, with a key of its own.
    pub(crate) fn forged(&self) -> Self {
        let (url, codes) = (self.url.clone(), Arc::default());
        Self { url, ca: String::new(), key: new_key(), codes }
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        let key = self.key.lock().unwrap();
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({"alg": "ES256", "kid": jwk(&key)["kid"]});
        let text = format!("{}.{}", part(&header), part(claims));
        // A signature in a certificate is two numbers in ASN.1; in a token they lie bare.
        let der = key.sign(text.as_bytes()).unwrap();
        let mut bare = Vec::new();
        let mut at = 2;
        for _ in 0..2 {
            let length = usize::from(der[at + 1]);
            let number = &der[at + 2..at + 2 + length];
            let number: Vec<u8> = number.iter().copied().skip_while(|byte| *byte == 0).collect();
            bare.extend(vec![0; 32 - number.len()]);
            bare.extend(number);
            at += 2 + length;
        }
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(bare))
    }

    /// A user logs in on the page of this address; the browser is sent back with this query.
    pub(crate) fn log_in(&self, address: &str, claims: &Value) -> String {
        let query = address.strip_prefix(&format!("{}/auth?", self.url)).expect(address);
        let asked = pairs(query.as_bytes());
        assert_eq!((&*asked["client_id"], &*asked["response_type"]), (CLIENT, "code"));
        assert_eq!(asked["code_challenge_method"], "S256");
        let mut claims = claims.clone();
        if claims.get("nonce").is_none() {
            claims["nonce"] = asked["nonce"].clone().into();
        }
        let mut codes = self.codes.lock().unwrap();
        let code = format!("code-{}", codes.len());
        codes.insert(code.clone(), (asked["code_challenge"].clone(), claims));
        format!("code={code}&state={}", asked["state"])
    }

    fn serve(&self, config: &Arc<ServerConfig>, stream: TcpStream) {
        let connection = ServerConnection::new(Arc::clone(config)).unwrap();
        let mut tls = BufReader::new(StreamOwned::new(connection, stream));
        let Some((path, authorization, body)) = read(&mut tls) else { return };
        let own = &self.url;
        let (status, reply) = match &*path {
            "/.well-known/openid-configuration" => {
                let document = json!({
                    "issuer": own, "jwks_uri": format!("{own}/keys"),
                    "authorization_endpoint": format!("{own}/auth"),
                    "token_endpoint": format!("{own}/token"),
                });
                ("200 OK", document)
            }
            "/keys" => ("200 OK", json!({"keys": [jwk(&self.key.lock().unwrap())]})),
            "/token" => match self.exchange(&authorization, &body) {
                Ok(token) => ("200 OK", json!({"id_token": token, "token_type": "Bearer"})),
                Err(error) => ("400 Bad Request", json!({"error": error})),
            },
            _ => ("404 Not Found", json!({})),
        };
        let reply = reply.to_string();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            reply.len()
        );
        let _ = tls.get_mut().write_all((head + &reply).as_bytes());
        tls.get_mut().conn.send_close_notify();
        let _ = tls.get_mut().flush();
    }

    fn exchange(&self, authorization: &str, body: &[u8]) -> Result<String, &'static str> {
        let encoded: String = form_urlencoded::byte_serialize(CLIENT_SECRET.as_bytes()).collect();
        if authorization != format!("Basic {}", STANDARD.encode(format!("{CLIENT}:{encoded}"))) {
            return Err("invalid_client");
        }
        let form = pairs(body);
        let known = self.codes.lock().unwrap().remove(&form["code"]);
        let (challenge, claims) = known.ok_or("invalid_grant")?;
        if URL_SAFE_NO_PAD.encode(Sha256::digest(&form["code_verifier"])) != challenge {
            return Err("invalid_grant");
        }
        Ok(self.token(&claims))
    }
}

fn new_key() -> Arc<Mutex<KeyPair>> {
    Arc::new(Mutex::new(KeyPair::generate().unwrap()))
}

fn serving(issuer: &Issuer<'_, KeyPair>) -> ServerConfig {
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let cert = CertificateParams::new(names).unwrap().signed_by(&key, issuer).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![cert.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap()
}

/// The path of a request, its authorization and its body.
fn read(
    tls: &mut BufReader<StreamOwned<ServerConnection, TcpStream>>,
) -> Option<(String, String, Vec<u8>)> {
    let mut line = String::new();
    tls.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let (mut authorization, mut length) = (String::new(), 0);
    loop {
        line.clear();
        tls.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match &*name.to_ascii_lowercase() {
            "authorization" => value.clone_into(&mut authorization),
            "content-length" => length = value.parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    tls.read_exact(&mut body).ok()?;
    Some((path, authorization, body))
}

fn pairs(form: &[u8]) -> HashMap<String, String> {
    form_urlencoded::parse(form).into_owned().collect()
}

fn jwk(key: &KeyPair) -> Value {
    let point = key.der_bytes();
    let (x, y) = point[1..].split_at(32);
    let id = URL_SAFE_NO_PAD.encode(&x[..9]);
    json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": id,
        "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y)})
}
