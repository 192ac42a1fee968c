use super::*;
use crate::store::files::Files;
use crate::store::files::sim::SimFiles;
use crate::store::geometry::Blocks;
use crate::store::map;

const TAG: u64 = 9;
const FILE: FileNo = FileNo(3);
const VOLUME: u32 = 2 * REGIONS + 5;

/// A layer with pages of its map, as cleans leave them.
struct Layer {
    files: SimFiles,
    index: Index,
    seqs: BTreeMap<u32, u64>,
}

impl Layer {
    fn new() -> Self {
        let mut files = SimFiles::new();
        for file in FileId::of_layer(FILE) {
            files.create(file).unwrap();
        }
        let mut index = Index::new(0);
        index.insert(own(FILE), LayerIndex::default());
        Self { files, index, seqs: BTreeMap::new() }
    }

    /// A clean that writes the regions; `ends` says whether it comes to its end.
    fn clean(&mut self, regions: &[u32], ends: bool) {
        let mut pages = Vec::new();
        for region in regions {
            let seq = self.seqs.get(region).copied().unwrap_or(0) + 1;
            let presence = Presence::new(Blocks::of(0, seq as u32), Blocks::NONE);
            let owner = map::Owner { tag: TAG, file: FILE, region: Region(*region) };
            let crcs = map::no_crcs();
            let data = map::encode(owner, seq, self.index.next_clean(), &presence, &crcs);
            self.files.write(own(FILE), map::offset(Region(*region), seq), &data).unwrap();
            pages.push((FILE, Region(*region), Entry::new(seq, map::crc_of(&data), &presence)));
            if ends {
                self.seqs.insert(*region, seq);
            }
        }
        for due in self.index.begin(TAG, pages) {
            let file = FileId::Index(Place::Own, due.file);
            self.files.write(file, due.offset, &due.data).unwrap();
            if ends {
                self.files.write(file, due.copy, &due.data).unwrap();
            }
        }
        if ends {
            assert_eq!(self.index.commit(), [FILE]);
        } else {
            self.index.abandon();
        }
    }

    fn load(&mut self) -> Result<(Vec<u32>, load::Health), LoadError> {
        let root = self.index.root(FILE);
        let loading = Loading { tag: TAG, file: FILE, root, regions: VOLUME };
        let (layer, health) = load(&mut self.files, loading)?;
        let regions = (0..VOLUME).filter(|region| layer.get(Region(*region)).is_some());
        for region in regions.clone() {
            let entry = layer.get(Region(region)).unwrap();
            assert_eq!(u64::from(entry.seq), self.seqs[&region], "region {region}");
        }
        Ok((regions.collect(), health))
    }
}

/// Three cleans in three pages of the index.
fn sample() -> Layer {
    let mut layer = Layer::new();
    layer.clean(&[0, 7, REGIONS], true);
    layer.clean(&[7, 2 * REGIONS + 1], true);
    layer.clean(&[7, REGIONS - 1], true);
    layer
}

const REGIONS_OF_SAMPLE: [u32; 5] = [0, 7, REGIONS - 1, REGIONS, 2 * REGIONS + 1];

#[test]
fn an_index_is_read_as_it_was_written() {
    let mut layer = sample();
    assert_eq!(layer.load().unwrap(), (REGIONS_OF_SAMPLE.to_vec(), load::Health::default()));
    assert_eq!(layer.index.get(own(FILE), Region(1)), Stated::Blank);
    assert!(layer.index.has_place(own(FILE), Region(1)));
}

#[test]
fn a_clean_that_did_not_end_does_not_count() {
    let mut layer = sample();
    layer.clean(&[0, 7, 2 * REGIONS + 1, 5], false);
    assert_eq!(layer.load().unwrap().0, REGIONS_OF_SAMPLE);
    // Nor does what the next one finds of it.
    layer.clean(&[0, 5], true);
    assert!(layer.load().unwrap().0.contains(&5));
}

#[test]
fn a_damaged_slot_costs_nothing() {
    for at in [300, PAGE as u64 + 300] {
        let mut layer = sample();
        layer.files.flip(FileId::Index(Place::Own, FILE), at, 3);
        let (regions, health) = layer.load().unwrap();
        assert_eq!((regions, health.rebuilt), (REGIONS_OF_SAMPLE.to_vec(), false));
        assert_eq!(health.damaged_slots, [0]);
    }
}

#[test]
fn a_lost_or_older_index_is_made_anew_from_the_map() {
    let file = FileId::Index(Place::Own, FILE);
    let damages: [fn(&mut SimFiles, FileId); 4] = [
        |files, file| files.truncate(file, 0).unwrap(),
        |files, file| files.truncate(file, PAIR + 5).unwrap(),
        |files, file| files.write(file, 0, &[0; PAIR as usize]).unwrap(),
        |files, file| {
            for at in [300, PAGE as u64 + 300] {
                files.flip(file, at, 3);
            }
        },
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let mut layer = sample();
        damage(&mut layer.files, file);
        let (regions, health) = layer.load().unwrap();
        assert!(health.rebuilt && regions == REGIONS_OF_SAMPLE, "damage {number}: {regions:?}");
    }
    let mut layer = sample();
    let len = layer.files.len(file).unwrap().unwrap();
    let older = layer.files.read(file, 0, len).unwrap();
    layer.clean(&[0, 7], true);
    layer.files.write(file, 0, &older).unwrap();
    let (regions, health) = layer.load().unwrap();
    assert!(health.rebuilt && regions == REGIONS_OF_SAMPLE);
}

#[test]
fn an_index_and_a_map_that_are_both_older_are_refused() {
    let mut layer = sample();
    let older = layer.files.clone();
    layer.clean(&[7], true);
    layer.files = older;
    assert_eq!(layer.load(), Err(LoadError::Contradicts));
}
