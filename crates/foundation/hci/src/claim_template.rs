//! Harvester's `harvesterhci.io/volumeClaimTemplates`: claims that are made with a machine.

use serde::Deserialize as _;
use serde_json::Value;

const ANNOTATION: &str = "harvesterhci.io/volumeClaimTemplates";

/// One claim that a machine brings along.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimTemplate {
    pub name: String,
    /// The claim's metadata and spec, as they were written.
    pub claim: Value,
}

/// The templates of a machine or of a template's version; none without the annotation. Errors have
/// Harvester's texts.
pub fn claim_templates(metadata: &Value) -> Result<Vec<ClaimTemplate>, String> {
    let Some(text) = metadata["annotations"][ANNOTATION].as_str().filter(|text| !text.is_empty())
    else {
        return Ok(Vec::new());
    };
    let complain = |what: String| format!("the volumeClaimTemplates annotaion is invalid: {what}");
    let read: Value = serde_json::from_str(text).map_err(|error| complain(error.to_string()))?;
    let list = Vec::<Value>::deserialize(read)
        .map_err(|_| complain("it must be a list of PersistentVolumeClaims".to_owned()))?;
    list.into_iter()
        .enumerate()
        .map(|(index, claim)| match claim["metadata"]["name"].as_str() {
            Some(name) if !name.is_empty() => Ok(ClaimTemplate { name: name.to_owned(), claim }),
            _ => Err(complain(format!("[{index}].metadata.name is required"))),
        })
        .collect()
}

/// Whether a key is of annotations that bind the parts of the cluster. Those of claims are written
/// by controllers and agents only, never taken from templates of tenants.
pub fn is_internal_key(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    domain == "sheaf.io" || domain.ends_with(".sheaf.io")
}

/// Bytes that a claim asks for; nothing if it does not say.
pub(crate) fn requested(claim: &Value) -> Option<i64> {
    let text = match &claim["spec"]["resources"]["requests"]["storage"] {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    text.parse::<types::Quantity>().ok().map(|amount| amount.units())
}

#[cfg(test)]
mod tests {
    use super::{claim_templates, requested};
    use serde_json::json;

    #[test]
    fn templates_are_read_and_complaints_name_the_place() {
        let annotated = |text: &str| {
            claim_templates(&json!({"annotations": {"harvesterhci.io/volumeClaimTemplates": text}}))
        };
        assert_eq!(claim_templates(&json!({})), Ok(Vec::new()));
        assert_eq!(annotated(""), Ok(Vec::new()));
        let good = annotated(
            r#"[{"metadata":{"name":"root"},"spec":{"resources":{"requests":{"storage":"10Gi"}}}}]"#,
        )
        .unwrap();
        assert_eq!(good[0].name, "root");
        assert_eq!(requested(&good[0].claim), Some(10 << 30));
        for (text, end) in [
            (r#"[{"metadata":{}}]"#, "[0].metadata.name is required"),
            (r#"{"metadata":{}}"#, "it must be a list of PersistentVolumeClaims"),
            ("[", "EOF while parsing a list at line 1 column 1"),
        ] {
            let complaint = annotated(text).unwrap_err();
            assert_eq!(complaint, format!("the volumeClaimTemplates annotaion is invalid: {end}"));
        }
    }
}
