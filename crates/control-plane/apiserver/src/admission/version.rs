//! The object of a write in the versions that rules ask for.

use std::sync::Arc;

use serde_json::Value;
use types::Filling;

use super::attributes::Attributes;
use crate::schemas::conversion;
use crate::schemas::served::ServedKind;
use crate::status::{ApiError, ApiResult};

/// An object, its old state, and both in other versions as far as they were needed.
pub(super) struct Versions<'a> {
    served: &'a Arc<ServedKind>,
    api: &'a crate::api::Api,
    object: Option<&'a Value>,
    old: Option<&'a Value>,
    /// Below some subresources the object is not the resource's own.
    is_own: bool,
    converted: Vec<(Arc<ServedKind>, Option<Value>, Option<Value>)>,
}

impl<'a> Versions<'a> {
    pub(super) fn new(
        attributes: &Attributes<'a, 'a>,
        object: Option<&'a Value>,
        old: Option<&'a Value>,
    ) -> Self {
        let served = &attributes.call.served;
        Self {
            served,
            api: attributes.call.api,
            object,
            old,
            is_own: *attributes.kind.kind == *served.kind,
            converted: Vec::new(),
        }
    }

    /// As it was sent.
    pub(super) fn own(&self) -> (Option<&'a Value>, Option<&'a Value>) {
        (self.object, self.old)
    }

    /// Makes a version available for [`get`](Self::get).
    pub(super) async fn prepare(&mut self, seen: Option<&Arc<ServedKind>>) -> ApiResult<()> {
        let Some(seen) = seen else { return Ok(()) };
        if self.converted.iter().any(|(known, ..)| Arc::ptr_eq(known, seen)) {
            return Ok(());
        }
        let mut both = [self.object, self.old].map(|value| value.cloned());
        for value in both.iter_mut().flatten() {
            conversion::convert(self.api, self.served, seen, value).await?;
        }
        let [object, old] = both;
        self.converted.push((seen.clone(), object, old));
        Ok(())
    }

    pub(super) fn get(&self, seen: Option<&Arc<ServedKind>>) -> (Option<&Value>, Option<&Value>) {
        let Some(seen) = seen else { return (self.object, self.old) };
        let found = self.converted.iter().find(|(known, ..)| Arc::ptr_eq(known, seen));
        found.map_or((None, None), |(_, object, old)| (object.as_ref(), old.as_ref()))
    }

    /// Brings a changed object into shape, and back into the version of the request.
    pub(super) async fn take_back(
        &self,
        seen: Option<&Arc<ServedKind>>,
        mut changed: Value,
    ) -> ApiResult<Value> {
        if !self.is_own {
            return Ok(changed);
        }
        let served = seen.unwrap_or(self.served);
        let (version, kind) = (&changed["apiVersion"], &changed["kind"]);
        if *version != served.api_version() || *kind != *served.kind {
            return Err(ApiError::internal(format!(
                "the changed object is a {kind} of {version}, expected {:?} of {:?}",
                served.kind,
                served.api_version()
            )));
        }
        served.clean(&mut changed, Filling::Whole).map_err(|error| {
            ApiError::internal(error.to_value()["message"].as_str().unwrap_or(""))
        })?;
        served.default(&mut changed);
        if let Some(seen) = seen {
            conversion::convert(self.api, seen, self.served, &mut changed).await?;
        }
        Ok(changed)
    }
}
