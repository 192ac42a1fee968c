//! Making a [`kube::Client`]: from a kubeconfig, or straight onto a handler in this
//! process.

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{Request, Response};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tower::{BoxError, Service, ServiceExt};

/// More than a kubeconfig with its certificates has.
const MAX_KUBECONFIG: u64 = 4 << 20;

/// Why no client could be made from a kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot read kubeconfig {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is not a kubeconfig: {reason}", path.display())]
    Parse { path: PathBuf, reason: String },
    #[error("cannot use kubeconfig {}: {reason}", path.display())]
    Load { path: PathBuf, reason: String },
    #[error("cannot make a client from kubeconfig {}", path.display())]
    Client { path: PathBuf, source: kube::Error },
}

/// A client that calls `service` directly: no socket, no TLS, but the same handler that
/// serves all other clients, so that nothing in here can see more than an outside client.
///
/// `decorate` runs on each request; it is how the caller says who is asking.
pub fn in_process<S, B>(
    service: S,
    decorate: impl Fn(&mut Request<Body>) + Clone + Send + 'static,
) -> Client
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let service = service.map_request(move |mut request: Request<Body>| {
        decorate(&mut request);
        request
    });
    Client::new(service, "default")
}

/// A client over HTTPS, as the current context of the kubeconfig at `path` says.
pub async fn from_kubeconfig(path: &Path) -> Result<Client, ConnectError> {
    let config = read_kubeconfig(path).await?;
    Client::try_from(config)
        .map_err(|source| ConnectError::Client { path: path.to_path_buf(), source })
}

/// The configuration of the current context of the kubeconfig at `path`.
pub async fn read_kubeconfig(path: &Path) -> Result<Config, ConnectError> {
    let refused = |failure| refused(path.to_path_buf(), failure);
    let file = read_files(path)?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(refused)
}

/// One file, or several that are separated as in `KUBECONFIG` and merged as by kubectl: those that do not
/// exist are left out.
fn read_files(path: &Path) -> Result<Kubeconfig, ConnectError> {
    let files: Vec<PathBuf> = std::env::split_paths(path).filter(|file| file.exists()).collect();
    if path.exists() || files.is_empty() {
        return read_file(path);
    }
    let mut all = Kubeconfig::default();
    for file in files {
        let merged = all.merge(read_file(&file)?);
        all = merged.map_err(|failure| refused(file, failure))?;
    }
    Ok(all)
}

fn read_file(path: &Path) -> Result<Kubeconfig, ConnectError> {
    let is_endless = std::fs::metadata(path).is_ok_and(|found| {
        let kind = found.file_type();
        kind.is_char_device() || kind.is_block_device() || found.len() > MAX_KUBECONFIG
    });
    if is_endless {
        let reason = format!("it is a device, or larger than {} MiB", MAX_KUBECONFIG >> 20);
        return Err(ConnectError::Load { path: path.to_owned(), reason });
    }
    Kubeconfig::read_from(path).map_err(|failure| refused(path.to_owned(), failure))
}

/// Errors of kube print their sources, and those of YAML the lines of the file, which may hold keys.
fn refused(path: PathBuf, failure: KubeconfigError) -> ConnectError {
    match failure {
        KubeconfigError::ReadConfig(source, _) => ConnectError::Read { path, source },
        KubeconfigError::Parse(failure) => {
            let reason = failure.to_string().lines().next().unwrap_or_default().to_owned();
            ConnectError::Parse { path, reason }
        }
        failure => ConnectError::Load { path, reason: failure.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[derive(Clone)]
    struct User(&'static str);

    #[tokio::test]
    async fn a_kubeconfig_that_cannot_be_used_is_refused_without_its_content() {
        let dir = std::env::temp_dir().join(format!("client-connect-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("kubeconfig");
        let mut messages = Vec::new();
        for content in [None, Some("secret: [\n"), Some("hello\n"), Some("")] {
            let _ = std::fs::remove_file(&file);
            if let Some(content) = content {
                std::fs::write(&file, content).unwrap();
            }
            let failure = read_kubeconfig(&file).await.unwrap_err();
            messages.push(base::Chain(&failure).to_string());
        }
        std::fs::remove_dir_all(&dir).unwrap();
        let shown = file.display();
        assert_eq!(
            messages[0],
            format!("cannot read kubeconfig {shown}: No such file or directory (os error 2)")
        );
        for text in &messages[1..3] {
            assert!(text.starts_with(&format!("{shown} is not a kubeconfig: ")), "{text}");
            assert!(!text.contains("secret") && !text.contains("hello"), "{text}");
        }
        assert!(
            messages[3].starts_with(&format!("cannot use kubeconfig {shown}: ")),
            "{}",
            messages[3]
        );
    }

    #[test]
    fn several_kubeconfigs_are_merged_and_devices_are_not_read() {
        let dir = std::env::temp_dir().join(format!("kubeconfigs-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = |name: &str| dir.join(name);
        let file = |name: &str, context: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: {context}\ncontexts:\n- \
                 name: {context}\n  context: {{cluster: {context}, user: u}}\n"
            );
            std::fs::write(path(name), text).unwrap();
        };
        file("one", "a");
        file("two", "b");
        let all = std::env::join_paths([path("none"), path("one"), path("two")]).unwrap();
        let merged = read_files(Path::new(&all)).unwrap();
        assert_eq!(merged.current_context.as_deref(), Some("a"));
        assert_eq!(merged.contexts.len(), 2);
        let text = |path: &Path| base::Chain(&read_files(path).unwrap_err()).to_string();
        assert!(text(Path::new("/dev/zero")).contains("it is a device"));
        assert!(text(&path("none")).contains("No such file"));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[tokio::test]
    async fn requests_reach_the_handler_decorated() {
        let handler = tower::service_fn(|request: Request<Body>| async move {
            let user = request.extensions().get::<User>().map_or("anonymous", |user| user.0);
            let body = format!("{user} asks {}", request.uri().path());
            Ok::<_, Infallible>(Response::new(http_body_util::Full::new(Bytes::from(body))))
        });
        let client = in_process(handler, |request| {
            request.extensions_mut().insert(User("admin"));
        });
        let text = client.request_text(Request::get("/version").body(vec![]).unwrap()).await;
        assert_eq!(text.unwrap(), "admin asks /version");
    }
}
