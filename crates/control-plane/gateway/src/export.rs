//! Exported disks, and the manifests of exported machines, as KubeVirt's export proxy serves
//! them:
//!
//!   GET /api/export.kubevirt.io/v1/namespaces/{namespace}/virtualmachineexports/{name}/
//!         volumes/{claim}/disk.img        the disk as it is
//!         volumes/{claim}/disk.img.gz     the same, compressed
//!         {internal,external}/manifests/all      what makes the machine again elsewhere
//!         {internal,external}/manifests/secret   the token, as a header for imports
//!
//! The only credential is the token in the export's secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::ACCEPT;
use http::{Method, StatusCode, request};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use virt::api::export::{VirtualMachineExport, VirtualMachineExportLink};

use crate::answer::{self, GatewayError, GatewayResult};
use crate::upload::{bound_volume, node_of_volume, volume_name};
use crate::{Gateway, GatewayRequest, node, objects};

const PREFIX: &str = "/api/export.kubevirt.io/";
const TOKEN: &str = "x-kubevirt-export-token";

/// Whether a path belongs to the export proxy.
pub fn owns(path: &str) -> bool {
    path.starts_with(PREFIX)
}

/// A request for a file of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Route {
    namespace: String,
    name: String,
    what: ExportFile,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ExportFile {
    Disk { claim: String, compressed: bool },
    Manifests { external: bool },
    Secret,
}

fn route(path: &str) -> Option<Route> {
    let parts: Vec<&str> = path.strip_prefix(PREFIX)?.split('/').collect();
    let [
        "v1" | "v1beta1" | "v1alpha1",
        "namespaces",
        namespace,
        "virtualmachineexports",
        name,
        rest @ ..,
    ] = parts.as_slice()
    else {
        return None;
    };
    let disk = |claim: &str, compressed| ExportFile::Disk { claim: claim.to_owned(), compressed };
    let what = match rest {
        ["volumes", claim, "disk.img"] => disk(claim, false),
        ["volumes", claim, "disk.img.gz"] => disk(claim, true),
        [side @ ("internal" | "external"), "manifests", "all"] => {
            ExportFile::Manifests { external: *side == "external" }
        }
        ["internal" | "external", "manifests", "secret"] => ExportFile::Secret,
        _ => return None,
    };
    let plain = |word: &str| {
        word.starts_with(|first: char| first.is_ascii_alphanumeric())
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
    };
    let words = [Some(*namespace), Some(*name), rest.get(1).copied()];
    words.into_iter().flatten().all(plain).then(|| Route {
        namespace: (*namespace).to_owned(),
        name: (*name).to_owned(),
        what,
    })
}

pub(crate) async fn answer(gateway: &Gateway, asked: GatewayRequest) -> GatewayResult {
    let parts = &asked.parts;
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(GatewayError::method_not_allowed());
    }
    let path = percent_decode_str(parts.uri.path()).decode_utf8_lossy();
    let route = route(&path).ok_or_else(GatewayError::no_such_path)?;
    let Route { namespace, name, what } = &route;
    let object =
        format!("/apis/export.kubevirt.io/v1/namespaces/{namespace}/virtualmachineexports/{name}");
    // Without a valid token, the answer is the same whether the export exists or not.
    let stale = || GatewayError::unauthorized("the export token is missing or not valid");
    let export = objects::find(&gateway.client, &object).await?.ok_or_else(stale)?;
    let secret = export["status"]["tokenSecretRef"].as_str().unwrap_or_default();
    let secret = secret_token(gateway, namespace, secret).await?.ok_or_else(stale)?;
    if !given(parts).is_some_and(|token| is_same(&token, &secret)) {
        return Err(stale());
    }
    let export: VirtualMachineExport =
        serde_json::from_value(export).map_err(GatewayError::internal)?;
    let status = export.status.clone().unwrap_or_default();
    let links = status.links.unwrap_or_default();
    if status.phase.as_deref() != Some("Ready") {
        return Err(GatewayError::unavailable(format!(
            "the export {namespace}/{name} is not ready"
        )));
    }
    match what {
        ExportFile::Disk { claim, compressed } => {
            let link = links.external.unwrap_or_default();
            if !link.volumes.iter().any(|volume| volume.name == *claim) {
                return Err(GatewayError::no_such_path());
            }
            disk(gateway, &route, claim, *compressed, parts.method == Method::HEAD).await
        }
        ExportFile::Secret => documents(parts, vec![header_secret(&route, &secret)]),
        ExportFile::Manifests { external } => {
            let link = if *external { links.external } else { links.internal };
            let all = manifests(gateway, &route, &export, &link.unwrap_or_default()).await?;
            documents(parts, all)
        }
    }
}

