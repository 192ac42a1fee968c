//! Records that name the few fields of an object that matter to one controller.
//!
//! Objects stay JSON, because they are copied and patched with fields that this version does not
//! know. A decision that needs several fields reads them once into such a record: the names are
//! written in one place, texts are borrowed, and the rest of the object costs nothing. As
//! with the readers of [`crate::object`], a field that is absent, null or of another type is
//! empty and does not keep the others from being read.

use serde::{Deserialize, Deserializer};

/// Declares records with the names of their fields in camel case, or as given by `as`.
macro_rules! fields {
    ($(
        $(#[doc = $about:literal])*
        $vis:vis struct $name:ident $(<$life:lifetime>)? {
            $( $(#[doc = $text:literal])* $field:ident $(as $wire:literal)? : $type:ty ),* $(,)?
        }
    )*) => { $(
        $(#[doc = $about])*
        #[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        $(#[doc = concat!("Borrows for `", stringify!($life), "`, in the records that it holds too.")]
        #[serde(bound(deserialize = "'de: 'a"))])?
        $vis struct $name $(<$life>)? { $(
            $(#[doc = $text])*
            $(#[serde(rename = $wire)])?
            #[serde(deserialize_with = "crate::record::or_empty")]
            $vis $field: $type,
        )* }
    )* };
}

pub(crate) use fields;

pub(crate) mod claim;
pub(crate) mod condition;
pub(crate) mod instance;
pub(crate) mod lease;
pub(crate) mod metadata;
pub(crate) mod node;
pub(crate) mod quantity;
pub(crate) mod service;
pub(crate) mod setting;
pub(crate) mod vm_volume;

/// Reads a field; one that cannot be read is empty.
pub(crate) fn or_empty<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    Ok(T::deserialize(deserializer).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::object::read;

    fields! {
        struct Outer<'a> {
            node_name: &'a str,
            node_id as "nodeID": Option<&'a str>,
            count: Option<i64>,
            modes: Vec<String>,
        }
    }

    #[test]
    fn a_field_that_cannot_be_read_is_empty_and_the_others_are_read() {
        let object = json!({"nodeName": "one", "nodeID": null, "count": "two", "modes": null,
            "unknown": {"deep": [1]}});
        let expected = Outer { node_name: "one", node_id: None, count: None, modes: Vec::new() };
        assert_eq!(read::<Outer<'_>>(&object), expected);
        let object = json!({"nodeName": 1, "nodeID": "x", "count": 2, "modes": ["a"]});
        let expected =
            Outer { node_name: "", node_id: Some("x"), count: Some(2), modes: vec!["a".into()] };
        assert_eq!(read::<Outer<'_>>(&object), expected);
    }
}
