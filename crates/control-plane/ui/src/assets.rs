//! The files: from the table in the binary, or from a folder while pages are developed.

use std::io::Read as _;
use std::path::PathBuf;

use bytes::Bytes;
use flate2::read::GzDecoder;

#[derive(Debug)]
pub(crate) struct Asset {
    pub(crate) name: &'static str,
    pub(crate) gzip: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/files.rs"));

#[derive(Debug, Clone, Default)]
pub(crate) struct Assets {
    pub(crate) folder: Option<PathBuf>,
}

/// One file, as it is kept.
#[derive(Debug, Clone, Default)]
pub(crate) struct AssetBody {
    pub(crate) gzip: Option<Bytes>,
    file: Option<PathBuf>,
}

impl Assets {
    pub(crate) fn find(&self, name: &str) -> Option<AssetBody> {
        let Some(folder) = &self.folder else {
            let found = FILES.iter().find(|asset| asset.name == name)?;
            return Some(AssetBody { gzip: Some(Bytes::from_static(found.gzip)), file: None });
        };
        let is_name = |part: &str| !part.is_empty() && part != "." && part != "..";
        let file = folder.join(name);
        let exists = name.split('/').all(is_name) && file.is_file();
        exists.then_some(AssetBody { gzip: None, file: Some(file) })
    }
}

impl AssetBody {
    /// The content without compression.
    pub(crate) fn plain(&self) -> Option<Bytes> {
        match (&self.gzip, &self.file) {
            (Some(packed), _) => {
                let mut bytes = Vec::new();
                GzDecoder::new(&**packed).read_to_end(&mut bytes).ok()?;
                Some(bytes.into())
            }
            (None, Some(file)) => std::fs::read(file).ok().map(Bytes::from),
            (None, None) => None,
        }
    }
}
