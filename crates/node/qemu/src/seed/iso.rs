//! ISO 9660 (ECMA-119) and Joliet on disk.

use super::SeedFile;
use super::tree::{Folder, SeedError, Tree, TreeNode};

const SECTOR: usize = 2048;
const FIRST_TABLE: usize = 19;
const LARGEST: usize = 64 << 20;
/// Empty sectors at the end. Readers look ahead, and some (busybox) take a medium that is
/// shorter than what they read for none.
const PADDING: usize = 150;

/// Which of the two trees is written.
#[derive(Clone, Copy, PartialEq)]
enum View {
    Plain,
    Joliet,
}

/// Where everything is, in sectors.
struct Layout {
    /// Of each folder in each tree.
    folders: [Vec<Extent>; 2],
    files: Vec<Extent>,
    /// Little and big endian, of each tree.
    tables: [[usize; 2]; 2],
    table_sizes: [usize; 2],
    sectors: usize,
}

#[derive(Clone, Copy)]
struct Extent {
    sector: usize,
    bytes: usize,
}

pub(super) fn write(label: &str, tree: &Tree, files: &[SeedFile]) -> Result<Vec<u8>, SeedError> {
    if label.is_empty() || label.len() > 32 || !label.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(SeedError::BadLabel { label: label.to_owned() });
    }
    let bytes = files.iter().map(|file| file.content.len()).sum();
    if bytes > LARGEST {
        return Err(SeedError::TooLarge { bytes, most: LARGEST });
    }
    let layout = Layout::of(tree, files);
    let mut image = vec![0; layout.sectors * SECTOR];
    let mut put = |sector: usize, bytes: &[u8]| {
        image[sector * SECTOR..][..bytes.len()].copy_from_slice(bytes);
    };
    put(16, &volume(View::Plain, label, &layout));
    put(17, &volume(View::Joliet, label, &layout));
    put(18, b"\xffCD001\x01");
    for view in [View::Plain, View::Joliet] {
        let [little, big] = path_tables(view, tree, &layout);
        put(layout.tables[view as usize][0], &little);
        put(layout.tables[view as usize][1], &big);
        for (number, folder) in tree.folders.iter().enumerate() {
            let sector = layout.folders[view as usize][number].sector;
            put(sector, &records(view, number, folder, &layout));
        }
    }
    for (file, extent) in files.iter().zip(&layout.files) {
        put(extent.sector, &file.content);
    }
    Ok(image)
}

impl Layout {
    fn of(tree: &Tree, files: &[SeedFile]) -> Self {
        let mut next = FIRST_TABLE;
        let mut take = |bytes: usize| {
            let sector = next;
            next += bytes.div_ceil(SECTOR).max(1);
            Extent { sector, bytes }
        };
        let views = [View::Plain, View::Joliet];
        let table_sizes = views.map(|view| {
            let sizes = tree.folders.iter().map(|folder| {
                let length = folder_name(view, folder).len();
                8 + length + length % 2
            });
            sizes.sum::<usize>()
        });
        let tables = table_sizes.map(|size| [take(size).sector, take(size).sector]);
        let folders = views.map(|view| {
            let sizes = tree.folders.iter().map(|folder| folder_size(view, folder));
            sizes.map(&mut take).collect()
        });
        let files = files.iter().map(|file| take(file.content.len())).collect();
        Self { folders, files, tables, table_sizes, sectors: next + PADDING }
    }
}

/// A name as the directory of this tree spells it.
fn spell(view: View, name: &str, short: &str) -> Vec<u8> {
    match view {
        View::Plain => short.as_bytes().to_vec(),
        View::Joliet => name.encode_utf16().flat_map(u16::to_be_bytes).collect(),
    }
}

fn folder_name(view: View, folder: &Folder) -> Vec<u8> {
    // The root is called by a zero.
    if folder.name.is_empty() { vec![0] } else { spell(view, &folder.name, &folder.short) }
}

/// The entries of a folder in the order that readers may rely on.
fn entries(view: View, folder: &Folder) -> Vec<(Vec<u8>, &TreeNode)> {
    let mut entries: Vec<_> = folder
        .entries
        .iter()
        .map(|entry| match (view, &entry.node) {
            (View::Plain, TreeNode::File(_)) => {
                (format!("{};1", entry.short).into_bytes(), &entry.node)
            }
            _ => (spell(view, &entry.name, &entry.short), &entry.node),
        })
        .collect();
    entries.sort_by(|one, other| one.0.cmp(&other.0));
    entries
}

fn record_size(name: &[u8]) -> usize {
    // Records begin at even places.
    (33 + name.len()).next_multiple_of(2)
}

/// The bytes of a folder, whole sectors: no record crosses from one into the next.
fn folder_size(view: View, folder: &Folder) -> usize {
    let mut at = 2 * record_size(&[0]);
    for (name, _) in entries(view, folder) {
        at = place(at, record_size(&name)) + record_size(&name);
    }
    at.next_multiple_of(SECTOR)
}

/// Where a record of this size goes that would begin at `at`.
fn place(at: usize, size: usize) -> usize {
    if at % SECTOR + size > SECTOR { at.next_multiple_of(SECTOR) } else { at }
}

