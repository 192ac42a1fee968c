//! libFuzzer on one target of the API server's decoders, which `FUZZ_TARGET` names.
//!
//! `scripts/fuzz` builds it, with what the fuzzer needs to see which code an input reaches, and
//! runs it on every target.

#![no_main]

use std::sync::LazyLock;

use apiserver::fuzz::{TARGETS, Target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(own, _)| *own == name);
    let names: Vec<&str> = TARGETS.iter().map(|(own, _)| *own).collect();
    found.unwrap_or_else(|| panic!("FUZZ_TARGET is {name:?}; it may be one of {names:?}")).1
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET(bytes));
