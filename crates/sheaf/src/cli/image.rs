//! `sheaf image …`: each is also one kubectl command.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Place;

#[derive(Debug, Clone, Args)]
pub(crate) struct Image {
    /// Name of the image, as people see it.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// List images with their state, size and the storage class of their volumes.
    List {
        #[command(flatten)]
        place: Place,
        /// Of all namespaces.
        #[arg(long, short = 'A')]
        all_namespaces: bool,
    },
    /// Have a node fetch an image from a URL.
    Import(ImportArgs),
    /// Send an image from a file.
    #[command(after_help = "Example:\n  \
        sheaf image upload debian debian-12-genericcloud-amd64.qcow2\n\n\
        qcow2, raw, ISO, vmdk, vdi and vhdx are understood, and gz, xz and zst around them.\n\
        An upload that broke off goes on by itself, and with the same command.")]
    Upload {
        #[command(flatten)]
        image: Image,
        /// The file to send.
        file: PathBuf,
        #[command(flatten)]
        wish: ImageWish,
    },
    /// Make an image of a volume.
    #[command(after_help = "Example:\n  sheaf image export web-disk golden")]
    Export {
        /// The volume: the name of its PersistentVolumeClaim.
        volume: String,
        #[command(flatten)]
        image: Image,
        #[command(flatten)]
        wish: ImageWish,
        /// Do not wait until it is done.
        #[arg(long)]
        no_wait: bool,
    },
    /// Make an encrypted image of one that is not.
    #[command(after_help = "Example:\n  \
        sheaf image encrypt debian debian-locked --class encrypted\n\n\
        The class needs encrypted: \"true\" and the secret with the passphrase in its parameters.\n\
        Volumes of the new image are encrypted, and share its data as those of any image do.")]
    Encrypt {
        #[command(flatten)]
        clone: CloneArgs,
        /// Storage class that says by which secret volumes are encrypted.
        #[arg(long, value_name = "NAME")]
        class: String,
    },
    /// Make an image of an encrypted one that is not encrypted.
    #[command(after_help = "Example:\n  sheaf image decrypt debian-locked debian-open")]
    Decrypt {
        #[command(flatten)]
        clone: CloneArgs,
        /// Storage class that volumes of the image are to be like; the default is the default class.
        #[arg(long, value_name = "NAME")]
        class: Option<String>,
    },
    /// Write the data of an image to a file, as a raw disk.
    #[command(after_help = "Example:\n  sheaf image download golden golden.raw")]
    Download {
        #[command(flatten)]
        image: Image,
        /// The file to write.
        file: PathBuf,
    },
    /// Delete an image that no volume was made from, with its data.
    Delete {
        #[command(flatten)]
        image: Image,
        /// Do not wait until its data is gone.
        #[arg(long)]
        no_wait: bool,
    },
}

/// What can be asked of any image.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ImageWish {
    /// Storage class that volumes of the image are to be like; the default is the default class.
    #[arg(long, value_name = "NAME")]
    pub(crate) class: Option<String>,
    /// SHA-512 of the file, in hexadecimal digits; another file is refused.
    #[arg(long, value_name = "SHA512")]
    pub(crate) checksum: Option<String>,
}

/// An image that is made of another.
#[derive(Debug, Args)]
pub(crate) struct CloneArgs {
    /// The image to begin with, which stays as it is.
    pub(crate) source: String,
    /// The namespace of that image, if it is another one.
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) source_namespace: Option<String>,
    #[command(flatten)]
    pub(crate) image: Image,
    /// Do not wait until it is done.
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sheaf image import debian https://images.example.com/debian-12.qcow2\n  \
    sheaf vm create web --image debian --ssh-key ~/.ssh/id_ed25519.pub\n\n\
    qcow2, raw, ISO, vmdk, vdi and vhdx are understood, and gz, xz and zst around them.\n\
    A file of this machine is sent with `sheaf image upload`.\n\
    Ctrl-C stops the waiting only; `sheaf image list` shows how far it is.")]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    pub(crate) image: Image,
    /// Where it is: http:// or https://.
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) wish: ImageWish,
    /// How often an import that failed is tried again.
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(i32).range(0..=10))]
    pub(crate) retry: i32,
    /// Do not wait until it is done.
    #[arg(long)]
    pub(crate) no_wait: bool,
}
