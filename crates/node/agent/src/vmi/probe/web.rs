//! The question that an HTTP probe asks a guest, as kubelet asks it: any answer from 200 to 399
//! is good, and so is any certificate.

use std::pin::pin;
use std::sync::Arc;

use base::tls::NoCertVerification;
use bytes::Bytes;
use http::uri::Authority;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

/// Why a probe fails.
#[derive(Debug, thiserror::Error)]
pub(super) enum WebError {
    #[error("{0:?} is not a host")]
    Host(String),
    #[error("the guest does not speak TLS")]
    Tls(#[source] std::io::Error),
    #[error("the guest does not speak HTTP")]
    Http(#[from] hyper::Error),
    #[error("the probe is not a valid HTTP request")]
    Request(#[from] http::Error),
    #[error("HTTP probe failed with statuscode: {0}")]
    Status(u16),
}

/// Asks over a connection to the guest's port what `action` says.
pub(super) async fn get(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    action: &Value,
) -> Result<(), WebError> {
    let scheme = action["scheme"].as_str().unwrap_or("HTTP");
    if !scheme.eq_ignore_ascii_case("https") {
        return ask(stream, action).await;
    }
    let name = host(action).split(':').next().unwrap_or_default().to_owned();
    let server = ServerName::try_from(name.clone()).map_err(|_| WebError::Host(name))?;
    let stream = connector().connect(server, stream).await.map_err(WebError::Tls)?;
    ask(stream, action).await
}

/// The host that the request names: one of the headers counts, as with kubelet.
fn host(action: &Value) -> &str {
    let given = headers(action).find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let given = given.map(|(_, value)| value).or_else(|| action["host"].as_str());
    given.filter(|host| !host.is_empty()).unwrap_or("localhost")
}

fn headers(action: &Value) -> impl Iterator<Item = (&str, &str)> {
    let listed = action["httpHeaders"].as_array().into_iter().flatten();
    listed.filter_map(|own| Some((own["name"].as_str()?, own["value"].as_str()?)))
}

async fn ask(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    action: &Value,
) -> Result<(), WebError> {
    let (mut sender, connection) =
        http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await?;
    let request = request(action)?;
    let mut answer = pin!(sender.send_request(request));
    let answer = tokio::select! {
        answer = &mut answer => answer?,
        // It is there, or it never will be: a guest that has answered may close at once.
        _ = connection => answer.await?,
    };
    let status = answer.status().as_u16();
    if (200..400).contains(&status) { Ok(()) } else { Err(WebError::Status(status)) }
}

fn request(action: &Value) -> Result<http::Request<Empty<Bytes>>, WebError> {
    let host = host(action);
    let host: Authority = host.parse().map_err(|_| WebError::Host(host.to_owned()))?;
    let path = action["path"].as_str().unwrap_or_default();
    let slash = if path.starts_with('/') { "" } else { "/" };
    let own = ["host", "user-agent", "accept"];
    let given = |wanted: &str, default: &'static str| {
        let found = headers(action).find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map_or(default, |(_, value)| value).to_owned()
    };
    let mut request = http::Request::get(format!("{slash}{path}"))
        .header(http::header::HOST, host.as_str())
        .header(http::header::USER_AGENT, given("user-agent", "kube-probe/1.35"))
        .header(http::header::ACCEPT, given("accept", "*/*"))
        .header(http::header::CONNECTION, "close");
    for (name, value) in headers(action) {
        if !own.iter().any(|own| own.eq_ignore_ascii_case(name)) {
            request = request.header(name, value);
        }
    }
    Ok(request.body(Empty::new())?)
}

fn connector() -> TlsConnector {
    let provider = Arc::new(aws_lc_rs::default_provider());
    // A probe asks whether the guest answers, and not for its identity.
    let verifier = NoCertVerification::new(Arc::clone(&provider));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows the default versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use rustls::ServerConfig;
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// A server that answers one request, and returns the request.
    async fn serve(
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        answer: &'static str,
    ) -> String {
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => asked.push(byte),
                Err(_) => break,
            }
        }
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.shutdown().await;
        String::from_utf8(asked).unwrap()
    }

    fn pair() -> (DuplexStream, DuplexStream) {
        tokio::io::duplex(1 << 16)
    }

    #[tokio::test]
    async fn an_answer_is_good_or_bad_by_its_status() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", None),
            ("HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n", None),
            (
                "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n",
                Some("HTTP probe failed with statuscode: 503"),
            ),
            ("SSH-2.0-x\r\n", Some("the guest does not speak HTTP")),
        ] {
            let (ours, theirs) = pair();
            let action = json!({"port": 80});
            let (asked, _) = tokio::join!(get(ours, &action), serve(theirs, answer));
            assert_eq!(asked.err().map(|why| why.to_string()).as_deref(), expected, "{answer}");
        }
    }

    #[tokio::test]
    async fn the_request_is_what_the_probe_says() {
        let action = json!({"path": "health?x=1", "host": "web.example", "httpHeaders": [
            {"name": "Host", "value": "other.example"}, {"name": "X-Key", "value": "k"}]});
        let (ours, theirs) = pair();
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        let (asked, said) = tokio::join!(get(ours, &action), serve(theirs, answer));
        asked.unwrap();
        assert_eq!(
            said,
            "GET /health?x=1 HTTP/1.1\r\nhost: other.example\r\nuser-agent: kube-probe/1.35\r\n\
             accept: */*\r\nconnection: close\r\nx-key: k\r\n\r\n"
        );
        let bad = json!({"host": "not a host"});
        let refused = get(pair().0, &bad).await.unwrap_err();
        assert_eq!(refused.to_string(), "\"not a host\" is not a host");
    }

    #[tokio::test]
    async fn a_certificate_without_a_trusted_issuer_is_good_enough() {
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["another.example".to_owned()];
        let own = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.der().clone()], key.into())
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let action = json!({"scheme": "HTTPS"});
        let (ours, theirs) = pair();
        let answer = "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n";
        let guest = async { serve(acceptor.accept(theirs).await.unwrap(), answer).await };
        let (asked, _) = tokio::join!(get(ours, &action), guest);
        assert!(matches!(asked, Err(WebError::Status(503))), "accepting is not enough");
        let (ours, mut theirs) = pair();
        let plain = async { theirs.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await };
        let (asked, _) = tokio::join!(get(ours, &action), plain);
        assert!(matches!(asked, Err(WebError::Tls(_))), "{asked:?}");
    }
}
