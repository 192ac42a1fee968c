//! `allOf`, `anyOf`, `oneOf` and `not`.

use serde_json::Value;

use super::{ValidationOutcome, ValueSite};
use crate::node::{Schema, Validation};

pub(super) fn check(
    value: &Value,
    validation: &Validation,
    site: &ValueSite<'_>,
    outcome: &mut ValidationOutcome,
) {
    outcome.score += 2;
    if !validation.any_of.is_empty() {
        check_any(value, &validation.any_of, site, outcome);
    }
    if !validation.one_of.is_empty() {
        check_one(value, &validation.one_of, site, outcome);
    }
    if !validation.all_of.is_empty() {
        check_all(value, &validation.all_of, site, outcome);
    }
    if let Some(schema) = &validation.not
        && super::check(value, schema, site).is_valid()
    {
        let at = quoted(site);
        outcome.add(site.general(format!("{at} must not validate the schema (not)")));
    }
}

fn quoted(site: &ValueSite<'_>) -> String {
    format!("{:?}", site.at.to_string())
}

fn check_any(
    value: &Value,
    schemas: &[Schema],
    site: &ValueSite<'_>,
    outcome: &mut ValidationOutcome,
) {
    let mut best: Option<ValidationOutcome> = None;
    for schema in schemas {
        let result = super::check(value, schema, site);
        if result.is_valid() {
            return outcome.merge(result);
        }
        keep_better(&mut best, result);
    }
    let at = quoted(site);
    outcome.add(site.general(format!("{at} must validate at least one schema (anyOf)")));
    if let Some(best) = best {
        outcome.merge(best);
    }
}

fn check_one(
    value: &Value,
    schemas: &[Schema],
    site: &ValueSite<'_>,
    outcome: &mut ValidationOutcome,
) {
    let mut best: Option<ValidationOutcome> = None;
    let mut first = None;
    let mut valid = 0;
    for schema in schemas {
        let result = super::check(value, schema, site);
        if result.is_valid() {
            valid += 1;
            first.get_or_insert(result);
        } else if valid == 0 {
            keep_better(&mut best, result);
        }
    }
    let found = match valid {
        1 => return outcome.merge(first.unwrap_or_default()),
        0 => "Found none valid".to_owned(),
        many => format!("Found {many} valid alternatives"),
    };
    let at = quoted(site);
    outcome
        .add(site.general(format!("{at} must validate one and only one schema (oneOf). {found}")));
    if let Some(best) = best.filter(|_| valid == 0) {
        outcome.merge(best);
    }
}

fn check_all(
    value: &Value,
    schemas: &[Schema],
    site: &ValueSite<'_>,
    outcome: &mut ValidationOutcome,
) {
    let mut valid = 0;
    for schema in schemas {
        let result = super::check(value, schema, site);
        valid += usize::from(result.is_valid());
        outcome.merge(result);
    }
    if valid < schemas.len() {
        let none = if valid == 0 { ". None validated" } else { "" };
        let at = quoted(site);
        outcome.add(site.general(format!("{at} must validate all the schemas (allOf){none}")));
    }
}

fn keep_better(best: &mut Option<ValidationOutcome>, result: ValidationOutcome) {
    if best.as_ref().is_none_or(|best| result.score > best.score) {
        *best = Some(result);
    }
}
