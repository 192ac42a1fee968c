//! The query of a list: filters, order and pages as Steve has them. Pure.

use std::cmp::Ordering;

use serde_json::Value;

use crate::error::SteveError;

/// Most objects of one page, and the number that is returned when the client gives none.
const MOST: usize = 100_000;

/// The parameters of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ListQuery {
    /// All of them have to hold.
    filters: Vec<Filter>,
    sort: Vec<SortKey>,
    /// From 1; the first if only a size is given.
    page: Option<usize>,
    page_size: Option<usize>,
    limit: Option<usize>,
    continue_token: Option<String>,
    label_selector: Option<String>,
    field_selector: Option<String>,
    /// Fields to leave out of the answer.
    exclude: Vec<Vec<String>>,
    /// Only objects of these namespaces.
    namespaces: Vec<String>,
}

/// Alternatives, of which one has to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Filter(Vec<Term>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    field: Vec<String>,
    value: String,
    /// Without quotes, a part of the field's text is enough.
    exact: bool,
    negated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SortKey {
    field: Vec<String>,
    descending: bool,
}

/// One page of a filtered and sorted list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    /// How many there are on all pages.
    pub(crate) count: usize,
    /// How many pages there are; nothing if pages were not asked for.
    pub(crate) pages: Option<usize>,
}

impl ListQuery {
    pub(crate) fn parse(query: &str) -> Result<Self, SteveError> {
        let mut parsed = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "filter" if !value.is_empty() => parsed.filters.push(filter(&value)?),
                "sort" => parsed.sort = value.split(',').filter_map(sort_key).collect(),
                "page" => parsed.page = Some(number("page", &value, 1)?),
                "pagesize" => parsed.page_size = Some(number("pagesize", &value, 1)?),
                "limit" => parsed.limit = Some(number("limit", &value, 0)?),
                "continue" => parsed.continue_token = Some(value.into_owned()),
                "labelSelector" => parsed.label_selector = Some(value.into_owned()),
                "fieldSelector" => parsed.field_selector = Some(value.into_owned()),
                "exclude" => parsed.exclude.push(path(&value)),
                "projectsornamespaces" => {
                    let names = value.split(',').filter(|name| !name.is_empty());
                    parsed.namespaces.extend(names.map(str::to_owned));
                }
                _ => {}
            }
        }
        Ok(parsed)
    }

    /// The query of the list that is asked of the Kubernetes API.
    pub(crate) fn upstream(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("includeObject", "Object");
        let selectors =
            [("labelSelector", &self.label_selector), ("fieldSelector", &self.field_selector)];
        for (key, value) in selectors {
            if let Some(value) = value {
                query.append_pair(key, value);
            }
        }
        // Filtering or sorting here needs all objects.
        if !self.arranges() {
            if let Some(limit) = self.limit.filter(|limit| *limit > 0) {
                query.append_pair("limit", &limit.to_string());
            }
            if let Some(token) = &self.continue_token {
                query.append_pair("continue", token);
            }
        }
        query.finish()
    }

    fn arranges(&self) -> bool {
        !self.filters.is_empty()
            || !self.sort.is_empty()
            || self.page_size.is_some()
            || !self.namespaces.is_empty()
    }

    /// Filters, sorts and cuts to the page. `field` shows the object in an item.
    pub(crate) fn arrange<T>(&self, items: Vec<T>, field: impl Fn(&T) -> &Value) -> Page<T> {
        let wanted = |item: &T| {
            let object = field(item);
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            let here =
                self.namespaces.is_empty() || self.namespaces.iter().any(|name| name == namespace);
            here && self.filters.iter().all(|filter| filter.holds(object))
        };
        let mut items: Vec<T> = items.into_iter().filter(wanted).collect();
        if !self.sort.is_empty() {
            items.sort_by(|one, other| self.compare(field(one), field(other)));
        }
        let count = items.len();
        let Some(size) = self.page_size else {
            if self.arranges() {
                items.truncate(self.limit.filter(|limit| *limit > 0).unwrap_or(MOST));
            }
            return Page { items, count, pages: None };
        };
        let skip = (self.page.unwrap_or(1) - 1).saturating_mul(size);
        let items = items.into_iter().skip(skip).take(size).collect();
        Page { items, count, pages: Some(count.div_ceil(size)) }
    }

    fn compare(&self, one: &Value, other: &Value) -> Ordering {
        let keys = self.sort.iter().map(|key| {
            let order = compare(lookup(one, &key.field), lookup(other, &key.field));
            if key.descending { order.reverse() } else { order }
        });
        keys.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// Leaves out of a resource what was not wanted.
    pub(crate) fn prune(&self, resource: &mut Value) {
        for path in &self.exclude {
            let Some((last, parents)) = path.split_last() else { continue };
            let parent = parents.iter().try_fold(&mut *resource, |value, key| value.get_mut(key));
            if let Some(Value::Object(fields)) = parent {
                fields.remove(last);
            }
        }
    }
}

impl Filter {
    fn holds(&self, object: &Value) -> bool {
        self.0.iter().any(|term| term.holds(object))
    }
}

impl Term {
    fn holds(&self, object: &Value) -> bool {
        let found = texts(lookup(object, &self.field));
        let matches = found
            .iter()
            .any(|text| if self.exact { *text == self.value } else { text.contains(&self.value) });
        matches != self.negated
    }
}

