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
        /// Claim that is uploaded to.
        pvc_name: String,
    }

    UploadTokenRequestStatus {
        /// Token for the upload, valid for five minutes.
        token: Option<String>,
    }
}
