//! The order of layers: the links that a lookup follows, and the layer that a write goes to.

use super::Replica;
use crate::store::files::FileNo;
use crate::store::geometry::Region;
use crate::store::layer::{LayerNo, Link, Work, WorkKind};

impl Replica {
    pub(super) fn rebuild_chain(&mut self) {
        let head = self.meta.body.layers.head;
        self.chain = self.links_from(head);
        self.chain_version += 1;
    }

    pub(super) fn links_from(&self, top: LayerNo) -> Vec<Link> {
        let work = self.current_work();
        let mut links = self.meta.body.layers.links(top, work.as_ref());
        links.extend(&self.base_links);
        links
    }

    /// The work on its way, with the cursor as it is now.
    pub(super) fn current_work(&self) -> Option<Work> {
        let work = self.meta.body.work.as_ref()?;
        Some(Work { cursor: self.work.cursor(), ..work.clone() })
    }

    /// The file that a write to the head goes to.
    pub(super) fn head_file(&self, region: Region) -> FileNo {
        let layers = &self.meta.body.layers;
        if let Some(Work { kind: WorkKind::MergeDown { from, into }, .. }) = &self.meta.body.work
            && *from == layers.head
            && region < self.work.cursor()
        {
            return layers.get(*into).file;
        }
        layers.head().file
    }

    /// Whether something shows through where the file has nothing.
    pub(super) fn has_below(&self, file: FileNo) -> bool {
        let layer = self.meta.body.layers.by_file(file);
        self.meta.body.base.is_some() || layer.is_none_or(|layer| layer.parent.is_some())
    }
}
