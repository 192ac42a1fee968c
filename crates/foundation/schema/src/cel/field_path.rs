//! `fieldPath` of a rule: `.spec.foo`, `.spec['foo']`.

use crate::node::{Additional, SchemaNode};

/// The path as errors print it (`spec.foo`, `map[key]`), if the schema has such a field.
pub(crate) fn resolve(path: &str, schema: &SchemaNode) -> Option<String> {
    let mut node = schema;
    let mut text = String::new();
    let mut rest = path;
    while !rest.is_empty() {
        let (name, after) = next(rest)?;
        let name = name.as_str();
        if node.properties.is_empty() {
            let Additional::Of(values) = &node.additional else { return None };
            text.push_str(&format!("[{name}]"));
            node = values;
        } else {
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(name);
            node = node.property(name)?;
        }
        rest = after;
    }
    Some(text)
}

fn next(path: &str) -> Option<(String, &str)> {
    if let Some(rest) = path.strip_prefix('.') {
        let end = rest.find(['.', '[', ']']).unwrap_or(rest.len());
        return (end > 0).then(|| (rest[..end].to_owned(), &rest[end..]));
    }
    let mut name = String::new();
    let rest = path.strip_prefix("['")?;
    let mut chars = rest.char_indices();
    while let Some((at, next)) = chars.next() {
        match next {
            '\'' => return Some((name, rest[at + 1..].strip_prefix(']')?)),
            '\\' => name.push(unescape(chars.next()?.1)?),
            other => name.push(other),
        }
    }
    None
}

fn unescape(directive: char) -> Option<char> {
    Some(match directive {
        'a' => '\x07',
        'b' => '\x08',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        '\'' | '\\' => directive,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_follow_the_schema() {
        let schema = crate::parse(&json!({"properties": {
            "foo": {"properties": {"b.a'r": {}, "34": {}}},
            "map": {"additionalProperties": {"properties": {"x": {}}}},
        }}))
        .unwrap();
        let check = |path, text: Option<&str>| assert_eq!(resolve(path, &schema).as_deref(), text);
        check(".foo", Some("foo"));
        check(".foo['b.a\\'r']", Some("foo.b.a'r"));
        check(".foo.34", Some("foo.34"));
        check("['foo']", Some("foo"));
        check(".map.key.x", Some("map[key].x"));
        check(".map['a.b']", Some("map[a.b]"));
        for wrong in
            ["foo", ".", ".bar", ".foo.bar", ".foo[0]", ".foo['34'", ".foo['34", ".foo['\\q']"]
        {
            check(wrong, None);
        }
    }
}
