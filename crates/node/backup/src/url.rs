//! URLs of targets and of backups on them. Pure.

use url::Url;

/// Where backups are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetUrl {
    /// `s3://BUCKET@REGION/PATH/`
    S3 { bucket: String, region: String, path: String },
    /// `nfs://HOST:/SHARE/?nfsOptions=OPTIONS`
    Nfs { host: String, share: String, options: Option<String> },
    /// `vfs:///PATH`, a directory of the node: for tests.
    Directory { path: String },
}

/// Why a URL is not one of a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("{url:?} is not a URL")]
    Syntax { url: String },
    #[error("backup target {scheme}:// is not supported: it must be s3:// or nfs://")]
    Scheme { scheme: String },
    #[error("URL of the backup target must follow the format s3://<bucket>@<region>/<path>")]
    Bucket,
    #[error("NFS path must follow format: nfs://<server-address>:/<share-name>/")]
    NfsHost,
    #[error("cannot find nfs path")]
    NfsPath,
    #[error("URL of a backup must have the parameters backup and volume")]
    Backup,
}

impl TargetUrl {
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        // Not a URL by the standard, which wants a port after the colon.
        if let Some(rest) = text.strip_prefix("nfs://") {
            return nfs(rest);
        }
        let url = Url::parse(text).map_err(|_| UrlError::Syntax { url: text.to_owned() })?;
        match url.scheme() {
            "s3" => s3(&url),
            "vfs" => Ok(Self::Directory { path: url.path().to_owned() }),
            scheme => Err(UrlError::Scheme { scheme: scheme.to_owned() }),
        }
    }
}

fn s3(url: &Url) -> Result<TargetUrl, UrlError> {
    // `bucket@region` reads as the user `bucket` of the host `region`.
    let host = url.host_str().unwrap_or_default();
    let (bucket, region) = match url.username() {
        "" => (host, ""),
        bucket => (bucket, host),
    };
    if bucket.is_empty() {
        return Err(UrlError::Bucket);
    }
    let path = url.path().trim_matches('/').to_owned();
    Ok(TargetUrl::S3 { bucket: bucket.to_owned(), region: region.to_owned(), path })
}

fn nfs(rest: &str) -> Result<TargetUrl, UrlError> {
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (host, share) = place.split_once('/').unwrap_or((place, ""));
    let host = host.strip_suffix(':').unwrap_or(host);
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if host.is_empty() || host.starts_with('-') || !host.bytes().all(is_host) {
        return Err(UrlError::NfsHost);
    }
    let share = share.trim_matches('/');
    if share.is_empty() || share.split('/').any(|part| part == "..") {
        return Err(UrlError::NfsPath);
    }
    let options = url::form_urlencoded::parse(query.as_bytes())
        .find(|(key, _)| key == "nfsOptions")
        .map(|(_, value)| value.into_owned());
    Ok(TargetUrl::Nfs { host: host.to_owned(), share: format!("/{share}"), options })
}

/// A backup on a target: `TARGET?backup=NAME&volume=NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupUrl {
    /// The URL of the target.
    pub target: String,
    pub volume: String,
    pub backup: String,
}

impl BackupUrl {
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let (place, query) = text.split_once('?').ok_or(UrlError::Backup)?;
        let (mut volume, mut backup) = (String::new(), String::new());
        let mut others = url::form_urlencoded::Serializer::new(String::new());
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "volume" => volume = value.into_owned(),
                "backup" => backup = value.into_owned(),
                _ => drop(others.append_pair(&key, &value)),
            }
        }
        if volume.is_empty() || backup.is_empty() {
            return Err(UrlError::Backup);
        }
        let others = others.finish();
        let mark = if others.is_empty() { "" } else { "?" };
        Ok(Self { target: format!("{place}{mark}{others}"), volume, backup })
    }
}

impl std::fmt::Display for BackupUrl {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (place, query) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let mut pairs: Vec<(String, String)> =
            url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        pairs.push(("backup".into(), self.backup.clone()));
        pairs.push(("volume".into(), self.volume.clone()));
        pairs.sort();
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(pairs);
        write!(out, "{place}?{}", query.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_buckets_shares_and_directories() {
        let s3 = |bucket: &str, region: &str, path: &str| {
            Ok(TargetUrl::S3 { bucket: bucket.into(), region: region.into(), path: path.into() })
        };
        assert_eq!(TargetUrl::parse("s3://b@us-east-1/"), s3("b", "us-east-1", ""));
        assert_eq!(TargetUrl::parse("s3://b@eu/some/path/"), s3("b", "eu", "some/path"));
        assert_eq!(TargetUrl::parse("s3://b/x"), s3("b", "", "x"));
        let nfs = |options: Option<&str>| {
            let options = options.map(str::to_owned);
            Ok(TargetUrl::Nfs { host: "10.0.0.1".into(), share: "/a/b".into(), options })
        };
        assert_eq!(TargetUrl::parse("nfs://10.0.0.1:/a/b/"), nfs(None));
        let optioned = "nfs://10.0.0.1:/a/b?nfsOptions=soft,timeo=330";
        assert_eq!(TargetUrl::parse(optioned), nfs(Some("soft,timeo=330")));
        for (text, expected) in [
            ("nfs://:/x", UrlError::NfsHost),
            ("nfs://-o:/x", UrlError::NfsHost),
            ("nfs://h:/", UrlError::NfsPath),
            ("nfs://h:/a/../b", UrlError::NfsPath),
            ("s3:///x", UrlError::Bucket),
            ("ftp://h/x", UrlError::Scheme { scheme: "ftp".into() }),
            ("nonsense", UrlError::Syntax { url: "nonsense".into() }),
        ] {
            assert_eq!(TargetUrl::parse(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn a_backup_has_a_url_with_sorted_parameters() {
        let target = "nfs://h:/x?nfsOptions=soft".to_owned();
        let own = BackupUrl { target, volume: "pvc-1".into(), backup: "backup-2".into() };
        let text = "nfs://h:/x?backup=backup-2&nfsOptions=soft&volume=pvc-1";
        assert_eq!(own.to_string(), text);
        assert_eq!(BackupUrl::parse(text), Ok(own));
        assert_eq!(BackupUrl::parse("s3://b@r/?backup=x"), Err(UrlError::Backup));
    }
}
