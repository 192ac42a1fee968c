//! `sheaf image …`: each is also one kubectl command.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ClusterScope;
use super::value::{display_name, namespace_name, object_name, sha512};

#[derive(Debug, Clone, Args)]
pub(crate) struct Image {
    /// Display name of the image.
    #[arg(value_parser = display_name)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: ClusterScope,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// List images with their state, size and the storage class of their volumes.
    List {
        #[command(flatten)]
        place: ClusterScope,
        /// List all namespaces.
        #[arg(long, short = 'A')]
        all_namespaces: bool,
    },
    /// Import an image from a URL.
    Import(ImportArgs),
    /// Upload an image from a file.
    #[command(after_help = "Example:\n  \
        sheaf image upload debian debian-12-genericcloud-amd64.qcow2\n\n\
        Formats: qcow2, raw, ISO, vmdk, vdi and vhdx, optionally compressed with gz, xz or zst.\n\
        An interrupted upload is resumed when the same command is run again.")]
    Upload {
        #[command(flatten)]
        image: Image,
        /// File to upload.
        file: PathBuf,
        #[command(flatten)]
        wish: ImageOptions,
    },
    /// Create an image from a volume.
    #[command(after_help = "Example:\n  sheaf image export web-disk golden")]
    Export {
        /// The volume: the name of its PersistentVolumeClaim.
        #[arg(value_parser = object_name)]
        volume: String,
        #[command(flatten)]
        image: Image,
        #[command(flatten)]
        wish: ImageOptions,
        /// Return without waiting for the result.
        #[arg(long)]
        no_wait: bool,
    },
    /// Create an encrypted copy of an image.
    #[command(after_help = "Example:\n  \
        sheaf image encrypt debian debian-locked --class encrypted\n\n\
        The class needs encrypted: \"true\" and the secret with the passphrase in its parameters.\n\
        Volumes of the new image are encrypted, and share its data like volumes of any image.")]
    Encrypt {
        #[command(flatten)]
        clone: CloneArgs,
        /// Storage class that names the secret for encryption.
        #[arg(long, value_name = "NAME", value_parser = object_name)]
        class: String,
    },
    /// Create a decrypted copy of an encrypted image.
    #[command(after_help = "Example:\n  sheaf image decrypt debian-locked debian-open")]
    Decrypt {
        #[command(flatten)]
        clone: CloneArgs,
        /// Storage class whose parameters volumes of the image get; the default is the default class.
        #[arg(long, value_name = "NAME", value_parser = object_name)]
        class: Option<String>,
    },
    /// Write the data of an image to a file, as a raw disk.
    #[command(after_help = "Example:\n  sheaf image download golden golden.raw")]
    Download {
        #[command(flatten)]
        image: Image,
        /// File to write.
        file: PathBuf,
    },
    /// Delete an image with its data; no volume may depend on it.
    Delete {
        #[command(flatten)]
        image: Image,
        /// Return without waiting until its data is removed.
        #[arg(long)]
        no_wait: bool,
    },
}

/// Options of every new image.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ImageOptions {
    /// Storage class whose parameters volumes of the image get; the default is the default class.
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) class: Option<String>,
    /// SHA-512 checksum of the file, in hexadecimal digits.
    #[arg(long, value_name = "SHA512", value_parser = sha512)]
    pub(crate) checksum: Option<String>,
}

/// An image that is created from another.
#[derive(Debug, Args)]
pub(crate) struct CloneArgs {
    /// Source image.
    #[arg(value_parser = display_name)]
    pub(crate) source: String,
    /// Namespace of the source image; the default is the namespace of the new one.
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace_name)]
    pub(crate) source_namespace: Option<String>,
    #[command(flatten)]
    pub(crate) image: Image,
    /// Return without waiting for the result.
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sheaf image import debian https://images.example.com/debian-12.qcow2\n  \
    sheaf vm create web --image debian --ssh-key ~/.ssh/id_ed25519.pub\n\n\
    Formats: qcow2, raw, ISO, vmdk, vdi and vhdx, optionally compressed with gz, xz or zst.\n\
    Local files are uploaded with `sheaf image upload`.\n\
    The import continues in the cluster after Ctrl-C; `sheaf image list` shows its progress.")]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    pub(crate) image: Image,
    /// URL of the image: http:// or https://.
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) wish: ImageOptions,
    /// How often a failed import is retried.
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(i32).range(0..=10))]
    pub(crate) retry: i32,
    /// Return without waiting for the result.
    #[arg(long)]
    pub(crate) no_wait: bool,
}
