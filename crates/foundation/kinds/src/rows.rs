//! Tables of what kinds say about objects: error texts, defaults, cells.

mod cells;
mod defaults;
mod rules;

use serde_json::Value;

use crate::resource::Resource;

fn row(plural: &str) -> &'static Resource {
    let row = crate::builtin().iter().find(|row| row.plural == plural);
    row.unwrap_or_else(|| panic!("no kind is called {plural}"))
}

/// The errors of a new object, one line each, after defaulting.
fn create(plural: &str, mut object: Value) -> String {
    let strategy = &row(plural).strategy;
    (strategy.default)(&mut object);
    (strategy.prepare_create)(&mut object);
    let mut errors = Vec::new();
    (strategy.validate)(&object, &mut errors);
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The errors of a change, one line each, after defaulting both sides.
fn update(plural: &str, mut old: Value, mut new: Value) -> String {
    let strategy = &row(plural).strategy;
    (strategy.default)(&mut old);
    (strategy.default)(&mut new);
    (strategy.prepare_update)(&mut new, &old);
    let mut errors = Vec::new();
    (strategy.validate_update)(&new, &old, &mut errors);
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
