//! Query parameters: read by name, checked, turned into types.
//!
//! Unknown parameters are ignored; a known one with a bad value is a 400, and
//! combinations that make no sense are a 422, as informers rely on.

use std::collections::HashMap;

use schema::FieldError;

use crate::status::{ApiError, ApiResult};
use crate::verbs::selector::{FieldSelector, LabelSelector};

/// The raw parameters; the first of several wins, except where lists are meant.
#[derive(Debug, Default)]
pub(crate) struct Query(HashMap<String, Vec<String>>);

impl Query {
    pub(crate) fn parse(query: &str) -> Self {
        let mut all: HashMap<String, Vec<String>> = HashMap::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            all.entry(name.into_owned()).or_default().push(value.into_owned());
        }
        Self(all)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.first().map(String::as_str)
    }

    pub(crate) fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Go's `strconv.ParseBool`, where a bare name counts as true.
    pub(crate) fn flag(&self, name: &str) -> ApiResult<Option<bool>> {
        match self.get(name) {
            None => Ok(None),
            Some("" | "1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(Some(true)),
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(Some(false)),
            Some(other) => Err(ApiError::bad_request(format!(
                "invalid value {other:?} for query parameter {name}: must be true or false"
            ))),
        }
    }

    pub(crate) fn number(&self, name: &str) -> ApiResult<Option<i64>> {
        match self.get(name) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            }),
        }
    }

    /// `watch` is true unless it says that it is not; anything unreadable counts as true.
    pub(crate) fn wants_watch(&self) -> bool {
        self.flag("watch").unwrap_or(Some(true)).unwrap_or(false)
    }
}

/// Which version of the data a read accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// Everything acknowledged before the request.
    Latest,
    /// The state that this server has in memory.
    Any,
    NotOlderThan(u64),
    Exact(u64),
}

/// Options of list and watch.
#[derive(Debug)]
pub(crate) struct ListOptions {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    pub limit: Option<usize>,
    pub continue_token: Option<String>,
    /// The revision as sent; `None` for an empty one.
    pub revision: Option<u64>,
    pub freshness: Freshness,
    pub bookmarks: bool,
    pub initial_events: Option<bool>,
    pub timeout_seconds: Option<u64>,
}

/// `resourceVersion` as a number; an empty one is absent.
pub(crate) fn revision(query: &Query) -> ApiResult<Option<u64>> {
    match query.get("resourceVersion") {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        }),
    }
}

impl ListOptions {
    pub(crate) fn parse(query: &Query, watch: bool) -> ApiResult<Self> {
        let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or(""))
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        let fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or(""))
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        let limit = query.number("limit")?.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.filter(|limit| *limit > 0);
        let continue_token =
            query.get("continue").filter(|token| !token.is_empty()).map(str::to_owned);
        let revision = revision(query)?;
        let initial_events = query.flag("sendInitialEvents")?;
        let matching = query.get("resourceVersionMatch").filter(|text| !text.is_empty());
        let bookmarks = query.flag("allowWatchBookmarks")?.unwrap_or(false);
        if watch {
            check_watch(matching, initial_events)?;
        } else {
            check_list(matching, query, continue_token.is_some(), initial_events)?;
        }
        let freshness = match (revision, matching) {
            (None, _) => Freshness::Latest,
            (Some(0), _) => Freshness::Any,
            (Some(revision), Some("Exact")) => Freshness::Exact(revision),
            // Before resourceVersionMatch existed, a limit made the revision exact.
            (Some(revision), None) if !watch && limit.is_some() => Freshness::Exact(revision),
            (Some(revision), _) => Freshness::NotOlderThan(revision),
        };
        let timeout_seconds = query
            .number("timeoutSeconds")?
            .and_then(|seconds| u64::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0);
        Ok(Self {
            labels,
            fields,
            limit,
            continue_token,
            revision,
            freshness,
            bookmarks,
            initial_events,
            timeout_seconds,
        })
    }
}

