//! Defaults of a pod spec.

use serde_json::{Value, json};

use crate::core::claim;
use crate::json;

/// Fills a template; its spec is there even when empty.
pub(crate) fn default_template(template: &mut Value) {
    if let Some(spec) = json::object(template, "spec") {
        default_spec(spec);
    }
}

/// Fills the spec of a pod.
pub(crate) fn default_spec(spec: &mut Value) {
    let (old_name, name) =
        (json::text(spec, "/serviceAccount").to_owned(), json::text(spec, "/serviceAccountName"));
    let account = if name.is_empty() { old_name } else { name.to_owned() };
    if !account.is_empty() {
        json::set(spec, "serviceAccountName", account.as_str());
        json::set(spec, "serviceAccount", account);
    }
    json::fill_zero(spec, "dnsPolicy", "ClusterFirst");
    json::fill_zero(spec, "restartPolicy", "Always");
    json::fill(spec, "securityContext", json!({}));
    json::fill(spec, "terminationGracePeriodSeconds", 30);
    json::fill_zero(spec, "schedulerName", "default-scheduler");
    let host_network = json::flag(spec, "/hostNetwork");
    for key in ["containers", "initContainers", "ephemeralContainers"] {
        for container in json::items_mut(spec, key) {
            default_container(container, host_network);
        }
    }
    for volume in json::items_mut(spec, "volumes") {
        default_volume(volume);
    }
}

fn default_container(container: &mut Value, host_network: bool) {
    let image = json::text(container, "/image");
    let policy = if is_latest(image) { "Always" } else { "IfNotPresent" };
    json::fill_zero(container, "imagePullPolicy", policy);
    json::fill_zero(container, "terminationMessagePath", "/dev/termination-log");
    json::fill_zero(container, "terminationMessagePolicy", "File");
    json::fill(container, "resources", json!({}));
    for port in json::items_mut(container, "ports") {
        json::fill_zero(port, "protocol", "TCP");
        if host_network {
            let number = json::int(port, "/containerPort");
            json::fill_zero(port, "hostPort", number);
        }
    }
    for variable in json::items_mut(container, "env") {
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
            json::fill_zero(field, "apiVersion", "v1");
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(key).filter(|probe| probe.is_object()) {
            default_probe(probe);
        }
    }
    for pointer in ["/lifecycle/postStart/httpGet", "/lifecycle/preStop/httpGet"] {
        if let Some(action) = container.pointer_mut(pointer) {
            default_http(action);
        }
    }
}

/// Whether an image is named without a version, or with the one that moves.
fn is_latest(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or_default();
    if name.contains('@') {
        return name.split('@').next().unwrap_or_default().ends_with(":latest");
    }
    name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn default_probe(probe: &mut Value) {
    json::fill_zero(probe, "timeoutSeconds", 1);
    json::fill_zero(probe, "periodSeconds", 10);
    json::fill_zero(probe, "successThreshold", 1);
    json::fill_zero(probe, "failureThreshold", 3);
    if let Some(action) = probe.get_mut("httpGet") {
        default_http(action);
    }
    if let Some(action) = probe.get_mut("grpc") {
        json::fill(action, "service", "");
    }
}

fn default_http(action: &mut Value) {
    json::fill_zero(action, "path", "/");
    json::fill_zero(action, "scheme", "HTTP");
}

/// Permissions of files made from data: owner writes, all read.
const FILE_MODE: i64 = 0o644;

fn default_volume(volume: &mut Value) {
    let fields = volume.as_object().map_or(0, serde_json::Map::len);
    if fields <= 1 && (fields == 0 || volume.get("name").is_some()) {
        json::set(volume, "emptyDir", json!({}));
    }
    for key in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(key).filter(|source| source.is_object()) {
            json::fill(source, "defaultMode", FILE_MODE);
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        json::fill(path, "type", "");
    }
    if let Some(source) = volume.get_mut("downwardAPI") {
        default_items(source);
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in json::items_mut(projected, "sources") {
            if let Some(token) = source.get_mut("serviceAccountToken") {
                json::fill(token, "expirationSeconds", 3600);
            }
            if let Some(source) = source.get_mut("downwardAPI") {
                default_items(source);
            }
        }
    }
    if let Some(spec) = volume.pointer_mut("/ephemeral/volumeClaimTemplate/spec") {
        claim::default_spec(spec);
    }
}

fn default_items(source: &mut Value) {
    for item in json::items_mut(source, "items") {
        if let Some(field) = item.get_mut("fieldRef") {
            json::fill_zero(field, "apiVersion", "v1");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_moving_tag_is_pulled_always() {
        for (image, latest) in [
            ("nginx", true),
            ("nginx:latest", true),
            ("nginx:1.2", false),
            ("registry:5000/nginx", true),
            ("registry:5000/nginx:1", false),
            ("nginx@sha256:abc", false),
        ] {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }

    #[test]
    fn an_empty_spec_is_filled_like_upstream() {
        let mut spec = json!({
            "containers": [{
                "name": "a", "image": "b:1", "ports": [{"containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": 80}},
            }],
            "volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "x"}}],
            "serviceAccount": "old",
        });
        default_spec(&mut spec);
        expect_test::expect![[r#"{"containers":[{"image":"b:1","imagePullPolicy":"IfNotPresent","livenessProbe":{"failureThreshold":3,"httpGet":{"path":"/","port":80,"scheme":"HTTP"},"periodSeconds":10,"successThreshold":1,"timeoutSeconds":1},"name":"a","ports":[{"containerPort":80,"protocol":"TCP"}],"resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}],"dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"serviceAccount":"old","serviceAccountName":"old","terminationGracePeriodSeconds":30,"volumes":[{"emptyDir":{},"name":"v"},{"name":"s","secret":{"defaultMode":420,"secretName":"x"}}]}"#]].assert_eq(&spec.to_string());
    }
}
