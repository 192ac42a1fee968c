//! Virtual machines from templates: values of parameters, and where they are inserted.
//!
//! `${NAME}` anywhere in a text is replaced by the value of the parameter. A text that is
//! `${{NAME}}` as a whole becomes the value as JSON, so that it can be a number or a boolean.

use serde_json::Value;

use crate::api::atom::Map;
use crate::api::template::{Parameter, VirtualMachineTemplate};

const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const DIGITS: &str = "0123456789";
const SYMBOLS: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
const LONGEST: usize = 255;

/// Why a template cannot be processed, with the field to blame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("parameter {0} not found in template")]
    Unknown(String),
    #[error("spec.parameters[{index}].name: parameter name is empty")]
    Unnamed { index: usize },
    #[error("spec.parameters[{index}].name: Duplicate value: {name:?}")]
    Duplicate { index: usize, name: String },
    #[error(
        "spec.parameters[{index}].value: Required value: parameter '{name}' is required and a \
         value must be specified"
    )]
    Required { index: usize, name: String },
    #[error("spec.parameters[{index}].from: Invalid value: {from:?}: {why}")]
    Expression { index: usize, from: String, why: &'static str },
    #[error("spec.virtualMachine: references undefined parameter {0}")]
    Undefined(String),
    #[error("spec.virtualMachine: virtualMachine is required and cannot be empty")]
    Empty,
}

/// The result of a template.
#[derive(Debug, Clone, PartialEq)]
pub struct Processed {
    pub machine: Value,
    pub message: String,
}

/// Makes a machine of a template. `random(n)` answers a number below `n`.
pub fn process(
    template: &VirtualMachineTemplate,
    given: &Map<String>,
    random: &mut dyn FnMut(usize) -> usize,
) -> Result<Processed, TemplateError> {
    let spec = &template.spec;
    let values = values(&spec.parameters, given, random)?;
    let mut machine = spec.virtual_machine.0.clone();
    if !machine.is_object() {
        return Err(TemplateError::Empty);
    }
    let namespace = machine["metadata"]["namespace"].as_str().unwrap_or_default();
    if !namespace.contains("${")
        && let Some(metadata) = machine["metadata"].as_object_mut()
    {
        metadata.remove("namespace");
    }
    substitute(&mut machine, &values)?;
    machine["apiVersion"] = "kubevirt.io/v1".into();
    machine["kind"] = "VirtualMachine".into();
    let message = insert(spec.message.as_deref().unwrap_or_default(), &values)?;
    Ok(Processed { machine, message })
}

fn values(
    parameters: &[Parameter],
    given: &Map<String>,
    random: &mut dyn FnMut(usize) -> usize,
) -> Result<Map<String>, TemplateError> {
    if let Some(unknown) = given.keys().find(|key| !parameters.iter().any(|own| own.name == **key))
    {
        return Err(TemplateError::Unknown(unknown.clone()));
    }
    let mut values = Map::new();
    for (index, parameter) in parameters.iter().enumerate() {
        let name = parameter.name.clone();
        if name.is_empty() {
            return Err(TemplateError::Unnamed { index });
        }
        let own = given.get(&name).or(parameter.value.as_ref()).filter(|own| !own.is_empty());
        let value = match (own, parameter.generate.as_deref().unwrap_or_default()) {
            (Some(own), _) => own.clone(),
            (None, "") => String::new(),
            (None, _) => {
                let from = parameter.from.clone().unwrap_or_default();
                generate(&from, random).map_err(|why| TemplateError::Expression {
                    index,
                    from,
                    why,
                })?
            }
        };
        if value.is_empty() && parameter.required == Some(true) {
            return Err(TemplateError::Required { index, name });
        }
        if values.insert(name.clone(), value).is_some() {
            return Err(TemplateError::Duplicate { index, name });
        }
    }
    Ok(values)
}

fn substitute(value: &mut Value, values: &Map<String>) -> Result<(), TemplateError> {
    match value {
        Value::String(text) => {
            let whole = text.strip_prefix("${{").and_then(|rest| rest.strip_suffix("}}"));
            if let Some(name) = whole.filter(|name| is_name(name)) {
                let own =
                    values.get(name).ok_or_else(|| TemplateError::Undefined(name.to_owned()))?;
                *value = serde_json::from_str(own).unwrap_or_else(|_| own.clone().into());
            } else {
                *text = insert(text, values)?;
            }
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| substitute(item, values)),
        Value::Object(fields) => {
            fields.values_mut().try_for_each(|field| substitute(field, values))
        }
        _ => Ok(()),
    }
}

