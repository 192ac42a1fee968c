//! A registry of container images from the distribution's package, and pushing to it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::harness::{ReservedPort, eventually};

pub(crate) struct Registry {
    process: Child,
    pub(crate) address: String,
    config: PathBuf,
    /// Shared with registries at the same address in other network namespaces.
    port: Arc<ReservedPort>,
}

fn serve(program: &mut Command, config: &Path) -> Child {
    let silent = program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let process = silent.arg("serve").arg(config).spawn();
    process.expect("docker-registry is installed (apt install docker-registry)")
}

impl Registry {
    pub(crate) fn start(folder: &Path) -> Self {
        fs::create_dir_all(folder).unwrap();
        let port = Arc::new(ReservedPort::new());
        let address = format!("127.0.0.1:{}", port.number());
        let config = json!({
            "version": 0.1,
            "log": {"level": "error"},
            "storage": {"filesystem": {"rootdirectory": folder.join("data")}},
            "http": {"addr": address},
        });
        let file = folder.join("config.yml");
        fs::write(&file, config.to_string()).unwrap();
        let process = serve(&mut Command::new("docker-registry"), &file);
        let config = file;
        let registry = Self { process, address, config, port };
        eventually("the registry answers", || {
            TcpStream::connect(&registry.address).is_ok()
                && registry.send("GET", "/v2/", "", b"").0 == 200
        });
        registry
    }

    /// The same registry at the same address within a network namespace.
    pub(crate) fn beside(&self, namespace: &str) -> Self {
        let mut program = Command::new("ip");
        program.args(["netns", "exec", namespace, "docker-registry"]);
        let process = serve(&mut program, &self.config);
        let (address, config) = (self.address.clone(), self.config.clone());
        let number = address.rsplit(':').next().unwrap_or_default().to_owned();
        eventually("the registry listens", || {
            let args = ["netns", "exec", namespace, "ss", "-Hltn", &format!("sport = :{number}")];
            let listed = Command::new("ip").args(args).output().unwrap();
            !listed.stdout.is_empty()
        });
        Self { process, address, config, port: self.port.clone() }
    }

    /// Pushes an image of one layer; answers its name.
    pub(crate) fn push(&self, name: &str, layer: &[u8]) -> String {
        let config = json!({
            "architecture": "amd64", "os": "linux", "config": {},
            "rootfs": {"type": "layers", "diff_ids": []},
        });
        let config = config.to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": self.blob(name, "application/vnd.docker.container.image.v1+json", &config),
            "layers": [self.blob(name, "application/vnd.docker.image.rootfs.diff.tar.gzip", layer)],
        });
        let kind = manifest["mediaType"].as_str().unwrap();
        let path = format!("/v2/{name}/manifests/1");
        let (code, text) = self.send("PUT", &path, kind, manifest.to_string().as_bytes());
        assert_eq!(code, 201, "{text}");
        format!("{}/{name}:1", self.address)
    }

    fn blob(&self, name: &str, kind: &str, content: &[u8]) -> Value {
        let digest = format!("sha256:{}", super::sha256(content));
        let (code, text) = self.send("POST", &format!("/v2/{name}/blobs/uploads/"), "", b"");
        assert_eq!(code, 202, "{text}");
        let line = text.lines().find(|line| line.to_lowercase().starts_with("location:")).unwrap();
        let place = line.split_once(':').unwrap().1.trim();
        let place = place.trim_start_matches(&format!("http://{}", self.address));
        let (code, text) = self.send(
            "PUT",
            &format!("{place}&digest={digest}"),
            "application/octet-stream",
            content,
        );
        assert_eq!(code, 201, "{text}");
        json!({"mediaType": kind, "digest": digest, "size": content.len()})
    }

    /// Status and the whole answer.
    fn send(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let text = String::from_utf8_lossy(&answer).into_owned();
        let code = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        (code, text)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