async fn disk(
    gateway: &Gateway,
    route: &Route,
    claim: &str,
    compressed: bool,
    only_head: bool,
) -> GatewayResult {
    let namespace = &route.namespace;
    let found = objects::find(&gateway.client, &objects::claim_path(namespace, claim)).await?;
    let found = found.ok_or_else(|| GatewayError::not_found("persistentvolumeclaim", claim))?;
    let bound = bound_volume(gateway, &found).await?;
    let bound = bound.ok_or_else(|| {
        GatewayError::unavailable(format!("the claim {namespace}/{claim} is not bound to a volume"))
    })?;
    let node = node_of_volume(gateway, &bound).await?;
    let volume = volume_name(&bound);
    if only_head {
        return Ok(answer::empty(StatusCode::OK));
    }
    let (format, end) = if compressed { ("gzip", "img.gz") } else { ("raw", "img") };
    let path =
        format!("/v1/volumes/{volume}/data?format={format}&namespace={namespace}&claim={claim}");
    node::fetch(gateway.requester(), &node, &path, &format!("{claim}.{end}")).await
}

async fn secret_token(
    gateway: &Gateway,
    namespace: &str,
    name: &str,
) -> Result<Option<String>, GatewayError> {
    if name.is_empty() {
        return Ok(None);
    }
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
    let secret = objects::find(&gateway.client, &path).await?.unwrap_or_default();
    let token = secret["data"]["token"].as_str().and_then(|text| STANDARD.decode(text).ok());
    let token = token.and_then(|bytes| String::from_utf8(bytes).ok());
    Ok(token.filter(|token| !token.is_empty()))
}

/// The token in the header, or in the query.
fn given(parts: &request::Parts) -> Option<String> {
    if let Some(header) = parts.headers.get(TOKEN) {
        return header.to_str().ok().map(str::to_owned);
    }
    let mut pairs = parts.uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs.find(|(key, _)| *key == TOKEN)?.1;
    Some(percent_decode_str(value).decode_utf8_lossy().into_owned())
}

/// Hashes are compared, so the time reveals nothing about the token.
fn is_same(one: &str, other: &str) -> bool {
    Sha256::digest(one) == Sha256::digest(other)
}

fn header_secret(route: &Route, token: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": header_name(route)},
        "stringData": {"token": format!("{TOKEN}:{token}")},
    })
}

fn header_name(route: &Route) -> String {
    format!("header-secret-{}", route.name)
}

/// The machine of an export, its disks as imports from the export, and whom to trust there.
async fn manifests(
    gateway: &Gateway,
    route: &Route,
    export: &VirtualMachineExport,
    link: &VirtualMachineExportLink,
) -> Result<Vec<Value>, GatewayError> {
    let source = &export.spec.source;
    let namespace = &route.namespace;
    let machine = match source.kind.as_str() {
        "VirtualMachine" => {
            let path = format!(
                "/{}/namespaces/{namespace}/virtualmachines/{}",
                objects::MACHINES,
                source.name
            );
            objects::find(&gateway.client, &path).await?
        }
        "VirtualMachineSnapshot" => snapshot_machine(gateway, namespace, &source.name).await?,
        _ => None,
    };
    let machine = machine.ok_or_else(|| GatewayError::not_found("virtualmachine", &source.name))?;
    let mut claims = Vec::new();
    for volume in &link.volumes {
        let path = objects::claim_path(namespace, &volume.name);
        claims.extend(objects::find(&gateway.client, &path).await?);
    }
    Ok(describe(route, link, machine, &claims))
}

async fn snapshot_machine(
    gateway: &Gateway,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, GatewayError> {
    const GROUP: &str = "/apis/snapshot.kubevirt.io/v1beta1/namespaces";
    let path = format!("{GROUP}/{namespace}/virtualmachinesnapshots/{name}");
    let snapshot = objects::find(&gateway.client, &path).await?.unwrap_or_default();
    let content = snapshot["status"]["virtualMachineSnapshotContentName"].as_str();
    let Some(content) = content else { return Ok(None) };
    let path = format!("{GROUP}/{namespace}/virtualmachinesnapshotcontents/{content}");
    let content = objects::find(&gateway.client, &path).await?.unwrap_or_default();
    let machine = content["spec"]["source"]["virtualMachine"].clone();
    Ok(machine.is_object().then_some(machine))
}

fn describe(
    route: &Route,
    link: &VirtualMachineExportLink,
    mut machine: Value,
    claims: &[Value],
) -> Vec<Value> {
    let trust = format!("export-ca-cm-{}", route.name);
    let mut all = vec![json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": trust},
        "data": {"ca.pem": link.cert},
    })];
    let name = machine["metadata"]["name"].clone();
    machine["apiVersion"] = "kubevirt.io/v1".into();
    machine["kind"] = "VirtualMachine".into();
    machine["metadata"] = json!({
        "name": name,
        "labels": machine["metadata"]["labels"],
        "annotations": machine["metadata"]["annotations"],
    });
    if let Some(fields) = machine.as_object_mut() {
        fields.remove("status");
    }
    if let Some(spec) = machine["spec"].as_object_mut() {
        spec.remove("dataVolumeTemplates");
    }
    if let Some(volumes) = machine.pointer_mut("/spec/template/spec/volumes") {
        for volume in volumes.as_array_mut().into_iter().flatten() {
            let claim = volume["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned);
            if let Some(claim) = claim {
                *volume = json!({"name": volume["name"], "dataVolume": {"name": claim}});
            }
        }
    }
    all.push(machine);
    for claim in claims {
        let own = claim["metadata"]["name"].as_str().unwrap_or_default();
        let exported = link.volumes.iter().find(|volume| volume.name == own);
        let formats = exported.map_or(&[][..], |volume| &volume.formats);
        let Some(gzip) = formats.iter().find(|format| format.format == "gzip") else { continue };
        all.push(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": {"name": own},
            "spec": {
                "source": {"http": {
                    "url": gzip.url, "certConfigMap": trust,
                    "secretExtraHeaders": [header_name(route)],
                }},
                "storage": {
                    "accessModes": claim["spec"]["accessModes"],
                    "volumeMode": claim["spec"]["volumeMode"],
                    "resources": claim["spec"]["resources"],
                },
            },
        }));
    }
    all
}

