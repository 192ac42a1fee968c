//! Leases: their holder, and when they expire.

use schema::FieldError;
use serde_json::Value;

use crate::check::SPEC;
use crate::resource::{Column, Printer, Resource, Strategy};
use crate::{json, print};

pub(crate) const RESOURCE: Resource = Resource {
    strategy: Strategy {
        validate,
        validate_update: |new, _, errors| validate(new, errors),
        unconditional_update: false,
        create_on_update: true,
        ..Strategy::GENERIC
    },
    printer: Printer {
        columns: &[Column::NAME, Column::text("Holder", "Who holds the lease"), Column::AGE],
        cells: |object, now| {
            vec![
                print::name(object),
                json::text(object, "/spec/holderIdentity").into(),
                print::age(object, now),
            ]
        },
    },
    ..Resource::namespaced("coordination.k8s.io", "v1", "leases", "lease", "Lease")
};

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    if let Some(seconds) = json::int_at(object, "/spec/leaseDurationSeconds")
        && seconds <= 0
    {
        let path = SPEC.field("leaseDurationSeconds");
        errors.push(FieldError::invalid(path, seconds, "must be greater than 0"));
    }
    if let Some(transitions) = json::int_at(object, "/spec/leaseTransitions")
        && transitions < 0
    {
        let path = SPEC.field("leaseTransitions");
        errors.push(FieldError::invalid(path, transitions, "must be greater than or equal to 0"));
    }
    if json::text(object, "/spec/preferredHolder").is_empty() {
        return;
    }
    if json::text(object, "/spec/strategy").is_empty() {
        let path = SPEC.field("preferredHolder");
        let detail = "may only be specified if `strategy` is defined";
        errors.push(FieldError::forbidden(path, detail));
    }
}
