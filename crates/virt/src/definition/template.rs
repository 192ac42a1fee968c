//! KubeVirt's templates of machines.

use super::catalog::{AGE, ALPHA_BETA, READY};
use crate::api::record::Field;
use crate::api::template;
use crd::definition::{Column, Kind, Subresources};

const GROUP: &str = "template.kubevirt.io";

pub(super) const CATALOG: &[Kind] = &[
    Kind {
        columns: &[READY, AGE],
        subresources: Subresources::Status,
        ..Kind::new(
            GROUP,
            "VirtualMachineTemplate",
            "virtualmachinetemplates",
            &["vmt", "vmts"],
            ALPHA_BETA,
            template::VirtualMachineTemplate::schema,
        )
    },
    Kind {
        columns: &[READY, Column("Template", "string", ".status.templateRef.name", "", 0), AGE],
        subresources: Subresources::Status,
        ..Kind::new(
            GROUP,
            "VirtualMachineTemplateRequest",
            "virtualmachinetemplaterequests",
            &["vmtr", "vmtrs"],
            ALPHA_BETA,
            template::VirtualMachineTemplateRequest::schema,
        )
    },
];
