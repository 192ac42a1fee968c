//! Outside dependencies: their licences, sources and versions, by the rules in `deny.toml`.
//!
//! cargo-deny checks the same and advisories as well (`make deny`), but takes minutes to build.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde::Deserialize;
use spdx::{Expression, LicenseReq, ParseMode};

use crate::sources::complain;
use crate::tree;

/// Dependencies on other platforms are not part of what we ship.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
}

/// The part of `deny.toml` that is checked here.
#[derive(Deserialize)]
struct Rules {
    licenses: LicenseRules,
    sources: SourceRules,
    bans: BanRules,
}

#[derive(Deserialize)]
struct LicenseRules {
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct SourceRules {
    allow_registry: Vec<String>,
}

#[derive(Deserialize)]
struct BanRules {
    skip: Vec<SkippedVersion>,
}

#[derive(Deserialize)]
struct SkippedVersion {
    #[serde(rename = "crate")]
    name: String,
}

fn rules() -> Rules {
    let text = std::fs::read_to_string(tree::root().join("deny.toml")).expect("deny.toml exists");
    toml::from_str(&text).expect("deny.toml has the fields that are read here")
}

fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--format-version", "1", "--filter-platform", PLATFORM])
        .current_dir(tree::root())
        .output()
        .expect("cargo runs");
    let failure = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata failed: {failure}");
    let metadata: Metadata = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    assert!(metadata.packages.len() > 100, "only {} packages", metadata.packages.len());
    metadata.packages
}

fn is_allowed(license: &str, allow: &BTreeSet<String>) -> bool {
    let listed = |required: &LicenseReq| allow.contains(&required.to_string());
    Expression::parse_mode(license, ParseMode::LAX)
        .is_ok_and(|expression| expression.evaluate(listed))
}

/// Versions with the same key are compatible, so cargo picks one of them.
fn compatible_version(version: &str) -> String {
    let mut parts = version.split('.');
    match (parts.next(), parts.next()) {
        (Some("0"), Some(minor)) => format!("0.{minor}"),
        (major, _) => major.unwrap_or_default().to_owned(),
    }
}

#[test]
fn expressions_of_licences_are_evaluated() {
    let allow = ["MIT", "ISC"].map(str::to_owned).into();
    for (license, expected) in [
        ("MIT", true),
        ("MIT/Apache-2.0", true),
        ("MIT AND GPL-3.0-only", false),
        ("ISC AND (Apache-2.0 OR MIT)", true),
        ("GPL-3.0-only", false),
        ("no licence", false),
    ] {
        assert_eq!(is_allowed(license, &allow), expected, "{license}");
    }
}

#[test]
fn licences_of_dependencies_are_allowed() {
    let allow = rules().licenses.allow;
    let license = |package: &Package| package.license.clone().unwrap_or_default();
    let packages = packages();
    let refused = packages.iter().filter(|package| !is_allowed(&license(package), &allow));
    let refused: Vec<String> = refused
        .map(|package| format!("{} {}: {:?}", package.name, package.version, package.license))
        .collect();
    complain("licences that deny.toml does not allow", &refused);
}

#[test]
fn dependencies_come_from_the_public_registry() {
    let allowed = rules().sources.allow_registry;
    let is_allowed = |source: &str| {
        source.strip_prefix("registry+").is_some_and(|url| allowed.iter().any(|own| own == url))
    };
    let packages = packages();
    let foreign = packages.iter().filter_map(|package| {
        let source = package.source.as_deref().filter(|source| !is_allowed(source))?;
        Some(format!("{} {}: {source}", package.name, package.version))
    });
    complain("sources that deny.toml does not allow", &foreign.collect::<Vec<_>>());
}

#[test]
fn each_dependency_has_one_version() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        versions.entry(package.name).or_default().insert(compatible_version(&package.version));
    }
    let mut skipped: BTreeSet<String> =
        rules().bans.skip.into_iter().map(|skip| skip.name).collect();
    let mut found = Vec::new();
    for (name, versions) in &versions {
        let is_listed = |version: &&String| skipped.contains(&format!("{name}@{version}"));
        if versions.iter().filter(|version| !is_listed(version)).count() > 1 {
            found.push(format!("{name}: {versions:?}"));
        }
    }
    complain("versions beside each other; use one, or list the older in deny.toml", &found);
    skipped.retain(|skip| {
        let (name, version) = skip.split_once('@').unwrap_or((skip, ""));
        !versions.get(name).is_some_and(|all| all.len() > 1 && all.contains(version))
    });
    let stale: Vec<String> = skipped.into_iter().collect();
    complain("versions in deny.toml that are not needed any more", &stale);
}
