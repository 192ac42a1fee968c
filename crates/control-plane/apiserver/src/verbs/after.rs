//! Updates that are complete before a write is answered: a new definition is in the catalog, a new
//! role in the policy, and a released address is free.

use serde_json::Value;

use crate::access::rights;
use crate::admission::hooks;
use crate::aggregation;
use crate::fairness;
use crate::schemas::refresh;
use crate::setup::service_ip;
use crate::verbs::call::Call;

/// Called after every request that may have written.
pub(crate) async fn written(call: &Call<'_>) {
    match &*call.served.group {
        "apiextensions.k8s.io" => refresh::catalog(call.api),
        "rbac.authorization.k8s.io" => rights::changed(call.api),
        "flowcontrol.apiserver.k8s.io" if call.api.is_ready() => fairness::refresh(call.api),
        "admissionregistration.k8s.io" => hooks::changed(call.api),
        "apiregistration.k8s.io" => aggregation::changed(call.api),
        _ => {}
    }
}

/// Called after an object is gone.
pub(crate) async fn removed(call: &Call<'_>, object: &Value) {
    if &*call.served.table == service_ip::SERVICES {
        service_ip::release(call.api, object).await;
    }
}
