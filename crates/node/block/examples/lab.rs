//! A laboratory for one volume, without the rest of Sheaf.
//!
//! `lab volume DIR SIZE REPLICAS NBD.sock [in-process|standby|threads|without=sums|vhost=SOCK|
//! passphrase=TEXT]`, `lab ask DIR JSON`;
//! `lab storage DIR [IP:PORT] [boot=UUID] [certificates=DIR]` is the storage process of a node;
//! `lab replica DIR SOCKET` is for itself.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use block::crypt::Passphrase;
use block::run::lab::{Lab, LabOptions, LabRequest, ServeOptions, ask, serve};
use block::run::{Address, Driver, Handle, Role, TlsFiles};
use block::storage::{Storage, StorageOptions};

/// Replicas do not compare blocks with the checksums that a killed process left: a test shows that
/// other tests notice it.
const WITHOUT_SUMS: &str = "without=sums";

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["replica", dir, socket, rest @ ..] => {
            if rest.contains(&WITHOUT_SUMS) {
                block::store::leave_out_sums();
            }
            let options = ServeOptions {
                dir: PathBuf::from(dir),
                listen: Address::Unix(PathBuf::from(socket)),
                driver: driver(rest),
                idle: Some(Duration::from_secs(60)),
                with_parent: true,
            };
            serve(&options, |_, _| {})?;
        }
        ["volume", dir, size, replicas, nbd, rest @ ..] => volume(dir, size, replicas, nbd, rest)?,
        ["storage", dir, rest @ ..] => storage(dir, rest)?,
        ["ask", dir, request] => {
            let request: LabRequest = serde_json::from_str(request)?;
            eprintln!("{}", serde_json::to_string_pretty(&ask(dir.as_ref(), &request)?)?);
        }
        _ => return Err("lab volume|replica|ask".into()),
    }
    Ok(())
}

fn driver(rest: &[&str]) -> Driver {
    if rest.contains(&"threads") { Driver::Threads } else { Driver::Best }
}

fn volume(dir: &str, size: &str, replicas: &str, nbd: &str, rest: &[&str]) -> Result<()> {
    let vhost = rest.iter().find_map(|it| it.strip_prefix("vhost=")).map(PathBuf::from);
    let program = std::env::current_exe()?;
    let without_sums = rest.contains(&WITHOUT_SUMS);
    let spawn = move |options: &ServeOptions| {
        let mut command = Command::new(&program);
        command.arg("replica").arg(&options.dir).arg(options.listen.to_string());
        if options.driver == Driver::Threads {
            command.arg("threads");
        }
        if without_sums {
            command.arg(WITHOUT_SUMS);
        }
        command
    };
    let lab = Lab::new(LabOptions {
        dir: PathBuf::from(dir),
        size: Some(size.parse()?),
        replicas: Some(replicas.parse()?),
        nbd: vec![Address::Unix(PathBuf::from(nbd))],
        vhost: vhost.into_iter().collect(),
        in_process: rest.contains(&"in-process"),
        standby: rest.contains(&"standby"),
        driver: driver(rest),
        passphrase: rest.iter().find_map(|it| it.strip_prefix("passphrase=")).map(Passphrase::new),
        spawn: Box::new(spawn),
        notices: Box::new(|notice| eprintln!("{notice:?}")),
    })?;
    end_with_input(lab.handle());
    Ok(lab.run()?)
}

fn storage(dir: &str, rest: &[&str]) -> Result<()> {
    let address = rest.iter().find(|it| !it.contains('=') && it.contains(':'));
    let listen = address.map(|it| it.parse().map(Address::Tcp)).transpose()?;
    let boot = rest.iter().find_map(|it| it.strip_prefix("boot="));
    let boot = boot.map(str::parse).transpose()?;
    let certificates = rest.iter().find_map(|it| it.strip_prefix("certificates="));
    let tls = certificates.map(PathBuf::from).map(|dir| TlsFiles {
        ca: dir.join("ca.pem"),
        certificate: dir.join("cert.pem"),
        key: dir.join("key.pem"),
        peers: Role::node(),
    });
    let dir = PathBuf::from(dir);
    let driver = driver(rest);
    let storage = Storage::new(&StorageOptions { dir, listen, tls, driver, boot })?;
    end_with_input(storage.handle());
    Ok(storage.run(|| eprintln!("ready"))?)
}

/// Ends with its standard input, so that nothing is left of a test that was killed.
fn end_with_input(handle: Handle) {
    std::thread::spawn(move || {
        let _ = std::io::Read::read_to_end(&mut std::io::stdin(), &mut Vec::new());
        handle.stop();
    });
}
