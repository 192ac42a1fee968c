//! A web server that has one file.

use std::path::{Path, PathBuf};

use anyhow::Result;
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

#[derive(Debug)]
pub(super) struct Web {
    url: String,
    task: JoinHandle<()>,
}

impl Web {
    pub(super) async fn serve(file: &Path) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/image.qcow2", listener.local_addr()?);
        let file = file.to_owned();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // Who hangs up has what he wants.
                tokio::spawn(answer(stream, file.clone()));
            }
        });
        Ok(Self { url, task })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut stream: TcpStream, path: PathBuf) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            count => request.extend_from_slice(&buffer[..count]),
        }
    }
    let mut file = File::open(path).await?;
    let length = file.metadata().await?.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    if !request.starts_with(b"HEAD") {
        tokio::io::copy(&mut file, &mut stream).await?;
    }
    stream.shutdown().await
}
