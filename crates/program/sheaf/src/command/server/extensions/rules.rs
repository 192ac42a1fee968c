//! Defaults and rules of machines, handed from crate `virt` to the server.

use apiserver::extension::{
    Attempt, Cause, Denial, ExtensionOperation, ExtensionRules, Lookup, Review,
};
use auth::User;
use serde_json::Value;
use virt::admit::{self, MutationContext, Objects, Write};
use virt::{ARCHITECTURE, ClusterConfig, launcher};

use crate::command::server::identities;

pub(super) struct MachineRules;

/// The groups whose kinds have rules.
const GROUPS: [&str; 8] = [
    "kubevirt.io",
    "pool.kubevirt.io",
    "instancetype.kubevirt.io",
    "migrations.kubevirt.io",
    "cdi.kubevirt.io",
    "snapshot.kubevirt.io",
    "export.kubevirt.io",
    "clone.kubevirt.io",
];

impl ExtensionRules for MachineRules {
    fn concern(&self, group: &str, resource: &str) -> bool {
        GROUPS.contains(&group) || (group, resource) == ("", "persistentvolumeclaims")
    }

    fn complete(
        &self,
        review: &Review<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Denial> {
        if !review.subresource.is_empty() {
            return Ok(());
        }
        let objects = ExtensionReader(review.objects);
        let mut around = MutationContext {
            namespace: review.namespace,
            trusted: is_trusted(review),
            config: &config(review),
            objects: &objects,
            access: &Client(*review),
            now: &base::clock::now_rfc3339(),
            uuid: &mut || uuid::Uuid::new_v4().to_string(),
        };
        admit::mutate(review.group, review.resource, object, old, &mut around).map_err(denial)
    }

    fn validate(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Vec<String>, Denial> {
        let Some(object) = object.filter(|_| review.act != ExtensionOperation::Delete) else {
            return Ok(Vec::new());
        };
        let objects = ExtensionReader(review.objects);
        let write = Write {
            object,
            old,
            namespace: review.namespace,
            trusted: is_trusted(review),
            config: &config(review),
            objects: &objects,
            access: &Client(*review),
        };
        let judged = match (review.subresource, review.resource) {
            ("", _) => admit::admit(review.group, review.resource, &write),
            (_, plural) if admit::judges_subresources(review.group, plural) => {
                admit::admit(review.group, review.resource, &write)
            }
            ("status", "virtualmachines") => {
                admit::admit_machine_status(&write).map(|()| Vec::new())
            }
            _ => Ok(Vec::new()),
        };
        judged.map_err(denial)
    }

    fn explain_pod(&self, pod: &Value, subresource: &str) -> Option<String> {
        launcher::instead_of(pod, subresource)
    }
}

/// Harvester's and Longhorn's objects, and what those say about claims, classes and machines.
pub(super) struct Appliance;

impl Appliance {
    fn write<'a>(
        review: &Review<'a>,
        object: Option<&'a Value>,
        old: Option<&'a Value>,
        objects: &'a ExtensionReader<'a>,
        writer: &'a Client<'a>,
    ) -> hci::admit::Write<'a> {
        hci::admit::Write {
            group: review.group,
            resource: review.resource,
            namespace: review.namespace,
            name: review.name,
            object: object.filter(|_| review.act != ExtensionOperation::Delete),
            old,
            trusted: is_trusted(review),
            objects,
            writer,
            uuid: &|| uuid::Uuid::new_v4().to_string(),
        }
    }
}

impl ExtensionRules for Appliance {
    fn concern(&self, group: &str, resource: &str) -> bool {
        hci::admit::concerns(group, resource)
    }

