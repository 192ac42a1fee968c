//! The API server alone, started as suites start a kube-apiserver: by a link of that name,
//! with certificates and keys that the suite made.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use auth::kubeconfig::{Credential, kubeconfig};
use auth::pki::Identity;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    RsaKeySize,
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::etcd::Etcd;
use super::http::Http;
use super::kubectl::{Kubectl, kubectls};
use super::port::ReservedPort;
use super::server::{binary, directory};
use super::wait::poll;

pub(crate) struct Foreign {
    directory: TempDir,
    process: Option<Child>,
    port: ReservedPort,
}

impl Foreign {
    /// A server with the arguments that envtest gives, and more.
    pub(crate) fn start(etcd: &Etcd, more: &[&str]) -> Self {
        Self::of(binary(), etcd, more)
    }

    /// The same of another program.
    pub(crate) fn of(program: &Path, etcd: &Etcd, more: &[&str]) -> Self {
        let directory = directory();
        let dir = directory.path();
        let reserved = ReservedPort::new();
        let port = reserved.number();
        write_files(dir, port);
        symlink(program, dir.join("kube-apiserver")).unwrap();
        let file = |name: &str| dir.join(name).display().to_string();
        let process = Command::new(dir.join("kube-apiserver"))
            .arg("--allow-privileged=true")
            .arg("--authorization-mode=RBAC")
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--cert-dir={}", dir.display()))
            .arg(format!("--client-ca-file={}", file("client-cert-auth-ca.crt")))
            .arg("--disable-admission-plugins=ServiceAccount")
            .arg(format!("--etcd-servers={}", etcd.endpoints()))
            .arg(format!("--secure-port={port}"))
            .arg(format!("--service-account-issuer=https://127.0.0.1:{port}/"))
            .arg(format!("--service-account-key-file={}", file("sa-signer.crt")))
            .arg(format!("--service-account-signing-key-file={}", file("sa-signer.key")))
            .arg("--service-cluster-ip-range=10.0.0.0/24")
            .args(more)
            .stdin(Stdio::null())
            .stdout(File::create(dir.join("stdout")).unwrap())
            .stderr(File::create(dir.join("stderr")).unwrap())
            .spawn()
            .unwrap();
        let mut server = Self { directory, process: Some(process), port: reserved };
        server.wait();
        server
    }

    fn wait(&mut self) {
        poll("the server is healthy", || {
            let process = self.process.as_mut().expect("it was started");
            if let Ok(Some(status)) = process.try_wait() {
                panic!("the server ended with {status}:\n{}", self.log());
            }
            let asked = self.anonymous().try_send(http::Request::get("/healthz"), "");
            match asked {
                Ok(reply) if reply.status == 200 => Ok(()),
                Ok(reply) => Err(reply.text()),
                Err(why) => Err(why),
            }
        });
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.path("kubeconfig")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("stderr")).unwrap_or_default()
    }

    /// Requests as a member of system:masters.
    pub(crate) fn http(&self) -> Http {
        Http::from_kubeconfig(&self.kubeconfig())
    }

    pub(crate) fn anonymous(&self) -> Http {
        Http::anonymous(&self.kubeconfig())
    }

    pub(crate) fn kubectl(&self) -> Kubectl {
        let newest = kubectls().last().expect("there is a kubectl");
        newest.on(&self.kubeconfig(), &self.path("home"))
    }

    /// SIGTERM; it must end well.
    pub(crate) fn terminate(&mut self) {
        let mut process = self.process.take().expect("it runs");
        kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
        let status = poll("the server ends", || match process.try_wait().unwrap() {
            Some(status) => Ok(status),
            None => Err("it still runs".to_owned()),
        });
        assert!(status.success(), "it ended with {status}:\n{}", self.log());
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        if std::thread::panicking() {
            eprintln!("the log of the kube-apiserver:\n{}", self.log());
        }
    }
}

/// The files of envtest: one CA for serving, one for clients, RSA keys for tokens.
fn write_files(dir: &Path, port: u16) {
    let (serving_ca, serving_issuer) = authority("envtest-environment");
    let serving = issue(&serving_issuer, "localhost", &[], ExtendedKeyUsagePurpose::ServerAuth);
    fs::write(dir.join("apiserver.crt"), &serving.cert_pem).unwrap();
    fs::write(dir.join("apiserver.key"), &serving.key_pem).unwrap();
    let (client_ca, client_issuer) = authority("envtest-environment");
    fs::write(dir.join("client-cert-auth-ca.crt"), client_ca).unwrap();
    let usage = ExtendedKeyUsagePurpose::ClientAuth;
    let admin = issue(&client_issuer, "default", &["system:masters"], usage);
    let key = KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let signer = CertificateParams::new(vec!["sa".to_owned()]).unwrap().self_signed(&key).unwrap();
    fs::write(dir.join("sa-signer.crt"), signer.pem()).unwrap();
    fs::write(dir.join("sa-signer.key"), key.serialize_pem()).unwrap();
    let url = format!("https://127.0.0.1:{port}");
    let text = kubeconfig(&url, &serving_ca, "default", Credential::Certificate(&admin));
    fs::write(dir.join("kubeconfig"), text).unwrap();
}

fn authority(name: &str) -> (String, Issuer<'static, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let pem = params.self_signed(&key).unwrap().pem();
    (pem, Issuer::new(params, key))
}

fn issue(
    issuer: &Issuer<'static, KeyPair>,
    name: &str,
    groups: &[&str],
    usage: ExtendedKeyUsagePurpose,
) -> Identity {
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    params.extended_key_usages = vec![usage];
    let cert_pem = params.signed_by(&key, issuer).unwrap().pem();
    Identity { cert_pem, key_pem: key.serialize_pem() }
}