/// Objects as a JSON list, or as YAML documents if the client does not ask for JSON.
fn documents(parts: &request::Parts, all: Vec<Value>) -> GatewayResult {
    let accept = parts.headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    if accept.is_some_and(|accept| accept.contains("application/json")) {
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": all});
        return Ok(answer::json(StatusCode::OK, &list));
    }
    let mut text = String::new();
    for object in &all {
        text.push_str(&serde_saphyr::to_string(object).map_err(GatewayError::internal)?);
        text.push_str("\n---\n");
    }
    Ok(answer::with_type(StatusCode::OK, "application/yaml", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_disks_and_manifests() {
        let base = "/api/export.kubevirt.io/v1/namespaces/n/virtualmachineexports/e";
        let at = |rest: &str| route(&format!("{base}/{rest}")).map(|route| route.what);
        let disk = |compressed| Some(ExportFile::Disk { claim: "c".into(), compressed });
        assert_eq!(at("volumes/c/disk.img"), disk(false));
        assert_eq!(at("volumes/c/disk.img.gz"), disk(true));
        assert_eq!(at("external/manifests/all"), Some(ExportFile::Manifests { external: true }));
        assert_eq!(at("internal/manifests/secret"), Some(ExportFile::Secret));
        for wrong in ["volumes/c", "volumes/../disk.img", "volumes/c?x/disk.img", "x", ""] {
            assert_eq!(at(wrong), None, "{wrong}");
        }
        assert!(owns(base) && !owns("/apis/export.kubevirt.io/v1"));
    }

    #[test]
    fn a_machine_is_described_with_its_disks_as_imports() {
        let route = route(
            "/api/export.kubevirt.io/v1/namespaces/n/virtualmachineexports/e/external/manifests/all",
        )
        .unwrap();
        let link: VirtualMachineExportLink = serde_json::from_value(json!({
            "cert": "PEM",
            "volumes": [{"name": "c", "formats": [{"format": "gzip", "url": "https://h/c.gz"}]}],
        }))
        .unwrap();
        let machine = json!({
            "metadata": {"name": "m", "uid": "u", "labels": {"a": "b"}},
            "spec": {"dataVolumeTemplates": [{}], "template": {"spec": {"volumes": [
                {"name": "root", "persistentVolumeClaim": {"claimName": "c"}},
            ]}}},
            "status": {"ready": true},
        });
        let claim = json!({"metadata": {"name": "c"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        let all = describe(&route, &link, machine, &[claim]);
        let kinds: Vec<&str> = all.iter().filter_map(|own| own["kind"].as_str()).collect();
        assert_eq!(kinds, ["ConfigMap", "VirtualMachine", "DataVolume"]);
        assert_eq!(all[1].get("status"), None);
        assert_eq!(all[1]["metadata"].get("uid"), None);
        let volume = &all[1]["spec"]["template"]["spec"]["volumes"][0];
        assert_eq!(volume, &json!({"name": "root", "dataVolume": {"name": "c"}}));
        let source = &all[2]["spec"]["source"]["http"];
        assert_eq!(source["url"], "https://h/c.gz");
        assert_eq!(source["secretExtraHeaders"], json!(["header-secret-e"]));
    }

    #[test]
    fn the_token_comes_in_a_header_or_in_the_query() {
        let request = |uri: &str, header: Option<&str>| {
            let mut request = http::Request::get(uri);
            if let Some(header) = header {
                request = request.header(TOKEN, header);
            }
            given(&request.body(()).unwrap().into_parts().0)
        };
        assert_eq!(request("/x", Some("t")).as_deref(), Some("t"));
        assert_eq!(request("/x?x-kubevirt-export-token=t%2B", None).as_deref(), Some("t+"));
        assert_eq!(request("/x?y=1", None), None);
        assert!(is_same("t", "t") && !is_same("t", "u"));
    }
}
