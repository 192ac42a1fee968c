//! Projects, their members and what they are made of.

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::object::read;
use crate::record::fields;

fields! {
    /// A member of a project.
    pub(super) struct MemberFields<'a> {
        project_name: &'a str,
        role_template_name: &'a str,
        user_name: &'a str,
        group_name: &'a str,
        user_principal_name: &'a str,
        group_principal_name: &'a str,
        service_account: &'a str,
    }

    pub(super) struct ProjectFields {
        spec: ProjectSpec,
    }

    pub(super) struct ProjectSpec {
        resource_quota: ProjectQuota,
    }

    pub(super) struct ProjectQuota {
        limit: Option<IgnoredAny>,
        /// Its names are copied.
        used_limit: Map<String, Value>,
    }

    pub(super) struct QuotaFields {
        spec: QuotaSpec,
    }

    pub(super) struct QuotaSpec {
        /// They are copied.
        hard: Map<String, Value>,
    }

    /// The template of a role.
    pub(super) struct TemplateFields {
        external: bool,
        /// They are copied.
        rules: Vec<Value>,
    }
}

pub(super) fn hard_limits(quota: &Value) -> Map<String, Value> {
    read::<QuotaFields>(quota).spec.hard
}

/// The rules of a template or of a role.
pub(super) fn rules(object: &Value) -> Vec<Value> {
    read::<TemplateFields>(object).rules
}

/// Whether a template represents a role of its own name.
pub(super) fn is_external(template: &Value) -> bool {
    read::<TemplateFields>(template).external
}
