//! The folders of a medium, and the short names that the plain tree gives its files.

use std::collections::{BTreeMap, BTreeSet};

use super::SeedFile;

/// UTF-16 units of a name that every reader of Joliet takes.
const LONGEST_NAME: usize = 103;
const DEEPEST: usize = 8;

/// Why no medium can be made of these files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SeedError {
    #[error("not a path for a file on a medium: {path:?}; want names divided by single slashes")]
    BadPath { path: String },
    #[error("the name {name:?} is longer than {LONGEST_NAME} characters")]
    LongName { name: String },
    #[error("{path} is more than {DEEPEST} folders deep")]
    Deep { path: String },
    #[error("there are two files called {path}")]
    Twice { path: String },
    #[error("{path} is a file and a folder")]
    FileAndFolder { path: String },
    #[error("the label {label:?} is not one to 32 ASCII characters")]
    BadLabel { label: String },
    #[error("the files are {bytes} bytes together, more than {most}")]
    TooLarge { bytes: usize, most: usize },
}

#[derive(Debug)]
pub(super) enum TreeNode {
    /// Which of the files it is.
    File(usize),
    /// Which of the folders it is.
    Folder(usize),
}

#[derive(Debug)]
pub(super) struct DirectoryEntry {
    pub(super) name: String,
    /// `NAME.EXT`, unique in its folder.
    pub(super) short: String,
    pub(super) node: TreeNode,
}

#[derive(Debug)]
pub(super) struct Folder {
    pub(super) name: String,
    pub(super) short: String,
    pub(super) parent: usize,
    pub(super) entries: Vec<DirectoryEntry>,
}

/// Folders by level, the root first, as the path tables want them.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) folders: Vec<Folder>,
}

#[derive(Default)]
struct Draft {
    children: BTreeMap<String, Draft>,
    file: Option<usize>,
}

impl Tree {
    pub(super) fn of(files: &[SeedFile]) -> Result<Self, SeedError> {
        let mut root = Draft::default();
        for (index, file) in files.iter().enumerate() {
            let names = names(&file.path)?;
            let mut at = &mut root;
            for (depth, name) in names.iter().enumerate() {
                if at.file.is_some() {
                    return Err(SeedError::FileAndFolder { path: names[..depth].join("/") });
                }
                at = at.children.entry((*name).to_owned()).or_default();
            }
            if at.file.is_some() {
                return Err(SeedError::Twice { path: file.path.clone() });
            }
            if !at.children.is_empty() {
                return Err(SeedError::FileAndFolder { path: file.path.clone() });
            }
            at.file = Some(index);
        }
        Ok(Self::settle(root))
    }

    /// Numbers the folders level by level.
    fn settle(root: Draft) -> Self {
        let new = |name, short, parent| Folder { name, short, parent, entries: Vec::new() };
        let mut folders = vec![new(String::new(), String::new(), 0)];
        let mut level = vec![(0, root)];
        while !level.is_empty() {
            let mut below = Vec::new();
            for (number, draft) in level {
                let mut taken = BTreeSet::new();
                for (name, child) in draft.children {
                    let short = short_name(&name, child.file.is_none(), &mut taken);
                    let node = match child.file {
                        Some(file) => TreeNode::File(file),
                        None => {
                            folders.push(new(name.clone(), short.clone(), number));
                            below.push((folders.len() - 1, child));
                            TreeNode::Folder(folders.len() - 1)
                        }
                    };
                    folders[number].entries.push(DirectoryEntry { name, short, node });
                }
            }
            level = below;
        }
        Self { folders }
    }
}

fn names(path: &str) -> Result<Vec<&str>, SeedError> {
    let names: Vec<&str> = path.split('/').collect();
    let fine = |name: &&str| {
        let bad = |c: char| c.is_control() || "*:;?\\".contains(c);
        !name.is_empty() && ![".", ".."].contains(name) && !name.contains(bad)
    };
    if !names.iter().all(fine) {
        return Err(SeedError::BadPath { path: path.to_owned() });
    }
    if names.len() > DEEPEST {
        return Err(SeedError::Deep { path: path.to_owned() });
    }
    match names.iter().find(|name| name.encode_utf16().count() > LONGEST_NAME) {
        Some(name) => Err(SeedError::LongName { name: (*name).to_owned() }),
        None => Ok(names),
    }
}

/// Eight characters, a dot and three for a file; eight for a folder.
fn short_name(name: &str, is_folder: bool, taken: &mut BTreeSet<String>) -> String {
    let plain = |text: &str, length: usize| -> String {
        let map = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        text.chars().map(map).take(length).collect()
    };
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) if !is_folder && !stem.is_empty() => (stem, extension),
        _ => (name, ""),
    };
    let (stem, extension) = (plain(stem, 8), plain(extension, 3));
    let join = |stem: &str| {
        if is_folder { stem.to_owned() } else { format!("{stem}.{extension}") }
    };
    let mut short = join(&stem);
    let mut number = 0;
    while !taken.insert(short.clone()) {
        number += 1;
        let suffix = format!("_{number}");
        let start: String = stem.chars().take(8 - suffix.len().min(8)).collect();
        short = join(&format!("{start}{suffix}"));
    }
    short
}
