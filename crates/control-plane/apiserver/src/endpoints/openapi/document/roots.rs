//! Paths of the version 2 document that belong to no kind: groups, versions, tokens.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use types::Kind;
use types::openapi::OpenApiVersion;

use crate::endpoints::openapi::operation::{self, META};
use crate::endpoints::openapi::resource::{camel, operation_group};

const VERSION: &str = "io.k8s.apimachinery.pkg.version.Info";

/// The kinds that these paths answer with.
pub(super) fn kinds() -> impl Iterator<Item = Kind> {
    let names = ["APIGroup", "APIGroupList", "APIVersions"];
    names.into_iter().filter_map(|name| Kind::find("meta.k8s.io", "v1", name))
}

/// The schema of `/version`, which is no kind.
pub(super) fn schemas(into: &mut Map<String, Value>) {
    let text = |description: &str| json!({"type": "string", "description": description});
    let fields = [
        ("buildDate", "When the server was built."),
        ("compiler", "The compiler that built it."),
        ("emulationMajor", "The major version that is emulated."),
        ("emulationMinor", "The minor version that is emulated."),
        ("gitCommit", "The commit it was built from."),
        ("gitTreeState", "Whether the source had changes beyond the commit."),
        ("gitVersion", "The version as one text."),
        ("goVersion", "The version of the language."),
        ("major", "The major version."),
        ("minCompatibilityMajor", "The lowest major version that it works with."),
        ("minCompatibilityMinor", "The lowest minor version that it works with."),
        ("minor", "The minor version."),
        ("platform", "Operating system and architecture."),
    ];
    let properties: Map<String, Value> =
        fields.iter().map(|(name, about)| ((*name).to_owned(), text(about))).collect();
    let required = [
        "major",
        "minor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ];
    into.insert(
        VERSION.to_owned(),
        json!({
            "description": "Info contains versioning information.",
            "type": "object", "required": required, "properties": properties,
        }),
    );
}

pub(super) fn paths<'a>(groups: impl Iterator<Item = &'a str>, into: &mut Map<String, Value>) {
    let mut add = |path: &str, description: &str, id: &str, reply: &str, tag: &str| {
        let value = operation::document(description, id, reply, tag, OpenApiVersion::V2);
        into.insert(path.to_owned(), value);
    };
    let meta = |name: &str| format!("{META}.{name}");
    let (versions, group_list) = ("get available API versions", meta("APIGroupList"));
    add("/api/", versions, "getCoreAPIVersions", &meta("APIVersions"), "core");
    add("/apis/", versions, "getAPIVersions", &group_list, "apis");
    add(
        "/version/",
        "get the version information for this server",
        "getCodeVersion",
        VERSION,
        "version",
    );
    let groups: BTreeSet<&str> = groups.filter(|group| !group.is_empty()).collect();
    for group in groups {
        let id = format!("get{}APIGroup", operation_group(group, ""));
        let tag = camel(group.strip_suffix(".k8s.io").unwrap_or(group), false);
        let text = "get information of a group";
        add(&format!("/apis/{group}/"), text, &id, &meta("APIGroup"), &tag);
    }
    texts(into);
}

/// Documents that are not described further.
fn texts(into: &mut Map<String, Value>) {
    for (path, id, tag) in [
        (
            "/.well-known/openid-configuration/",
            "getServiceAccountIssuerOpenIDConfiguration",
            "WellKnown",
        ),
        ("/openid/v1/jwks/", "getServiceAccountIssuerOpenIDKeyset", "openid"),
    ] {
        let mut value =
            operation::document("get a document of OpenID", id, "", tag, OpenApiVersion::V2);
        value["get"]["responses"]["200"]["schema"] = json!({"type": "string"});
        into.insert(path.to_owned(), value);
    }
}
