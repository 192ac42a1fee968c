//! This node's work for the images on its disks. Pure.
//!
//! ```text
//!  Unknown ─► Coming ─► Ready          a download, again from where it was after a crash
//!     │         └─────► Failed         for good: the next attempt is another object
//!     └► Pending ─► Coming ─► Ready    an upload, which may come again when it broke
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::backing_image::{Image, ImageSource, ImageState, complete, folder};

/// Everything that is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct ImageWorld<'a> {
    pub(super) images: &'a BTreeMap<String, Image>,
    /// The disks of this node.
    pub(super) disks: &'a BTreeMap<String, PathBuf>,
    /// Uids of images with a job under way.
    pub(super) under_way: &'a BTreeSet<String>,
    /// Uids of images that are being removed, which is not cancelled.
    pub(super) removing: &'a BTreeSet<String>,
}

/// A place for an image on a disk of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImagePlacement {
    pub(super) disk: String,
    pub(super) folder: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ImageAction {
    Import {
        image: String,
        at: ImagePlacement,
    },
    /// Says that an upload may come; one that was under way is lost.
    Await {
        image: String,
        at: ImagePlacement,
        was_coming: bool,
    },
    /// Stops what is under way.
    Cancel {
        uid: String,
    },
    /// Removes all of it and lets the object go.
    Remove {
        image: String,
        from: Vec<PathBuf>,
    },
}

impl ImageAction {
    /// The image that may fail in it.
    pub(super) fn image(&self) -> Option<&str> {
        match self {
            Self::Import { image, .. } | Self::Await { image, .. } | Self::Remove { image, .. } => {
                Some(image)
            }
            Self::Cancel { .. } => None,
        }
    }
}

pub(super) fn plan(world: &ImageWorld<'_>) -> Vec<ImageAction> {
    world.images.values().filter_map(|image| act(world, image)).collect()
}

fn act(world: &ImageWorld<'_>, image: &Image) -> Option<ImageAction> {
    let all = image.disks.iter();
    let mut own = all.filter_map(|disk| Some((disk, world.disks.get(disk)?.as_path())));
    let is_busy = world.under_way.contains(&image.uid);
    let name = || image.name.clone();
    if image.is_deleting {
        let from: Vec<PathBuf> = own.map(|(_, path)| place(path, image)).collect();
        let is_removed = world.removing.contains(&image.uid);
        if from.is_empty() || !image.holds_finalizer || is_removed || is_read(world, &image.name) {
            return None;
        }
        return Some(match is_busy {
            true => ImageAction::Cancel { uid: image.uid.clone() },
            false => ImageAction::Remove { image: name(), from },
        });
    }
    if is_busy {
        return None;
    }
    let open = |(disk, _): &(&String, &Path)| match image.state(disk) {
        ImageState::Unknown | ImageState::Coming => true,
        ImageState::Pending => image.source != ImageSource::Upload,
        ImageState::Ready | ImageState::Failed => false,
    };
    let (disk, path) = own.find(open)?;
    let at = ImagePlacement { disk: disk.clone(), folder: place(path, image) };
    if image.source == ImageSource::Upload {
        let was_coming = image.state(disk) == ImageState::Coming;
        return Some(ImageAction::Await { image: name(), at, was_coming });
    }
    Some(ImageAction::Import { image: name(), at })
}

/// Whether another image is being made of this one.
fn is_read(world: &ImageWorld<'_>, name: &str) -> bool {
    world.images.values().any(|other| {
        let of_it = matches!(&other.source, ImageSource::Clone(wish) if wish.image == name);
        of_it && world.under_way.contains(&other.uid)
    })
}

fn place(disk: &Path, image: &Image) -> PathBuf {
    folder(disk, &image.name, &image.uid)
}

/// Where an upload for an image goes, if one may come now.
pub(super) fn upload(world: &ImageWorld<'_>, name: &str) -> Option<ImagePlacement> {
    let image = world.images.get(name)?;
    let is_free = image.source == ImageSource::Upload
        && !image.is_deleting
        && !world.under_way.contains(&image.uid);
    let pending = |disk: &&String| image.state(disk) == ImageState::Pending;
    let disk = image.disks.iter().filter(|_| is_free).find(pending)?;
    let path = world.disks.get(disk)?;
    Some(ImagePlacement { disk: disk.clone(), folder: place(path, image) })
}

/// The complete image of this name on a disk of this node.
pub(super) fn file(world: &ImageWorld<'_>, name: &str) -> Option<PathBuf> {
    let image = world.images.get(name).filter(|image| !image.is_deleting)?;
    let ready = |disk: &&String| image.state(disk) == ImageState::Ready;
    let disk = image.disks.iter().filter(ready).find_map(|disk| world.disks.get(disk))?;
    Some(complete(&place(disk, image)))
}

/// The images that a disk has all of.
pub(super) fn ready(world: &ImageWorld<'_>, disk: &Path) -> Vec<(String, ImagePlacement)> {
    let known = world.disks.iter().find(|(_, path)| *path == disk).map(|(name, _)| name);
    let Some(name) = known else { return Vec::new() };
    let all =
        world.images.values().filter(|it| !it.is_deleting && it.state(name) == ImageState::Ready);
    all.map(|it| (it.name.clone(), ImagePlacement { disk: name.clone(), folder: place(disk, it) }))
        .collect()
}

/// The complete files of an image on all disks of this node.
pub(super) fn copies(world: &ImageWorld<'_>, name: &str) -> Vec<PathBuf> {
    let Some(image) = world.images.get(name) else { return Vec::new() };
    let ready = world.disks.iter().filter(|(disk, _)| image.state(disk) == ImageState::Ready);
    ready.map(|(_, path)| complete(&place(path, image))).collect()
}