    fn complete(
        &self,
        review: &Review<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Denial> {
        if !review.subresource.is_empty() {
            return Ok(());
        }
        let objects = ExtensionReader(review.objects);
        let writer = Client(*review);
        let write = Self::write(review, None, old, &objects, &writer);
        hci::admit::complete(&write, object).map_err(refusal)
    }

    fn validate(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Vec<String>, Denial> {
        let is_judged = hci::admit::judges_subresources(review.group, review.resource);
        if !review.subresource.is_empty() && !is_judged {
            return Ok(Vec::new());
        }
        let objects = ExtensionReader(review.objects);
        let writer = Client(*review);
        let write = Self::write(review, object, old, &objects, &writer);
        hci::admit::validate(&write).map(|()| Vec::new()).map_err(refusal)
    }
}

/// Kinds on which nothing acts yet: the writer gets a warning.
pub(super) struct Inactive;

impl ExtensionRules for Inactive {
    fn concern(&self, group: &str, resource: &str) -> bool {
        hci::inactive::concerns(group, resource)
    }

    fn complete(&self, _: &Review<'_>, _: &mut Value, _: Option<&Value>) -> Result<(), Denial> {
        Ok(())
    }

    fn validate(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        _: Option<&Value>,
    ) -> Result<Vec<String>, Denial> {
        let is_write = review.act != ExtensionOperation::Delete && review.subresource.is_empty();
        let written = object.filter(|_| is_write);
        let warning = written
            .and_then(|object| hci::inactive::warning(review.group, review.resource, object));
        Ok(warning.into_iter().collect())
    }
}

fn refusal(refusal: hci::admit::Refusal) -> Denial {
    let hci::admit::Refusal { code, reason, field, message } = refusal;
    let cause = || Cause {
        reason: "FieldValueInvalid".to_owned(),
        message: message.clone(),
        field: field.to_owned(),
    };
    let causes = if field.is_empty() { Vec::new() } else { vec![cause()] };
    Denial { code, reason, causes, message }
}

fn is_trusted(review: &Review<'_>) -> bool {
    identities::is_component(review.user)
}

fn config(review: &Review<'_>) -> ClusterConfig {
    let (namespace, name) = virt::KUBEVIRT;
    let kubevirt = review.objects.get("kubevirt.io", "kubevirts", namespace, name);
    ClusterConfig::new(&kubevirt.unwrap_or(Value::Null), ARCHITECTURE)
}

fn denial(denial: admit::Denial) -> Denial {
    let causes = denial.causes().iter().filter(|cause| !cause.reason.is_empty());
    Denial {
        code: denial.code(),
        reason: if denial.code() == 422 { "Invalid" } else { "BadRequest" },
        message: denial.message(),
        causes: causes
            .map(|cause| Cause {
                reason: cause.reason.to_owned(),
                message: cause.message.clone(),
                field: cause.field.clone(),
            })
            .collect(),
    }
}

/// The user that requested a write.
struct Client<'a>(Review<'a>);

impl hci::admit::RequestUser for Client<'_> {
    fn name(&self) -> &str {
        &self.0.user.name
    }

    fn may_get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> bool {
        self.may("get", group, resource, namespace, name)
    }

    fn may_create(&self, group: &str, resource: &str, namespace: &str, name: &str) -> bool {
        self.may("create", group, resource, namespace, name)
    }
}

impl virt::admit::Access for Client<'_> {
    fn user(&self) -> &str {
        &self.0.user.name
    }

    fn may_create(&self, group: &str, resource: &str, namespace: &str, name: &str) -> bool {
        self.may("create", group, resource, namespace, name)
    }

    fn of_service_account(&self, namespace: &str, name: &str) -> Box<dyn virt::admit::Access + '_> {
        let user = User::service_account(namespace, name, "").authenticated();
        Box::new(ServiceAccount { review: self.0, user })
    }
}

/// A service account whose rights count instead of those of the user who sent the request.
struct ServiceAccount<'a> {
    review: Review<'a>,
    user: User,
}

impl virt::admit::Access for ServiceAccount<'_> {
    fn user(&self) -> &str {
        &self.user.name
    }

    fn may_create(&self, group: &str, resource: &str, namespace: &str, name: &str) -> bool {
        let user = &self.user;
        Client(Review { user, ..self.review }).may("create", group, resource, namespace, name)
    }

    fn of_service_account(&self, namespace: &str, name: &str) -> Box<dyn virt::admit::Access + '_> {
        let user = User::service_account(namespace, name, "").authenticated();
        Box::new(ServiceAccount { review: self.review, user })
    }
}

impl Client<'_> {
    /// `resource` is `PLURAL` or `PLURAL/SUBRESOURCE`.
    fn may(&self, verb: &str, group: &str, resource: &str, namespace: &str, name: &str) -> bool {
        let (plural, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let attempt = Attempt { verb, group, plural, subresource, namespace, name };
        self.0.access.may(self.0.user, &attempt)
    }
}

pub(super) struct ExtensionReader<'a>(pub(super) &'a dyn Lookup);

impl Objects for ExtensionReader<'_> {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.0.get(group, plural, namespace, name)
    }

    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value> {
        self.0.list(group, plural, namespace)
    }
}
