//! Longhorn's BackingImages as this node reads them, and where their files are on a disk.
//!
//! `image` makes the files, and `storage` begins replicas with them. Reads objects and folders;
//! changes neither.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use hci::longhorn::FINALIZER;
use hci::longhorn::image::BackingImageSpec;
use kube::api::DynamicObject;
use serde_json::Value;

/// The folder of images on a disk.
const FOLDER: &str = "backing-images";
/// The complete image in its folder.
const BACKING: &str = "backing";

/// Where the data comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ImageSource {
    Download {
        url: String,
    },
    Upload,
    /// All of a volume without a writer.
    Export {
        volume: String,
    },
    /// Another image, encrypted or decrypted.
    Clone(CloneWish),
    Unsupported {
        what: String,
    },
}

/// Request to make an image from another image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CloneWish {
    /// The backing image.
    pub(crate) image: String,
    pub(crate) turn: CryptoConversion,
    /// Namespace and name of the Secret with the passphrase.
    pub(crate) secret: (String, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CryptoConversion {
    Encrypt,
    Decrypt,
}

/// The state of an image on a disk, as its object says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImageState {
    /// Nothing was said.
    Unknown,
    /// An upload may come.
    Pending,
    Coming,
    Ready,
    Failed,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Image {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) source: ImageSource,
    /// SHA-512 of what is fetched, in hexadecimal digits; empty if unknown.
    pub(crate) checksum: String,
    /// The disks that are to have it.
    pub(crate) disks: BTreeSet<String>,
    pub(crate) is_deleting: bool,
    pub(crate) holds_finalizer: bool,
    pub(crate) status: Value,
}

impl Image {
    pub(crate) fn state(&self, disk: &str) -> ImageState {
        match self.status["diskFileStatusMap"][disk]["state"].as_str().unwrap_or_default() {
            "pending" => ImageState::Pending,
            "starting" | "in-progress" => ImageState::Coming,
            "ready" => ImageState::Ready,
            "failed" => ImageState::Failed,
            _ => ImageState::Unknown,
        }
    }
}

pub(crate) fn image(object: &DynamicObject) -> Option<Image> {
    let spec: BackingImageSpec = serde_json::from_value(object.data.get("spec")?.clone()).ok()?;
    let parameter = |key: &str| spec.source_parameters.get(key).cloned().unwrap_or_default();
    let source = match spec.source_type.as_deref().unwrap_or_default() {
        "download" => ImageSource::Download { url: parameter("url") },
        "upload" => ImageSource::Upload,
        "export-from-volume" => ImageSource::Export { volume: parameter("volume-name") },
        "clone" => clone_of(&parameter),
        other => ImageSource::Unsupported { what: format!("spec.sourceType {other}") },
    };
    Some(Image {
        name: object.metadata.name.clone()?,
        uid: object.metadata.uid.clone()?,
        source,
        checksum: spec.checksum.unwrap_or_default(),
        disks: spec.disk_file_spec_map.into_keys().collect(),
        is_deleting: object.metadata.deletion_timestamp.is_some(),
        holds_finalizer: object.metadata.finalizers.iter().flatten().any(|own| own == FINALIZER),
        status: object.data.get("status").cloned().unwrap_or_default(),
    })
}

/// Longhorn's names of what a clone needs.
fn clone_of(parameter: &impl Fn(&str) -> String) -> ImageSource {
    let turn = match parameter("encryption").as_str() {
        "encrypt" => CryptoConversion::Encrypt,
        "decrypt" => CryptoConversion::Decrypt,
        other => {
            let what = format!("spec.sourceParameters.encryption {other:?}");
            return ImageSource::Unsupported { what };
        }
    };
    let secret = (parameter("secret-namespace"), parameter("secret"));
    ImageSource::Clone(CloneWish { image: parameter("backing-image"), turn, secret })
}

/// The disks of a node and where they are, by its longhorn Node object.
pub(crate) fn disks(node: &DynamicObject) -> BTreeMap<String, PathBuf> {
    let all = node.data["status"]["diskStatus"].as_object().into_iter().flatten();
    all.filter_map(|(_, disk)| {
        let uuid = disk["diskUUID"].as_str().filter(|uuid| !uuid.is_empty())?;
        let path = disk["diskPath"].as_str().filter(|path| path.starts_with('/'))?;
        Some((uuid.to_owned(), PathBuf::from(path)))
    })
    .collect()
}