fn records(view: View, number: usize, folder: &Folder, layout: &Layout) -> Vec<u8> {
    let extents = &layout.folders[view as usize];
    let mut bytes = vec![0; extents[number].bytes];
    let mut at = 0;
    let mut put = |record: Vec<u8>| {
        let start = place(at, record.len());
        bytes[start..start + record.len()].copy_from_slice(&record);
        at = start + record.len();
    };
    put(record(&[0], extents[number], true));
    put(record(&[1], extents[folder.parent], true));
    for (name, node) in entries(view, folder) {
        match node {
            TreeNode::File(file) => put(record(&name, layout.files[*file], false)),
            TreeNode::Folder(child) => put(record(&name, extents[*child], true)),
        }
    }
    bytes
}

/// One directory record (ECMA-119 §9.1).
fn record(name: &[u8], extent: Extent, is_folder: bool) -> Vec<u8> {
    let mut bytes = vec![0; record_size(name)];
    bytes[0] = byte(bytes.len());
    bytes[2..10].copy_from_slice(&both32(extent.sector));
    bytes[10..18].copy_from_slice(&both32(extent.bytes));
    // Some day, the same for everyone: the bytes depend on the files alone.
    bytes[18..25].copy_from_slice(&[100, 1, 1, 0, 0, 0, 0]);
    bytes[25] = if is_folder { 2 } else { 0 };
    bytes[28..32].copy_from_slice(&both16(1));
    bytes[32] = byte(name.len());
    bytes[33..33 + name.len()].copy_from_slice(name);
    bytes
}

fn path_tables(view: View, tree: &Tree, layout: &Layout) -> [Vec<u8>; 2] {
    let (mut little, mut big) = (Vec::new(), Vec::new());
    for (number, folder) in tree.folders.iter().enumerate() {
        let name = folder_name(view, folder);
        let sector = word(layout.folders[view as usize][number].sector);
        let parent = half(folder.parent + 1);
        for table in [&mut little, &mut big] {
            table.extend([byte(name.len()), 0]);
        }
        little.extend(sector.to_le_bytes());
        little.extend(parent.to_le_bytes());
        big.extend(sector.to_be_bytes());
        big.extend(parent.to_be_bytes());
        for table in [&mut little, &mut big] {
            table.extend(&name);
            if name.len() % 2 == 1 {
                table.push(0);
            }
        }
    }
    [little, big]
}

/// A volume descriptor (ECMA-119 §8.4 and §8.5).
fn volume(view: View, label: &str, layout: &Layout) -> Vec<u8> {
    let mut bytes = vec![0; SECTOR];
    let text = |bytes: &mut [u8], value: &str| match view {
        View::Plain => {
            bytes.fill(b' ');
            bytes[..value.len()].copy_from_slice(value.as_bytes());
        }
        View::Joliet => {
            for (index, pair) in bytes.chunks_exact_mut(2).enumerate() {
                let letter = value.as_bytes().get(index).copied().unwrap_or(b' ');
                pair.copy_from_slice(&[0, letter]);
            }
        }
    };
    let root = layout.folders[view as usize][0];
    bytes[0] = if view == View::Plain { 1 } else { 2 };
    bytes[1..6].copy_from_slice(b"CD001");
    bytes[6] = 1;
    text(&mut bytes[8..40], "LINUX");
    text(&mut bytes[40..72], label);
    bytes[80..88].copy_from_slice(&both32(layout.sectors));
    if view == View::Joliet {
        // UCS-2 level 3.
        bytes[88..91].copy_from_slice(b"%/E");
    }
    bytes[120..124].copy_from_slice(&both16(1));
    bytes[124..128].copy_from_slice(&both16(1));
    bytes[128..132].copy_from_slice(&both16(SECTOR));
    bytes[132..140].copy_from_slice(&both32(layout.table_sizes[view as usize]));
    let [little, big] = layout.tables[view as usize];
    bytes[140..144].copy_from_slice(&word(little).to_le_bytes());
    bytes[148..152].copy_from_slice(&word(big).to_be_bytes());
    bytes[156..190].copy_from_slice(&record(&[0], root, true));
    for field in [190..318, 318..446, 446..574, 574..702, 702..739, 739..776, 776..813] {
        text(&mut bytes[field], "");
    }
    for field in [813..830, 830..847, 847..864, 864..881] {
        bytes[field.start..field.end - 1].fill(b'0');
    }
    bytes[881] = 1;
    bytes
}

/// A number in both byte orders, as this format loves it.
fn both32(value: usize) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&word(value).to_le_bytes());
    bytes[4..].copy_from_slice(&word(value).to_be_bytes());
    bytes
}

fn both16(value: usize) -> [u8; 4] {
    let mut bytes = [0; 4];
    bytes[..2].copy_from_slice(&half(value).to_le_bytes());
    bytes[2..].copy_from_slice(&half(value).to_be_bytes());
    bytes
}

// A medium is bounded at 64 MiB and names at 103 characters, so that these cannot fail.
fn word(value: usize) -> u32 {
    u32::try_from(value).expect("a medium is small")
}

fn half(value: usize) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

fn byte(value: usize) -> u8 {
    u8::try_from(value).expect("a record is short")
}
