//! Go's output for a value that was never set.

use serde_json::{Map, Value};

use crate::table::Ty;

/// The zero of a type as upstream prints it; `null` where it prints nothing useful.
pub(crate) fn zero(ty: Ty) -> Value {
    match ty {
        Ty::String | Ty::Bytes => "".into(),
        Ty::Int32 | Ty::Int64 | Ty::Double | Ty::IntOrString => 0.into(),
        Ty::Bool => false.into(),
        Ty::Quantity => "0".into(),
        Ty::Duration => "0s".into(),
        Ty::Message(slot) => {
            let fields = slot.always_written().iter();
            let zeros: Map<String, Value> =
                fields.map(|field| (field.name.to_owned(), zero(field.ty))).collect();
            Value::Object(zeros)
        }
        Ty::Time
        | Ty::MicroTime
        | Ty::RawExtension
        | Ty::FieldsV1
        | Ty::Json
        | Ty::SchemaOrArray
        | Ty::SchemaOrBool
        | Ty::SchemaOrStrings
        | Ty::Strings => Value::Null,
    }
}
