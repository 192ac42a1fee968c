//! The parts of the desired network that failed, and the requests that they concern. Pure.

use super::NetworkError;
use crate::name::LinkName;
use crate::plan::Conflict;

/// Failed parts of the desired network, by tap.
#[derive(Debug, Default)]
pub(super) struct Failures {
    pub(super) conflicts: Vec<Conflict>,
    pub(super) taps: Vec<(LinkName, NetworkError)>,
    pub(super) services: Option<NetworkError>,
    pub(super) policies: Option<NetworkError>,
    pub(super) overlay: Option<NetworkError>,
}

/// The subject of a request.
#[derive(Debug)]
pub(super) enum RequestSubject {
    Tap(LinkName),
    Services,
    Policies,
    Overlay,
    Network,
}

impl Failures {
    /// The error to report to a request about `subject`.
    pub(super) fn of(&self, subject: &RequestSubject) -> Option<NetworkError> {
        let tap = match subject {
            RequestSubject::Tap(tap) => Some(tap),
            RequestSubject::Services
            | RequestSubject::Policies
            | RequestSubject::Overlay
            | RequestSubject::Network => None,
        };
        let concerns = |conflict: &&Conflict| match conflict {
            Conflict::ForeignBridge { .. } => true,
            Conflict::NotATap { name } | Conflict::InUse { tap: name } => Some(name) == tap,
            Conflict::NoBridge { tap: port, .. }
            | Conflict::NotABridge { tap: port, .. }
            | Conflict::Unfiltered { tap: port, .. } => Some(port) == tap,
        };
        let conflict = self.conflicts.iter().find(concerns).cloned().map(NetworkError::from);
        let of_services = match subject {
            RequestSubject::Services => self.services.clone(),
            RequestSubject::Policies => self.policies.clone(),
            RequestSubject::Overlay => self.overlay.clone(),
            RequestSubject::Tap(_) | RequestSubject::Network => None,
        };
        let failure = || self.taps.iter().find(|(name, _)| Some(name) == tap);
        conflict.or(of_services).or_else(|| failure().map(|(_, error)| error.clone()))
    }
}
