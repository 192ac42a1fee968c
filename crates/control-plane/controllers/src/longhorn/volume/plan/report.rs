//! The reports of a volume at the end of a plan: its status, those of its tickets, and events.

use serde_json::Value;

use super::{Draft, VolumeAction, engine_state};
use crate::condition;
use crate::event::EventType;
use crate::longhorn::volume::instance::patch_if_needed;
use crate::longhorn::volume::state::{Instance, Robustness, VolumeState};
use crate::longhorn::volume::{status, ticket};
use crate::longhorn::{ATTACHMENTS, LONGHORN_VOLUMES};
use crate::object::{list, name, text};

impl Draft<'_> {
    /// The status of the volume and of its tickets, once all is decided.
    pub(super) fn conclude(&mut self, engine: &Value) {
        let state = engine_state(engine, self.seen.places);
        let copies = self.census.copies(self.wanted);
        let robustness = Robustness::of(self.state, state, copies);
        self.event(self.state, robustness);
        // One that runs may be about to stop because of an earlier absence of the ticket.
        let stays = text(engine, "/spec/desireState") == "running";
        let ready = self.state == VolumeState::Attached && state == Instance::Running && stays;
        let node = Some(text(engine, "/spec/nodeID")).filter(|_| ready);
        if let Some(attachment) = self.seen.attachment
            && let Some(patch) = ticket::statuses(attachment, node, self.seen.now)
        {
            let name = name(attachment).to_owned();
            self.plan.actions.push(VolumeAction::Tell(ATTACHMENTS, name, patch));
        }
    }

    /// The error of the engine or a replica of a volume that is not attached yet.
    fn trouble(&self, state: VolumeState) -> Option<String> {
        let failure = |own: &Value| {
            let failed = |it: &&Value| {
                text(it, "/type") == "InstanceCreation" && text(it, "/status") == "False"
            };
            let found = list(own, "/status/conditions").iter().find(failed);
            found.map(|it| text(it, "/message").to_owned()).filter(|why| !why.is_empty())
        };
        let engine = || self.seen.engine.and_then(failure);
        let replica = || self.census.0.iter().find_map(|own| failure(own.object));
        (state == VolumeState::Attaching).then(|| engine().or_else(replica)).flatten()
    }

    /// The engine's fault of the data: a reason and a message if the condition does not hold.
    pub(super) fn engine_fault(&self, kind: &str) -> Option<(String, String)> {
        let found = condition::find(list(self.seen.engine?, "/status/conditions"), kind);
        let found = found.filter(|it| text(it, "/status") == "False")?;
        Some((text(found, "/reason").to_owned(), text(found, "/message").to_owned()))
    }

    /// The status of the volume, and the events of what changes in it.
    pub(super) fn event(&mut self, state: VolumeState, robustness: Robustness) {
        let volume = self.seen.volume;
        let told = status::VolumeStatusInput {
            state,
            robustness,
            obstacle: self.obstacle.take(),
            trouble: self.trouble(state),
            unreadable: self.engine_fault(status::READABLE),
            damaged: self.engine_fault(status::SNAPSHOTS_INTACT),
            clone_status: self.clone_status.take(),
            expanding: self.seen.engine.is_some_and(|engine| self.is_short(engine)),
        };
        let patch = status::patch(volume, self.seen.engine, told, self.seen.now);
        if let Some(patch) = patch_if_needed(volume, patch) {
            let events = status::events(volume, &patch);
            self.plan.actions.push(VolumeAction::Tell(
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
