//! Verification of the index of a layer in use.

use super::page::{Owner, Slot, decode, encode};
use super::{Index, LayerIndex, PAGE, REGIONS, own};
use crate::store::files::FileNo;

impl Index {
    /// Pages of which a region of the range is the first.
    pub(crate) fn pages_in(regions: &std::ops::Range<u32>) -> std::ops::Range<u32> {
        regions.start.div_ceil(REGIONS)..regions.end.div_ceil(REGIONS)
    }

    fn layer(&self, file: FileNo) -> Option<&LayerIndex> {
        self.layers.get(&own(file))
    }

    /// Whether the layer has a page of the index on disk.
    pub(crate) fn has_page(&self, file: FileNo, number: u32) -> bool {
        self.layer(file).is_some_and(|layer| layer.pages.contains_key(&number))
    }

    /// Which of the two slots of a page are damaged. No clean may have begun since they were read.
    pub(crate) fn damaged_slots(
        &self,
        tag: u64,
        file: FileNo,
        number: u32,
        pair: &[u8],
    ) -> [bool; 2] {
        let Some(layer) = self.layer(file) else { return [false; 2] };
        let Some(page) = layer.pages.get(&number) else { return [false; 2] };
        let owner = Owner { tag, file, page: number };
        let (first, second) = pair.split_at(PAGE);
        let slots = [decode(first, owner), decode(second, owner)];
        let counts = |slot: &Slot| matches!(slot, Slot::Valid(found) if found == page);
        if !slots.iter().any(counts) {
            return [true; 2];
        }
        // The other slot may hold a clean that did not come to its end; the next writes over it.
        let unfinished = layer.unfinished.contains(&number);
        slots.map(|slot| match &slot {
            _ if unfinished || counts(&slot) => false,
            Slot::Valid(other) => other.seq < page.seq.saturating_sub(1),
            Slot::Blank => page.seq > 1,
            Slot::Invalid => true,
        })
    }

    /// A page as it is on disk if nothing is damaged.
    pub(crate) fn page_bytes(&self, tag: u64, file: FileNo, number: u32) -> Option<Vec<u8>> {
        let page = self.layer(file)?.pages.get(&number)?;
        Some(encode(Owner { tag, file, page: number }, page))
    }
}
