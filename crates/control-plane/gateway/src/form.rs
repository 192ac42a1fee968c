//! One field of a form (`multipart/form-data`) as it arrives, however large. Pure.

use bytes::{Bytes, BytesMut};

/// The headers of a field are a few lines.
const LONGEST_HEAD: usize = 16 << 10;

/// Why a form makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormError {
    #[error("the headers of a field of the form are too long")]
    Head,
    #[error("the form has no field {name}")]
    Missing { name: &'static str },
    #[error("the form ended early")]
    Early,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FormState {
    /// Before the first field.
    Preamble,
    Head,
    /// In a field, the wanted one or another.
    Content {
        wanted: bool,
    },
    /// Behind a delimiter: another field, or nothing more.
    Between,
    End,
}

/// Takes a form apart.
#[derive(Debug)]
pub(crate) struct MultipartForm {
    field: &'static str,
    /// The beginning of the line between two fields.
    delimiter: Vec<u8>,
    buffer: BytesMut,
    state: FormState,
    found: bool,
}

impl MultipartForm {
    /// Nothing if the content type names no boundary.
    pub(crate) fn new(content_type: &str, field: &'static str) -> Option<Self> {
        let boundary = content_type.split(';').skip(1).find_map(|part| {
            let (key, value) = part.trim().split_once('=')?;
            key.eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"'))
        })?;
        if boundary.is_empty() || boundary.len() > 70 {
            return None;
        }
        // The first boundary may be at the very beginning; a line end before it makes all equal.
        let buffer = BytesMut::from(&b"\r\n"[..]);
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        Some(Self { field, delimiter, buffer, state: FormState::Preamble, found: false })
    }

    /// The data of the field in these bytes.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Vec<Bytes>, FormError> {
        self.buffer.extend_from_slice(bytes);
        let mut pieces = Vec::new();
        while self.step(&mut pieces)? {}
        Ok(pieces)
    }

    /// Whether everything has come.
    pub(crate) fn finish(&self) -> Result<(), FormError> {
        match (self.state, self.found) {
            (FormState::End, true) => Ok(()),
            (FormState::End, false) => Err(FormError::Missing { name: self.field }),
            _ => Err(FormError::Early),
        }
    }

    /// Whether there may be more to do.
    fn step(&mut self, pieces: &mut Vec<Bytes>) -> Result<bool, FormError> {
        match self.state {
            FormState::Preamble => Ok(self.until_delimiter(false, pieces)),
            FormState::Content { wanted } => Ok(self.until_delimiter(wanted, pieces)),
            FormState::Between => {
                if self.buffer.len() < 2 {
                    return Ok(false);
                }
                let mark = self.buffer.split_to(2);
                self.state = if &mark[..] == b"--" { FormState::End } else { FormState::Head };
                Ok(true)
            }
            FormState::Head => {
                let Some(at) = find(&self.buffer, b"\r\n\r\n") else {
                    if self.buffer.len() > LONGEST_HEAD {
                        return Err(FormError::Head);
                    }
                    return Ok(false);
                };
                let head = self.buffer.split_to(at + 4);
                let wanted = !self.found && names(&head, self.field);
                self.found |= wanted;
                self.state = FormState::Content { wanted };
                Ok(true)
            }
            FormState::End => {
                self.buffer.clear();
                Ok(false)
            }
        }
    }

    fn until_delimiter(&mut self, wanted: bool, pieces: &mut Vec<Bytes>) -> bool {
        let found = find(&self.buffer, &self.delimiter);
        // Bytes that may be the beginning of a delimiter stay until the next bytes arrive.
        let sure = self.buffer.len().saturating_sub(self.delimiter.len() - 1);
        let piece = self.buffer.split_to(found.unwrap_or(sure));
        if wanted && !piece.is_empty() {
            pieces.push(piece.freeze());
        }
        if found.is_some() {
            let _ = self.buffer.split_to(self.delimiter.len());
            self.state = FormState::Between;
        }
        found.is_some()
    }
}

/// Whether the headers of a field give it this name.
fn names(head: &[u8], field: &str) -> bool {
    let head = String::from_utf8_lossy(head);
    let line = head.lines().find(|line| {
        line.get(..20).is_some_and(|start| start.eq_ignore_ascii_case("content-disposition:"))
    });
    let parameters = line.unwrap_or_default().split(';').skip(1);
    parameters
        .filter_map(|part| part.trim().split_once('='))
        .any(|(key, value)| key.eq_ignore_ascii_case("name") && value.trim_matches('"') == field)
}

fn find(within: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = *wanted.first()?;
    let mut at = 0;
    while let Some(found) = within[at..].iter().position(|byte| *byte == first) {
        let start = at + found;
        if within[start..].starts_with(wanted) {
            return Some(start);
        }
        at = start + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &[u8] = b"--XX\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nno\r\n\
        --XX\r\ncontent-disposition: form-data; name=\"chunk\"; filename=\"a.img\"\r\n\
        Content-Type: application/octet-stream\r\n\r\nda\r\nta\r\n--X\r\n--XX--\r\n";

    fn read(form: &[u8], step: usize) -> Result<Vec<u8>, FormError> {
        let mut parser =
            MultipartForm::new("multipart/form-data; boundary=\"XX\"", "chunk").unwrap();
        let mut content = Vec::new();
        for piece in form.chunks(step) {
            for piece in parser.take(piece)? {
                content.extend_from_slice(&piece);
            }
        }
        parser.finish().map(|()| content)
    }

    #[test]
    fn the_field_comes_out_however_the_form_was_cut() {
        for step in 1..FORM.len() {
            assert_eq!(read(FORM, step).unwrap(), b"da\r\nta\r\n--X", "{step}");
        }
    }

    #[test]
    fn a_body_that_is_no_form_is_refused() {
        assert_eq!(read(&FORM[..FORM.len() - 10], 7), Err(FormError::Early));
        assert_eq!(read(b"--XX--\r\n", 3), Err(FormError::Missing { name: "chunk" }));
        let endless = [b"--XX\r\n".as_slice(), &vec![b'x'; 2 * LONGEST_HEAD]].concat();
        assert_eq!(read(&endless, 1 << 10), Err(FormError::Head));
        assert!(MultipartForm::new("multipart/form-data", "chunk").is_none());
    }
}
