//! `template.kubevirt.io`: virtual machines as templates with parameters.

use crate::api::atom::{Any, LocalObjectReference, Map, ObjectMeta, Time};
use crate::api::record::record;

record! {
    VirtualMachineTemplate {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What virtual machines of this template are made of.
        spec: VirtualMachineTemplateSpec,
        /// Whether the template can be used.
        status: Option<VirtualMachineTemplateStatus>,
    }

    VirtualMachineTemplateSpec {
        /// The VirtualMachine. Text of the form ${NAME} is replaced by the value of the parameter
        /// of that name, and ${{NAME}} by its value without quotes.
        virtual_machine: Any = {"type": "object"},
        /// Values that are inserted into the VirtualMachine.
        parameters: Vec<Parameter>,
        /// What the user of a new VirtualMachine should know.
        message: Option<String>,
    }

    Parameter {
        /// Name of the parameter.
        name: String,
        /// Name for user interfaces.
        display_name: Option<String>,
        /// What the parameter is for.
        description: Option<String>,
        /// Value of the parameter. No value is generated if it is set.
        value: Option<String>,
        /// How a missing value is generated: expression.
        generate: Option<String> = {"enum": ["expression"]},
        /// Expression of a generated value, for example vm-[a-z0-9]{5}.
        from: Option<String> = {"pattern": "\\[([a-zA-Z0-9\\-\\\\]+)\\](\\{(\\w+)\\})"},
        /// The parameter must have a value.
        required: Option<bool>,
    }

    VirtualMachineTemplateStatus {
        /// Ready: the template can be used.
        conditions: Vec<TemplateCondition> = {
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]
        },
    }

    TemplateCondition {
        /// Type of the condition.
        r#type: String,
        /// True, False or Unknown.
        status: String = {"enum": ["True", "False", "Unknown"]},
        /// Generation of the object that the condition is about.
        observed_generation: Option<i64>,
        /// When the status last changed.
        last_transition_time: Time,
        /// Why, in one word.
        reason: String,
        /// Explanation.
        message: Option<String>,
    }

    VirtualMachineTemplateRequest {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Which VirtualMachine becomes a template.
        spec: VirtualMachineTemplateRequestSpec,
        /// How far the request is.
        status: Option<VirtualMachineTemplateRequestStatus>,
    }

    VirtualMachineTemplateRequestSpec {
        /// The VirtualMachine, which must be in the namespace of the request.
        virtual_machine_ref: VirtualMachineReference,
        /// Name of the new template; that of the request if it is empty.
        template_name: Option<String>,
        /// Labels of the new template.
        template_labels: Map<String>,
        /// The request is deleted so many seconds after it has succeeded.
        ttl_seconds_after_finished: Option<i32> = {"minimum": 0},
    }

    VirtualMachineReference {
        /// Namespace of the VirtualMachine.
        namespace: String,
        /// Name of the VirtualMachine.
        name: String,
    }

    VirtualMachineTemplateRequestStatus {
        /// Ready: the template was created. Progressing: it is being created.
        conditions: Vec<TemplateCondition> = {
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]
        },
        /// The template that was created.
        template_ref: Option<LocalObjectReference>,
    }
}
