//! The link `why` of machines: the cause that keeps one from running, and the command that helps.
//! The same diagnosis as that of `sheaf vm why`, from the objects that the caller may read.

use client::CatalogKind;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use virt::diagnosis::{DiagnosisInput, diagnose, read, read_all};

use crate::error::SteveError;
use crate::objects::ResourceCall;
use crate::reply::{self, SteveResult};
use crate::request::RequestHead;

const HARVESTER: &str = "/apis/harvesterhci.io/v1beta1";
const VOLUMES: &str = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/volumes";

/// Whether resources of this kind have the link.
pub(crate) fn explains(kind: &CatalogKind) -> bool {
    kind.is("kubevirt.io", "virtualmachines")
}

pub(crate) async fn answer(
    call: &ResourceCall<'_>,
    asked: &RequestHead,
    namespace: &str,
    name: &str,
) -> SteveResult {
    if !matches!(asked.parts.method, Method::GET | Method::HEAD) {
        return Err(SteveError::method_not_allowed(&asked.parts.method));
    }
    let machines = format!("/apis/kubevirt.io/v1/namespaces/{namespace}");
    let core = format!("/api/v1/namespaces/{namespace}");
    let data_volumes = format!("/apis/cdi.kubevirt.io/v1beta1/namespaces/{namespace}/datavolumes");
    let session = &call.session;
    // The caller has to be able to read the machine; without a right to the rest, less is reported.
    let machine = session.get(&format!("{machines}/virtualmachines/{name}")).await?;
    let instance = session.find(&format!("{machines}/virtualmachineinstances/{name}")).await;
    let instance = instance.ok().flatten();
    let policies = policies(call, namespace, instance.as_ref()).await;
    let facts = DiagnosisInput {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        machine: read(machine),
        instance: instance.and_then(read),
        claims: read_all(items(call, &format!("{core}/persistentvolumeclaims")).await),
        data_volumes: read_all(items(call, &data_volumes).await),
        events: read_all(items(call, &format!("{core}/events")).await),
        migrations: read_all(
            items(call, &format!("{machines}/virtualmachineinstancemigrations")).await,
        ),
        images: read_all(images(call, namespace).await),
        storage_volumes: read_all(items(call, VOLUMES).await),
        nodes: read_all(items(call, "/api/v1/nodes").await),
        policies,
    };
    let found = diagnose(&facts, base::clock::now());
    let mut shown = json!(found);
    shown["healthy"] = found.is_healthy().into();
    Ok(reply::json(StatusCode::OK, &shown))
}

/// The network policies that select the machine.
async fn policies(
    call: &ResourceCall<'_>,
    namespace: &str,
    instance: Option<&Value>,
) -> Vec<String> {
    let Some(instance) = instance else { return Vec::new() };
    let of = |api: &str| format!("/apis/{api}/namespaces/{namespace}");
    let plain = items(call, &(of("networking.k8s.io/v1") + "/networkpolicies")).await;
    let multi = items(call, &(of("k8s.cni.cncf.io/v1beta1") + "/multi-networkpolicies")).await;
    hci::multi_network_policy::selecting(&plain, &multi, instance)
}

/// Images of all namespaces, or of this one for a caller who may not read the others.
async fn images(call: &ResourceCall<'_>, namespace: &str) -> Vec<Value> {
    let all = items(call, &format!("{HARVESTER}/virtualmachineimages")).await;
    if !all.is_empty() {
        return all;
    }
    items(call, &format!("{HARVESTER}/namespaces/{namespace}/virtualmachineimages")).await
}

/// The objects of a list; none for a caller who may not read them.
async fn items(call: &ResourceCall<'_>, path: &str) -> Vec<Value> {
    let Ok(mut list) = call.session.get(path).await else { return Vec::new() };
    match list["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}