/// The folder of one image on a disk. One that was deleted and made again has another.
pub(crate) fn folder(disk: &Path, name: &str, uid: &str) -> PathBuf {
    let short = uid.split('-').next().unwrap_or_default();
    disk.join(FOLDER).join(format!("{name}-{short}"))
}

/// All folders of images on a disk, whoever they belong to.
pub(crate) fn folders(disk: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(disk.join(FOLDER)).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The complete images on a disk.
pub(crate) fn complete_images(disk: &Path) -> Vec<PathBuf> {
    let all = folders(disk).into_iter().map(|folder| complete(&folder));
    all.filter(|image| image.exists()).collect()
}

pub(crate) fn complete(folder: &Path) -> PathBuf {
    folder.join(BACKING)
}

/// Where a volume finds an image, on each disk that has all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageLocations {
    name: String,
    uid: String,
    pub(crate) disks: BTreeSet<String>,
}

impl ImageLocations {
    pub(crate) fn of(object: &DynamicObject) -> Option<Self> {
        let image = image(object)?;
        let files = image.status["diskFileStatusMap"].as_object();
        let ready = |disk: &&String| image.state(disk) == ImageState::Ready;
        let disks = files.into_iter().flat_map(|all| all.keys()).filter(ready).cloned().collect();
        Some(Self { name: image.name, uid: image.uid, disks })
    }

    /// The file on a disk at this path, to be read only.
    pub(crate) fn path(&self, disk: &Path) -> PathBuf {
        complete(&folder(disk, &self.name, &self.uid))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn read(source: &str, state: &str) -> Image {
        image(&object(source, state)).unwrap()
    }

    fn object(source: &str, state: &str) -> DynamicObject {
        let object = json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "BackingImage",
            "metadata": {"name": "i", "uid": "0011-22", "finalizers": ["longhorn.io"]},
            "spec": {"sourceType": source, "sourceParameters": {"url": "http://x"},
                     "diskFileSpecMap": {"d": {}}},
            "status": {"diskFileStatusMap": {"d": {"state": state}}},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn an_image_says_where_it_comes_from_and_how_far_it_is() {
        let image = read("download", "in-progress");
        assert_eq!(image.source, ImageSource::Download { url: "http://x".into() });
        assert_eq!((image.state("d"), image.state("e")), (ImageState::Coming, ImageState::Unknown));
        let other = read("restore", "").source;
        assert_eq!(other, ImageSource::Unsupported { what: "spec.sourceType restore".into() });
    }

    #[test]
    fn a_clone_says_of_what_and_which_way() {
        let read = |encryption: &str| {
            let mut object = object("clone", "");
            object.data["spec"]["sourceParameters"] = json!({
                "backing-image": "vmi-1", "encryption": encryption, "secret": "s",
                "secret-namespace": "n",
            });
            image(&object).unwrap().source
        };
        let secret = || ("n".to_owned(), "s".to_owned());
        let wish = |turn| CloneWish { image: "vmi-1".into(), turn, secret: secret() };
        assert_eq!(read("encrypt"), ImageSource::Clone(wish(CryptoConversion::Encrypt)));
        assert_eq!(read("decrypt"), ImageSource::Clone(wish(CryptoConversion::Decrypt)));
        let what = r#"spec.sourceParameters.encryption "ignore""#.to_owned();
        assert_eq!(read("ignore"), ImageSource::Unsupported { what });
    }

    #[test]
    fn volumes_find_what_is_complete() {
        let ready = ImageLocations::of(&object("upload", "ready")).unwrap();
        assert_eq!(ready.disks, BTreeSet::from(["d".to_owned()]));
        let path = ready.path(Path::new("/srv/disk"));
        assert_eq!(path, Path::new("/srv/disk/backing-images/i-0011/backing"));
        assert!(ImageLocations::of(&object("upload", "pending")).unwrap().disks.is_empty());
    }

    #[test]
    fn only_disks_that_have_a_name_and_a_place_count() {
        let node = json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Node", "metadata": {"name": "one"},
            "status": {"diskStatus": {
                "a": {"diskUUID": "u", "diskPath": "/srv"}, "b": {"diskUUID": "", "diskPath": "/x"},
                "c": {"diskUUID": "v", "diskPath": "x"},
            }},
        });
        let found = disks(&serde_json::from_value(node).unwrap());
        assert_eq!(found, BTreeMap::from([("u".to_owned(), PathBuf::from("/srv"))]));
    }
}
