use http::Request;
use http::header::CONTENT_SECURITY_POLICY;

use super::*;

fn ask(method: Method, path: &str, encoding: &str) -> Response<Bytes> {
    let request = Request::builder().method(method).uri(path).header(ACCEPT_ENCODING, encoding);
    let (parts, ()) = request.body(()).unwrap().into_parts();
    Dashboard::default().answer(&parts)
}

fn get(path: &str) -> Response<Bytes> {
    ask(Method::GET, path, "")
}

#[test]
fn only_paths_of_the_dashboard_are_answered() {
    for (path, expected) in [
        ("/dashboard", true),
        ("/dashboard/", true),
        ("/dashboard/machines?q=a", true),
        ("/", false),
        ("/dashboards", false),
        ("/apis", false),
    ] {
        assert_eq!(owns(path), expected, "{path}");
    }
}

#[test]
fn unknown_paths_are_the_page_and_unknown_files_are_missing() {
    assert_eq!(get("/dashboard").status(), StatusCode::FOUND);
    assert_eq!(get("/dashboard").headers()[LOCATION], HOME);
    for (path, status) in [
        ("/dashboard/", 200),
        ("/dashboard/index.html", 200),
        ("/dashboard/machines/default/web", 200),
        ("/dashboard/a/none.js", 404),
        ("/dashboard/a/../../etc/passwd", 404),
    ] {
        assert_eq!(get(path).status(), status, "{path}");
    }
    assert_eq!(ask(Method::POST, "/dashboard/", "").status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[test]
fn each_page_has_a_nonce_of_its_own() {
    let (one, two) = (get("/dashboard/"), get("/dashboard/"));
    let policy = |reply: &Response<Bytes>| {
        reply.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned()
    };
    assert!(policy(&one).contains("script-src 'self';"), "{}", policy(&one));
    assert!(!policy(&one).contains("unsafe"), "{}", policy(&one));
    assert_ne!(policy(&one), policy(&two));
    assert_eq!(one.headers()[CACHE_CONTROL], "no-store");
    assert_eq!(one.headers()["x-frame-options"], "DENY");
}

#[test]
fn files_are_sent_packed_to_those_who_unpack_them() {
    for asset in assets::FILES.iter().filter(|asset| asset.name.starts_with(HASHED)) {
        let path = format!("{HOME}{}", asset.name);
        let (packed, plain) = (ask(Method::GET, &path, "gzip, br"), get(&path));
        assert_eq!(packed.headers()[CONTENT_ENCODING], "gzip", "{path}");
        assert!(plain.headers().get(CONTENT_ENCODING).is_none(), "{path}");
        assert!(plain.body().len() >= packed.body().len(), "{path}");
        assert!(plain.headers()[CACHE_CONTROL].to_str().unwrap().contains("immutable"), "{path}");
        assert_ne!(plain.headers()[CONTENT_TYPE], "application/octet-stream", "{path}");
    }
}

#[test]
fn a_folder_is_read_without_leaving_it() {
    let folder = std::env::temp_dir().join(format!("ui-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir_all(folder.join("pages/a")).unwrap();
    std::fs::write(folder.join("pages/a/x.js"), "1").unwrap();
    std::fs::write(folder.join("secret"), "2").unwrap();
    let assets = Assets { folder: Some(folder.join("pages")) };
    assert_eq!(assets.find("a/x.js").unwrap().plain().unwrap(), "1");
    for name in ["../secret", "a/../../secret", "", "a", "/etc/passwd"] {
        assert!(assets.find(name).is_none(), "{name}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// Adds the files below a folder, named from the root of the pages.
fn walk(root: &std::path::Path, folder: &str, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(root.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
        match entry.file_type().unwrap().is_dir() {
            true => walk(root, &name, files),
            false => files.push(name),
        }
    }
}

#[test]
fn the_built_pages_are_those_of_the_sources() {
    use sha2::Digest as _;
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../ui");
    // As `sourceSum` of ui/build.mjs.
    let mut files =
        ["build.mjs", "package-lock.json", "scripts/licences.mjs"].map(str::to_owned).to_vec();
    walk(&root, "src", &mut files);
    files.sort();
    let mut sum = sha2::Sha256::new();
    for file in files {
        sum.update(format!("{file}\0"));
        sum.update(std::fs::read(root.join(file)).unwrap());
        sum.update("\0");
    }
    let sum: String = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let built = std::fs::read_to_string(root.join("dist/sources.sha256")).unwrap();
    assert_eq!(built.trim(), sum, "ui/src was changed after ui/dist was built: run `make ui`");
}

#[test]
fn the_whole_dashboard_is_small() {
    let total: usize = assets::FILES.iter().map(|asset| asset.gzip.len()).sum();
    assert!((100_000..470_000).contains(&total), "{total} bytes, packed");
    let styles = assets::FILES.iter().filter(|asset| asset.name.ends_with(".css"));
    let styles: usize = styles.map(|asset| asset.gzip.len()).sum();
    assert!(styles < 12_000, "{styles} bytes of styles, packed");
}
