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

    /// The machine that is made. Its spec is judged when it is: the schema of machines in here
    /// as well would weigh more than all of Harvester's kinds together.
    VirtualMachineSource {
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true},
        spec: Option<Any>,
    }

    VirtualMachineTemplateVersionStatus {
        version: Option<i32>,
        conditions: Vec<Condition>,
    }
}
