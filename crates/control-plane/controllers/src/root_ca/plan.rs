//! The wanted ConfigMap with the root CA: pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;

pub(crate) const NAME: &str = "kube-root-ca.crt";
const KEY: &str = "ca.crt";
const ANNOTATION: &str = "kubernetes.io/description";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver \
    when using internal endpoints such as the internal service IP or kubernetes.default.svc. \
    No other usage is guaranteed across distributions of Kubernetes clusters.";

#[derive(Debug, PartialEq)]
pub(crate) enum RootCaStep {
    Nothing,
    Create(ConfigMap),
    Replace(ConfigMap),
}

pub(crate) fn step(found: Option<ConfigMap>, root_ca: &str) -> RootCaStep {
    let data = BTreeMap::from([(KEY.to_owned(), root_ca.to_owned())]);
    let Some(mut map) = found else {
        return RootCaStep::Create(ConfigMap {
            metadata: ObjectMeta {
                name: Some(NAME.into()),
                annotations: Some([(ANNOTATION.to_owned(), DESCRIPTION.to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        });
    };
    let described = map.metadata.annotations.as_ref().and_then(|own| own.get(ANNOTATION));
    if map.data.as_ref() == Some(&data) && described.is_some_and(|text| !text.is_empty()) {
        return RootCaStep::Nothing;
    }
    map.data = Some(data);
    let annotations = map.metadata.annotations.get_or_insert_default();
    annotations.insert(ANNOTATION.into(), DESCRIPTION.into());
    RootCaStep::Replace(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn created(ca: &str) -> ConfigMap {
        match step(None, ca) {
            RootCaStep::Create(map) => map,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_correct_object_stays() {
        assert_eq!(step(Some(created("ca")), "ca"), RootCaStep::Nothing);
    }

    #[test]
    fn a_user_may_describe_it_otherwise() {
        let mut map = created("ca");
        map.metadata.annotations.as_mut().unwrap().insert(ANNOTATION.into(), "mine".into());
        assert_eq!(step(Some(map), "ca"), RootCaStep::Nothing);
    }

    #[test]
    fn a_changed_object_is_restored() {
        let changes: [fn(&mut ConfigMap); 4] = [
            |map| map.data = None,
            |map| map.metadata.annotations = None,
            |map| {
                map.data.as_mut().unwrap().insert("more".into(), "x".into());
            },
            |map| {
                map.data.as_mut().unwrap().insert(KEY.into(), "other".into());
            },
        ];
        for change in changes {
            let mut map = created("ca");
            change(&mut map);
            assert_eq!(step(Some(map), "ca"), RootCaStep::Replace(created("ca")));
        }
    }
}
