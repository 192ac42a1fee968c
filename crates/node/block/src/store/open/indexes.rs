//! The indexes of a replica's layers: read, and made for a replica of the first format.

use std::collections::BTreeMap;

use super::OpenError;
use crate::store::files::{FileId, FileNo, Files, Place};
use crate::store::geometry::region_count;
use crate::store::index::{self, Index, LoadError, Loading, Root};
use crate::store::super_block::SuperBlock;

/// The expected root of each layer's index; the one in the log is newer than that in the super
/// block.
pub(crate) fn roots(meta: &SuperBlock, logged: &BTreeMap<FileNo, Root>) -> BTreeMap<FileNo, Root> {
    let layers = meta.body.layers.layers.iter();
    let root = |file: FileNo, known: Option<Root>| {
        logged.get(&file).copied().or(known).unwrap_or_default()
    };
    layers.map(|layer| (layer.file, root(layer.file, layer.root))).collect()
}

/// Reads the indexes of all layers. One that is damaged is made anew from its map.
pub(super) fn load(
    files: &mut dyn Files,
    meta: &SuperBlock,
    logged: &BTreeMap<FileNo, Root>,
) -> Result<Index, OpenError> {
    let roots = roots(meta, logged);
    let mut index = Index::new(roots.values().map(|root| root.clean).max().unwrap_or(0));
    let regions = region_count(meta.size);
    for (file, root) in roots {
        let loading = Loading { tag: meta.tag(), file, root, regions };
        let (layer, health) = index::load(files, loading).map_err(|error| failed(file, error))?;
        if health.rebuilt {
            write(files, file, index::pages(&layer, loading))?;
        }
        index.insert(FileId::Map(Place::Own, file), layer);
    }
    Ok(index)
}

/// Makes the indexes of a replica that has none. `counts` is the number of blocks that each layer
/// has. It is done once: then the super block says so.
pub(super) fn build(
    files: &mut dyn Files,
    meta: &SuperBlock,
    counts: &BTreeMap<FileNo, u64>,
) -> Result<Index, OpenError> {
    let mut index = Index::new(0);
    let regions = region_count(meta.size);
    for layer in &meta.body.layers.layers {
        let (file, root) = (layer.file, Root::default());
        let loading = Loading { tag: meta.tag(), file, root, regions };
        let blocks = counts.get(&file).copied().unwrap_or(0);
        let built = index::build(files, loading, blocks).map_err(|error| failed(file, error))?;
        write(files, file, index::pages(&built, loading))?;
        index.insert(FileId::Map(Place::Own, file), built);
    }
    let io = |source| OpenError::Io { file: FileId::Directory, source };
    files.sync_directory().map_err(io)?;
    Ok(index)
}

fn write(files: &mut dyn Files, file: FileNo, pages: Vec<(u64, Vec<u8>)>) -> Result<(), OpenError> {
    let file = FileId::Index(Place::Own, file);
    let io = |source| OpenError::Io { file, source };
    files.create(file).map_err(io)?;
    for (offset, data) in pages {
        files.write(file, offset, &data).map_err(io)?;
    }
    files.sync(file).map_err(io)?;
    files.sync_directory().map_err(io)
}

fn failed(file: FileNo, error: LoadError) -> OpenError {
    match error {
        LoadError::Contradicts => OpenError::Index { file: FileId::Index(Place::Own, file) },
        LoadError::Io(file, source) => OpenError::Io { file, source },
    }
}
