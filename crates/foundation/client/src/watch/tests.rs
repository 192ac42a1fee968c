//! The follower against a scripted server.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Mutex;

use http::Response;
use http_body_util::Full;

use super::*;
use crate::catalog::Catalog;

fn nodes() -> Arc<CatalogKind> {
    let core = serde_json::from_str(
        r#"{"items":[{"versions":[{"version":"v1","resources":[{"resource":"nodes",
        "scope":"Cluster","responseKind":{"kind":"Node"},"verbs":["list","watch"]}]}]}]}"#,
    );
    Arc::clone(Catalog::read(&[core.unwrap()]).resource("", "nodes").unwrap())
}

/// Answers each request with the next of `answers`; then with an empty, open stream's end.
fn scripted(answers: &[(u16, &str)]) -> (Client, Arc<Mutex<Vec<String>>>) {
    let answers: VecDeque<(u16, String)> =
        answers.iter().map(|(code, body)| (*code, (*body).to_owned())).collect();
    let (answers, asked) = (Arc::new(Mutex::new(answers)), Arc::new(Mutex::new(Vec::new())));
    let log = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        log.lock().unwrap().push(request.uri().query().unwrap_or_default().to_owned());
        let answer = answers.lock().unwrap().pop_front();
        async move {
            match answer {
                Some((code, body)) => {
                    let mut response = Response::new(Full::new(Bytes::from(body)));
                    *response.status_mut() = StatusCode::from_u16(code).unwrap();
                    Ok::<_, Infallible>(response)
                }
                None => std::future::pending().await,
            }
        }
    });
    (crate::in_process(service, |_| {}), asked)
}

async fn changes(answers: &[(u16, &str)], count: usize) -> (Vec<String>, Vec<String>) {
    let (client, asked) = scripted(answers);
    let (sender, mut updates) = mpsc::channel(16);
    let follower = tokio::spawn(follow(client, nodes(), Some("a=b/c"), sender));
    let mut seen = Vec::new();
    while seen.len() < count {
        seen.push(match updates.recv().await.unwrap().change {
            FeedChange::Applied(meta) => format!("+{}", meta.name),
            FeedChange::Deleted(meta) => format!("-{}", meta.name),
            other => format!("{other:?}"),
        });
    }
    follower.abort();
    let asked = asked.lock().unwrap().clone();
    (seen, asked)
}

const LIST: &str =
    r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"a","uid":"1"}}]}"#;

#[tokio::test(start_paused = true)]
async fn pages_are_joined_and_the_watch_goes_on_from_the_list() {
    let first = r#"{"metadata":{"resourceVersion":"4","continue":"x/="},
        "items":[{"metadata":{"name":"z"}}]}"#;
    let events = concat!(
        r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"6"}}}"#,
        "\n",
        r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#,
        "\n",
        r#"{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"10"}}}"#,
        "\n",
    );
    let answers = [(200, first), (200, LIST), (200, events), (200, ""), (200, events)];
    let (seen, asked) = changes(&answers, 8).await;
    assert_eq!(seen, ["Listing", "+z", "+a", "Listed", "+a", "-a", "+a", "-a"]);
    assert!(asked[0].contains("fieldSelector=a%3Db%2Fc"));
    assert!(asked[1].contains("continue=x%2F%3D"));
    assert!(asked[2].contains("resourceVersion=5"));
    assert!(asked[3].contains("resourceVersion=10"));
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_means_a_new_list() {
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410}}"#;
    let gone = format!("{gone}\n");
    let (seen, _) = changes(&[(200, LIST), (200, &gone), (200, LIST)], 6).await;
    assert_eq!(seen, ["Listing", "+a", "Listed", "Listing", "+a", "Listed"]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_retried() {
    let (seen, _) = changes(&[(503, "busy"), (200, LIST)], 4).await;
    assert_eq!(seen, ["Listing", "Listing", "+a", "Listed"]);
}
