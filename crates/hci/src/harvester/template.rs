//! Templates of machines and their versions.

use crd::atom::ObjectMeta;
use crd::record::record;
use virt::v1::VirtualMachineSpec;

use super::Condition;

record! {
    VirtualMachineTemplate {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<VirtualMachineTemplateSpec>,
        status: Option<VirtualMachineTemplateStatus>,
    }

    VirtualMachineTemplateSpec {
        /// `NAMESPACE/NAME` of the version that is used when none is named.
        default_version_id: Option<String>,
        description: Option<String>,
    }

    VirtualMachineTemplateStatus {
        default_version: Option<i32>,
        latest_version: Option<i32>,
    }

    VirtualMachineTemplateVersion {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineTemplateVersionSpec,
        status: Option<VirtualMachineTemplateVersionStatus>,
    }

    VirtualMachineTemplateVersionSpec {
        /// `NAMESPACE/NAME` of the template.
        template_id: String,
        description: Option<String>,
        image_id: Option<String>,
        key_pair_ids: Vec<String>,
        vm: Option<VirtualMachineSource>,
    }

    /// The machine that is made.
    VirtualMachineSource {
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true},
        spec: Option<VirtualMachineSpec>,
    }

    VirtualMachineTemplateVersionStatus {
        version: Option<i32>,
        conditions: Vec<Condition>,
    }
}
