//! The route of a request to the node endpoint. Pure.

use http::Method;

use super::migration::{MigrationStep, MigrationStream};

/// One machine of this node, by its object's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MachineTarget {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The kind of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// A stream both ways, after an upgrade.
    Stream(MachineTarget, Stream),
    Read(MachineTarget, Read),
    Act(MachineTarget, GuestAction),
    /// An image for the volume of this name.
    Upload(String),
    /// The content of the volume of this name.
    VolumeData(String),
    /// The data of the backing image of this name.
    UploadImage(String),
    /// How far the upload of an image is.
    ImagePosition(String),
    ImageFile(String),
    /// Resource usage of the node and its machines.
    Usage,
    /// Files about the node for a support bundle.
    Report,
    /// Recent usage of the node or of one machine.
    Series(Option<MachineTarget>),
    /// A step of a machine that moves here, by the uid of its migration.
    Migrate(String, MigrationStep),
    MigrationStream(String, MigrationStream),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Console,
    Vnc,
    /// A USB device of a client.
    Usb,
    Tcp(u16),
    Udp(u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    Screenshot,
    GuestOsInfo,
    UserList,
    FilesystemList,
    Log,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuestAction {
    Pause,
    Unpause,
    Reset,
    SoftReboot,
    Freeze,
    Unfreeze,
}

impl Route {
    /// The machine that the request concerns.
    pub(super) fn machine(&self) -> Option<&MachineTarget> {
        match self {
            Self::Stream(target, _) | Self::Read(target, _) | Self::Act(target, _) => Some(target),
            Self::Series(target) => target.as_ref(),
            _ => None,
        }
    }
}

/// Why a path leads nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoute {
    NotFound,
    WrongMethod,
    BadPort,
}

/// Reads method and path.
pub(crate) fn route(method: &Method, path: &str) -> Result<Route, NoRoute> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (wanted, route) = match parts.as_slice() {
        ["v1", "usage"] => (Method::GET, Route::Usage),
        ["v1", "report"] => (Method::GET, Route::Report),
        ["v1", "series"] => (Method::GET, Route::Series(None)),
        ["v1", "migrations", uid, "stream"] => {
            (Method::GET, Route::MigrationStream((*uid).into(), MigrationStream::First))
        }
        ["v1", "migrations", uid, "resume"] => {
            (Method::GET, Route::MigrationStream((*uid).into(), MigrationStream::Resumed))
        }
        ["v1", "migrations", uid, "disks"] => {
            (Method::GET, Route::MigrationStream((*uid).into(), MigrationStream::Disks))
        }
        ["v1", "migrations", uid, step] => (Method::PUT, migration(uid, step)?),
        ["v1", "volumes", volume, "upload"] => (Method::PUT, Route::Upload((*volume).into())),
        ["v1", "volumes", volume, "data"] => (Method::GET, Route::VolumeData((*volume).into())),
        ["v1", "images", image, "upload"] if *method == Method::GET => {
            (Method::GET, Route::ImagePosition((*image).into()))
        }
        ["v1", "images", image, "upload"] => (Method::PUT, Route::UploadImage((*image).into())),
        ["v1", "images", image, "file"] => (Method::GET, Route::ImageFile((*image).into())),
        ["v1", "vmis", namespace, name, rest @ ..] if !namespace.is_empty() && !name.is_empty() => {
            let target = MachineTarget { namespace: (*namespace).into(), name: (*name).into() };
            machine(target, rest)?
        }
        _ => return Err(NoRoute::NotFound),
    };
    if *method == wanted { Ok(route) } else { Err(NoRoute::WrongMethod) }
}

fn migration(uid: &str, step: &str) -> Result<Route, NoRoute> {
    let step = match step {
        "prepare" => MigrationStep::Prepare,
        "switch" => MigrationStep::Switch,
        "loaded" => MigrationStep::Loaded,
        "cancel" => MigrationStep::Cancel,
        _ => return Err(NoRoute::NotFound),
    };
    Ok(Route::Migrate(uid.into(), step))
}

