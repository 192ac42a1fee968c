//! `template.kubevirt.io`: virtual machines as templates with parameters.

use crate::api::atom::{Any, LocalObjectReference, Map, ObjectMeta, Time};
use crate::api::record::record;

record! {
    /// Template of machines with parameters.
    VirtualMachineTemplate {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired template of virtual machines and its parameters.
        spec: VirtualMachineTemplateSpec,
        /// Observed state of the template.
        status: Option<VirtualMachineTemplateStatus>,
    }

    VirtualMachineTemplateSpec {
        /// Manifest of the VirtualMachine. ${NAME} is replaced by the value of the parameter of
        /// that name as a string, ${{NAME}} by its value without quotes.
        virtual_machine: Any = {"type": "object"},
        /// Parameters whose values are inserted into the VirtualMachine.
        parameters: Vec<Parameter>,
        /// Message for the user of a new VirtualMachine, for example how to log in.
        message: Option<String>,
    }

    Parameter {
        /// Name of the parameter.
        name: String,
        /// Name of the parameter for user interfaces.
        display_name: Option<String>,
        /// Description of the parameter for users.
        description: Option<String>,
        /// Value of the parameter; if it is set, none is generated.
        value: Option<String>,
        /// Generator of missing values; only expression.
        generate: Option<String> = {"enum": ["expression"]},
        /// Pattern of a generated value, for example vm-[a-z0-9]{5}.
        from: Option<String> = {"pattern": "\\[([a-zA-Z0-9\\-\\\\]+)\\](\\{(\\w+)\\})"},
        /// Whether the parameter must have a value.
        required: Option<bool>,
    }

    VirtualMachineTemplateStatus {
        /// Conditions of the template; Ready is true if it can be used.
        conditions: Vec<TemplateCondition> = {
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]
        },
    }

    TemplateCondition {
        /// Type of the condition.
        r#type: String,
        /// Status of the condition: True, False or Unknown.
        status: String = {"enum": ["True", "False", "Unknown"]},
        /// Generation of the object that the condition was computed from.
        observed_generation: Option<i64>,
        /// When the status of the condition last changed.
        last_transition_time: Time,
        /// Reason of the last status change as one CamelCase word, for programs.
        reason: String,
        /// Human-readable details of the condition.
        message: Option<String>,
    }

    /// Request to make a template of a machine.
    VirtualMachineTemplateRequest {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired template and the VirtualMachine that it is created from.
        spec: VirtualMachineTemplateRequestSpec,
        /// Observed progress of the request.
        status: Option<VirtualMachineTemplateRequestStatus>,
    }

    VirtualMachineTemplateRequestSpec {
        /// VirtualMachine that becomes a template; it must be in the namespace of the request.
        virtual_machine_ref: VirtualMachineReference,
        /// Name of the new template; by default the name of the request.
        template_name: Option<String>,
        /// Labels of the new template.
        template_labels: Map<String>,
        /// Seconds after its success after which the request is deleted.
        ttl_seconds_after_finished: Option<i32> = {"minimum": 0},
    }

    VirtualMachineReference {
        /// Namespace of the VirtualMachine.
        namespace: String,
        /// Name of the VirtualMachine.
        name: String,
    }

    VirtualMachineTemplateRequestStatus {
        /// Conditions of the request; Progressing while the template is being created, Ready
        /// afterwards.
        conditions: Vec<TemplateCondition> = {
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]
        },
        /// VirtualMachineTemplate that was created.
        template_ref: Option<LocalObjectReference>,
    }
}