fn filter(text: &str) -> Result<Filter, SteveError> {
    let mut terms = Vec::new();
    for part in text.split(',') {
        let Some((field, value)) = part.split_once('=') else {
            return Err(SteveError::bad_request(format!(
                "filter {part:?} is wrong: it has to be FIELD=VALUE or FIELD!=VALUE"
            )));
        };
        let (field, negated) =
            field.strip_suffix('!').map_or((field, false), |field| (field, true));
        let quoted =
            value.strip_prefix(['\'', '"']).and_then(|value| value.strip_suffix(['\'', '"']));
        terms.push(Term {
            field: path(field),
            value: quoted.unwrap_or(value).to_owned(),
            exact: quoted.is_some(),
            negated,
        });
    }
    Ok(Filter(terms))
}

fn sort_key(text: &str) -> Option<SortKey> {
    let (field, descending) = text.strip_prefix('-').map_or((text, false), |field| (field, true));
    (!field.is_empty()).then(|| SortKey { field: path(field), descending })
}

fn number(name: &str, text: &str, least: usize) -> Result<usize, SteveError> {
    text.parse::<usize>().ok().filter(|number| *number >= least).ok_or_else(|| {
        SteveError::bad_request(format!(
            "{name} {text:?} is wrong: it has to be a whole number of at least {least}"
        ))
    })
}

/// `metadata.labels[a.b/c].d` in its parts.
fn path(text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (key, after) = inner.split_once(']').unwrap_or((inner, ""));
            parts.push(key.trim_matches(['"', '\'']).to_owned());
            rest = after.strip_prefix('.').unwrap_or(after);
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            parts.push(rest[..end].to_owned());
            let after = &rest[end..];
            rest = after.strip_prefix('.').unwrap_or(after);
        }
    }
    parts
}

fn lookup<'a>(object: &'a Value, path: &[String]) -> &'a Value {
    path.iter().fold(object, |value, key| {
        match value {
            Value::Array(items) => key.parse::<usize>().ok().and_then(|at| items.get(at)),
            other => other.get(key),
        }
        .unwrap_or(&Value::Null)
    })
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Null => Vec::new(),
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        other => vec![other.to_string()],
    }
}

fn compare(one: &Value, other: &Value) -> Ordering {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        _ => texts(one).cmp(&texts(other)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(query: &str) -> (String, usize, Option<usize>) {
        let object = |name: &str, namespace: &str, cores: u32, label: &str| {
            json!({
                "metadata": {"name": name, "namespace": namespace, "labels": {"a.io/b": label}},
                "spec": {"cores": cores},
            })
        };
        let items = vec![
            object("web", "n", 9, "x"),
            object("db", "n", 10, "y"),
            object("web-2", "m", 1, "y"),
        ];
        let page = ListQuery::parse(query).unwrap().arrange(items, |item| item);
        let names: Vec<_> =
            page.items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
        (names.join(" "), page.count, page.pages)
    }

    #[test]
    fn lists_are_filtered_sorted_and_cut() {
        for (query, expected, count, pages) in [
            ("", "web db web-2", 3, None),
            ("filter=metadata.name=web", "web web-2", 2, None),
            ("filter=metadata.name='web'", "web", 1, None),
            ("filter=metadata.name!=web", "db", 1, None),
            ("filter=metadata.name=db,metadata.namespace=m", "db web-2", 2, None),
            ("filter=metadata.name=web&filter=metadata.namespace=m", "web-2", 1, None),
            ("filter=metadata.labels[a.io/b]=y", "db web-2", 2, None),
            ("filter=spec.absent=1", "", 0, None),
            ("sort=metadata.name", "db web web-2", 3, None),
            ("sort=-spec.cores", "db web web-2", 3, None),
            ("sort=metadata.namespace,-metadata.name", "web-2 web db", 3, None),
            ("sort=metadata.name&limit=1", "db", 3, None),
            ("pagesize=2", "web db", 3, Some(2)),
            ("pagesize=2&page=2", "web-2", 3, Some(2)),
            ("pagesize=2&page=9", "", 3, Some(2)),
            ("projectsornamespaces=m", "web-2", 1, None),
        ] {
            assert_eq!(names(query), (expected.to_owned(), count, pages), "{query}");
        }
    }

    #[test]
    fn wrong_parameters_are_refused_by_name() {
        for (query, part) in [
            ("filter=abc", "filter \"abc\""),
            ("page=0", "page \"0\""),
            ("pagesize=x", "pagesize \"x\""),
            ("limit=-1", "limit \"-1\""),
        ] {
            let error = ListQuery::parse(query).unwrap_err();
            assert!(error.message.contains(part) && error.status == 400, "{error:?}");
        }
    }

    #[test]
    fn only_what_is_not_arranged_here_is_limited_upstream() {
        let upstream = |query: &str| ListQuery::parse(query).unwrap().upstream();
        assert_eq!(upstream("limit=2&continue=t"), "includeObject=Object&limit=2&continue=t");
        assert_eq!(upstream("limit=2&sort=a"), "includeObject=Object");
        assert_eq!(upstream("labelSelector=a%3Db"), "includeObject=Object&labelSelector=a%3Db");
    }

    #[test]
    fn fields_can_be_left_out() {
        let mut object = json!({"metadata": {"managedFields": [], "name": "a"}});
        ListQuery::parse("exclude=metadata.managedFields&exclude=a.b").unwrap().prune(&mut object);
        assert_eq!(object, json!({"metadata": {"name": "a"}}));
    }
}
