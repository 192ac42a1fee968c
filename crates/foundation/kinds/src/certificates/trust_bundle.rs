//! ClusterTrustBundles: CA certificates for the workloads of a cluster.

use schema::{FieldError, Path};
use serde_json::Value;

use crate::check::SPEC;
use crate::resource::{Column, NameRule, Printer, Resource, Strategy};
use crate::{json, print};

pub(crate) const RESOURCE: Resource = Resource {
    strategy: Strategy {
        name: NameRule::PathSegment,
        validate,
        validate_update: |new, old, errors| {
            validate(new, errors);
            let (now, before) =
                (json::text(new, "/spec/signerName"), json::text(old, "/spec/signerName"));
            if now != before {
                errors.push(FieldError::invalid(
                    SPEC.field("signerName"),
                    now,
                    "field is immutable",
                ));
            }
        },
        ..Strategy::GENERIC
    },
    printer: Printer {
        columns: &[Column::NAME, Column::text("SignerName", "Whose certificates these vouch for")],
        cells: |object, _| {
            vec![print::name(object), print::text_or(object, "/spec/signerName", "<none>")]
        },
    },
    fields: &[("spec.signerName", |object| json::text(object, "/spec/signerName").to_owned())],
    ..Resource::cluster(
        "certificates.k8s.io",
        "v1beta1",
        "clustertrustbundles",
        "clustertrustbundle",
        "ClusterTrustBundle",
    )
};

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let (name, signer) =
        (json::text(object, "/metadata/name"), json::text(object, "/spec/signerName"));
    let root = Path::Root;
    let metadata = root.field("metadata");
    let path = metadata.field("name");
    if signer.is_empty() {
        if name.contains(':') {
            let detail = "ClusterTrustBundle without signer name must not have \":\" in its name";
            errors.push(FieldError::invalid(path, name, detail));
        }
    } else {
        let prefix = format!("{}:", signer.replace('/', ":"));
        if !name.starts_with(&prefix) {
            let detail = format!(
                "ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
            );
            errors.push(FieldError::invalid(path, name, detail));
        }
        super::validate_signer(signer, errors);
    }
    let bundle = json::text(object, "/spec/trustBundle");
    let blocks = bundle.matches("-----BEGIN ").count();
    let certificates = bundle.matches("-----BEGIN CERTIFICATE-----").count();
    let at = SPEC.field("trustBundle");
    if certificates == 0 {
        let detail = "at least one trust anchor must be provided";
        errors.push(FieldError::invalid(at, "<value omitted>", detail));
    } else if blocks != certificates {
        let detail = "entry has bad block type; must be CERTIFICATE";
        errors.push(FieldError::invalid(at, "<value omitted>", detail));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bundle_is_named_after_its_signer() {
        let pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        for (name, signer, bundle, expected) in [
            ("ca", "", pem, 0),
            ("a:b", "", pem, 1),
            ("example.com:foo:v1", "example.com/foo", pem, 0),
            ("foo", "example.com/foo", pem, 1),
            ("ca", "", "", 1),
            ("ca", "", "-----BEGIN PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----", 1),
        ] {
            let object = json!({"metadata": {"name": name},
                "spec": {"signerName": signer, "trustBundle": bundle}});
            let mut errors = Vec::new();
            validate(&object, &mut errors);
            assert_eq!(errors.len(), expected, "{name} {signer}: {errors:?}");
        }
    }
}
