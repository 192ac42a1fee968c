//! KubeVirt's templates of machines.

use super::catalog::{AGE, ALPHA_BETA, READY};
use crate::api::record::Field;
use crate::api::template;
use crd::definition::{Column, KindDefinition, Subresources};

const GROUP: &str = "template.kubevirt.io";

pub(super) const CATALOG: &[KindDefinition] = &[
    KindDefinition {
        columns: &[READY, AGE],
        subresources: Subresources::Status,
        ..KindDefinition::new(
            GROUP,
            "VirtualMachineTemplate",
            "virtualmachinetemplates",
            &["vmt", "vmts"],
            ALPHA_BETA,
            template::VirtualMachineTemplate::schema,
        )
    },
    KindDefinition {
        columns: &[READY, Column("Template", "string", ".status.templateRef.name", "", 0), AGE],
        subresources: Subresources::Status,
        ..KindDefinition::new(
            GROUP,
            "VirtualMachineTemplateRequest",
            "virtualmachinetemplaterequests",
            &["vmtr", "vmtrs"],
            ALPHA_BETA,
            template::VirtualMachineTemplateRequest::schema,
        )
    },
];
