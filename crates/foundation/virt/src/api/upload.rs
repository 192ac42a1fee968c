//! `upload.cdi.kubevirt.io`: tokens that allow an upload.

use crate::api::atom::ObjectMeta;
use crate::api::record::record;

record! {
    /// Request for a token that authorizes an upload to a PersistentVolumeClaim.
    UploadTokenRequest {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: UploadTokenRequestSpec,
        status: UploadTokenRequestStatus,
    }

    UploadTokenRequestSpec {
        /// Name of the PersistentVolumeClaim that data is uploaded to.
        pvc_name: String,
    }

    UploadTokenRequestStatus {
        /// Token that authorizes the upload, valid for five minutes.
        token: Option<String>,
    }
}
