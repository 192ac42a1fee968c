//! The reports of a volume at the end of a plan: its status, those of its tickets, and events.

use super::{Draft, VolumeAction, engine_state};
use crate::event::EventType;
use crate::longhorn::record::EngineFields;
use crate::longhorn::volume::instance::patch_if_needed;
use crate::longhorn::volume::state::{Instance, Robustness, VolumeState};
use crate::longhorn::volume::{status, ticket};
use crate::longhorn::{ATTACHMENTS, LONGHORN_VOLUMES};
use crate::object::name;
use crate::record::condition::{ConditionFields, of_type};

impl Draft<'_> {
    /// The status of the volume and of its tickets, once all is decided.
    pub(super) fn conclude(&mut self, engine: &EngineFields<'_>) {
        let state = engine_state(engine, self.seen.places);
        let copies = self.census.copies(self.wanted);
        let robustness = Robustness::of(self.state, state, copies);
        self.event(self.state, robustness);
        // One that runs may stop soon because of an earlier absence of the ticket.
        let stays = engine.spec.desire_state == "running";
        let ready = self.state == VolumeState::Attached && state == Instance::Running && stays;
        let node = Some(engine.spec.node_id).filter(|_| ready);
        if let Some(attachment) = self.seen.attachment
            && let Some(patch) = ticket::statuses(attachment, node, self.seen.now)
        {
            let name = name(attachment).to_owned();
            self.plan.actions.push(VolumeAction::PatchStatus(ATTACHMENTS, name, patch));
        }
    }

    /// The error of the engine or a replica of a volume that is not attached yet.
    fn trouble(&self, state: VolumeState) -> Option<String> {
        let failure = |conditions: &[ConditionFields<'_>]| {
            let failed =
                |it: &&ConditionFields<'_>| it.kind == "InstanceCreation" && it.status == "False";
            let found = conditions.iter().find(failed);
            found.map(|it| it.message.to_owned()).filter(|why| !why.is_empty())
        };
        let engine = || failure(&self.engine.as_ref()?.status.conditions);
        let replica =
            || self.census.0.iter().find_map(|own| failure(&own.fields.status.conditions));
        (state == VolumeState::Attaching).then(|| engine().or_else(replica)).flatten()
    }

    /// The engine's fault of the data: a reason and a message if the condition does not hold.
    pub(super) fn engine_fault(&self, kind: &str) -> Option<(String, String)> {
        let found = of_type(&self.engine.as_ref()?.status.conditions, kind);
        let found = found.filter(|it| it.status == "False")?;
        Some((found.reason.to_owned(), found.message.to_owned()))
    }

    /// The status of the volume, and the events of what changes in it.
    pub(super) fn event(&mut self, state: VolumeState, robustness: Robustness) {
        let volume = self.seen.volume;
        let input = status::VolumeStatusInput {
            state,
            robustness,
            obstacle: self.obstacle.take(),
            trouble: self.trouble(state),
            unreadable: self.engine_fault(status::READABLE),
            damaged: self.engine_fault(status::SNAPSHOTS_INTACT),
            metadata: self.engine_fault(status::METADATA_INTACT),
            clone_status: self.clone_status.take(),
            expanding: self.engine.as_ref().is_some_and(|engine| self.is_short(engine)),
        };
        let patch = status::patch(volume, self.seen.engine, input, self.seen.now);
        if let Some(patch) = patch_if_needed(volume, patch) {
            let events = status::events(volume, &patch);
            self.plan.actions.push(VolumeAction::PatchStatus(
                LONGHORN_VOLUMES,
                name(volume).to_owned(),
                patch,
            ));
            for (tone, reason, message) in events {
                self.push_event(tone, reason, message);
            }
        }
    }

    pub(super) fn push_event(&mut self, tone: EventType, reason: &'static str, message: String) {
        self.plan.actions.push(VolumeAction::Event(tone, reason, message));
    }
}
