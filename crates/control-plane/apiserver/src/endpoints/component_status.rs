//! `componentstatuses`: the parts of this control plane and whether they are healthy, for old clients. Nothing
//! is stored; `/readyz?verbose` says more.

use http::StatusCode;
use serde_json::{Value, json};

use crate::http::negotiate::ResponseForm;
use crate::http::respond::{self, HttpReply};
use crate::http::verb::Verb;
use crate::http::verb_result::{VerbResult, list_meta};
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::object;
use crate::verbs::table;

pub(crate) const TABLE: &str = "componentstatuses";

pub(crate) fn answer(call: &Call<'_>, verb: Verb) -> ApiResult<HttpReply> {
    // Controllers and scheduler are part of this process, unless the user brings other ones.
    let mut components = vec![component("etcd-0", call.api.store.health())];
    if !call.api.settings.runs_pods {
        components.push(component("controller-manager", Ok(())));
        components.push(component("scheduler", Ok(())));
    }
    if verb == Verb::Get {
        let mut found = components.into_iter().filter(|it| object::name(it) == call.path.name);
        let Some(component) = found.next() else {
            return Err(ApiError::not_found(call.served.subject(call.path.name)));
        };
        return Ok(VerbResult::Made(StatusCode::OK, component).render(call));
    }
    if let ResponseForm::Table(version) = call.wanted.form {
        let include = table::include(call.query);
        let meta = list_meta(0, None, None);
        let bytes = table::of_list(&call.served, include, components.into_iter(), meta, version);
        return Ok(respond::object(StatusCode::OK, call.wanted.encoding, bytes.into()));
    }
    for component in components.iter_mut().filter_map(Value::as_object_mut) {
        component.remove("apiVersion");
        component.remove("kind");
    }
    let list = json!({
        "kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": components,
    });
    Ok(VerbResult::Status(StatusCode::OK, list).render(call))
}

fn component(name: &str, health: Result<(), store::Unhealthy>) -> Value {
    let condition = match health {
        Ok(()) => json!({"type": "Healthy", "status": "True", "message": "ok"}),
        Err(error) => {
            let error = base::Chain(&error).to_string();
            json!({"type": "Healthy", "status": "False", "error": error})
        }
    };
    json!({
        "kind": "ComponentStatus", "apiVersion": "v1",
        "metadata": {"name": name}, "conditions": [condition],
    })
}
