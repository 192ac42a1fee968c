//! `sheaf manifests`: the objects that a cluster needs before our controllers can work in it.

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::cli::{ManifestPart, ManifestsArgs};

pub(super) fn run(args: &ManifestsArgs) -> Result<()> {
    let mut documents = Vec::new();
    if args.only != Some(ManifestPart::Objects) {
        documents.extend(virt::definitions().chain(hci::definitions()));
    }
    if args.only != Some(ManifestPart::Definitions) {
        documents.extend(virt::first_objects(virt::ARCHITECTURE, &base::clock::now_rfc3339()));
        documents.extend(virt::shipped_objects());
        documents.extend(hci::first_objects());
    }
    super::print(&text(&documents)?)
}

fn text(documents: &[Value]) -> Result<String> {
    let mut text = String::new();
    for document in documents {
        text.push_str("---\n");
        text += &serde_saphyr::to_string(document).context("cannot write YAML")?;
    }
    Ok(text)
}
