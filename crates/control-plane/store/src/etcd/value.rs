//! Values as they are stored in etcd.
//!
//! ```text
//! {value}\n{tag}       tag: 32 hexadecimal digits, new for every write
//! ```
//!
//! The tag distinguishes two writes of the same bytes. If the answer to a transaction
//! is lost, reading the key back and finding the tag proves that the write was done,
//! and by whom. It is text at the end so that the usual tools show the value.
//! Something written by other hands, without a tag, is taken as it is.

use uuid::Uuid;
use uuid::fmt::Simple;

const SUFFIX: usize = 1 + Simple::LENGTH;

pub(super) type Tag = Uuid;

pub(super) fn sealed(value: &[u8], tag: Tag) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(value.len() + SUFFIX);
    sealed.extend_from_slice(value);
    sealed.push(b'\n');
    sealed.extend_from_slice(tag.simple().encode_lower(&mut [0; Simple::LENGTH]).as_bytes());
    sealed
}

pub(super) fn opened(stored: &[u8]) -> (&[u8], Option<Tag>) {
    let Some(length) = stored.len().checked_sub(SUFFIX) else { return (stored, None) };
    let (value, suffix) = stored.split_at(length);
    let tag = match suffix {
        [b'\n', tag @ ..] => Uuid::try_parse_ascii(tag).ok(),
        _ => None,
    };
    if tag.is_some() { (value, tag) } else { (stored, None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_with_its_tag() {
        let tag = Tag::new_v4();
        for value in [&b""[..], b"{}", b"line\nline\n", &sealed(b"twice", Tag::new_v4())] {
            assert_eq!(opened(&sealed(value, tag)), (value, Some(tag)));
        }
    }

    #[test]
    fn a_value_without_a_tag_is_taken_as_it_is() {
        for value in [&b""[..], b"{}", b"0123456789abcdef0123456789abcdef", &[b'\n'; 40]] {
            assert_eq!(opened(value), (value, None));
        }
    }
}
