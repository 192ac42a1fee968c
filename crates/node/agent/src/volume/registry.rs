//! Disks that travel as container images: one file below `/disk` in one of the layers.

use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use base::Chain;
use futures_util::StreamExt as _;
use oci_client::client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::manifest::{OciDescriptor, OciImageManifest};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, ParseError, Reference};
use qemu::image::{copy_sparse, receive::decompress};

use super::fetch::{Access, FETCHING};
use super::gauge::Gauge;
use crate::egress::{self, Egress, EgressError};

/// Where container disks keep their image.
const FOLDER: &str = "disk";
const SCHEME: &str = "docker://";
const CONNECT: Duration = Duration::from_secs(30);
const SILENCE: Duration = Duration::from_secs(60);
/// Left free on the file system whatever an image wants.
const RESERVE: u64 = 256 << 20;

/// Why a container disk cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PullError {
    #[error("{image:?} is not the name of an image: it has to be like docker://host/name:tag")]
    Name { image: String, source: ParseError },
    #[error("cannot pull {image}: {}", reason(problem))]
    Registry { image: String, problem: Box<OciDistributionError> },
    #[error("cannot pull {image}")]
    Egress { image: String, source: EgressError },
    #[error("cannot read a layer of {image}")]
    Layer { image: String, source: io::Error },
    #[error("{image} has no disk: there is no file {wanted}")]
    NoDisk { image: String, wanted: String },
    #[error("{image} has more than one file in /{FOLDER}: name one with the path of the disk")]
    Several { image: String },
    #[error("the disk in {image} needs {need} bytes and there are {free} free")]
    NoRoom { image: String, need: u64, free: u64 },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// The library's errors print their causes themselves, except for a request that failed.
fn reason(problem: &OciDistributionError) -> String {
    match problem {
        OciDistributionError::RequestError(failure) => Chain(failure).to_string(),
        problem => problem.to_string(),
    }
}

impl PullError {
    /// Whether trying again is of no use. A tag that does not exist may be pushed later.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Name { .. } | Self::NoDisk { .. } | Self::Several { .. } => true,
            Self::Egress { source, .. } => egress::is_denied(source),
            _ => false,
        }
    }
}

/// An image in a registry, and how to reach it.
pub(super) struct Image {
    client: Client,
    reference: Reference,
    auth: RegistryAuth,
    egress: Egress,
}

/// An image whose layers are known.
pub(super) struct Manifest {
    layers: Vec<OciDescriptor>,
    /// `sha256:…`
    pub(super) digest: String,
}

impl Image {
    pub(super) fn new(name: &str, access: &Access) -> Result<Self, PullError> {
        let plain = name.strip_prefix(SCHEME).unwrap_or(name);
        let reference: Reference =
            plain.parse().map_err(|source| PullError::Name { image: name.to_owned(), source })?;
        let outbound = access.egress.outbound();
        let mut pem = outbound.ca().as_bytes().to_vec();
        pem.extend(
            access.certificates.iter().flat_map(|(_, own)| [b"\n", own.as_slice()].concat()),
        );
        let registry = reference.resolve_registry().to_owned();
        let host = host_of(&registry).to_owned();
        let is_plain = is_local(&registry);
        let protocol = if is_plain {
            ClientProtocol::HttpsExcept(vec![registry])
        } else {
            ClientProtocol::Https
        };
        // The proxy of the cluster decides about names; ours does where there is none.
        let own = access.egress.proxy().filter(|_| !outbound.has_proxy());
        let except = if own.is_some() { String::new() } else { outbound.no_proxy().to_owned() };
        let config = ClientConfig {
            protocol,
            extra_root_certificates: certificates(&pem),
            connect_timeout: Some(CONNECT),
            read_timeout: Some(SILENCE),
            user_agent: concat!("sheaf/", env!("CARGO_PKG_VERSION")),
            https_proxy: own.or(outbound.https_proxy()).map(str::to_owned),
            http_proxy: own.or(outbound.http_proxy()).map(str::to_owned),
            // One on this node is spoken to without TLS, which the proxy does not pass on. That
            // it is allowed is checked before.
            no_proxy: Some(if is_plain { format!("{host},{except}") } else { except }),
            ..ClientConfig::default()
        };
        let auth = match &access.user {
            Some((user, password)) => RegistryAuth::Basic(user.clone(), password.clone()),
            None => RegistryAuth::Anonymous,
        };
        let egress = access.egress.clone();
        Ok(Self { client: Client::new(config), reference, auth, egress })
    }

    /// Registry and repository: who may read an image is decided there.
    pub(super) fn repository(&self) -> String {
        format!("{}/{}", self.reference.resolve_registry(), self.reference.repository())
    }

