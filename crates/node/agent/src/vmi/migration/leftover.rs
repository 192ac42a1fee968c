//! A guest's state besides its disks, on a node that it has left or never reached.

use super::incoming::read;
use super::{INCOMING, MigrationNote, OUTGOING};
use crate::vmi::actor::VmiActor;
use crate::vmi::state;

impl VmiActor {
    /// Removes the state of a guest that is on another node by its object. In doubt, or if the
    /// object is gone, it stays: it may be the only copy.
    pub(in crate::vmi) async fn remove_moved_state(&self) {
        let load = |name: &&str| self.dir.load::<MigrationNote>(name).ok().flatten();
        let note = [INCOMING, OUTGOING].iter().find_map(load);
        let Some(note) = note.filter(|note| !note.name.is_empty()) else { return };
        let uid = self.dir.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Ok(Some(vmi)) = read(&self.context, &note.namespace, &note.name).await
            && vmi.uid == uid
            && self.is_elsewhere(&vmi)
        {
            state::remove_migrated(&self.context, &vmi, &self.dir);
        }
    }
}
