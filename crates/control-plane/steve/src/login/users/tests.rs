use super::*;

#[test]
fn names_of_users_are_names_of_objects() {
    for (name, good) in [
        ("admin", true),
        ("a-1", true),
        ("", false),
        ("Admin", false),
        ("-a", false),
        ("a/b", false),
        ("system:admin", false),
        ("a b", false),
    ] {
        assert_eq!(is_name(name), good, "{name:?}");
    }
}
