//! Answers without what differs from run to run: ids, times, versions, ports, random names.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use super::corpus::Exchange;
use crate::harness::Reply;

/// In texts of any kind, in this order.
static TEXTS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let rules = [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "<time>"),
        (r"(ResourceVersion in object meta: )\d+", "${1}<rv>"),
        (r"(resource version: \d+ )\(\d+\)", "${1}(<rv>)"),
        (r"(Too large resource version: )\d+, current: \d+", "${1}<rv>, current: <rv>"),
        (r"(ResourceVersion in record )\(\d+\)", "${1}(<rv>)"),
        (r"127\.0\.0\.1:\d{4,5}", "127.0.0.1:<port>"),
        (r#"(resourceVersion: )"\d+""#, "${1}<rv>"),
        // Inside of values that messages quote, and quote again.
        (r#"(resourceVersion\\*":\\*")\d+"#, "${1}<rv>"),
        (r"X509SHA256=[0-9a-f]{64}", "X509SHA256=<hash>"),
    ];
    let compile = |(pattern, with)| (Regex::new(pattern).unwrap(), with);
    rules.into_iter().map(compile).collect()
});
static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^(\d+[smhd])+$").unwrap());

pub(super) struct Normal {
    port: String,
}

impl Normal {
    pub(super) fn new(port: u16) -> Self {
        Self { port: format!(":{port}") }
    }

    /// Status, warnings and body as they are kept.
    pub(super) fn answer(&mut self, reply: &Reply, exchange: &Exchange) -> String {
        let mut text = format!("{}\n", reply.status);
        for header in ["content-type", "retry-after", "allow"] {
            let value = reply.header(header);
            if !value.is_empty() && value != "application/json" {
                text += &format!("{header}: {value}\n");
            }
        }
        for warning in reply.warnings() {
            text += &format!("warning: {}\n", self.text(warning));
        }
        if reply.header("content-type").contains("protobuf") {
            return text + "<binary>\n";
        }
        let body = reply.text();
        // A watch has one document a line.
        let documents: Result<Vec<Value>, _> =
            serde_json::Deserializer::from_str(&body).into_iter::<Value>().collect();
        match documents {
            Ok(documents) => {
                for mut document in documents {
                    let mut key = "";
                    if let Some(pointer) = &exchange.show {
                        document = document.pointer(pointer).cloned().unwrap_or_default();
                        key = pointer.rsplit('/').next().unwrap_or_default();
                    }
                    self.value(key, &mut document);
                    text += &serde_json::to_string_pretty(&document).unwrap();
                    text.push('\n');
                }
            }
            Err(_) => {
                text += self.text(&body).trim_end();
                text.push('\n');
            }
        }
        text
    }

    fn text(&self, text: &str) -> String {
        let mut text = text.replace(&self.port, ":<port>");
        for (pattern, with) in TEXTS.iter() {
            if pattern.is_match(&text) {
                text = pattern.replace_all(&text, *with).into_owned();
            }
        }
        text
    }

    /// `key` is the name of the field that has the value.
    fn value(&self, key: &str, value: &mut Value) {
        match value {
            Value::Object(map) => {
                if let (Some(prefix), Some(name)) = (
                    map.get("generateName").and_then(Value::as_str).map(str::to_owned),
                    map.get("name").and_then(Value::as_str),
                ) && name.starts_with(&prefix)
                {
                    map.insert("name".to_owned(), format!("{prefix}<random>").into());
                }
                for (key, value) in map.iter_mut() {
                    self.value(key, value);
                }
                // Prose, which everybody writes for themselves.
                if let Some(Value::Array(columns)) = map.get_mut("columnDefinitions") {
                    columns.iter_mut().for_each(|column| column["description"] = "…".into());
                }
                in_order(map);
                // The longest part by far, and read as a whole.
                if let Some(fields) = map.get_mut("fieldsV1") {
                    *fields = fields.to_string().into();
                }
            }
            Value::Array(items) => {
                items.iter_mut().for_each(|item| self.value(key, item));
                // Sorted by time first, which passes a second now and then.
                if key == "managedFields" {
                    items.sort_by_key(|item| {
                        ["operation", "manager", "apiVersion", "subresource"]
                            .map(|field| item[field].as_str().unwrap_or_default().to_owned())
                    });
                }
            }
            Value::String(text) => *text = self.string(key, text),
            Value::Number(number)
                if matches!(key, "nodePort" | "healthCheckNodePort" | "targetPort")
                    && number.as_u64().is_some_and(|port| port >= 20_000) =>
            {
                *value = "<port>".into();
            }
            _ => {}
        }
    }

    fn string(&self, key: &str, text: &str) -> String {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match key {
            "resourceVersion" if digits => "<rv>".to_owned(),
            "continue" if !text.is_empty() => "<continue>".to_owned(),
            "uid" if !text.is_empty() => "<uid>".to_owned(),
            "token" if text.len() > 100 => "<token>".to_owned(),
            "clusterIP" | "clusterIPs" if text.starts_with("10.0.0.") => "<ip>".to_owned(),
            "cells" if AGE.is_match(text) => "<age>".to_owned(),
            _ => self.text(text),
        }
    }
}

/// Upstream finds causes in the order of a map, which is another one each time; the message
/// lists them once more.
fn in_order(status: &mut Map<String, Value>) {
    let Some(Value::Array(causes)) = status.get_mut("details").and_then(|it| it.get_mut("causes"))
    else {
        return;
    };
    let text = |cause: &Value| {
        let part = |key: &str| cause[key].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", part("field"), part("message"))
    };
    let listed = causes.iter().map(text).collect::<Vec<_>>().join(", ");
    causes.sort_by_cached_key(text);
    if let Some(Value::String(message)) = status.get_mut("message")
        && let Some(begin) = message.strip_suffix(&format!("[{listed}]"))
    {
        *message = format!("{begin}[<the causes>]");
    }
}
