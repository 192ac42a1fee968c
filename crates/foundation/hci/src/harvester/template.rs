//! Templates of machines and their versions.

use crd::atom::{Any, ObjectMeta};
use crd::record::record;

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
        /// Free text.
        description: Option<String>,
    }

    VirtualMachineTemplateStatus {
        /// Number of the version that is used if none is chosen.
        default_version: Option<i32>,
        /// Number of the latest version.
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
        /// Free text.
        description: Option<String>,
        /// Image of the machine, as NAMESPACE/NAME.
        image_id: Option<String>,
        /// Key pairs of the machine, as NAMESPACE/NAME.
        key_pair_ids: Vec<String>,
        /// The machine to create.
        vm: Option<VirtualMachineSource>,
    }

    /// The machine that is made. Its spec is judged when it is: the schema of machines in here
    /// as well would weigh more than all of Harvester's kinds together.
    VirtualMachineSource {
        /// Labels and annotations of the machine.
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true},
        /// Specification of the VirtualMachine.
        spec: Option<Any>,
    }

    VirtualMachineTemplateVersionStatus {
        /// Number of the version.
        version: Option<i32>,
        conditions: Vec<Condition>,
    }
}
