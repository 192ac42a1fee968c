//! Launcher pods: objects that stand for the guests of virtual machines as in KubeVirt, without
//! containers. Which command takes the place of a subresource that needs a container. Pure.

use serde_json::Value;

use crate::eviction::instance_of;
use crate::state::text;

/// The containers that a client can name for logs: that of a launcher pod, and the one in which
/// KubeVirt prints the serial console.
const LOG_CONTAINERS: [&str; 3] = ["", "compute", "guest-console-log"];

/// Whether a pod is a launcher pod.
pub fn is_launcher(pod: &Value) -> bool {
    pod["metadata"]["labels"]["kubevirt.io"] == "virt-launcher" && instance_of(pod).is_some()
}

/// Why a subresource of a launcher pod is not available, and which command to use; `None` for
/// other pods.
pub fn instead_of(pod: &Value, subresource: &str) -> Option<String> {
    let instance = instance_of(pod).filter(|_| is_launcher(pod))?;
    let namespace = text(pod, "/metadata/namespace");
    let commands = match subresource {
        "exec" | "attach" => format!(
            "`virtctl console {instance} -n {namespace}` opens its serial console, and `virtctl \
             ssh USER@vm/{instance} -n {namespace}` a shell"
        ),
        "portforward" | "proxy" => {
            format!("use `virtctl port-forward vm/{instance} PORT -n {namespace}`")
        }
        "log" => format!("`sheaf vm logs {instance} -n {namespace}` prints its serial console"),
        _ => "change the virtual machine instead".to_owned(),
    };
    Some(format!(
        "pod {} has no containers: it stands for the virtual machine {instance}; {commands}",
        text(pod, "/metadata/name")
    ))
}

/// Why a container has no log; `None` if it is the one of the guest.
pub fn no_such_log(pod: &str, container: &str) -> Option<String> {
    (!LOG_CONTAINERS.contains(&container)).then(|| {
        format!(
            "container {container} is not valid for pod {pod}: its serial console is the log of \
             the container guest-console-log"
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_needs_a_container_names_the_command_for_the_machine() {
        let pod = json!({"metadata": {
            "name": "virt-launcher-web-x", "namespace": "prod",
            "labels": {"kubevirt.io": "virt-launcher"},
            "annotations": {"kubevirt.io/domain": "web"},
        }});
        for (subresource, command) in [
            ("exec", "virtctl console web -n prod"),
            ("attach", "virtctl ssh USER@vm/web -n prod"),
            ("portforward", "virtctl port-forward vm/web PORT -n prod"),
            ("proxy", "virtctl port-forward"),
            ("log", "sheaf vm logs web -n prod"),
            ("resize", "the virtual machine"),
        ] {
            let said = instead_of(&pod, subresource).unwrap();
            assert!(said.starts_with("pod virt-launcher-web-x has no containers"), "{said}");
            assert!(said.contains(command), "{said}");
        }
        assert_eq!(instead_of(&json!({"metadata": {"name": "shell"}}), "exec"), None);
    }

    #[test]
    fn only_the_containers_of_a_launcher_have_a_log() {
        for known in ["", "compute", "guest-console-log"] {
            assert_eq!(no_such_log("p", known), None);
        }
        assert!(no_such_log("p", "nginx").unwrap().contains("container nginx is not valid"));
    }
}
