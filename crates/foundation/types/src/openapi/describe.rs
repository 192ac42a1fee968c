//! Descriptions of types and fields, as collected at build time (see `build.rs`).

use std::collections::BTreeMap;
use std::io::Read as _;
use std::ops::Range;

use flate2::read::DeflateDecoder;

static COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.deflate"));

/// Where texts that all kinds share can be found.
const EXAMPLE: &str = "io.k8s.api.core.v1.ConfigMap";

/// All texts, in memory for as long as a document is being written.
#[derive(Debug)]
pub(super) struct Descriptions {
    text: String,
    /// Where the lines of each type are.
    types: BTreeMap<String, Range<usize>>,
}

impl Descriptions {
    pub(super) fn load() -> Self {
        let mut text = String::new();
        DeflateDecoder::new(COMPRESSED)
            .read_to_string(&mut text)
            .expect("the build wrote compressed text");
        let mut types = BTreeMap::new();
        let mut current: Option<(String, usize)> = None;
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            if !line.starts_with(' ') {
                let name = line.split(' ').next().unwrap_or_default().to_owned();
                if let Some((name, start)) = current.replace((name, at)) {
                    types.insert(name, start..at);
                }
            }
            at += line.len();
        }
        if let Some((name, start)) = current {
            types.insert(name, start..at);
        }
        Self { text, types }
    }

    pub(super) fn of_type(&self, name: &str) -> Option<String> {
        match self.block(name) {
            Some(block) => parse(block.lines().next()?.split_once(' ')?.1),
            None => {
                let item = name.rsplit('.').next()?.strip_suffix("List")?;
                Some(format!("{item}List is a list of {item} objects."))
            }
        }
    }

    pub(super) fn of_field(&self, name: &str, field: &str) -> Option<String> {
        if let Some(block) = self.block(name) {
            return of_line(block, field);
        }
        match field {
            "apiVersion" | "kind" => of_line(self.block(EXAMPLE)?, field),
            "items" => Some("The objects of this list.".to_owned()),
            "metadata" => Some("Standard metadata of the list or object.".to_owned()),
            _ => None,
        }
    }

    fn block(&self, name: &str) -> Option<&str> {
        // A type that has just become stable is described where it was beta.
        let beta = || self.types.get(&name.replacen(".v1.", ".v1beta1.", 1));
        Some(&self.text[self.types.get(name).or_else(beta)?.clone()])
    }
}

fn of_line(block: &str, field: &str) -> Option<String> {
    let mut lines = block.lines().skip(1);
    parse(lines.find_map(|line| line.strip_prefix(' ')?.strip_prefix(field)?.strip_prefix(' '))?)
}

fn parse(json: &str) -> Option<String> {
    serde_json::from_str(json.trim()).ok()
}
