//! Data volumes and data sources.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::record::fields;

fields! {
    pub(crate) struct DataVolumeFields<'a> {
        spec: DataVolumeSpec<'a>,
        status: DataVolumeStatus<'a>,
    }

    pub(crate) struct DataVolumeSpec<'a> {
        content_type: &'a str,
        source: Option<SourceFields<'a>>,
        source_ref: SourceReference<'a>,
    }

    pub(crate) struct SourceReference<'a> {
        name: &'a str,
        namespace: &'a str,
    }

    /// The sources that are supported; one of them is given.
    pub(crate) struct SourceFields<'a> {
        http: Option<HttpSource<'a>>,
        registry: Option<RegistrySource<'a>>,
        pvc: Option<CopiedSource<'a>>,
        snapshot: Option<CopiedSource<'a>>,
        upload: Option<IgnoredAny>,
        blank: Option<IgnoredAny>,
    }

    /// A data volume by the spec of its claim, which is copied.
    pub(crate) struct ClaimTemplate {
        spec: ClaimTemplateSpec,
    }

    pub(crate) struct ClaimTemplateSpec {
        pvc: Option<Map<String, Value>>,
        storage: Map<String, Value>,
    }

    /// A data volume or data source, by the names of its sources.
    pub(crate) struct NamedSources<'a> {
        spec: NamedSourcesSpec<'a>,
    }

    pub(crate) struct NamedSourcesSpec<'a> {
        source: BTreeMap<&'a str, IgnoredAny>,
    }

    pub(crate) struct HttpSource<'a> {
        url: &'a str,
        secret_ref: &'a str,
        cert_config_map: &'a str,
        checksum: &'a str,
        extra_headers: Vec<&'a str>,
        secret_extra_headers: Vec<&'a str>,
    }

    pub(crate) struct RegistrySource<'a> {
        url: &'a str,
        secret_ref: &'a str,
        cert_config_map: &'a str,
    }

    pub(crate) struct CopiedSource<'a> {
        namespace: &'a str,
        name: &'a str,
    }

    pub(crate) struct DataVolumeStatus<'a> {
        phase: &'a str,
    }
}