    /// The digest that the name means now, and the layers behind it.
    pub(super) async fn manifest(&self) -> Result<Manifest, PullError> {
        let registry = host_of(self.reference.resolve_registry());
        let refused = |source| PullError::Egress { image: self.reference.whole(), source };
        self.egress.check(registry).await.map_err(refused)?;
        let pulled = self.client.pull_image_manifest(&self.reference, &self.auth).await;
        let (OciImageManifest { layers, .. }, digest) =
            pulled.map_err(|problem| self.failed(problem))?;
        Ok(Manifest { layers, digest })
    }

    /// Writes the disk of the image to `to`, which must not exist.
    pub(super) async fn extract(
        &self,
        manifest: &Manifest,
        wanted: Option<&str>,
        to: &Path,
        gauge: &Gauge,
    ) -> Result<(), PullError> {
        // Files of a later layer hide those of an earlier one.
        let mut done = 0.0;
        #[expect(clippy::cast_precision_loss, reason = "a percentage")]
        let all = manifest.layers.iter().map(|layer| layer.size.max(0) as f32).sum::<f32>();
        for layer in manifest.layers.iter().rev() {
            #[expect(clippy::cast_precision_loss, reason = "a percentage")]
            let own = layer.size.max(1) as f32;
            let share = |part: f32| gauge.set((done + part * own) / all.max(1.0) * FETCHING);
            let found = self.layer(layer, wanted, to, share).await;
            if !matches!(found, Ok(true)) {
                let _ = std::fs::remove_file(to);
            }
            if found? {
                return Ok(());
            }
            done += own;
        }
        let wanted = wanted.map_or_else(|| format!("in /{FOLDER}"), str::to_owned);
        Err(PullError::NoDisk { image: self.reference.whole(), wanted })
    }

    /// Whether a layer had the disk.
    async fn layer(
        &self,
        layer: &OciDescriptor,
        wanted: Option<&str>,
        to: &Path,
        share: impl Fn(f32),
    ) -> Result<bool, PullError> {
        let image = self.reference.whole();
        let pulled = self.client.pull_blob_stream(&self.reference, layer).await;
        let mut stream = pulled.map_err(|problem| self.failed(problem))?;
        let (sender, feed) = qemu::image::feed();
        let search =
            LayerSearch { image: image.clone(), wanted: wanted.map(normal), to: to.to_owned() };
        let searching = tokio::task::spawn_blocking(move || search.run(feed));
        let (mut at, mut is_open) = (0, true);
        let mut broken = None;
        // The library compares the digest when all has been read.
        while let Some(piece) = stream.stream.next().await {
            match piece {
                Ok(piece) => {
                    at += piece.len();
                    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
                    share(at as f32 / layer.size.max(1) as f32);
                    is_open = is_open && sender.send(Ok(piece)).await.is_ok();
                }
                Err(failure) => {
                    broken = Some(failure);
                    break;
                }
            }
        }
        if broken.is_some() {
            let _ = sender.send(Err(io::ErrorKind::ConnectionAborted.into())).await;
        }
        drop(sender);
        let found = searching.await;
        if let Some(source) = broken {
            return Err(PullError::Layer { image, source });
        }
        found.map_err(|failure| PullError::Layer { image, source: io::Error::other(failure) })?
    }

    fn failed(&self, problem: OciDistributionError) -> PullError {
        PullError::Registry { image: self.reference.whole(), problem: Box::new(problem) }
    }
}

/// Writes the disk of an image to `to`.
pub(super) async fn extract(
    name: &str,
    access: &Access,
    wanted: Option<&str>,
    to: &Path,
    gauge: &Gauge,
) -> Result<(), PullError> {
    let image = Image::new(name, access)?;
    let manifest = image.manifest().await?;
    image.extract(&manifest, wanted, to, gauge).await
}

/// The host of a registry, without its port.
fn host_of(registry: &str) -> &str {
    match registry.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => registry,
    }
}

/// The search for one file in a layer.
struct LayerSearch {
    image: String,
    wanted: Option<PathBuf>,
    to: PathBuf,
}

impl LayerSearch {
    fn run(self, from: impl Read + Send + 'static) -> Result<bool, PullError> {
        let unread = |source| PullError::Layer { image: self.image.clone(), source };
        let (_, plain) = decompress(from).map_err(unread)?;
        let mut archive = tar::Archive::new(plain);
        let mut found = false;
        for entry in archive.entries().map_err(unread)? {
            let mut entry = entry.map_err(unread)?;
            let path = normal(entry.path().map_err(unread)?.to_string_lossy());
            if !entry.header().entry_type().is_file() || !self.is_it(&path) {
                continue;
            }
            if found {
                return Err(PullError::Several { image: self.image.clone() });
            }
            self.write(&mut entry)?;
            found = true;
        }
        Ok(found)
    }