fn check_list(
    matching: Option<&str>,
    query: &Query,
    continued: bool,
    initial_events: Option<bool>,
) -> ApiResult<()> {
    let mut errors = Vec::new();
    let field = "resourceVersionMatch";
    if initial_events.is_some() {
        errors.push(FieldError::forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        ));
    }
    if let Some(matching) = matching {
        let version = query.get("resourceVersion").unwrap_or("");
        if version.is_empty() {
            errors.push(FieldError::forbidden(
                field,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if continued {
            errors.push(FieldError::forbidden(
                field,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            errors.push(FieldError::not_supported(field, matching, &["Exact", "NotOlderThan", ""]));
        }
        if matching == "Exact" && version == "0" {
            errors.push(FieldError::forbidden(
                field,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
    }
    finish(&errors)
}

fn check_watch(matching: Option<&str>, initial_events: Option<bool>) -> ApiResult<()> {
    let mut errors = Vec::new();
    let field = "resourceVersionMatch";
    match (initial_events, matching) {
        (None, Some(_)) => errors.push(FieldError::forbidden(
            field,
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )),
        (Some(_), None) => errors.push(FieldError::forbidden(
            field,
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        )),
        (Some(_), Some("NotOlderThan")) | (None, None) => {}
        (Some(_), Some(other)) => {
            errors.push(FieldError::not_supported(field, other, &["NotOlderThan"]));
        }
    }
    finish(&errors)
}

fn finish(errors: &[FieldError]) -> ApiResult<()> {
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid_options("ListOptions", errors)) }
}

/// The treatment of fields that are not in the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// Options that all writes share.
#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    pub dry_run: bool,
    pub field_manager: Option<String>,
    pub field_validation: FieldValidation,
    pub force: Option<bool>,
}

impl WriteOptions {
    /// `kind` is what errors call it: CreateOptions, UpdateOptions, PatchOptions.
    pub(crate) fn parse(query: &Query, kind: &str) -> ApiResult<Self> {
        let mut errors = Vec::new();
        let dry_run = dry_run(query.all("dryRun"), &mut errors);
        let field_manager = query.get("fieldManager").filter(|m| !m.is_empty()).map(str::to_owned);
        if let Some(manager) = &field_manager {
            check_manager(manager, &mut errors);
        }
        let field_validation = match query.get("fieldValidation") {
            None | Some("" | "Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                errors.push(FieldError::not_supported(
                    "fieldValidation",
                    other,
                    &["", "Ignore", "Strict", "Warn"],
                ));
                FieldValidation::Warn
            }
        };
        let force = query.flag("force")?;
        if errors.is_empty() {
            Ok(Self { dry_run, field_manager, field_validation, force })
        } else {
            Err(ApiError::invalid_options(kind, &errors))
        }
    }
}

pub(crate) fn dry_run(values: &[String], errors: &mut Vec<FieldError>) -> bool {
    if values.iter().any(|value| !value.is_empty() && value != "All") {
        errors.push(FieldError::not_supported("dryRun", values.to_vec(), &["All"]));
    }
    values.iter().any(|value| value == "All")
}

fn check_manager(manager: &str, errors: &mut Vec<FieldError>) {
    if manager.len() > 128 {
        errors.push(FieldError::too_long("fieldManager", 128));
    }
    if manager.chars().any(char::is_control) {
        errors.push(FieldError::invalid(
            "fieldManager",
            manager,
            "should only contain printable characters",
        ));
    }
}

/// How long a call may take: `?timeout=32s`, Go duration syntax, capped at a minute;
/// nothing and zero are a minute too.
pub(crate) fn timeout(query: &Query) -> ApiResult<std::time::Duration> {
    const MOST: std::time::Duration = std::time::Duration::from_secs(60);
    let Some(text) = query.get("timeout").filter(|text| !text.is_empty()) else {
        return Ok(MOST);
    };
    match go_duration(text) {
        Some(wanted) if wanted.is_zero() => Ok(MOST),
        Some(wanted) => Ok(wanted.min(MOST)),
        None => Err(ApiError::bad_request(format!(
            "invalid timeout specified in the request URL: {text:?}"
        ))),
    }
}

/// `1h2m3.5s`, `300ms`, `0`.
fn go_duration(text: &str) -> Option<std::time::Duration> {
    let mut rest = text;
    let mut seconds = 0.0;
    if rest == "0" {
        return Some(std::time::Duration::ZERO);
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let amount: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        seconds += amount
            * match &rest[..unit] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    std::time::Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(query: &str) -> ApiResult<ListOptions> {
        ListOptions::parse(&Query::parse(query), false)
    }

    fn watch(query: &str) -> ApiResult<ListOptions> {
        ListOptions::parse(&Query::parse(query), true)
    }

    #[test]
    fn list_revision_rules() {
        let freshness = |query: &str| list(query).unwrap().freshness;
        assert_eq!(freshness(""), Freshness::Latest);
        assert_eq!(freshness("resourceVersion=0&limit=500"), Freshness::Any);
        assert_eq!(freshness("resourceVersion=7"), Freshness::NotOlderThan(7));
        assert_eq!(freshness("resourceVersion=7&limit=1"), Freshness::Exact(7));
        assert_eq!(
            freshness("resourceVersion=7&limit=1&resourceVersionMatch=NotOlderThan"),
            Freshness::NotOlderThan(7)
        );
        for bad in [
            "resourceVersionMatch=Exact",
            "resourceVersion=0&resourceVersionMatch=Exact",
            "resourceVersion=1&resourceVersionMatch=x",
            "resourceVersion=1&resourceVersionMatch=Exact&continue=abc",
            "sendInitialEvents=true",
        ] {
            assert_eq!(list(bad).unwrap_err().code().as_u16(), 422, "{bad}");
        }
        assert_eq!(list("resourceVersion=abc").unwrap_err().code().as_u16(), 400);
        assert_eq!(list("limit=x").unwrap_err().code().as_u16(), 400);
    }

    #[test]
    fn watch_list_needs_its_companions() {
        let good = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1";
        assert_eq!(watch(good).unwrap().initial_events, Some(true));
        // Upstream does not ask for bookmarks, without which their end cannot be recognized.
        assert!(watch("sendInitialEvents=true&resourceVersionMatch=NotOlderThan").is_ok());
        for bad in [
            "sendInitialEvents=true",
            "resourceVersionMatch=NotOlderThan",
            "sendInitialEvents=true&resourceVersionMatch=Exact&allowWatchBookmarks=1",
        ] {
            assert_eq!(watch(bad).unwrap_err().code().as_u16(), 422, "{bad}");
        }
    }

    #[test]
    fn write_options_are_checked() {
        let parse = |query: &str| WriteOptions::parse(&Query::parse(query), "CreateOptions");
        assert!(parse("dryRun=All").unwrap().dry_run);
        assert_eq!(parse("dryRun=some").unwrap_err().code().as_u16(), 422);
        assert_eq!(parse("fieldValidation=Loud").unwrap_err().code().as_u16(), 422);
        assert_eq!(
            parse("fieldValidation=Strict").unwrap().field_validation,
            FieldValidation::Strict
        );
    }

    #[test]
    fn timeouts_are_go_durations() {
        assert_eq!(go_duration("1m30s").unwrap().as_secs(), 90);
        assert_eq!(go_duration("500ms").unwrap().as_millis(), 500);
        assert!(go_duration("abc").is_none());
        assert!(timeout(&Query::parse("timeout=5x")).is_err());
        for (query, seconds) in
            [("", 60), ("timeout=0s", 60), ("timeout=3m", 60), ("timeout=5s", 5)]
        {
            assert_eq!(timeout(&Query::parse(query)).unwrap().as_secs(), seconds, "{query}");
        }
    }
}
