//! Reading and writing of protobuf's wire format, without any schema. Everything that
//! is read is checked against the bytes that are there: lengths never allocate.

use super::DecodeError;

/// How a value is laid out on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Varint,
    Fixed64,
    Bytes,
    Fixed32,
}

/// A cursor over one message.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field's number and layout; `None` at the end of the message.
    pub(super) fn key(&mut self) -> Result<Option<(u32, Wire)>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let wire = match key & 7 {
            0 => Wire::Varint,
            1 => Wire::Fixed64,
            2 => Wire::Bytes,
            5 => Wire::Fixed32,
            // Groups are not used by Kubernetes; 6 and 7 do not exist.
            _ => return Err(DecodeError::BadKey),
        };
        match u32::try_from(key >> 3) {
            Ok(number) if number > 0 => Ok(Some((number, wire))),
            _ => Err(DecodeError::BadKey),
        }
    }

    pub(super) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for (at, byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 { DecodeError::Truncated } else { DecodeError::BadVarint })
    }

    /// The bytes of a length-delimited value.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = usize::try_from(self.varint()?).map_err(|_| DecodeError::Truncated)?;
        self.take(length)
    }

    pub(super) fn fixed64(&mut self) -> Result<[u8; 8], DecodeError> {
        let bytes = self.take(8)?;
        Ok(bytes.try_into().expect("eight bytes were taken"))
    }

    /// Skips a value that is not needed.
    pub(super) fn skip(&mut self, wire: Wire) -> Result<(), DecodeError> {
        match wire {
            Wire::Varint => self.varint().map(drop),
            Wire::Fixed64 => self.take(8).map(drop),
            Wire::Bytes => self.bytes().map(drop),
            Wire::Fixed32 => self.take(4).map(drop),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

pub(super) fn put_key(out: &mut Vec<u8>, number: u32, wire: Wire) {
    let wire = match wire {
        Wire::Varint => 0,
        Wire::Fixed64 => 1,
        Wire::Bytes => 2,
        Wire::Fixed32 => 5,
    };
    put_varint(out, u64::from(number) << 3 | wire);
}

pub(super) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_key(out, number, Wire::Bytes);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(super) fn put_number(out: &mut Vec<u8>, number: u32, value: u64) {
    put_key(out, number, Wire::Varint);
    put_varint(out, value);
}

/// Writes a length-delimited value whose length is known only once it is written.
pub(super) fn put_nested<E>(
    out: &mut Vec<u8>,
    number: u32,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    put_key(out, number, Wire::Bytes);
    let start = out.len();
    // Most values are shorter than 128 bytes: their length fits the byte kept free here.
    out.push(0);
    body(out)?;
    let length = (out.len() - start - 1) as u64;
    let mut prefix = Vec::with_capacity(10);
    put_varint(&mut prefix, length);
    out.splice(start..=start, prefix);
    Ok(())
}
