//! The smallest NBD client that knows exactly what was answered, and with which error.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// `EIO`, as the protocol has it.
const EIO: u32 = 5;

#[derive(Clone, Copy)]
enum Command {
    Read = 0,
    Write = 1,
    Flush = 3,
    WriteZeroes = 6,
}

pub(crate) struct Client(UnixStream);

impl Client {
    pub(crate) fn connect(socket: &Path) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.read_exact(&mut [0; 18])?;
        // Fixed newstyle without zeroes, then the only export, the oldest way.
        stream.write_all(&3u32.to_be_bytes())?;
        stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0")?;
        stream.read_exact(&mut [0; 10])?;
        Ok(Self(stream))
    }

    /// Gives the error of the answer, 0 for none.
    fn ask(&mut self, command: Command, offset: u64, length: u32, data: &[u8]) -> io::Result<u32> {
        let mut request = vec![0x25, 0x60, 0x95, 0x13, 0, 0];
        request.extend((command as u16).to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(length.to_be_bytes());
        request.extend(data);
        self.0.write_all(&request)?;
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply)?;
        assert_eq!(reply[..4], [0x67, 0x44, 0x66, 0x98], "a simple reply");
        assert_eq!(reply[8..], offset.to_be_bytes(), "the answer to this request");
        Ok(u32::from_be_bytes(reply[4..8].try_into().unwrap()))
    }

    fn ask_for(&mut self, command: Command, offset: u64, len: u32, data: &[u8]) -> io::Result<()> {
        let error = self.ask(command, offset, len, data)?;
        assert_eq!(error, 0, "no request fails");
        Ok(())
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.ask_for(Command::Write, offset, u32::try_from(data.len()).unwrap(), data)
    }

    pub(crate) fn write_zeroes(&mut self, offset: u64, length: u32) -> io::Result<()> {
        self.ask_for(Command::WriteZeroes, offset, length, &[])
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.ask_for(Command::Flush, 0, 0, &[])
    }

    /// Nothing if the answer is an I/O error.
    pub(crate) fn try_read(&mut self, offset: u64, length: u32) -> io::Result<Option<Vec<u8>>> {
        match self.ask(Command::Read, offset, length, &[])? {
            0 => {
                let mut data = vec![0; usize::try_from(length).unwrap()];
                self.0.read_exact(&mut data)?;
                Ok(Some(data))
            }
            EIO => Ok(None),
            other => panic!("a read of {length} bytes at {offset} fails with error {other}"),
        }
    }

    pub(crate) fn read(&mut self, offset: u64, length: u32) -> io::Result<Vec<u8>> {
        Ok(self.try_read(offset, length)?.expect("no request fails"))
    }
}
