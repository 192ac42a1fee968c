//! Templates of machines and their versions.

use crd::atom::{Any, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    /// Template of machines, which has versions.
    VirtualMachineTemplate {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<VirtualMachineTemplateSpec>,
        status: Option<VirtualMachineTemplateStatus>,
    }

    VirtualMachineTemplateSpec {
        /// Default version of the template, as NAMESPACE/NAME.
        default_version_id: Option<String>,
        /// Description of the template for users.
        description: Option<String>,
    }

    VirtualMachineTemplateStatus {
        /// Number of the default version.
        default_version: Option<i32>,
        /// Number of the latest version.
        latest_version: Option<i32>,
    }

    /// Version of a template: the machine that it makes.
    VirtualMachineTemplateVersion {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineTemplateVersionSpec,
        status: Option<VirtualMachineTemplateVersionStatus>,
    }

    VirtualMachineTemplateVersionSpec {
        /// Template that the version belongs to, as NAMESPACE/NAME.
        template_id: String,
        /// Description of the version for users.
        description: Option<String>,
        /// Image of the virtual machine, as NAMESPACE/NAME.
        image_id: Option<String>,
        /// SSH key pairs of the virtual machine, as NAMESPACE/NAME.
        key_pair_ids: Vec<String>,
        /// VirtualMachine that is created from the template.
        vm: Option<VirtualMachineSource>,
    }

    /// VirtualMachine to create. Its specification is validated when it is created: a schema of
    /// virtual machines here would be larger than those of all other kinds of Harvester together.
    VirtualMachineSource {
        /// Labels and annotations of the virtual machine.
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true},
        /// Specification of the VirtualMachine.
        spec: Option<Any>,
    }

    VirtualMachineTemplateVersionStatus {
        /// Number of the template version.
        version: Option<i32>,
        conditions: Vec<Condition>,
    }
}
