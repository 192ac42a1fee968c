//! Parses a path of KubeVirt's subresources. Pure.

use http::{Method, request};
use percent_encoding::percent_decode_str;

use crate::answer::GatewayError;
use crate::graph::Root;

pub const GROUP: &str = "subresources.kubevirt.io";
/// CDI's group, of which only the request for an upload token is not an object.
pub const UPLOAD_GROUP: &str = "upload.cdi.kubevirt.io";
pub const VERSIONS: &[&str] = &["v1", "v1alpha3"];
/// The group of actions on templates of machines.
pub const TEMPLATE_GROUP: &str = "subresources.template.kubevirt.io";
pub const TEMPLATE_VERSIONS: &[&str] = &["v1beta1", "v1alpha1"];
pub const TEMPLATE_RESOURCES: &[Row] = &[
    Row { name: "virtualmachinetemplates/create", namespaced: true, verbs: &["create"] },
    Row { name: "virtualmachinetemplates/process", namespaced: true, verbs: &["create"] },
];

/// A resource as discovery lists it.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub name: &'static str,
    pub namespaced: bool,
    pub verbs: &'static [&'static str],
}

const fn get(name: &'static str) -> Row {
    Row { name, namespaced: true, verbs: &["get"] }
}

const fn update(name: &'static str) -> Row {
    Row { name, namespaced: true, verbs: &["update"] }
}

/// The resources that upstream lists, which are fewer than it serves.
pub const RESOURCES: &[Row] = &[
    update("expand-vm-spec"),
    get("virtualmachines/expand-spec"),
    update("virtualmachines/memorydump"),
    update("virtualmachines/migrate"),
    get("virtualmachines/objectgraph"),
    get("virtualmachines/portforward"),
    update("virtualmachines/restart"),
    update("virtualmachines/start"),
    update("virtualmachines/stop"),
    update("virtualmachines/addvolume"),
    update("virtualmachines/removememorydump"),
    update("virtualmachines/removevolume"),
    update("virtualmachines/evacuate/cancel"),
    update("virtualmachineinstances/addvolume"),
    get("virtualmachineinstances/console"),
    update("virtualmachineinstances/evacuate/cancel"),
    get("virtualmachineinstances/filesystemlist"),
    update("virtualmachineinstances/freeze"),
    get("virtualmachineinstances/guestosinfo"),
    update("virtualmachineinstances/pause"),
    get("virtualmachineinstances/log"),
    get("virtualmachineinstances/objectgraph"),
    get("virtualmachineinstances/portforward"),
    update("virtualmachineinstances/removevolume"),
    update("virtualmachineinstances/reset"),
    update("virtualmachineinstances/softreboot"),
    update("virtualmachineinstances/unfreeze"),
    update("virtualmachineinstances/unpause"),
    get("virtualmachineinstances/userlist"),
    get("virtualmachineinstances/usbredir"),
    get("virtualmachineinstances/vnc"),
    get("virtualmachineinstances/vnc/screenshot"),
];

/// The subresource as the authorizer names it: two words belong together, a port does not.
pub fn subresource(rest: &str) -> &str {
    match rest.split_once('/') {
        Some(("portforward", _)) => "portforward",
        _ => rest,
    }
}

