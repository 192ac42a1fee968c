//! Reading and writing a volume through its socket, in this process: the part of NBD that this
//! takes.

use std::io;
use std::path::Path;

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

const GREETING: &[u8; 16] = b"NBDMAGICIHAVEOPT";
const CLIENT_FLAGS: u32 = 3; // fixed newstyle, no zeroes
const EXPORT_NAME: u32 = 1;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const WRITE_ZEROES: u16 = 6;
const HAS_FLUSH: u16 = 1 << 2;
const HAS_WRITE_ZEROES: u16 = 1 << 6;

/// A connection with one request at a time.
#[derive(Debug)]
pub(crate) struct NbdClient {
    stream: UnixStream,
    pub(crate) size: u64,
    flags: u16,
    next: u64,
}

impl NbdClient {
    /// Opens the only export of a socket.
    pub(crate) async fn connect(socket: &Path) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket).await?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).await?;
        if greeting[..16] != GREETING[..] {
            return Err(invalid("the server does not greet as NBD servers do"));
        }
        let mut hello = BytesMut::new();
        hello.put_u32(CLIENT_FLAGS);
        hello.put_slice(&GREETING[8..]);
        hello.put_u32(EXPORT_NAME);
        hello.put_u32(0);
        stream.write_all(&hello).await?;
        let size = stream.read_u64().await?;
        let flags = stream.read_u16().await?;
        Ok(Self { stream, size, flags, next: 0 })
    }

    pub(crate) async fn read(&mut self, offset: u64, length: u32) -> io::Result<Bytes> {
        self.request(READ, offset, length, &[]).await?;
        let mut data = vec![0; length as usize];
        self.stream.read_exact(&mut data).await?;
        Ok(data.into())
    }

    /// Writes `data`, without a transfer if it is all zeroes.
    pub(crate) async fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let length = u32::try_from(data.len()).map_err(|_| invalid("the write is too long"))?;
        if self.flags & HAS_WRITE_ZEROES != 0 && data.iter().all(|byte| *byte == 0) {
            return self.request(WRITE_ZEROES, offset, length, &[]).await;
        }
        self.request(WRITE, offset, length, data).await
    }

    /// Returns when all that was written is durable.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        if self.flags & HAS_FLUSH == 0 {
            return Ok(());
        }
        self.request(FLUSH, 0, 0, &[]).await
    }

    /// Sends a request with its data, and reads the head of the reply.
    async fn request(
        &mut self,
        command: u16,
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> io::Result<()> {
        self.next = self.next.wrapping_add(1);
        let mut request = BytesMut::new();
        request.put_u32(REQUEST);
        request.put_u16(0);
        request.put_u16(command);
        request.put_u64(self.next);
        request.put_u64(offset);
        request.put_u32(length);
        self.stream.write_all(&request).await?;
        self.stream.write_all(data).await?;
        let (magic, error) = (self.stream.read_u32().await?, self.stream.read_u32().await?);
        let cookie = self.stream.read_u64().await?;
        if magic != SIMPLE_REPLY || cookie != self.next {
            return Err(invalid("the server does not answer the request"));
        }
        if error != 0 {
            return Err(io::Error::from_raw_os_error(i32::try_from(error).unwrap_or(5)));
        }
        Ok(())
    }
}

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    /// A server with eight bytes.
    async fn serve(listener: UnixListener) {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(GREETING).await.unwrap();
        stream.write_u16(3).await.unwrap();
        assert_eq!(stream.read_u32().await.unwrap(), CLIENT_FLAGS);
        stream.read_exact(&mut [0; 16]).await.unwrap();
        stream.write_u64(8).await.unwrap();
        stream.write_u16(1).await.unwrap();
        for error in [0, 5] {
            stream.read_exact(&mut [0; 8]).await.unwrap();
            let cookie = stream.read_u64().await.unwrap();
            let offset = stream.read_u64().await.unwrap();
            let length = stream.read_u32().await.unwrap();
            stream.write_u32(SIMPLE_REPLY).await.unwrap();
            stream.write_u32(error).await.unwrap();
            stream.write_u64(cookie).await.unwrap();
            if error == 0 {
                let data = &b"01234567"[offset as usize..][..length as usize];
                stream.write_all(data).await.unwrap();
            }
        }
    }

    /// A server that takes one write, one write of zeroes and one flush.
    async fn take(listener: UnixListener) {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(GREETING).await.unwrap();
        stream.write_u16(3).await.unwrap();
        stream.read_exact(&mut [0; 20]).await.unwrap();
        stream.write_u64(8).await.unwrap();
        stream.write_u16(1 | HAS_FLUSH | HAS_WRITE_ZEROES).await.unwrap();
        for (command, data) in [(WRITE, &b"abc"[..]), (WRITE_ZEROES, b""), (FLUSH, b"")] {
            stream.read_exact(&mut [0; 6]).await.unwrap();
            assert_eq!(stream.read_u16().await.unwrap(), command);
            let cookie = stream.read_u64().await.unwrap();
            stream.read_exact(&mut [0; 12]).await.unwrap();
            let mut sent = vec![0; data.len()];
            stream.read_exact(&mut sent).await.unwrap();
            assert_eq!(sent, data);
            stream.write_u32(SIMPLE_REPLY).await.unwrap();
            stream.write_u32(0).await.unwrap();
            stream.write_u64(cookie).await.unwrap();
        }
    }

    #[tokio::test]
    async fn writes_zeroes_and_flushes_are_requests_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let write = async {
            let mut client = NbdClient::connect(&socket).await.unwrap();
            client.write(2, b"abc").await.unwrap();
            client.write(5, &[0; 3]).await.unwrap();
            client.flush().await.unwrap();
        };
        tokio::join!(take(listener), write);
    }

    #[tokio::test]
    async fn data_and_errors_of_a_server_arrive() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let read = async {
            let mut reader = NbdClient::connect(&socket).await.unwrap();
            assert_eq!(reader.size, 8);
            assert_eq!(&reader.read(2, 3).await.unwrap()[..], b"234");
            assert_eq!(reader.read(0, 8).await.unwrap_err().raw_os_error(), Some(5));
        };
        tokio::join!(serve(listener), read);
    }
}
