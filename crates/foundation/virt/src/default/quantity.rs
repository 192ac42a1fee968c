//! Amounts that were written as fractions without quotes, such as `cpu: 2.2`.
//!
//! The schema of an amount takes whole numbers and texts. Upstream's mutating webhooks read machines and
//! instances into types whose amounts take any number, and write them back as texts before the
//! schema is checked: fractions are valid there, and only there.

use serde_json::Value;
use types::Quantity;

/// Writes fractions as the amounts that they mean, where `schema` has an amount. The schema is
/// made only for objects that have a fraction.
pub(crate) fn write_fractions_as_amounts(object: &mut Value, schema: fn() -> Value) {
    if has_fraction(object) {
        rewrite(object, &schema());
    }
}

fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_fraction),
        Value::Object(fields) => fields.values().any(has_fraction),
        _ => false,
    }
}

fn rewrite(value: &mut Value, schema: &Value) {
    match value {
        Value::Number(number) if number.is_f64() && is_amount(schema) => {
            if let Ok(amount) = number.to_string().parse::<Quantity>() {
                *value = amount.to_string().into();
            }
        }
        Value::Array(items) => {
            for item in items {
                rewrite(item, &schema["items"]);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                match schema["properties"].get(name) {
                    Some(own) => rewrite(field, own),
                    None => rewrite(field, &schema["additionalProperties"]),
                }
            }
        }
        _ => {}
    }
}

fn is_amount(schema: &Value) -> bool {
    schema["x-kubernetes-int-or-string"] == true && schema["pattern"].is_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::record::Field as _;
    use crate::v1;

    #[test]
    fn fractions_become_texts_where_the_schema_has_amounts() {
        let mut vm = json!({"spec": {
            "template": {"spec": {"domain": {
                "resources": {"requests": {"cpu": 2.2, "memory": 1_073_741_824},
                    "limits": {"cpu": "2"}},
                "memory": {"guest": 1.5e9},
                "cpu": {"cores": 1.5},
            }}},
            "dataVolumeTemplates": [{"spec": {"storage": {"resources":
                {"requests": {"storage": 0.5}}}}}],
        }});
        write_fractions_as_amounts(&mut vm, v1::VirtualMachine::schema);
        let domain = &vm["spec"]["template"]["spec"]["domain"];
        assert_eq!(
            domain["resources"],
            json!({"requests": {"cpu": "2200m", "memory": 1_073_741_824}, "limits": {"cpu": "2"}})
        );
        assert_eq!(domain["memory"]["guest"], "1500M");
        assert_eq!(domain["cpu"]["cores"], 1.5, "a count is no amount: the schema refuses it");
        let claim = &vm["spec"]["dataVolumeTemplates"][0]["spec"]["storage"];
        assert_eq!(claim["resources"]["requests"]["storage"], "500m");
    }
}
