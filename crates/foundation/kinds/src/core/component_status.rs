//! ComponentStatuses: the health of the control plane's parts. Nothing is stored; the server makes them up.

use serde_json::Value;

use crate::resource::{Column, Printer, Resource};
use crate::{json, print};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["cs"],
    verbs: &["get", "list"],
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("Status", "Whether the component is healthy"),
            Column::text("Message", "What it says of itself"),
            Column::text("Error", "Why its health is not known"),
        ],
        cells: |object, _| {
            let conditions = json::list(object, "/conditions").iter();
            let mut healthy =
                conditions.filter(|condition| json::text(condition, "/type") == "Healthy");
            let condition = healthy.next().unwrap_or(&Value::Null);
            let status = match json::text(condition, "/status") {
                "True" => "Healthy",
                "False" => "Unhealthy",
                _ => "Unknown",
            };
            vec![
                print::name(object),
                status.into(),
                json::text(condition, "/message").into(),
                json::text(condition, "/error").into(),
            ]
        },
    },
    ..Resource::cluster("", "v1", "componentstatuses", "componentstatus", "ComponentStatus")
};
