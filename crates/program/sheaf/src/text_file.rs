//! Text files that are named on the command line: configuration, certificates, user data. They are
//! read whole, so there is a limit: a device or a disk image must not fill the memory.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

const MAX_SIZE: u64 = 4 << 20;

/// The content of a file, a pipe included.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_SIZE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_SIZE {
        let message = format!("it is larger than {} MiB", MAX_SIZE >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_of_a_bounded_size_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let check = |content: &[u8]| {
            std::fs::write(&file, content).unwrap();
            read(&file).map_err(|error| error.to_string())
        };
        assert_eq!(check(b"a: 1\n"), Ok("a: 1\n".to_owned()));
        assert_eq!(check(b"\xff\xfe"), Err("it is no text".to_owned()));
        assert_eq!(check(&vec![b'a'; 4 << 20]).map(|text| text.len()), Ok(4 << 20));
        assert_eq!(check(&vec![b'a'; (4 << 20) + 1]), Err("it is larger than 4 MiB".to_owned()));
        let endless = read(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(endless.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read(dir.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(read(&dir.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