/// Folders on a disk that belong to no image.
pub(super) fn strays(world: &ImageWorld<'_>, disk: &Path, found: Vec<PathBuf>) -> Vec<PathBuf> {
    let known: BTreeSet<PathBuf> = world.images.values().map(|it| place(disk, it)).collect();
    found.into_iter().filter(|folder| !known.contains(folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backing_image::tests::read;
    use crate::backing_image::{CloneWish, CryptoConversion};

    fn planned(image: Image, busy: bool) -> (&'static str, bool) {
        let disks = BTreeMap::from([("d".to_owned(), PathBuf::from("/srv"))]);
        let under_way = if busy { BTreeSet::from([image.uid.clone()]) } else { BTreeSet::new() };
        let images = BTreeMap::from([("i".to_owned(), image)]);
        let world = ImageWorld {
            images: &images,
            disks: &disks,
            under_way: &under_way,
            removing: &BTreeSet::new(),
        };
        let actions = plan(&world);
        let word = match actions.as_slice() {
            [] => "nothing",
            [ImageAction::Import { .. }] => "import",
            [ImageAction::Await { was_coming: false, .. }] => "await",
            [ImageAction::Await { was_coming: true, .. }] => "await again",
            [ImageAction::Cancel { .. }] => "cancel",
            [ImageAction::Remove { .. }] => "remove",
            _ => "too much",
        };
        (word, upload(&world, "i").is_some())
    }

    #[test]
    fn each_state_has_its_next_step() {
        for (source, state, busy, expected) in [
            ("download", "", false, ("import", false)),
            ("download", "in-progress", false, ("import", false)),
            ("download", "in-progress", true, ("nothing", false)),
            ("download", "ready", false, ("nothing", false)),
            ("download", "failed", false, ("nothing", false)),
            ("upload", "", false, ("await", false)),
            ("upload", "pending", false, ("nothing", true)),
            ("upload", "pending", true, ("nothing", false)),
            ("upload", "in-progress", false, ("await again", false)),
            ("upload", "ready", false, ("nothing", false)),
            ("restore", "", false, ("import", false)),
        ] {
            let image = read(source, state);
            assert_eq!(planned(image, busy), expected, "{source} {state} {busy}");
        }
    }

    #[test]
    fn folders_of_no_image_are_left_over() {
        let images = BTreeMap::from([("i".to_owned(), read("upload", "ready"))]);
        let disks = BTreeMap::from([("d".to_owned(), PathBuf::from("/srv"))]);
        let world = ImageWorld {
            images: &images,
            disks: &disks,
            under_way: &BTreeSet::new(),
            removing: &BTreeSet::new(),
        };
        let own = place(Path::new("/srv"), &images["i"]);
        let other = PathBuf::from("/srv/backing-images/i-ffff");
        let left = strays(&world, Path::new("/srv"), vec![own.clone(), other.clone()]);
        assert_eq!(left, [other]);
        assert_eq!(file(&world, "i"), Some(own.join("backing")));
        assert_eq!(file(&world, "j"), None);
        let spot =
            ImagePlacement { disk: "d".into(), folder: place(Path::new("/srv"), &images["i"]) };
        assert_eq!(ready(&world, Path::new("/srv")), [("i".to_owned(), spot)]);
        assert_eq!(ready(&world, Path::new("/elsewhere")), []);
        assert_eq!(copies(&world, "i"), [own.join("backing")]);
        assert!(copies(&world, "j").is_empty());
    }

    #[test]
    fn a_deleted_image_is_stopped_and_then_removed() {
        let deleting = || Image { is_deleting: true, ..read("download", "in-progress") };
        assert_eq!(planned(deleting(), true).0, "cancel");
        assert_eq!(planned(deleting(), false).0, "remove");
        let free = Image { holds_finalizer: false, ..deleting() };
        assert_eq!(planned(free, false).0, "nothing");
        let images = BTreeMap::from([("i".to_owned(), deleting())]);
        let disks = BTreeMap::from([("d".to_owned(), PathBuf::from("/srv"))]);
        let busy = BTreeSet::from([deleting().uid]);
        let world =
            ImageWorld { images: &images, disks: &disks, under_way: &busy, removing: &busy };
        assert_eq!(plan(&world), [], "a removal is not cancelled");
        let reader = |busy: bool| {
            let wish = CloneWish {
                image: "i".into(),
                turn: CryptoConversion::Encrypt,
                secret: (String::new(), String::new()),
            };
            let other = Image {
                uid: "other".into(),
                source: ImageSource::Clone(wish),
                ..read("clone", "in-progress")
            };
            let images = BTreeMap::from([("i".into(), deleting()), ("j".into(), other)]);
            let disks = BTreeMap::from([("d".to_owned(), PathBuf::from("/srv"))]);
            let under_way = BTreeSet::from_iter(busy.then(|| "other".to_owned()));
            let world = ImageWorld {
                images: &images,
                disks: &disks,
                under_way: &under_way,
                removing: &BTreeSet::new(),
            };
            plan(&world).iter().any(|action| matches!(action, ImageAction::Remove { .. }))
        };
        assert!(!reader(true), "another image is being made of it");
        assert!(reader(false));
        let elsewhere = Image { disks: BTreeSet::from(["x".to_owned()]), ..deleting() };
        assert_eq!(planned(elsewhere, false).0, "nothing");
    }
}
