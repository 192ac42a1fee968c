//! The two copies of the header: a binary part of 4 KiB and JSON after it. Numbers are big endian.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 6 | magic: `LUKS` or, in the second copy, `SKUL`, and `ba be` |
//! | 6 | 2 | version, 2 |
//! | 8 | 8 | bytes of the copy, JSON included |
//! | 16 | 8 | sequence: the greater counts |
//! | 24 | 48 | label |
//! | 72 | 32 | name of the checksum, `sha256` |
//! | 104 | 64 | salt, different in each copy and version |
//! | 168 | 40 | UUID as text |
//! | 208 | 48 | subsystem |
//! | 256 | 8 | where the copy is |
//! | 448 | 64 | checksum of the copy, with this field zero |
//! | 4096 | … | JSON, ended by a zero byte |
//!
//! Unknown fields of the JSON are kept unchanged when the header is written.

use aws_lc_rs::digest;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{HEADER, HeaderDisk, LuksError, random};

/// Bytes of each copy as they are written here.
pub(super) const SIZE: u64 = 16 << 10;
const BINARY: usize = 4096;
const CHECKSUM: std::ops::Range<usize> = 448..512;

/// Why there is no header to be read.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HeaderError {
    Absent,
    Damaged,
    Unsupported { what: &'static str, found: String },
}

#[derive(Clone, Debug)]
pub(super) struct Header {
    /// Bytes of each copy.
    size: u64,
    seq: u64,
    /// Label, UUID and subsystem, as they are.
    names: [Vec<u8>; 3],
    json: Value,
}

const NAMES: [std::ops::Range<usize>; 3] = [24..72, 168..208, 208..256];

/// Where the data is, and how it is encrypted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) sector: usize,
    pub(super) tweak: u64,
}

impl Header {
    pub(super) fn new(json: Value) -> Self {
        let mut uuid = uuid::Uuid::new_v4().to_string().into_bytes();
        uuid.resize(40, 0);
        Self { size: SIZE, seq: 0, names: [vec![0; 48], uuid, vec![0; 48]], json }
    }

    /// Reads the newer of the two copies that is whole.
    pub(super) fn load(disk: &mut dyn HeaderDisk) -> Result<Self, LuksError> {
        let mut found = Vec::new();
        let mut why = HeaderError::Absent;
        let first = disk.read(0, BINARY)?;
        let known = first.starts_with(b"LUKS\xba\xbe").then(|| be_u64(&first, 8));
        let usual = (14..=22).map(|shift| 1u64 << shift);
        // Without the first copy it is not known where the second is.
        let seconds: Vec<u64> = match known {
            Some(size) if usual.clone().any(|it| it == size) => vec![size],
            _ => usual.collect(),
        };
        for offset in std::iter::once(0).chain(seconds) {
            match Self::load_copy(disk, offset)? {
                Ok(header) => found.push(header),
                // One copy may be damaged to appear as anything.
                Err(error) => why = why.max(error),
            }
        }
        found.into_iter().max_by_key(|header| header.seq).ok_or_else(|| why.into())
    }

    fn load_copy(
        disk: &mut dyn HeaderDisk,
        offset: u64,
    ) -> Result<Result<Self, HeaderError>, LuksError> {
        let magic: &[u8] = if offset == 0 { b"LUKS\xba\xbe" } else { b"SKUL\xba\xbe" };
        let binary = disk.read(offset, BINARY)?;
        if !binary.starts_with(magic) {
            return Ok(Err(HeaderError::Absent));
        }
        let version = u16::from_be_bytes([binary[6], binary[7]]);
        if version != 2 {
            let found = version.to_string();
            return Ok(Err(HeaderError::Unsupported { what: "version", found }));
        }
        let size = be_u64(&binary, 8);
        let sane = size.is_power_of_two() && (SIZE..=4 << 20).contains(&size);
        if !sane || be_u64(&binary, 256) != offset {
            return Ok(Err(HeaderError::Damaged));
        }
        let copy = disk.read(offset, size as usize)?;
        let name = text(&copy[72..104]);
        if name != "sha256" {
            let what = "header checksum";
            return Ok(Err(HeaderError::Unsupported { what, found: name }));
        }
        if checksum(&copy) != copy[CHECKSUM.start..CHECKSUM.start + 32] {
            return Ok(Err(HeaderError::Damaged));
        }
        let json = copy[BINARY..].split(|byte| *byte == 0).next().unwrap_or_default();
        let Ok(json) = serde_json::from_slice(json) else { return Ok(Err(HeaderError::Damaged)) };
        let names = NAMES.map(|range| copy[range].to_vec());
        Ok(Ok(Self { size, seq: be_u64(&copy, 16), names, json }))
    }

    /// Writes both copies, as a newer version than any that is there.
    pub(super) fn store(&mut self, disk: &mut dyn HeaderDisk) -> Result<(), LuksError> {
        self.seq += 1;
        for (offset, magic) in [(0, b"LUKS\xba\xbe"), (self.size, b"SKUL\xba\xbe")] {
            let copy = self.encode(offset, magic)?;
            disk.write(offset, &copy)?;
            disk.flush()?;
        }
        Ok(())
    }

