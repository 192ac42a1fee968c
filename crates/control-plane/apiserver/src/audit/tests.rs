use super::*;

#[tokio::test]
async fn notes_reach_the_request_they_are_made_in() {
    annotate("a", || panic!("there is no audit log"));
    note_created("unnoticed");
    let found = NOTES
        .scope(RefCell::default(), async {
            annotate("a", || "first".to_owned());
            annotate("a", || "second".to_owned());
            note_created("web");
            NOTES.with(|notes| notes.take())
        })
        .await;
    assert_eq!(found.annotations, BTreeMap::from([("a".to_owned(), "first".to_owned())]));
    assert_eq!(found.created.as_deref(), Some("web"));
}
