use serde_json::json;

use super::*;

#[test]
fn a_small_object_is_decoded_and_encoded_byte_for_byte() {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "n"}, "data": {"k": "v"},
    });
    let bytes = encode(&object).unwrap();
    assert_eq!(decode(&bytes).unwrap(), object);
}
