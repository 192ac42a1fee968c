//! Requests that change what a machine is to be: a patch of its object.

use crate::answer::{Failure, Outcome};
use crate::route::{At, InstanceAct, MachineAct};
use crate::{Asked, Gateway};

pub(crate) async fn answer(_: &Gateway, _: &At, act: MachineAct, _: Asked) -> Outcome {
    Err(Failure::unsupported(&format!("{act:?}")))
}

pub(crate) async fn volume_of_instance(_: &Gateway, _: &At, act: InstanceAct, _: &[u8]) -> Outcome {
    Err(Failure::unsupported(&format!("{act:?}")))
}

pub(crate) async fn expand(_: &Gateway, _: &str, _: Asked) -> Outcome {
    Err(Failure::unsupported("expand-vm-spec"))
}
