//! libFuzzer on one target of the decoders of the API server or the REST API, which `FUZZ_TARGET` names.
//!
//! `scripts/fuzz` builds it, with what the fuzzer needs to see which code an input reaches, and
//! runs it on every target.

#![no_main]

use std::sync::LazyLock;

/// Takes any bytes; panics if it finds a defect.
type Target = fn(&[u8]);

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let all = || apiserver::fuzz::TARGETS.iter().chain(steve::fuzz::TARGETS);
    let found = all().find(|(own, _)| *own == name);
    let names: Vec<&str> = all().map(|(own, _)| *own).collect();
    found.unwrap_or_else(|| panic!("FUZZ_TARGET is {name:?}; it may be one of {names:?}")).1
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET(bytes));
