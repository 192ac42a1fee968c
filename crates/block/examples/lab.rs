//! A laboratory for one volume, without the rest of Sheaf.
//!
//! `lab volume DIR SIZE REPLICAS NBD.sock [in-process|threads]`, `lab ask DIR JSON`;
//! `lab replica DIR SOCKET` is for itself.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use block::run::lab::{Lab, LabOptions, LabRequest, ServeOptions, ask, serve};
use block::run::{Address, Driver};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["replica", dir, socket, rest @ ..] => {
            let options = ServeOptions {
                dir: PathBuf::from(dir),
                listen: Address::Unix(PathBuf::from(socket)),
                driver: driver(rest),
                idle: Some(Duration::from_secs(60)),
            };
            serve(&options, |_, _| {})?;
        }
        ["volume", dir, size, replicas, nbd, rest @ ..] => volume(dir, size, replicas, nbd, rest)?,
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
    let program = std::env::current_exe()?;
    let spawn = move |options: &ServeOptions| {
        let mut command = Command::new(&program);
        command.arg("replica").arg(&options.dir).arg(options.listen.to_string());
        if options.driver == Driver::Threads {
            command.arg("threads");
        }
        command
    };
    let lab = Lab::new(LabOptions {
        dir: PathBuf::from(dir),
        size: Some(size.parse()?),
        replicas: Some(replicas.parse()?),
        nbd: vec![Address::Unix(PathBuf::from(nbd))],
        in_process: rest.contains(&"in-process"),
        driver: driver(rest),
        spawn: Box::new(spawn),
        notices: Box::new(|notice| eprintln!("{notice:?}")),
    })?;
    let handle = lab.handle();
    std::thread::spawn(move || {
        // Ends with its standard input, so that nothing is left of a test that was killed.
        let _ = std::io::Read::read_to_end(&mut std::io::stdin(), &mut Vec::new());
        handle.stop();
    });
    Ok(lab.run()?)
}
