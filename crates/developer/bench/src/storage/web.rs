//! A web server that has one file, and sends it as fast as the system can.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use anyhow::Result;

#[derive(Debug)]
pub(super) struct Web {
    url: String,
}

impl Web {
    /// Serves until the process ends.
    pub(super) fn serve(file: &Path) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}/image.qcow2", listener.local_addr()?);
        let file = file.to_owned();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let file = file.clone();
                // A client that disconnects has received its data.
                std::thread::spawn(move || answer(stream, file));
            }
        });
        Ok(Self { url })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

fn answer(mut stream: TcpStream, path: PathBuf) -> io::Result<()> {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => request.extend_from_slice(&buffer[..count]),
        }
    }
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    if !request.starts_with(b"HEAD") {
        // Between a file and a socket the kernel does it, as in every web server.
        io::copy(&mut file, &mut stream)?;
    }
    stream.shutdown(std::net::Shutdown::Write)
}
