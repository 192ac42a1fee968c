//! Which requests are written down, and how much of them: a policy of `audit.k8s.io/v1`.
//! Pure: a policy and the facts of a request in, a verdict out.

use serde::Deserialize;

use auth::User;

/// How much of a request is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) enum AuditLevel {
    None,
    Metadata,
    Request,
    RequestResponse,
}

impl AuditLevel {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// When a request is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum AuditStage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

impl AuditStage {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("the policy is not readable")]
    Unreadable(#[source] serde_saphyr::Error),
    #[error("apiVersion and kind are {found:?}, must be audit.k8s.io/v1 and Policy")]
    Kind { found: String },
    #[error("{field}: {problem}")]
    Field { field: String, problem: &'static str },
}

/// The rules, in order; the first that fits counts.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditPolicy {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: serde_json::Value,
    rules: Vec<AuditRule>,
    #[serde(default)]
    omit_stages: Vec<AuditStage>,
    #[serde(default)]
    omit_managed_fields: bool,
    /// Not a part of the format.
    #[serde(skip)]
    logs_refusals: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AuditRule {
    level: AuditLevel,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<Resources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<AuditStage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Resources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

/// The properties of a request that a policy matches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PolicyInput<'a> {
    pub(crate) user: &'a User,
    pub(crate) verb: &'a str,
    pub(crate) target: AuditTarget<'a>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum AuditTarget<'a> {
    Resource {
        group: &'a str,
        resource: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
    Path(&'a str),
}

/// The decision of the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuditVerdict {
    pub(crate) level: AuditLevel,
    omitted: Vec<AuditStage>,
    pub(crate) omit_managed_fields: bool,
}

impl AuditVerdict {
    pub(crate) fn wants(&self, stage: AuditStage) -> bool {
        self.level > AuditLevel::None && !self.omitted.contains(&stage)
    }
}

impl AuditPolicy {
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let policy: Self = serde_saphyr::from_str(text).map_err(PolicyError::Unreadable)?;
        if (policy.api_version.as_str(), policy.kind.as_str()) != ("audit.k8s.io/v1", "Policy") {
            let found = format!("{} {}", policy.api_version, policy.kind);
            return Err(PolicyError::Kind { found });
        }
        if policy.rules.is_empty() {
            let problem = "a policy needs at least one rule";
            return Err(PolicyError::Field { field: "rules".to_owned(), problem });
        }
        for (index, rule) in policy.rules.iter().enumerate() {
            rule.check().map_err(|(field, problem)| PolicyError::Field {
                field: format!("rules[{index}].{field}"),
                problem,
            })?;
        }
        Ok(policy)
    }

    /// The same policy, which also logs refused requests (401 and 403) that its rules leave out.
    /// A `Policy` of Kubernetes cannot say so: its rules do not know the answer.
    #[must_use]
    pub fn with_refusals(mut self) -> Self {
        self.logs_refusals = true;
        self
    }

    pub fn logs_refusals(&self) -> bool {
        self.logs_refusals
    }

    /// The decision for a refused request that the rules leave out.
    pub(crate) fn judge_refusal(&self) -> AuditVerdict {
        AuditVerdict {
            level: AuditLevel::Metadata,
            omitted: self.omit_stages.clone(),
            omit_managed_fields: self.omit_managed_fields,
        }
    }

    /// Whether no rule logs a request, whoever sends it.
    pub(crate) fn ignores(&self, verb: &str, target: AuditTarget<'_>) -> bool {
        for rule in self.rules.iter().filter(|rule| rule.covers(verb, target)) {
            match rule.level {
                // For others, a later rule decides.
                AuditLevel::None if !rule.users.is_empty() || !rule.user_groups.is_empty() => {}
                level => return level == AuditLevel::None,
            }
        }
        true
    }

    pub(crate) fn judge(&self, facts: &PolicyInput<'_>) -> AuditVerdict {
        let Some(rule) = self.rules.iter().find(|rule| rule.fits(facts)) else {
            return AuditVerdict {
                level: AuditLevel::None,
                omitted: vec![],
                omit_managed_fields: false,
            };
        };
        let omitted = self.omit_stages.iter().chain(&rule.omit_stages).copied().collect();
        let omit_managed_fields = rule.omit_managed_fields.unwrap_or(self.omit_managed_fields);
        AuditVerdict { level: rule.level, omitted, omit_managed_fields }
    }
}

impl AuditRule {
    fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let of_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if of_resources && !self.urls.is_empty() {
            let problem = "rules cannot apply to both regular resources and non-resource URLs";
            return Err(("nonResourceURLs", problem));
        }
        for url in &self.urls {
            if url != "*" && !url.starts_with('/') {
                return Err((
                    "nonResourceURLs",
                    "non-resource URL rules must begin with a '/' character",
                ));
            }
            if url.trim_end_matches('*').contains('*') {
                return Err((
                    "nonResourceURLs",
                    "non-resource URL wildcards '*' must be the final character of the rule",
                ));
            }
        }
        let named = |of: &Resources| of.resources.is_empty() && !of.resource_names.is_empty();
        if self.resources.iter().any(named) {
            return Err(("resources", "using resourceNames requires at least one resource"));
        }
        Ok(())
    }

    fn fits(&self, facts: &PolicyInput<'_>) -> bool {
        if !listed(&self.users, &facts.user.name) {
            return false;
        }
        if !self.user_groups.is_empty()
            && !self.user_groups.iter().any(|group| facts.user.is_in(group))
        {
            return false;
        }
        self.covers(facts.verb, facts.target)
    }

    /// Whether the rule is for such requests, without regard to users.
    fn covers(&self, verb: &str, target: AuditTarget<'_>) -> bool {
        if !listed(&self.verbs, verb) {
            return false;
        }
        let of_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        match target {
            AuditTarget::Resource { group, resource, subresource, namespace, name }
                if of_resources =>
            {
                listed(&self.namespaces, namespace)
                    && (self.resources.is_empty()
                        || self.resources.iter().any(|rule| {
                            rule.group == group && rule.fits(resource, subresource, name)
                        }))
            }
            AuditTarget::Path(path) if !self.urls.is_empty() => {
                self.urls.iter().any(|url| match url.strip_suffix('*') {
                    Some(prefix) => path.starts_with(prefix),
                    None => path == url,
                })
            }
            _ => !of_resources && self.urls.is_empty(),
        }
    }
}

/// Whether a list has an item; an empty one has all.
fn listed(list: &[String], item: &str) -> bool {
    list.is_empty() || list.iter().any(|it| it == item)
}

impl Resources {
    fn fits(&self, resource: &str, subresource: &str, name: &str) -> bool {
        if self.resources.is_empty() {
            return true;
        }
        if !self.resource_names.is_empty() && !self.resource_names.iter().any(|it| it == name) {
            return false;
        }
        self.resources.iter().any(|pattern| match pattern.split_once('/') {
            None => pattern == "*" || (pattern == resource && subresource.is_empty()),
            Some(("*", part)) => part == subresource,
            Some((whole, "*")) => whole == resource,
            Some((whole, part)) => whole == resource && part == subresource,
        })
    }
}

#[cfg(test)]
mod tests;