    fn is_it(&self, path: &Path) -> bool {
        match &self.wanted {
            Some(wanted) => path == wanted,
            None => {
                let hidden =
                    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
                path.parent() == Some(Path::new(FOLDER)) && !hidden
            }
        }
    }

    fn write(&self, entry: &mut tar::Entry<'_, impl Read>) -> Result<(), PullError> {
        let failed = |source| PullError::Write { path: self.to.clone(), source };
        let need = entry.size();
        let folder = self.to.parent().unwrap_or(&self.to);
        let stat = rustix::fs::statvfs(folder).map_err(|error| failed(error.into()))?;
        let free = (stat.f_bavail * stat.f_frsize).saturating_sub(RESERVE);
        if need > free {
            return Err(PullError::NoRoom { image: self.image.clone(), need, free });
        }
        let file = std::os::unix::fs::OpenOptionsExt::mode(
            std::fs::OpenOptions::new().create_new(true).write(true),
            0o600,
        )
        .open(&self.to)
        .map_err(failed)?;
        let copied = copy_sparse(entry, &file, need, |_| {});
        copied.map(|_| ()).map_err(|source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => failed(source),
            _ => PullError::Layer { image: self.image.clone(), source },
        })
    }
}

/// A path without its root and dots.
fn normal(path: impl AsRef<str>) -> PathBuf {
    let parts = Path::new(path.as_ref()).components();
    parts.filter(|part| matches!(part, Component::Normal(_))).collect()
}

/// Registries on this host may speak plain HTTP, as everywhere.
fn is_local(registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The certificates of a bundle, one by one.
fn certificates(pem: &[u8]) -> Vec<Certificate> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    let text = String::from_utf8_lossy(pem);
    let parts = text.split(BEGIN).skip(1);
    parts
        .map(|part| Certificate {
            encoding: CertificateEncoding::Pem,
            data: format!("{BEGIN}{part}").into_bytes(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, path, *content).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn search(files: &[(&str, &[u8])], wanted: Option<&str>) -> Result<Option<Vec<u8>>, PullError> {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("out");
        let search = LayerSearch { image: "i".into(), wanted: wanted.map(normal), to: to.clone() };
        let found = search.run(io::Cursor::new(layer(files)))?;
        Ok(found.then(|| std::fs::read(to).unwrap()))
    }

    #[tokio::test]
    async fn a_registry_that_is_not_reached_is_reported_with_the_cause() {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let failure = client.get("http://127.0.0.1:1/v2/").send().await.unwrap_err();
        let problem = Box::new(OciDistributionError::RequestError(failure));
        let refused = PullError::Registry { image: "i".into(), problem }.to_string();
        assert!(refused.contains("Connection refused"), "{refused}");
        let problem = Box::new(OciDistributionError::PullNoLayersError);
        let empty = PullError::Registry { image: "i".into(), problem };
        assert_eq!(empty.to_string(), "cannot pull i: No layers to pull");
    }

    #[test]
    fn the_disk_is_the_one_file_below_disk() {
        let disk: (&str, &[u8]) = ("./disk/a.img", b"disk");
        let other: (&str, &[u8]) = ("etc/passwd", b"x");
        assert_eq!(search(&[other, disk], None).unwrap().as_deref(), Some(&b"disk"[..]));
        assert_eq!(search(&[other], None).unwrap(), None);
        let second: (&str, &[u8]) = ("disk/b.img", b"more");
        assert!(matches!(search(&[disk, second], None), Err(PullError::Several { .. })));
        assert_eq!(
            search(&[disk, second], Some("/disk/b.img")).unwrap().as_deref(),
            Some(&b"more"[..])
        );
        assert_eq!(search(&[("disk/deeper/a", b"x")], None).unwrap(), None);
    }

    #[test]
    fn only_registries_of_this_host_speak_plain_http() {
        for (registry, local) in [
            ("localhost:5000", true),
            ("127.0.0.1:5000", true),
            ("[::1]:5000", true),
            ("localhost", true),
            ("registry.example.org", false),
            ("localhost.example.org:5000", false),
        ] {
            assert_eq!(is_local(registry), local, "{registry}");
        }
    }

    #[test]
    fn a_bundle_is_taken_apart() {
        let one = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        assert_eq!(certificates(format!("{one}{one}").as_bytes()).len(), 2);
        assert!(certificates(b"").is_empty());
    }
}
