use expect_test::{Expect, expect};

use super::*;

fn check(problems: &[String], expect: Expect) {
    expect.assert_eq(&problems.join("\n"));
}

#[test]
fn names_are_refused_in_upstreams_words() {
    check(
        &subdomain("Bad_Name"),
        expect![
            r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        ],
    );
    check(&subdomain(&"a".repeat(254)), expect!["must be no more than 253 characters"]);
    check(&label("a.b"), expect!["must not contain dots"]);
    check(
        &label("-a"),
        expect![
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        ],
    );
    check(
        &label_1035("1a"),
        expect![
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
        ],
    );
    check(
        &path_segment("a/b%"),
        expect![[r#"
        may not contain '/'
        may not contain '%'"#]],
    );
    check(&path_segment(".."), expect!["may not be '..'"]);
}

#[test]
fn keys_and_values_are_refused_in_upstreams_words() {
    check(&qualified_name("/x"), expect!["prefix part must be non-empty"]);
    check(
        &qualified_name("a/b/c"),
        expect![
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ],
    );
    check(
        &label_value("a b"),
        expect![
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        ],
    );
    check(
        &config_key("..a b"),
        expect![[r#"
            a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')
            must not start with '..'"#]],
    );
    check(
        &port_name("-1--2"),
        expect![[r#"
        must contain at least one letter (a-z)
        must not contain consecutive hyphens
        must not begin or end with a hyphen"#]],
    );
}

#[test]
fn good_values_pass() {
    for value in ["a", "a-b.c", "0.1", "example.com"] {
        assert_eq!(subdomain(value), Vec::<String>::new(), "{value}");
    }
    for value in ["a", "example.com/MyName", "kubernetes.io/metadata.name", "A_b.c-d"] {
        assert_eq!(qualified_name(value), Vec::<String>::new(), "{value}");
    }
    for value in ["http", "a1", "metrics-2"] {
        assert_eq!(port_name(value), Vec::<String>::new(), "{value}");
    }
    for value in ["10.0.0.0/8", "fd00::/64"] {
        assert_eq!(cidr(value), Vec::<String>::new(), "{value}");
    }
    assert_eq!(wildcard_subdomain("*.example.com"), Vec::<String>::new());
    assert_eq!(label_value(""), Vec::<String>::new());
    assert_eq!(path_segment("system:node"), Vec::<String>::new());
}
