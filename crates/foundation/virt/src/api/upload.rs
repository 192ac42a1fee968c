//! `upload.cdi.kubevirt.io`: tokens that allow an upload.

use crate::api::atom::ObjectMeta;
use crate::api::record::record;

record! {
    /// Asks for a token that allows an upload into a claim.
    UploadTokenRequest {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: UploadTokenRequestSpec,
        status: UploadTokenRequestStatus,
    }

    UploadTokenRequestSpec {
        pvc_name: String,
    }

    UploadTokenRequestStatus {
        token: Option<String>,
    }
}