    fn encode(&self, offset: u64, magic: &[u8; 6]) -> Result<Vec<u8>, LuksError> {
        let mut copy = vec![0; self.size as usize];
        copy[..6].copy_from_slice(magic);
        copy[6..8].copy_from_slice(&2u16.to_be_bytes());
        copy[8..16].copy_from_slice(&self.size.to_be_bytes());
        copy[16..24].copy_from_slice(&self.seq.to_be_bytes());
        copy[72..78].copy_from_slice(b"sha256");
        random(&mut copy[104..168]);
        for (range, name) in NAMES.into_iter().zip(&self.names) {
            copy[range].copy_from_slice(name);
        }
        copy[256..264].copy_from_slice(&offset.to_be_bytes());
        let json = serde_json::to_vec(&self.json).expect("a value is JSON");
        // One byte is for the zero that ends it.
        if json.len() >= copy.len() - BINARY {
            return Err(LuksError::Full);
        }
        copy[BINARY..BINARY + json.len()].copy_from_slice(&json);
        let sum = checksum(&copy);
        copy[CHECKSUM.start..CHECKSUM.start + 32].copy_from_slice(&sum);
        Ok(copy)
    }

    /// Bytes before the first key slot.
    pub(super) fn end(&self) -> u64 {
        2 * self.size
    }

    pub(super) fn keyslots(&self) -> Result<&Map<String, Value>, LuksError> {
        self.json.get("keyslots").and_then(Value::as_object).ok_or(LuksError::Damaged)
    }

    pub(super) fn keyslots_mut(&mut self) -> Result<&mut Map<String, Value>, LuksError> {
        self.json.get_mut("keyslots").and_then(Value::as_object_mut).ok_or(LuksError::Damaged)
    }

    /// The digest of the segment that the data is in.
    pub(super) fn digest(&self) -> Result<&Value, LuksError> {
        let (number, _) = self.only_segment()?;
        let digests = self.json.get("digests").and_then(Value::as_object);
        let mut digests = digests.ok_or(LuksError::Damaged)?.values();
        let covers = |digest: &&Value| {
            let segments = digest.get("segments").and_then(Value::as_array);
            segments.is_some_and(|list| list.iter().any(|it| it.as_str() == Some(number)))
        };
        digests.find(covers).ok_or(LuksError::Damaged)
    }

    /// Lets the digest name the key slots that there are.
    pub(super) fn name_keyslots(&mut self, change: impl FnOnce(&mut Vec<Value>)) -> Option<()> {
        let number = self.only_segment().ok()?.0.to_owned();
        let digests = self.json.get_mut("digests")?.as_object_mut()?;
        let digest = digests.values_mut().find(|digest| {
            let segments = digest.get("segments").and_then(Value::as_array);
            segments.is_some_and(|list| list.iter().any(|it| it.as_str() == Some(number.as_str())))
        })?;
        change(digest.get_mut("keyslots")?.as_array_mut()?);
        Some(())
    }

    fn only_segment(&self) -> Result<(&str, &Value), LuksError> {
        let segments = self.json.get("segments").and_then(Value::as_object);
        let segments = segments.ok_or(LuksError::Damaged)?;
        match (segments.len(), segments.iter().next()) {
            (1, Some((number, segment))) => Ok((number, segment)),
            (count, _) => {
                let found = count.to_string();
                Err(LuksError::Unsupported { what: "number of segments", found })
            }
        }
    }

    pub(super) fn segment(&self) -> Result<Segment, LuksError> {
        #[derive(Deserialize)]
        struct Raw {
            r#type: String,
            offset: String,
            size: String,
            iv_tweak: String,
            encryption: String,
            sector_size: u64,
        }
        let (_, value) = self.only_segment()?;
        let raw = Raw::deserialize(value).map_err(|_| LuksError::Damaged)?;
        let unsupported = |what, found| Err(LuksError::Unsupported { what, found });
        if raw.r#type != "crypt" || raw.size != "dynamic" {
            return unsupported("segment", format!("{} {}", raw.r#type, raw.size));
        }
        if raw.encryption != "aes-xts-plain64" {
            return unsupported("encryption", raw.encryption);
        }
        let (Ok(start), Ok(tweak)) = (raw.offset.parse::<u64>(), raw.iv_tweak.parse()) else {
            return Err(LuksError::Damaged);
        };
        if start != HEADER {
            return unsupported("data offset", raw.offset);
        }
        match raw.sector_size {
            512 | 1024 | 2048 | 4096 => {
                Ok(Segment { start, sector: raw.sector_size as usize, tweak })
            }
            other => unsupported("sector size", other.to_string()),
        }
    }
}

fn checksum(copy: &[u8]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&copy[..CHECKSUM.start]);
    context.update(&[0; 64]);
    context.update(&copy[CHECKSUM.end..]);
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
pub(super) fn sum_for_tests(copy: &[u8]) -> [u8; 32] {
    checksum(copy)
}

fn be_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}