fn insert(text: &str, values: &Map<String>) -> Result<String, TemplateError> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        match after.split_once('}').filter(|(name, _)| is_name(name)) {
            Some((name, behind)) => {
                let own = values.get(name);
                out.push_str(own.ok_or_else(|| TemplateError::Undefined(name.to_owned()))?);
                rest = behind;
            }
            None => {
                out.push_str("${");
                rest = after;
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Replaces each `[RANGES]{LENGTH}` by random characters of the ranges.
fn generate(
    expression: &str,
    random: &mut dyn FnMut(usize) -> usize,
) -> Result<String, &'static str> {
    if expression.is_empty() {
        return Err("from cannot be empty");
    }
    let mut out = String::new();
    let mut rest = expression;
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        let (ranges, after) = after.split_once("]{").ok_or("malformed expression syntax")?;
        let (length, behind) = after.split_once('}').ok_or("malformed expression syntax")?;
        let length: usize = length.parse().map_err(|_| "malformed length syntax")?;
        if !(1..=LONGEST).contains(&length) {
            return Err("length must be within [1-255] characters");
        }
        let alphabet: Vec<char> = alphabet(ranges)?.chars().collect();
        out.extend((0..length).filter_map(|_| alphabet.get(random(alphabet.len()))));
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

fn alphabet(ranges: &str) -> Result<String, &'static str> {
    let mut all = String::new();
    let mut letters = ranges.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '\\' {
            match letters.next() {
                Some('w') => all.extend([LETTERS, DIGITS, "_"]),
                Some('d') => all.push_str(DIGITS),
                Some('a') => all.extend([LETTERS, DIGITS]),
                Some('A') => all.push_str(SYMBOLS),
                _ => return Err("malformed ranges syntax"),
            }
        } else if letters.next_if_eq(&'-').is_some() {
            let last = letters.next().ok_or("malformed ranges syntax")?;
            let known = format!("{LETTERS}{DIGITS}");
            let (from, to) = known.find(letter).zip(known.find(last)).ok_or("invalid range")?;
            all.push_str(known.get(from..=to).ok_or("invalid range")?);
        } else {
            all.push(letter);
        }
    }
    if all.is_empty() { Err("malformed ranges syntax") } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn made(spec: Value, given: &[(&str, &str)]) -> Result<Processed, String> {
        let template = serde_json::from_value(json!({"spec": spec})).unwrap();
        let given = given.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let mut next = 0;
        let mut random = |below: usize| {
            next += 1;
            next % below
        };
        process(&template, &given, &mut random).map_err(|failure| failure.to_string())
    }

    #[test]
    fn values_are_inserted_as_text_or_as_json() {
        let spec = json!({
            "virtualMachine": {"metadata": {"name": "${NAME}", "namespace": "x"}, "spec": {
                "running": "${{ON}}", "text": "a-${NAME}-${N}", "cores": "${{N}}", "odd": "${x y}"}},
            "parameters": [{"name": "NAME", "generate": "expression", "from": "vm-[a-c0]{4}"},
                {"name": "N", "value": "2"}, {"name": "ON", "value": "true"}],
            "message": "log in to ${NAME}",
        });
        let own = made(spec.clone(), &[("NAME", "web")]).unwrap();
        assert_eq!(own.machine["metadata"], json!({"name": "web"}));
        assert_eq!(
            own.machine["spec"],
            json!({"running": true, "text": "a-web-2", "cores": 2, "odd": "${x y}"})
        );
        assert_eq!(own.machine["kind"], "VirtualMachine");
        assert_eq!(own.message, "log in to web");
        let generated = made(spec, &[]).unwrap();
        assert_eq!(generated.machine["metadata"]["name"], "vm-bc0a");
    }

    #[test]
    fn errors_of_a_template_name_the_field() {
        let machine = json!({"metadata": {"name": "${A}"}});
        for (spec, given, expected) in [
            (json!({"parameters": [{"name": "A"}]}), vec![], "virtualMachine is required"),
            (json!({"virtualMachine": machine}), vec![], "references undefined parameter A"),
            (json!({"virtualMachine": machine}), vec![("B", "x")], "parameter B not found"),
            (
                json!({"virtualMachine": machine, "parameters": [{"name": "A", "required": true}]}),
                vec![],
                "spec.parameters[0].value: Required value: parameter 'A' is required",
            ),
            (
                json!({"virtualMachine": machine, "parameters": [{"name": "A"}, {"name": "A"}]}),
                vec![],
                "spec.parameters[1].name: Duplicate value: \"A\"",
            ),
            (
                json!({"virtualMachine": machine, "parameters": [
                    {"name": "A", "generate": "expression", "from": "[a-z]{999}"}]}),
                vec![],
                "length must be within [1-255] characters",
            ),
        ] {
            let error = made(spec, &given).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
