//! Indented JSON for people: `?pretty=true`, `Accept: application/json;pretty=1`, curl, Wget and browsers.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{StatusCode, request};
use http_body_util::BodyExt as _;
use serde_json::Value;

use crate::http::negotiate;
use crate::http::options::Query;
use crate::http::respond::{self, HttpReply};

/// Programs whose output a person reads, by the beginning of their user agent; upstream's list.
const INTERACTIVE_AGENTS: [&str; 3] = ["curl", "Wget", "Mozilla/5.0"];

/// Whether a request wants indented JSON. The query decides over everything else.
pub(crate) fn is_wanted(parts: &request::Parts, query: &Query) -> bool {
    if let Some(given) = query.get("pretty").filter(|given| !given.is_empty()) {
        return matches!(given, "1" | "t" | "T" | "TRUE" | "true" | "True");
    }
    let asked = negotiate::clauses(&parts.headers);
    if asked.first().and_then(|clause| clause.param("pretty")) == Some("1") {
        return true;
    }
    let agent = parts.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or("");
    INTERACTIVE_AGENTS.iter().any(|known| agent.starts_with(known))
}

/// The same reply with an indented body, if it is JSON.
pub(crate) async fn indented(reply: HttpReply) -> HttpReply {
    let is_json = reply.headers().get(CONTENT_TYPE).is_some_and(|media| {
        media.to_str().is_ok_and(|media| media.split(';').next() == Some("application/json"))
    });
    if !is_json || reply.headers().contains_key(CONTENT_ENCODING) {
        return reply;
    }
    let (head, body) = reply.into_parts();
    let bytes = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(never) => match never {},
    };
    HttpReply::from_parts(head, respond::full(Bytes::from(indent(&bytes))))
}

/// A small document that upstream indents for all clients.
pub(crate) fn json(value: &Value) -> HttpReply {
    let bytes = Bytes::from(indent(value.to_string().as_bytes()));
    respond::reply(StatusCode::OK, "application/json", respond::full(bytes))
}

/// Puts every member and element of valid JSON on a line of its own, two spaces deeper than what contains
/// it. The tokens themselves stay as they are, digits of numbers and order of members included.
fn indent(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    let mut bytes = json.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if in_string {
            out.push(byte);
            in_string = escaped || byte != b'"';
            escaped = byte == b'\\' && !escaped;
            continue;
        }
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => {}
            b'{' | b'[' => {
                out.push(byte);
                while bytes.next_if(u8::is_ascii_whitespace).is_some() {}
                match bytes.next_if(|next| matches!(next, b'}' | b']')) {
                    Some(close) => out.push(close),
                    None => {
                        depth += 1;
                        new_line(&mut out, depth);
                    }
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                new_line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            _ => {
                in_string = byte == b'"';
                out.push(byte);
            }
        }
    }
    out
}

fn new_line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.resize(out.len() + 2 * depth, b' ');
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn json_is_indented_like_upstream_does() {
        for (compact, expected) in [
            ("{}", "{}"),
            ("[ ]", "[]"),
            (r#"{"a":1}"#, "{\n  \"a\": 1\n}"),
            (
                r#"{"a":[1,{"b":{}}],"c":"x,{\":\\"}"#,
                "{\n  \"a\": [\n    1,\n    {\n      \"b\": {}\n    }\n  ],\n  \"c\": \"x,{\\\":\\\\\"\n}",
            ),
            ("{\n \"a\" : 1.50 }", "{\n  \"a\": 1.50\n}"),
        ] {
            assert_eq!(String::from_utf8(indent(compact.as_bytes())).unwrap(), expected);
        }
    }

    #[test]
    fn people_get_indented_json_unless_the_query_says_otherwise() {
        for (agent, accept, query, expected) in [
            ("curl/8.5.0", "*/*", "", true),
            ("Wget/1.21", "*/*", "", true),
            ("Mozilla/5.0 (X11)", "text/html,*/*;q=0.8", "", true),
            ("kubectl/v1.33", "application/json", "", false),
            ("kubectl/v1.33", "application/json;pretty=1", "", true),
            ("kubectl/v1.33", "application/json", "pretty=true", true),
            ("kubectl/v1.33", "application/json", "pretty=nonsense", false),
            ("curl/8.5.0", "*/*", "pretty=false", false),
            ("curl/8.5.0", "*/*", "pretty=", true),
            ("", "", "", false),
        ] {
            let request = Request::get("/").header("user-agent", agent).header("accept", accept);
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let wanted = is_wanted(&parts, &Query::parse(query));
            assert_eq!(wanted, expected, "{agent:?} {accept:?} {query:?}");
        }
    }
}