/// One object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectRoute {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MachineAct {
    Start,
    Stop,
    Restart,
    Migrate,
    ExpandSpec,
    AddVolume,
    RemoveVolume,
    DumpMemory,
    RemoveMemoryDump,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstanceAct {
    Pause,
    Unpause,
    Freeze,
    Unfreeze,
    Reset,
    SoftReboot,
    GuestOsInfo,
    UserList,
    FilesystemList,
    Screenshot,
    /// Ours: the output of the guest's serial console.
    Log,
    AddVolume,
    RemoveVolume,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stream {
    Console,
    Vnc,
    /// `through_machine`: the path named the machine, not its instance.
    PortForward {
        port: u16,
        udp: bool,
        through_machine: bool,
    },
    UsbRedirection,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    Version,
    Health,
    Expand { namespace: String },
    Machine { at: ObjectRoute, act: MachineAct },
    Instance { at: ObjectRoute, act: InstanceAct },
    Stream { at: ObjectRoute, stream: Stream },
    CancelEvacuation { at: ObjectRoute },
    Graph { at: ObjectRoute, root: Root },
    ProcessTemplate { at: ObjectRoute },
    CreateFromTemplate { at: ObjectRoute },
    UploadToken { namespace: String },
}

pub(crate) fn parse(parts: &request::Parts) -> Result<Route, GatewayError> {
    let path = percent_decode_str(parts.uri.path())
        .decode_utf8()
        .map_err(|_| GatewayError::bad_request("the path is not valid UTF-8"))?;
    let words: Vec<&str> = path.trim_matches('/').split('/').collect();
    if words.iter().any(|word| word.is_empty()) {
        return Err(GatewayError::no_such_path());
    }
    let (route, method) = match words.as_slice() {
        ["apis", UPLOAD_GROUP, _, "namespaces", namespace, "uploadtokenrequests"] => {
            (Route::UploadToken { namespace: (*namespace).to_owned() }, Method::POST)
        }
        [
            "apis",
            TEMPLATE_GROUP,
            _,
            "namespaces",
            namespace,
            "virtualmachinetemplates",
            name,
            rest,
        ] => {
            let at = ObjectRoute { namespace: (*namespace).to_owned(), name: (*name).to_owned() };
            match *rest {
                "process" => (Route::ProcessTemplate { at }, Method::POST),
                "create" => (Route::CreateFromTemplate { at }, Method::POST),
                _ => return Err(GatewayError::no_such_path()),
            }
        }
        ["apis", GROUP, _, "version"] => (Route::Version, Method::GET),
        // virtctl would start a pod and wait for it.
        ["apis", GROUP, _, "guestfs"] => return Err(GatewayError::needs_pods("virtctl guestfs")),
        ["apis", GROUP, _, "healthz"] => (Route::Health, Method::GET),
        ["apis", GROUP, _, "namespaces", namespace, "expand-vm-spec"] => {
            (Route::Expand { namespace: (*namespace).to_owned() }, Method::PUT)
        }
        ["apis", GROUP, _, "namespaces", namespace, kind, name, rest @ ..] => {
            let at = ObjectRoute { namespace: (*namespace).to_owned(), name: (*name).to_owned() };
            match *kind {
                "virtualmachines" => of_machine(at, rest)?,
                "virtualmachineinstances" => of_instance(at, rest)?,
                _ => return Err(GatewayError::no_such_path()),
            }
        }
        _ => return Err(GatewayError::no_such_path()),
    };
    if parts.method != method {
        return Err(GatewayError::method_not_allowed());
    }
    Ok(route)
}

fn of_machine(at: ObjectRoute, rest: &[&str]) -> Result<(Route, Method), GatewayError> {
    let act = match rest {
        ["start"] => MachineAct::Start,
        ["stop"] => MachineAct::Stop,
        ["restart"] => MachineAct::Restart,
        ["migrate"] => MachineAct::Migrate,
        ["addvolume"] => MachineAct::AddVolume,
        ["removevolume"] => MachineAct::RemoveVolume,
        ["memorydump"] => MachineAct::DumpMemory,
        ["removememorydump"] => MachineAct::RemoveMemoryDump,
        ["expand-spec"] => {
            return Ok((Route::Machine { at, act: MachineAct::ExpandSpec }, Method::GET));
        }
        ["portforward", port @ ..] => return forward(at, port, true),
        ["objectgraph"] => return Ok((Route::Graph { at, root: Root::Machine }, Method::GET)),
        ["evacuate", "cancel"] => return Ok((Route::CancelEvacuation { at }, Method::PUT)),
        _ => return Err(GatewayError::no_such_path()),
    };
    Ok((Route::Machine { at, act }, Method::PUT))
}

fn of_instance(at: ObjectRoute, rest: &[&str]) -> Result<(Route, Method), GatewayError> {
    let act = match rest {
        ["pause"] => InstanceAct::Pause,
        ["unpause"] => InstanceAct::Unpause,
        ["freeze"] => InstanceAct::Freeze,
        ["unfreeze"] => InstanceAct::Unfreeze,
        ["reset"] => InstanceAct::Reset,
        ["softreboot"] => InstanceAct::SoftReboot,
        ["addvolume"] => InstanceAct::AddVolume,
        ["removevolume"] => InstanceAct::RemoveVolume,
        ["guestosinfo"] => return asked(at, InstanceAct::GuestOsInfo),
        ["userlist"] => return asked(at, InstanceAct::UserList),
        ["filesystemlist"] => return asked(at, InstanceAct::FilesystemList),
        ["log"] => return asked(at, InstanceAct::Log),
        ["vnc", "screenshot"] => return asked(at, InstanceAct::Screenshot),
        ["console"] => return streamed(at, Stream::Console),
        ["vnc"] => return streamed(at, Stream::Vnc),
        ["usbredir"] => return streamed(at, Stream::UsbRedirection),
        ["portforward", port @ ..] => return forward(at, port, false),
        ["vsock"] => return unsupported("vsock"),
        ["objectgraph"] => return Ok((Route::Graph { at, root: Root::Instance }, Method::GET)),
        [what @ ("backup" | "redefine-checkpoint")] => return unsupported(what),
        ["sev", _] => return unsupported("sev"),
        ["evacuate", "cancel"] => return Ok((Route::CancelEvacuation { at }, Method::PUT)),
        _ => return Err(GatewayError::no_such_path()),
    };
    Ok((Route::Instance { at, act }, Method::PUT))
}

fn asked(at: ObjectRoute, act: InstanceAct) -> Result<(Route, Method), GatewayError> {
    Ok((Route::Instance { at, act }, Method::GET))
}

fn streamed(at: ObjectRoute, stream: Stream) -> Result<(Route, Method), GatewayError> {
    Ok((Route::Stream { at, stream }, Method::GET))
}

fn forward(
    at: ObjectRoute,
    rest: &[&str],
    through_machine: bool,
) -> Result<(Route, Method), GatewayError> {
    let (port, protocol) = match rest {
        [port] => (*port, "tcp"),
        [port, protocol] => (*port, *protocol),
        _ => return Err(GatewayError::no_such_path()),
    };
    let number = port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(|| {
        GatewayError::bad_request(format!("invalid port {port:?}: must be between 1 and 65535"))
    })?;
    let udp = match protocol {
        "tcp" => false,
        "udp" => true,
        other => {
            let why = format!("invalid protocol {other:?}: must be tcp or udp");
            return Err(GatewayError::bad_request(why));
        }
    };
    streamed(at, Stream::PortForward { port: number, udp, through_machine })
}

fn unsupported(what: &str) -> Result<(Route, Method), GatewayError> {
    // With whatever method it is asked for.
    Err(GatewayError::unsupported(what))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn at(method: Method, path: &str) -> Result<Route, GatewayError> {
        let uri = format!("/apis/{path}");
        parse(&Request::builder().method(method).uri(uri).body(()).unwrap().into_parts().0)
    }

    fn vm() -> ObjectRoute {
        ObjectRoute { namespace: "ns".to_owned(), name: "vm".to_owned() }
    }

    #[test]
    fn paths_name_what_is_meant() {
        let below = |rest: &str| format!("{GROUP}/v1/namespaces/ns/{rest}");
        let start = at(Method::PUT, &below("virtualmachines/vm/start"));
        assert_eq!(start, Ok(Route::Machine { at: vm(), act: MachineAct::Start }));
        let dump = at(Method::PUT, &below("virtualmachines/vm/memorydump"));
        assert_eq!(dump, Ok(Route::Machine { at: vm(), act: MachineAct::DumpMemory }));
        let shot = at(Method::GET, &below("virtualmachineinstances/vm/vnc/screenshot"));
        assert_eq!(shot, Ok(Route::Instance { at: vm(), act: InstanceAct::Screenshot }));
        for kind in ["virtualmachines", "virtualmachineinstances"] {
            let cancel = at(Method::PUT, &below(&format!("{kind}/vm/evacuate/cancel")));
            assert_eq!(cancel, Ok(Route::CancelEvacuation { at: vm() }));
        }
        let dns = at(Method::GET, &below("virtualmachines/vm/portforward/53/udp"));
        let stream = Stream::PortForward { port: 53, udp: true, through_machine: true };
        assert_eq!(dns, Ok(Route::Stream { at: vm(), stream }));
        let graph = at(Method::GET, &below("virtualmachineinstances/vm/objectgraph"));
        assert_eq!(graph, Ok(Route::Graph { at: vm(), root: Root::Instance }));
        let template = format!("{TEMPLATE_GROUP}/v1beta1/namespaces/ns/virtualmachinetemplates/vm");
        let process = at(Method::POST, &format!("{template}/process"));
        assert_eq!(process, Ok(Route::ProcessTemplate { at: vm() }));
        let create = at(Method::POST, &format!("{template}/create"));
        assert_eq!(create, Ok(Route::CreateFromTemplate { at: vm() }));
        let expand = at(Method::PUT, &below("expand-vm-spec"));
        assert_eq!(expand, Ok(Route::Expand { namespace: "ns".to_owned() }));
        let token =
            at(Method::POST, "upload.cdi.kubevirt.io/v1beta1/namespaces/n/uploadtokenrequests");
        assert_eq!(token, Ok(Route::UploadToken { namespace: "n".to_owned() }));
    }

    #[test]
    fn errors_of_paths_are_reported() {
        let below = |rest: &str| format!("{GROUP}/v1/namespaces/ns/{rest}");
        for (method, path, code) in [
            (Method::GET, "virtualmachines/vm/start", 405),
            (Method::PUT, "virtualmachines/vm/fly", 404),
            (Method::GET, "virtualmachineinstances/vm/portforward/0", 400),
            (Method::GET, "virtualmachineinstances/vm/portforward/99999", 400),
            (Method::GET, "virtualmachineinstances/vm/portforward/22/sctp", 400),
            (Method::GET, "virtualmachines/vm/memorydump", 405),
            (Method::PUT, "virtualmachineinstances/vm/backup", 501),
        ] {
            let failure = at(method, &below(path)).unwrap_err();
            assert_eq!(failure.code.as_u16(), code, "{path}");
        }
    }

    #[test]
    fn requests_that_would_run_a_pod_are_refused_with_an_alternative() {
        let failure = at(Method::GET, &format!("{GROUP}/v1/guestfs")).unwrap_err();
        assert_eq!(failure.code.as_u16(), 501);
        assert_eq!(
            failure.message,
            "virtctl guestfs runs a pod, and no pods run on this cluster; plug the claim into a \
             machine instead, with virtctl addvolume"
        );
        // client-go shows the body of a raw request only if it is text.
        let reply = failure.reply();
        let kind = reply.headers()[http::header::CONTENT_TYPE].to_str().unwrap();
        assert!(kind.starts_with("text/plain"), "{kind}");
    }

    #[test]
    fn a_port_is_no_part_of_the_subresource() {
        assert_eq!(subresource("portforward/22/tcp"), "portforward");
        assert_eq!(subresource("vnc/screenshot"), "vnc/screenshot");
        assert_eq!(subresource("start"), "start");
    }
}