fn machine(target: MachineTarget, rest: &[&str]) -> Result<(Method, Route), NoRoute> {
    let read = |target, what| Ok((Method::GET, Route::Read(target, what)));
    let act = |target, what| Ok((Method::PUT, Route::Act(target, what)));
    let stream = |target, what| Ok((Method::GET, Route::Stream(target, what)));
    match rest {
        ["series"] => Ok((Method::GET, Route::Series(Some(target)))),
        ["console"] => stream(target, Stream::Console),
        ["vnc"] => stream(target, Stream::Vnc),
        ["usbredir"] => stream(target, Stream::Usb),
        ["portforward", port, "tcp"] => stream(target, Stream::Tcp(number(port)?)),
        ["portforward", port, "udp"] => stream(target, Stream::Udp(number(port)?)),
        ["screenshot"] => read(target, Read::Screenshot),
        ["guestosinfo"] => read(target, Read::GuestOsInfo),
        ["userlist"] => read(target, Read::UserList),
        ["filesystemlist"] => read(target, Read::FilesystemList),
        ["log"] => read(target, Read::Log),
        ["pause"] => act(target, GuestAction::Pause),
        ["unpause"] => act(target, GuestAction::Unpause),
        ["reset"] => act(target, GuestAction::Reset),
        ["softreboot"] => act(target, GuestAction::SoftReboot),
        ["freeze"] => act(target, GuestAction::Freeze),
        ["unfreeze"] => act(target, GuestAction::Unfreeze),
        _ => Err(NoRoute::NotFound),
    }
}

fn number(port: &str) -> Result<u16, NoRoute> {
    match port.parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(NoRoute::BadPort),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_where_the_api_server_means() {
        let target = || MachineTarget { namespace: "ns".into(), name: "vm".into() };
        let cases = [
            ("GET", "/v1/vmis/ns/vm/console", Ok(Route::Stream(target(), Stream::Console))),
            (
                "GET",
                "/v1/vmis/ns/vm/portforward/22/tcp",
                Ok(Route::Stream(target(), Stream::Tcp(22))),
            ),
            (
                "GET",
                "/v1/vmis/ns/vm/portforward/53/udp",
                Ok(Route::Stream(target(), Stream::Udp(53))),
            ),
            ("GET", "/v1/vmis/ns/vm/usbredir", Ok(Route::Stream(target(), Stream::Usb))),
            ("GET", "/v1/vmis/ns/vm/portforward/0/tcp", Err(NoRoute::BadPort)),
            ("GET", "/v1/vmis/ns/vm/portforward/70000/tcp", Err(NoRoute::BadPort)),
            ("GET", "/v1/vmis/ns/vm/screenshot", Ok(Route::Read(target(), Read::Screenshot))),
            ("PUT", "/v1/vmis/ns/vm/pause", Ok(Route::Act(target(), GuestAction::Pause))),
            ("GET", "/v1/vmis/ns/vm/pause", Err(NoRoute::WrongMethod)),
            ("PUT", "/v1/volumes/pvc-1/upload", Ok(Route::Upload("pvc-1".into()))),
            ("GET", "/v1/volumes/pvc-1/data", Ok(Route::VolumeData("pvc-1".into()))),
            ("PUT", "/v1/images/vmi-1/upload", Ok(Route::UploadImage("vmi-1".into()))),
            (
                "PUT",
                "/v1/migrations/u/prepare",
                Ok(Route::Migrate("u".into(), MigrationStep::Prepare)),
            ),
            ("GET", "/v1/migrations/u/prepare", Err(NoRoute::WrongMethod)),
            ("PUT", "/v1/migrations/u/other", Err(NoRoute::NotFound)),
            (
                "GET",
                "/v1/migrations/u/stream",
                Ok(Route::MigrationStream("u".into(), MigrationStream::First)),
            ),
            (
                "GET",
                "/v1/migrations/u/resume",
                Ok(Route::MigrationStream("u".into(), MigrationStream::Resumed)),
            ),
            ("PUT", "/v1/migrations/u/resume", Err(NoRoute::WrongMethod)),
            (
                "GET",
                "/v1/migrations/u/disks",
                Ok(Route::MigrationStream("u".into(), MigrationStream::Disks)),
            ),
            ("GET", "/v1/vmis//vm/console", Err(NoRoute::NotFound)),
            ("GET", "/v1/vmis/ns/vm", Err(NoRoute::NotFound)),
            ("GET", "/", Err(NoRoute::NotFound)),
        ];
        for (method, path, want) in cases {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(route(&method, path), want, "{method} {path}");
        }
    }
}
